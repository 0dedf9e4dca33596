/* Reports: that JSON is JSON whatever the names and texts are, that text keeps to its lines, and what too deep is. */
#include "core/base/emitter.h"

#include <stdlib.h>

#include "support/effort.h"
#include "support/report.h"

static test_report report;
static strata_emitter emitter;

static void begin(strata_format format)
{
    report = (test_report){0};
    strata_emitter_begin(&emitter, format, test_report_write, &report);
}

static json_t *end_json(void)
{
    strata_emitter_end(&emitter);
    return test_report_parse(&report);
}

static void check_text(const char *expected)
{
    strata_emitter_end(&emitter);
    assert_string_equal(report.text, expected);
}

/* ---- JSON ---- */

static void an_empty_report_is_an_empty_object(void **state)
{
    (void)state;
    begin(STRATA_FORMAT_JSON);
    json_t *root = end_json();
    assert_true(json_is_object(root) && json_object_size(root) == 0);
    json_decref(root);
    begin(STRATA_FORMAT_TEXT);
    check_text("");
}

static void each_kind_of_value_is_read_back_as_it_was(void **state)
{
    (void)state;
    begin(STRATA_FORMAT_JSON);
    strata_emit_count(&emitter, "count", INT64_MAX);
    strata_emit_signed(&emitter, "signed", INT64_MIN);
    strata_emit_bytes(&emitter, "bytes", 1536);
    strata_emit_hex(&emitter, "hex", UINT64_MAX);
    strata_emit_bool(&emitter, "yes", true);
    strata_emit_bool(&emitter, "no", false);
    strata_emit_text(&emitter, "text", "words");
    strata_emit_text(&emitter, "empty", "");
    strata_emit_text(&emitter, "none", NULL);
    json_t *root = end_json();
    assert_int_equal(json_object_size(root), 9);
    assert_true(json_integer_value(json_object_get(root, "count")) == INT64_MAX);
    assert_true(json_integer_value(json_object_get(root, "signed")) == INT64_MIN);
    assert_true(json_integer_value(json_object_get(root, "bytes")) == 1536);
    assert_string_equal(json_string_value(json_object_get(root, "hex")), "0xffffffffffffffff");
    assert_true(json_is_true(json_object_get(root, "yes")) && json_is_false(json_object_get(root, "no")));
    assert_string_equal(json_string_value(json_object_get(root, "text")), "words");
    assert_string_equal(json_string_value(json_object_get(root, "empty")), "");
    assert_true(json_is_null(json_object_get(root, "none")));
    json_decref(root);
    begin(STRATA_FORMAT_JSON); /* beyond what jansson takes for an integer */
    strata_emit_count(&emitter, "count", UINT64_MAX);
    strata_emitter_end(&emitter);
    assert_non_null(strstr(report.text, "\"count\": 18446744073709551615\n"));
}

static void objects_and_lists_nest_and_order_is_kept(void **state)
{
    (void)state;
    begin(STRATA_FORMAT_JSON);
    strata_emit_list_begin(&emitter, "list");
    strata_emit_count(&emitter, NULL, 1);
    strata_emit_object_begin(&emitter, NULL);
    strata_emit_text(&emitter, "inside", "a");
    strata_emit_list_begin(&emitter, "empty");
    strata_emit_list_end(&emitter);
    strata_emit_object_end(&emitter);
    strata_emit_list_begin(&emitter, NULL);
    strata_emit_count(&emitter, NULL, 2);
    strata_emit_list_end(&emitter);
    strata_emit_list_end(&emitter);
    strata_emit_object_begin(&emitter, "object");
    strata_emit_object_end(&emitter);
    strata_emit_bool(&emitter, "last", true);
    json_t *root = end_json();
    char *dumped = json_dumps(root, JSON_COMPACT);
    assert_string_equal(dumped, "{\"list\":[1,{\"inside\":\"a\",\"empty\":[]},[2]],\"object\":{},\"last\":true}");
    free(dumped);
    json_decref(root);
}

#define BAD "\xef\xbf\xbd"

static void odd_names_and_texts_are_escaped_and_bytes_that_are_no_utf_8_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *given, *read;
    } texts[] = {
        {"quote \" and \\ back", "quote \" and \\ back"},
        {"line\nbreak\ttab\r\x01\x1f", "line\nbreak\ttab\r\x01\x1f"},
        {"\x7f\xc2\x9b[2J", "\x7f\xc2\x9b[2J"},
        {"\x7f stays", "\x7f stays"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x98", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x98"},
        {"\xff\xfe", BAD BAD},
        {"cut \xe2\x82", "cut " BAD BAD},
        {"\xc3", BAD},
        {"\xc0\xaf overlong", BAD BAD " overlong"},
        {"\xe0\x80\xaf", BAD BAD BAD},
        {"\xed\xa0\x80 surrogate", BAD BAD BAD " surrogate"},
        {"\xf4\x90\x80\x80 beyond", BAD BAD BAD BAD " beyond"},
        {"\xf8\x88\x80\x80\x80", BAD BAD BAD BAD BAD},
        {"\xc3\"", BAD "\""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        begin(STRATA_FORMAT_JSON);
        strata_emit_text(&emitter, texts[i].given, texts[i].given);
        json_t *root = end_json();
        assert_string_equal(json_string_value(json_object_get(root, texts[i].read)), texts[i].read);
        json_decref(root);
    }
}

