/* Call stacks: the same place has the same number, other places have others, and a report names function and line. */
#include "core/base/call_stack.h"
#include "support/driver.h"
#include "support/symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { THREADS = 4, DEEP = 100, LINES = 64 };

typedef struct lines {
    size_t count;
    char text[LINES][512];
} lines;

static void keep(const char *text, void *data)
{
    lines *to = data;
    if (to->count < LINES)
        snprintf(to->text[to->count++], sizeof to->text[0], "%s", text);
}

static lines print(uint32_t number)
{
    static lines all;
    all.count = 0;
    strata_call_stack_print(number, keep, &all);
    return all;
}

static _Thread_local volatile unsigned kept; /* no call is the last thing that a function does */

__attribute__((noinline)) static uint32_t here(unsigned skip)
{
    uint32_t number = strata_call_stack_capture(skip);
    kept++;
    return number;
}

__attribute__((noinline)) static uint32_t one_place(unsigned skip)
{
    uint32_t number = here(skip);
    kept++;
    return number;
}

__attribute__((noinline)) static uint32_t another_place(unsigned skip)
{
    uint32_t number = here(skip);
    kept++;
    return number;
}

static void the_same_way_to_the_same_place_has_the_same_number(void **state)
{
    (void)state;
    uint32_t first = 0, other = 0;
    for (volatile int i = 0; i < 3; i++) { /* one place, not three of a loop that was unrolled */
        uint32_t number = one_place(0);
        assert_true(number != 0 && (!first || number == first));
        first = number;
        other = another_place(0);
        assert_true(other != 0 && other != first);
    }
}

static void *be_ended_and_print(void *number)
{
    lines all = {0};
    pthread_cancel(pthread_self());
    strata_call_stack_print(*(uint32_t *)number, keep, &all);
    return number;
}

/* The first names are read from files, with a lock. */
static void a_thread_that_names_frames_is_not_ended(void **state)
{
    (void)state;
    uint32_t number = one_place(0);
    pthread_t thread;
    void *returned;
    assert_int_equal(pthread_create(&thread, NULL, be_ended_and_print, &number), 0);
    assert_int_equal(pthread_join(thread, &returned), 0);
    assert_ptr_equal(returned, &number);
}

static _Atomic bool names_enough;

static void *print_often(void *number)
{
    while (!atomic_load(&names_enough)) {
        lines all = {0};
        strata_call_stack_print(*(uint32_t *)number, keep, &all);
    }
    return NULL;
}

static void a_child_that_is_forked_while_others_name_frames_can_name_them(void **state)
{
    enum { FORKS = 20, PATIENCE_S = 20 };
    (void)state;
    uint32_t number = one_place(0);
    pthread_t thread;
    atomic_store(&names_enough, false);
    assert_int_equal(pthread_create(&thread, NULL, print_often, &number), 0);
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE_S);
            const lines all = print(number);
            _exit(all.count > 1 && strstr(all.text[1], "one_place") ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&names_enough, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void frames_are_named_from_the_innermost_on_and_some_can_be_skipped(void **state)
{
    (void)state;
    lines all = print(one_place(0));
    assert_true(all.count >= 3);
    assert_non_null(strstr(all.text[0], "here"));
    assert_non_null(strstr(all.text[1], "one_place"));
    assert_non_null(strstr(all.text[2], "frames_are_named"));
    all = print(one_place(1));
    assert_non_null(strstr(all.text[0], "one_place"));
    all = print(another_place(2));
    assert_non_null(strstr(all.text[0], "frames_are_named"));
}

static void a_frame_has_its_file_and_line(void **state)
{
    (void)state;
    const int line = __LINE__ + 1;
    lines all = print(one_place(2));
    char place[64];
    snprintf(place, sizeof place, "test_call_stack.c:%d)", line);
    if (!strstr(all.text[0], ":"))
        skip(); /* no libdw, or no debug information */
    assert_non_null(strstr(all.text[0], place));
}

__attribute__((noinline)) static uint32_t recurse(unsigned depth)
{
    uint32_t number = depth ? recurse(depth - 1) : here(0);
    kept++;
    return number;
}

static void *print_on_this_thread(void *number)
{
    return strdup(print(*(const uint32_t *)number).text[0]);
}

static char *print_with_a_stack_of(size_t bytes, uint32_t number)
{
    pthread_t thread;
    pthread_attr_t attributes;
    void *text = NULL;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, bytes), 0);
    assert_int_equal(pthread_create(&thread, &attributes, print_on_this_thread, &number), 0);
    pthread_join(thread, &text);
    pthread_attr_destroy(&attributes);
    return text;
}

