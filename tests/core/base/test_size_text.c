/* Sizes in messages: for people, with the exact figure behind. */
#include <stdio.h>
#include <string.h>

#include "core/base/size_text.h"
#include "support/driver.h"

static void sizes_have_a_unit_and_the_exact_figure_behind(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text, *brief;
    } sizes[] = {
        {0, "0 bytes", "0 B"},
        {1, "1 byte", "1 B"},
        {1023, "1023 bytes", "1023 B"},
        {1024, "1 KiB (1024 bytes)", "1.00 KiB"},
        {1025, "1.00 KiB (1025 bytes)", "1.00 KiB"},
        {1536, "1.50 KiB (1536 bytes)", "1.50 KiB"},
        {UINT64_C(107374182400), "100 GiB (107374182400 bytes)", "100 GiB"},
        {UINT64_C(9174566600), "8.54 GiB (9174566600 bytes)", "8.54 GiB"},
        {UINT64_C(1000) << 20, "1000 MiB (1048576000 bytes)", "1000 MiB"},
        {(1 << 20) - 1, "1.00 MiB (1048575 bytes)", "1.00 MiB"},
        {1023 << 10 | 511, "1023 KiB (1048063 bytes)", "1023 KiB"},
        {1023 << 10 | 512, "1.00 MiB (1048064 bytes)", "1.00 MiB"},
        {UINT64_C(1) << 50, "1 PiB (1125899906842624 bytes)", "1.00 PiB"},
        {UINT64_C(1) << 63, "8 EiB (9223372036854775808 bytes)", "8.00 EiB"},
        {UINT64_MAX, "16.0 EiB (18446744073709551615 bytes)", "16.0 EiB"},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_string_equal(strata_size_text(sizes[i].bytes).text, sizes[i].text);
        assert_string_equal(strata_size_short(sizes[i].bytes).text, sizes[i].brief);
    }
}

/* No message that ends within the room for a size loses the exact figure. */
static void every_size_is_whole(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int less = -1; less <= 1; less++) {
            const uint64_t bytes = (UINT64_C(1) << bit) + (uint64_t)less;
            char exact[48];
            snprintf(exact, sizeof exact, "%llu byte%s", (unsigned long long)bytes, bytes == 1 ? "" : "s");
            if (!strstr(strata_size_text(bytes).text, exact))
                fail_msg("%s has no %s", strata_size_text(bytes).text, exact);
        }
    }
}

static void a_size_in_text_is_read_as_the_size_it_was_made_of(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1024, UINT64_C(3) << 20, UINT64_C(100) << 30, UINT64_C(7) << 40};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t bytes;
        const strata_size_words words = strata_size_text(sizes[i]);
        assert_true(strata_read_size(words.text, (size_t)(strchr(words.text, '(') - words.text) - 1, &bytes));
        assert_int_equal(bytes, sizes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_a_unit_and_the_exact_figure_behind),
        cmocka_unit_test(every_size_is_whole),
        cmocka_unit_test(a_size_in_text_is_read_as_the_size_it_was_made_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