/* ---- text ---- */

static void text_has_a_line_for_each_value_under_what_it_is_in(void **state)
{
    (void)state;
    begin(STRATA_FORMAT_TEXT);
    strata_emit_text(&emitter, "stack", "async");
    strata_emit_object_begin(&emitter, "memory");
    strata_emit_bytes(&emitter, "live", 3 << 20);
    strata_emit_bytes(&emitter, "small", 1023);
    strata_emit_bytes(&emitter, "below", (1 << 20) - 1);
    strata_emit_bytes(&emitter, "most", UINT64_MAX);
    strata_emit_object_end(&emitter);
    strata_emit_list_begin(&emitter, "layers");
    strata_emit_object_begin(&emitter, "budget");
    strata_emit_hex(&emitter, "address", 0x7f00);
    strata_emit_bool(&emitter, "on", true);
    strata_emit_object_end(&emitter);
    strata_emit_object_begin(&emitter, NULL);
    strata_emit_signed(&emitter, "below", -5);
    strata_emit_object_end(&emitter);
    strata_emit_count(&emitter, NULL, 7);
    strata_emit_list_end(&emitter);
    strata_emit_text(&emitter, "tag", NULL);
    check_text("stack: async\n"
               "memory:\n"
               "  live: 3145728 (3 MiB)\n"
               "  small: 1023\n"
               "  below: 1048575 (1 MiB)\n"
               "  most: 18446744073709551615 (16 EiB)\n"
               "layers:\n"
               "  - budget:\n"
               "    address: 0x7f00\n"
               "    on: yes\n"
               "  -\n"
               "    below: -5\n"
               "  - 7\n"
               "tag: none\n");
}

static void what_would_break_a_line_of_text_becomes_a_space(void **state)
{
    (void)state;
    begin(STRATA_FORMAT_TEXT);
    strata_emit_text(&emitter, "na\nme", "two\nlines\r\n\x1b[31m");
    strata_emit_text(&emitter, "c1", "\xc2\x9b[31m\x7f caf\xc3\xa9 \x9b");
    check_text("na me: two lines   [31m\n"
               "c1:  [31m  caf\xc3\xa9 \xef\xbf\xbd\n");
}

/* ---- too deep ---- */

enum { USABLE = 30 };

static void what_lies_too_deep_is_left_out_and_the_rest_is_whole(void **state)
{
    (void)state;
    for (unsigned format = 0; format < 2; format++) {
        begin((strata_format)format);
        for (unsigned i = 1; i <= 2 * USABLE; i++) {
            strata_emit_object_begin(&emitter, "deeper");
            strata_emit_count(&emitter, "level", i);
            strata_emit_text(&emitter, "words", "some");
        }
        for (unsigned i = 2 * USABLE; i >= 1; i--) {
            strata_emit_count(&emitter, "behind", i);
            strata_emit_object_end(&emitter);
        }
        strata_emit_count(&emitter, "last", 99);
        if (format == STRATA_FORMAT_TEXT) {
            strata_emitter_end(&emitter);
            assert_non_null(strstr(report.text, "level: 30\n"));
            assert_null(strstr(report.text, "level: 31\n"));
            unsigned begun = 0;
            for (const char *at = report.text; (at = strstr(at, "deeper:\n")); at++)
                begun++;
            assert_int_equal(begun, USABLE);
            assert_non_null(strstr(report.text, "\nlast: 99\n"));
            continue;
        }
        json_t *root = end_json(), *here = root;
        for (int i = 1; i <= USABLE; i++) {
            here = json_object_get(here, "deeper");
            assert_true(json_integer_value(json_object_get(here, "level")) == i);
            assert_true(json_integer_value(json_object_get(here, "behind")) == i);
        }
        assert_null(json_object_get(here, "deeper"));
        assert_true(json_integer_value(json_object_get(root, "last")) == 99);
        json_decref(root);
    }
}

/* ---- begins and ends that do not match ---- */

