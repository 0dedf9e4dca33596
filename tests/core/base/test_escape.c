/* Texts from outside, where they are shown: in messages, tables and CSV. What is no UTF-8 comes out as in JSON. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "resources/logging/csv.h"
#include "support/driver.h"

#define BAD  "\xef\xbf\xbd"
#define EURO "\xe2\x82\xac"

static const struct {
    const char *given, *escaped, *csv;
} texts[] = {
    {"plain", "plain", "plain"},
    {"line\nbreak\ttab\r\x1b\x7f", "line\\nbreak\\ttab\\r\\x1b\\x7f", "line\\x0abreak\\x09tab\\x0d\\x1b\\x7f"},
    {"\xc2\x9b[2J\xc2\x80\xc2\x9f\xc2\xa0", "\\x9b[2J\\x80\\x9f\xc2\xa0", "\\x9b[2J\\x80\\x9f\xc2\xa0"},
    {"a,b\"c\\", "a,b\"c\\", "a\\x2cb\\x22c\\x5c"},
    {"caf\xc3\xa9 " EURO " \xf0\x9f\x90\x98", "caf\xc3\xa9 " EURO " \xf0\x9f\x90\x98",
     "caf\xc3\xa9 " EURO " \xf0\x9f\x90\x98"},
    {"\xff\xfe,", BAD BAD ",", BAD BAD "\\x2c"},
    {"cut \xe2\x82", "cut " BAD BAD, "cut " BAD BAD},
    {"\xc3\n", BAD "\\n", BAD "\\x0a"},
    {"\xed\xa0\x80", BAD BAD BAD, BAD BAD BAD},
    {"\xe2\x80\xaegnp\xe2\x81\xa9\xd8\x9c\xe2\x80\x8f", "\\u202egnp\\u2069\\u061c\\u200f",
     "\xe2\x80\xaegnp\xe2\x81\xa9\xd8\x9c\xe2\x80\x8f"},
    {"\xe2\x80\x93 \xe2\x81\x84 \xd8\x9b", "\xe2\x80\x93 \xe2\x81\x84 \xd8\x9b", "\xe2\x80\x93 \xe2\x81\x84 \xd8\x9b"},
    {"", "", ""},
};

enum { COUNT = sizeof texts / sizeof texts[0] };

static void messages_show_control_characters_and_replace_what_is_no_utf_8(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        char shown[256];
        strata_escape(shown, sizeof shown, texts[i].given);
        assert_string_equal(shown, texts[i].escaped);
        strata_fail(STRATA_ERROR_IO, "said: %s", texts[i].given);
        assert_string_equal(strata_last_error()->message + strlen("said: "), texts[i].escaped);
    }
}

static void lines_of_csv_do_so_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        char line[LOG_CSV_ROOM];
        size_t length = log_csv_line(&(strata_log_record){.kind = STRATA_LOG_REAP}, texts[i].given, line);
        size_t wanted = strlen(texts[i].csv);
        assert_true(length > wanted + 2 && line[length - 1] == '\n' && line[length - wanted - 2] == ',');
        assert_memory_equal(line + length - wanted - 1, texts[i].csv, wanted);
    }
}

/* Into each room there is goes a beginning of the text that ends between two characters. */
static void no_character_is_cut(void **state)
{
    (void)state;
    static const char text[] = "a\xc3\xa9" EURO "\n\xf0\x9f\x90\x98\xff\x1b.";
    static const char *const parts[] = {"a", "\xc3\xa9", EURO, "\\n", "\xf0\x9f\x90\x98", BAD, "\\x1b", "."};
    char whole[64] = "";
    for (size_t size = 1; size < sizeof whole; size++) {
        char shown[64], wanted[64] = "";
        memset(shown, '?', sizeof shown);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0] && strlen(wanted) + strlen(parts[i]) < size; i++)
            strcat(wanted, parts[i]);
        strata_escape(shown, size, text);
        assert_string_equal(shown, wanted);
    }
}

static void a_long_message_ends_with_a_whole_character(void **state)
{
    (void)state;
    for (int shift = 0; shift < 3; shift++) {
        char text[1024] = "xx";
        text[shift] = '\0';
        while (strlen(text) < 600)
            strcat(text, EURO);
        strata_fail(STRATA_ERROR_IO, "%s", text);
        const char *message = strata_last_error()->message;
        size_t length = strlen(message);
        assert_true(length + 3 >= sizeof strata_last_error()->message);
        assert_memory_equal(message, text, length);
        assert_string_equal(message + length - 3, EURO);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_show_control_characters_and_replace_what_is_no_utf_8),
        cmocka_unit_test(lines_of_csv_do_so_too),
        cmocka_unit_test(no_character_is_cut),
        cmocka_unit_test(a_long_message_ends_with_a_whole_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