static char *coroutine_text;
static ucontext_t caller;

static void print_in_a_coroutine(int number)
{
    coroutine_text = print_on_this_thread(&(uint32_t){(uint32_t)number});
    setcontext(&caller);
}

/* On a thread's stack behind which the coroutine's follows. */
static void *run_a_coroutine(void *number)
{
    enum { BYTES = 96 << 10 };
    static ucontext_t coroutine;
    pthread_attr_t attributes;
    void *end = NULL;
    size_t bytes = 0;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attributes), 0);
    assert_int_equal(pthread_attr_getstack(&attributes, &end, &bytes), 0);
    pthread_attr_destroy(&attributes);
    void *above = mmap((char *)end + bytes + (16 << 20), BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (above == MAP_FAILED)
        above = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&coroutine);
    coroutine.uc_stack = (stack_t){.ss_sp = above, .ss_size = BYTES};
    makecontext(&coroutine, (void (*)(void))print_in_a_coroutine, 1, *(const int *)number);
    swapcontext(&caller, &coroutine);
    munmap(above, BYTES);
    return NULL;
}

static void a_coroutine_names_frames_without_lines(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it has to be told of coroutines */
#endif
    pthread_t thread;
    uint32_t number = one_place(0);
    assert_int_equal(pthread_create(&thread, NULL, run_a_coroutine, &number), 0);
    pthread_join(thread, NULL);
    assert_non_null(coroutine_text);
    assert_non_null(strstr(coroutine_text, "test_call_stack"));
    assert_null(strstr(coroutine_text, "test_call_stack.c:"));
    free(coroutine_text);
}

/* libdw needs some 160 KiB. */
static void a_thread_with_a_small_stack_names_frames_without_lines(void **state)
{
    (void)state;
    const uint32_t number = one_place(0);
    if (!strstr(print(number).text[0], ":"))
        skip(); /* no libdw, or no debug information */
    char *small = print_with_a_stack_of(96 << 10, number), *large = print_with_a_stack_of(8 << 20, number);
    assert_non_null(strstr(large, "test_call_stack.c:"));
    assert_null(strstr(small, "test_call_stack.c:"));
    assert_non_null(strstr(small, "test_call_stack"));
    free(small);
    free(large);
}

static void of_a_deep_stack_the_innermost_frames_are_kept(void **state)
{
    (void)state;
    lines all = print(recurse(DEEP));
    assert_int_equal(all.count, STRATA_CALL_STACK_DEPTH);
    assert_non_null(strstr(all.text[0], "here"));
    assert_non_null(strstr(all.text[STRATA_CALL_STACK_DEPTH - 1], "recurse"));
    assert_true(recurse(3) != recurse(4));
    assert_true(recurse(DEEP) == recurse(DEEP + 1)); /* what differs lies further out */
}

static void no_stack_has_no_lines(void **state)
{
    (void)state;
    assert_int_equal(strata_call_stack_capture(100000), 0);
    assert_int_equal(print(0).count, 0);
    assert_int_equal(print(1000000).count, 0);
    assert_int_equal(print(UINT32_MAX).count, 0);
}

static pthread_barrier_t together;

static void *capture_many(void *data)
{
    uint32_t *numbers = data;
    pthread_barrier_wait(&together);
    for (unsigned i = 0; i < DEEP / 4; i++)
        numbers[i] = recurse(i);
    return NULL;
}