static void an_end_without_a_begin_closes_nothing_and_what_is_left_open_is_closed(void **state)
{
    (void)state;
    for (unsigned format = 0; format < 2; format++) {
        begin((strata_format)format);
        strata_emit_object_end(&emitter);
        strata_emit_list_end(&emitter);
        strata_emit_count(&emitter, "first", 1);
        strata_emit_list_begin(&emitter, "layers");
        strata_emit_object_begin(&emitter, NULL);
        const unsigned before = strata_emitter_enclose(&emitter);
        strata_emit_list_end(&emitter); /* these are of the caller */
        strata_emit_object_end(&emitter);
        strata_emit_count(&emitter, "own", 2);
        for (unsigned i = 0; i < 2 * USABLE; i++)
            strata_emit_object_begin(&emitter, "open");
        strata_emitter_release(&emitter, before);
        strata_emit_count(&emitter, "behind", 3);
        strata_emit_object_end(&emitter);
        strata_emit_list_end(&emitter);
        strata_emit_count(&emitter, "last", 4);
        strata_emit_object_begin(&emitter, "left");
        if (format == STRATA_FORMAT_TEXT) {
            strata_emitter_end(&emitter);
            assert_non_null(strstr(report.text, "\n    behind: 3\n"));
            assert_non_null(strstr(report.text, "\nlast: 4\n"));
            continue;
        }
        json_t *root = end_json(), *layer = json_array_get(json_object_get(root, "layers"), 0);
        assert_int_equal(json_integer_value(json_object_get(root, "first")), 1);
        assert_int_equal(json_integer_value(json_object_get(layer, "own")), 2);
        assert_int_equal(json_integer_value(json_object_get(layer, "behind")), 3);
        assert_int_equal(json_integer_value(json_object_get(root, "last")), 4);
        assert_true(json_is_object(json_object_get(root, "left")));
        json_decref(root);
    }
}

/* ---- anything at all ---- */

static uint64_t dice;

static unsigned roll(unsigned below)
{
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(dice >> 33) % below;
}

static void random_text(char text[16])
{
    unsigned length = roll(16);
    for (unsigned i = 0; i < length; i++)
        text[i] = (char)(1 + roll(255));
    text[length] = '\0';
}

static void emit_anything(unsigned depth, bool in_list)
{
    for (unsigned turns = roll(6); turns > 0; turns--) {
        char words[16], name[32], odd[16];
        random_text(words);
        random_text(odd);
        snprintf(name, sizeof name, "%u%s", turns, odd); /* of no other value here */
        const char *called = in_list ? NULL : name;
        switch (roll(8)) {
        case 0:
            strata_emit_object_begin(&emitter, called);
            if (depth < 40)
                emit_anything(depth + 1, false);
            strata_emit_object_end(&emitter);
            break;
        case 1:
            strata_emit_list_begin(&emitter, called);
            if (depth < 40)
                emit_anything(depth + 1, true);
            strata_emit_list_end(&emitter);
            break;
        case 2:
            strata_emit_signed(&emitter, called, (int64_t)roll(1000) - 500);
            break;
        case 3:
            strata_emit_hex(&emitter, called, roll(1u << 31));
            break;
        case 4:
            strata_emit_bool(&emitter, called, roll(2));
            break;
        case 5:
            strata_emit_bytes(&emitter, called, roll(1u << 31));
            break;
        default:
            strata_emit_text(&emitter, called, roll(9) ? words : NULL);
        }
    }
}

static void whatever_is_emitted_json_parses_and_text_has_only_whole_lines(void **state)
{
    (void)state;
    for (size_t seed = 0; seed < test_effort(500, 50); seed++) {
        for (unsigned format = 0; format < 2; format++) {
            dice = seed;
            begin((strata_format)format);
            emit_anything(0, false);
            strata_emitter_end(&emitter);
            if (format == STRATA_FORMAT_JSON)
                json_decref(test_report_parse(&report));
            for (size_t i = 0; i < report.length; i++)
                assert_true((unsigned char)report.text[i] >= 0x20 || report.text[i] == '\n');
            assert_true(report.length == 0 || report.text[report.length - 1] == '\n');
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_report_is_an_empty_object),
        cmocka_unit_test(each_kind_of_value_is_read_back_as_it_was),
        cmocka_unit_test(objects_and_lists_nest_and_order_is_kept),
        cmocka_unit_test(odd_names_and_texts_are_escaped_and_bytes_that_are_no_utf_8_replaced),
        cmocka_unit_test(text_has_a_line_for_each_value_under_what_it_is_in),
        cmocka_unit_test(what_would_break_a_line_of_text_becomes_a_space),
        cmocka_unit_test(what_lies_too_deep_is_left_out_and_the_rest_is_whole),
        cmocka_unit_test(an_end_without_a_begin_closes_nothing_and_what_is_left_open_is_closed),
        cmocka_unit_test(whatever_is_emitted_json_parses_and_text_has_only_whole_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
