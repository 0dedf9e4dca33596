/* A program that was built for the thread sanitizer, with a library that was not: the library then takes its books'
 * memory from the C library's heap, as a fork that holds all of an arena's locks is more than the sanitizer counts.
 * Such a program is known by a function that each of them has, and here by one of the test's own. */

#include "core/base/host_memory.h"
#include "support/effort.h"
#include "support/fixture.h"

#ifdef __has_feature
#define BUILT_FOR_IT __has_feature(thread_sanitizer)
#else
#define BUILT_FOR_IT 0
#endif

#if !defined(__SANITIZE_THREAD__) && !BUILT_FOR_IT
void __tsan_init(void);

void __tsan_init(void)
{
}
#endif

static void the_books_are_in_the_c_librarys_heap(void **state)
{
    (void)state;
    void *piece = strata_host_zalloc(100);
    assert_non_null(piece);
    strata_host_free(piece);
    assert_string_equal(strata_host_allocator_name(), "libc");
#ifdef STRATA_TEST_ARENA
    if (!getenv("STRATA_HOST_MEMORY") && !test_under_valgrind())
        assert_string_equal(strata_host_allocator_reason(), "under the thread sanitizer");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_books_are_in_the_c_librarys_heap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
