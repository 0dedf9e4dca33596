/* Host buffers of isolated services at the limits of a process: each is a mapping here and in the worker. */
#include "support/worker.h"

#include "service/isolated/shared_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

enum { MAPPINGS = 16, BYTES = 4096, LARGE = 64 << 20 };

size_t __wrap_isolated_mapping_limit(void);
size_t __real_isolated_mapping_limit(void);

size_t __wrap_isolated_mapping_limit(void)
{
    return MAPPINGS;
}

static const strata_service_options isolated = {.form = STRATA_SERVICE_ISOLATED, .worker_silence = TEST_LONG_SILENCE};

static strata_service *make_one(void)
{
    const strata_service_options options = isolated;
    return test_service_make(&options);
}

static void check_copies(strata_service *service, strata_host_buffer *buffer, unsigned seed)
{
    strata_ref *ref = test_service_allocate(service, strata_host_buffer_bytes(buffer));
    test_fill_pattern(buffer, seed);
    check_ok(test_copy(service, ref, buffer, false));
    memset(strata_host_buffer_memory(buffer), 0, strata_host_buffer_bytes(buffer));
    check_ok(test_copy(service, ref, buffer, true));
    assert_true(test_has_pattern(buffer, 0, seed));
    check_ok(strata_ref_release(ref));
}

static void half_of_the_mappings_of_a_process_are_for_buffers_and_no_more(void **state)
{
    (void)state;
    strata_host_buffer *buffers[MAPPINGS / 2], *plain = test_buffer(BYTES, 0), *more;
    strata_service *one = make_one(), *other = make_one();
    const test_descriptors before = test_count_descriptors();
    for (size_t i = 0; i < MAPPINGS / 2; i++)
        check_ok(strata_service_buffer_create(i & 1 ? one : other, BYTES, &buffers[i]));
    check_status(strata_service_buffer_create(one, BYTES, &more), STRATA_ERROR_OUT_OF_HOST_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_HOST_MEMORY, "there are 8 host buffers");
    check_last_error(STRATA_ERROR_OUT_OF_HOST_MEMORY, "vm.max_map_count");
    assert_null(more);
    assert_int_equal(test_count_descriptors().memories, before.memories + MAPPINGS / 2);
    for (size_t i = 0; i < MAPPINGS / 2; i++)
        check_copies(i & 1 ? one : other, buffers[i], (unsigned)i);
    check_copies(one, plain, 9); /* through the staging area */
    strata_host_buffer_release(buffers[0]);
    for (int i = 0; i < 4000 && strata_service_buffer_create(one, BYTES, &more) != STRATA_SUCCESS; i++)
        test_sleep_ms(1); /* until its worker is told */
    assert_non_null(more);
    check_copies(one, more, 10);
    strata_host_buffer_release(more);
    for (size_t i = 1; i < MAPPINGS / 2; i++)
        strata_host_buffer_release(buffers[i]);
    strata_host_buffer_release(plain);
    check_ok(strata_service_destroy(one));
    check_ok(strata_service_destroy(other));
}

static size_t address_space_of(pid_t process)
{
    char path[64];
    size_t pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)process);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%zu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void a_buffer_that_the_worker_has_no_room_for_is_refused_and_others_work(void **state)
{
    (void)state;
    strata_service *service = make_one();
    const pid_t worker = test_worker(service);
    strata_host_buffer *small, *large, *next;
    strata_ref *ref = test_service_allocate(service, LARGE);
    struct rlimit limit;
    check_ok(strata_service_buffer_create(service, BYTES, &small));
    check_copies(service, small, 1);
    check_ok(strata_service_buffer_create(service, LARGE, &large));
    test_fill_pattern(large, 2);
    assert_int_equal(prlimit(worker, RLIMIT_AS, NULL, &limit), 0);
    const struct rlimit full = {.rlim_cur = address_space_of(worker) + LARGE / 2, .rlim_max = limit.rlim_max};
    assert_int_equal(prlimit(worker, RLIMIT_AS, &full, NULL), 0);
    for (int i = 0; i < 2; i++) {
        strata_future *future;
        strata_answer answer;
        check_ok(strata_service_copy_from_host(service, large, ref, NULL, &future));
        check_status(strata_future_wait(future), STRATA_ERROR_OUT_OF_HOST_MEMORY);
        check_last_error(STRATA_ERROR_OUT_OF_HOST_MEMORY, "the worker had no room to map shared buffer");
        check_ok(strata_future_take(future, &answer));
        assert_int_equal(answer.failure, STRATA_FAILURE_OUT_OF_MEMORY);
        assert_ptr_equal(answer.buffer, large);
        strata_host_buffer_release(answer.buffer);
        strata_future_release(future);
    }
    assert_true(test_has_pattern(large, 0, 2));
    check_copies(service, small, 3);
    strata_host_buffer_release(large);
    assert_int_equal(prlimit(worker, RLIMIT_AS, &limit, NULL), 0);
    check_ok(strata_service_buffer_create(service, LARGE, &next));
    check_copies(service, next, 4);
    assert_int_equal(test_worker(service), worker);
    strata_host_buffer_release(next);
    strata_host_buffer_release(small);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(service));
}

/* All mappings that the program may have, but for a few. */
static unsigned char *fill_mappings(size_t most, size_t *bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *bytes = 2 * most * page;
    unsigned char *memory = mmap(NULL, *bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    for (size_t i = 1; i < 2 * most && mprotect(memory + i * page, page, PROT_READ) == 0; i += 2)
        ;
    return memory;
}

static void a_program_without_a_mapping_left_is_told_so_and_loses_nothing(void **state)
{
    (void)state;
    enum { QUICK = 1 << 18 };
    const size_t most = __real_isolated_mapping_limit();
    if (most > QUICK || test_under_valgrind())
        skip(); /* it would take long, and Valgrind has a limit of its own */
    strata_service *service = make_one();
    strata_host_buffer *shared, *more[4] = {NULL}; /* one or two may fit */
    check_ok(strata_service_buffer_create(service, BYTES, &shared));
    check_copies(service, shared, 1);
    const test_descriptors before = test_count_descriptors();
    size_t bytes;
    unsigned char *memory = fill_mappings(most, &bytes);
    strata_status status = STRATA_SUCCESS;
    for (int i = 0; i < 4 && status == STRATA_SUCCESS; i++)
        status = strata_service_buffer_create(service, BYTES, &more[i]);
    const strata_error why = *strata_last_error();
    check_copies(service, shared, 2);
    munmap(memory, bytes);
    assert_int_equal(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(why.message, "mmap: Cannot allocate memory"));
    size_t made = 0;
    for (int i = 0; i < 4; i++) {
        made += more[i] != NULL;
        strata_host_buffer_release(more[i]);
    }
    assert_true(made < 4 && test_count_descriptors().memories == before.memories);
    check_ok(strata_service_buffer_create(service, BYTES, &more[0]));
    check_copies(service, more[0], 3);
    strata_host_buffer_release(more[0]);
    strata_host_buffer_release(shared);
    check_ok(strata_service_destroy(service));
}

int main(void)
{
    if (!test_has_worker(&isolated))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_of_the_mappings_of_a_process_are_for_buffers_and_no_more),
        cmocka_unit_test(a_buffer_that_the_worker_has_no_room_for_is_refused_and_others_work),
        cmocka_unit_test(a_program_without_a_mapping_left_is_told_so_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
