/* Tags: names that are interned once for the life of the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <strata/strata.h>
#include <string.h>

enum { THREADS = 8, NAMES = 600 };

static strata_tag tag_of(const char *name)
{
    strata_tag tag = UINT32_MAX;
    assert_int_equal(strata_tag_intern(name, &tag), STRATA_SUCCESS);
    return tag;
}

static void the_same_name_gives_the_same_tag_and_another_name_another(void **state)
{
    (void)state;
    char copy[] = "weights";
    strata_tag weights = tag_of("weights"), activations = tag_of("activations");
    assert_int_not_equal(weights, 0);
    assert_int_not_equal(weights, activations);
    assert_int_equal(tag_of(copy), weights);
    copy[0] = 'W';
    assert_int_not_equal(tag_of(copy), weights);
    assert_string_equal(strata_tag_name(weights), "weights");
    assert_string_equal(strata_tag_name(activations), "activations");
}

static void the_empty_name_is_no_tag(void **state)
{
    (void)state;
    assert_int_equal(tag_of(""), 0);
    assert_string_equal(strata_tag_name(0), "");
}

static void a_tag_that_was_never_interned_has_an_empty_name(void **state)
{
    (void)state;
    static const strata_tag made_up[] = {UINT32_MAX, UINT32_MAX - 1, 1u << 20, (1u << 20) - 1, 500000};
    for (size_t i = 0; i < sizeof made_up / sizeof made_up[0]; i++)
        assert_string_equal(strata_tag_name(made_up[i]), "");
}

static void a_name_of_255_bytes_is_kept_whole_and_a_longer_one_refused(void **state)
{
    (void)state;
    char name[257];
    memset(name, 'x', sizeof name - 1);
    name[255] = '\0';
    assert_string_equal(strata_tag_name(tag_of(name)), name);

    name[255] = 'x';
    name[256] = '\0';
    strata_tag tag = 1;
    assert_int_equal(strata_tag_intern(name, &tag), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(tag, 0);
    assert_non_null(strstr(strata_last_error()->message, "255"));
}

static void without_a_name_or_a_place_nothing_is_interned(void **state)
{
    (void)state;
    strata_tag tag = 1;
    assert_int_equal(strata_tag_intern(NULL, &tag), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(tag, 0);
    assert_int_equal(strata_tag_intern("somewhere", NULL), STRATA_ERROR_INVALID_VALUE);
}

static void names_are_bytes_and_not_words(void **state)
{
    (void)state;
    static const char *const names[] = {" ", "a b", "a\nb", "gr\xc3\xb6\xc3\x9f", "%s%n", "a,b=\"c\""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_string_equal(strata_tag_name(tag_of(names[i])), names[i]);
}

/* Every thread interns all names, each starting at another one, and reads back what it was given. */
static void *intern_all(void *data)
{
    strata_tag *tags = data;
    size_t first = tags[0];
    for (size_t i = 0; i < NAMES; i++) {
        size_t which = (first + i) % NAMES;
        char name[32];
        snprintf(name, sizeof name, "shared %zu", which);
        if (strata_tag_intern(name, &tags[which]) != STRATA_SUCCESS || strcmp(strata_tag_name(tags[which]), name) != 0)
            tags[which] = 0;
    }
    return NULL;
}

static void threads_that_intern_at_once_agree(void **state)
{
    (void)state;
    static strata_tag tags[THREADS][NAMES];
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        tags[i][0] = i * (NAMES / THREADS);
        assert_int_equal(pthread_create(&threads[i], NULL, intern_all, tags[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t name = 0; name < NAMES; name++) {
        assert_int_not_equal(tags[0][name], 0);
        for (size_t i = 1; i < THREADS; i++)
            assert_int_equal(tags[i][name], tags[0][name]);
        for (size_t other = 0; other < name; other++)
            assert_int_not_equal(tags[0][name], tags[0][other]);
    }
}

static void *read_and_enter(void *data)
{
    strata_tag *tags = data;
    tags[0] = strata_tag_current();
    strata_tag_enter(tags[1], NULL);
    tags[1] = strata_tag_current();
    return NULL;
}

static void a_thread_has_a_tag_of_its_own(void **state)
{
    (void)state;
    strata_tag weights = tag_of("weights"), activations = tag_of("activations"), previous = UINT32_MAX;
    assert_int_equal(strata_tag_current(), 0);
    assert_int_equal(strata_tag_enter(weights, &previous), STRATA_SUCCESS);
    assert_int_equal(previous, 0);

    strata_tag others[2] = {UINT32_MAX, activations};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_and_enter, others), 0);
    pthread_join(thread, NULL);
    assert_int_equal(others[0], 0);
    assert_int_equal(others[1], activations);

    assert_int_equal(strata_tag_current(), weights);
    assert_int_equal(strata_tag_enter(0, &previous), STRATA_SUCCESS);
    assert_int_equal(previous, weights);
    assert_int_equal(strata_tag_current(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_name_gives_the_same_tag_and_another_name_another),
        cmocka_unit_test(the_empty_name_is_no_tag),
        cmocka_unit_test(a_tag_that_was_never_interned_has_an_empty_name),
        cmocka_unit_test(a_name_of_255_bytes_is_kept_whole_and_a_longer_one_refused),
        cmocka_unit_test(without_a_name_or_a_place_nothing_is_interned),
        cmocka_unit_test(names_are_bytes_and_not_words),
        cmocka_unit_test(threads_that_intern_at_once_agree),
        cmocka_unit_test(a_thread_has_a_tag_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
