/* Characters of a text: positions from 1, and cuts that leave each whole. */
#include "core/base/characters.h"
#include "support/driver.h"

static void positions_are_in_characters_from_1(void **state)
{
    (void)state;
    static const char text[] = "a\u00f6\u20ac\U0001f600b"; /* of 1, 2, 3, 4 and 1 bytes */
    static const size_t positions[] = {1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 6};
    for (size_t at = 0; at < sizeof text; at++)
        assert_int_equal(strata_character_at(text, at), positions[at]);
}

static void a_byte_that_begins_no_character_counts_with_the_one_before(void **state)
{
    (void)state;
    static const char text[] = "\x80\x80z";
    assert_int_equal(strata_character_at(text, 0), 1);
    assert_int_equal(strata_character_at(text, 1), 1);
    assert_int_equal(strata_character_at(text, 2), 2);
    assert_int_equal(strata_characters_bytes(text, 1), 2);
}

static void a_cut_leaves_characters_whole(void **state)
{
    (void)state;
    static const char text[] = "a\u00f6\u20acb";
    static const size_t bytes[] = {0, 1, 3, 6, 7, 7, 7};
    for (size_t most = 0; most < sizeof bytes / sizeof bytes[0]; most++)
        assert_int_equal(strata_characters_bytes(text, most), bytes[most]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_are_in_characters_from_1),
        cmocka_unit_test(a_byte_that_begins_no_character_counts_with_the_one_before),
        cmocka_unit_test(a_cut_leaves_characters_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