static void threads_on_the_same_way_have_the_same_number(void **state)
{
    (void)state;
    static uint32_t numbers[THREADS][DEEP];
    pthread_t threads[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, capture_many, numbers[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    for (unsigned i = 0; i < DEEP / 4; i++) {
        assert_true(numbers[0][i] != 0 && (i == 0 || numbers[0][i] != numbers[0][i - 1]));
        for (size_t j = 1; j < THREADS; j++)
            assert_int_equal(numbers[j][i], numbers[0][i]);
    }
}

/* ---- interpreters ---- */

/* Keeps one native frame, and puts two of an interpreter behind it. */
static size_t add_two(void **frames, size_t depth, size_t room)
{
    assert_true(depth >= 1 && depth <= room && room == STRATA_CALL_STACK_DEPTH);
    frames[1] = strata_call_stack_text_frame("inner (script:3)");
    frames[2] = strata_call_stack_text_frame("outer (script:7)");
    return 3;
}

static void an_interpreter_adds_its_frames(void **state)
{
    (void)state;
    strata_call_stack_set_source(add_two);
    const uint32_t number = one_place(0);
    strata_call_stack_set_source(NULL);
    lines all = print(number);
    assert_int_equal(all.count, 3);
    assert_non_null(strstr(all.text[0], "here"));
    assert_string_equal(all.text[1], "inner (script:3)");
    assert_string_equal(all.text[2], "outer (script:7)");
    assert_true(one_place(0) != number);
}

/* ---- names of C++ ---- */

uint32_t plain(void) __asm__("_ZN5outer5innerIiEEvPKc");
uint32_t operators(void) __asm__("_ZN12_GLOBAL__N_15outerclEi");

__attribute__((noinline)) uint32_t plain(void)
{
    uint32_t number = here(1);
    kept++;
    return number;
}

__attribute__((noinline)) uint32_t operators(void)
{
    uint32_t number = here(1);
    kept++;
    return number;
}

static void names_of_cxx_are_those_of_the_source_without_parameters(void **state)
{
    (void)state;
    if (!dlopen("libstdc++.so.6", RTLD_LAZY))
        skip();
    const uint32_t first = plain(), second = operators();
    assert_int_equal(strncmp(print(first).text[0], "void outer::inner<int> (", 24), 0);
    assert_int_equal(strncmp(print(second).text[0], "(anonymous namespace)::outer::operator() (", 42), 0);
}

static atomic_bool over;

static void *walk_on(void *unused)
{
    while (!atomic_load(&over))
        one_place(0);
    return unused;
}

static int take_the_loaders_lock(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size, (void)data;
    return 1;
}

/* As walkers do for frames that they have not met, and the frames of Python for what was loaded since. */
static size_t look_at_what_is_loaded(void **frames, size_t depth, size_t most)
{
    (void)frames, (void)most;
    dl_iterate_phdr(take_the_loaders_lock, NULL);
    return depth;
}

/* As it does when it opens a library. A child that waits is ended by the alarm. */
static int loads_in_a_child(void)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        dl_iterate_phdr(take_the_loaders_lock, NULL);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status;
}

static void a_child_that_is_forked_while_others_walk_can_use_the_loader(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int status = 0;
    strata_call_stack_set_source(look_at_what_is_loaded);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, walk_on, NULL), 0);
    for (int i = 0; i < 200 && status == 0; i++)
        status = loads_in_a_child();
    atomic_store(&over, true);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    strata_call_stack_set_source(NULL);
    assert_int_equal(status, 0);
}

int main(void)
{
    if (!test_has_symbols())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_way_to_the_same_place_has_the_same_number),
        cmocka_unit_test(a_thread_that_names_frames_is_not_ended),
        cmocka_unit_test(frames_are_named_from_the_innermost_on_and_some_can_be_skipped),
        cmocka_unit_test(a_frame_has_its_file_and_line),
        cmocka_unit_test(a_coroutine_names_frames_without_lines),
        cmocka_unit_test(a_thread_with_a_small_stack_names_frames_without_lines),
        cmocka_unit_test(of_a_deep_stack_the_innermost_frames_are_kept),
        cmocka_unit_test(no_stack_has_no_lines),
        cmocka_unit_test(threads_on_the_same_way_have_the_same_number),
        cmocka_unit_test(an_interpreter_adds_its_frames),
        cmocka_unit_test(a_child_that_is_forked_while_others_walk_can_use_the_loader),
        cmocka_unit_test(a_child_that_is_forked_while_others_name_frames_can_name_them),
        cmocka_unit_test(names_of_cxx_are_those_of_the_source_without_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
