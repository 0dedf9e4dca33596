/* The device service, isolated: what differs from the other form, and what is left when a worker or the program ends.
 */
#include <errno.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "support/service_cases.h"
#include "support/standard.h"
#include "support/worker.h"

extern char **environ;

/* ---- memory in another process ---- */

static void a_reference_has_bytes_and_no_address(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 1000);
    strata_ref_memory memory;
    CUdeviceptr address = 1;
    strata_last_write write;
    struct DLManagedTensorVersioned *tensor;
    strata_service_snapshot snapshot;
    check_ok(strata_ref_access(ref, &memory));
    assert_int_equal(memory.address, 0);
    assert_int_equal(memory.bytes, 1000);
    check_status(strata_ref_raw_device_ptr(ref, &address), STRATA_ERROR_UNSUPPORTED);
    assert_int_equal(address, 0);
    check_status(strata_ref_record_write(ref, NULL), STRATA_ERROR_UNSUPPORTED);
    check_status(strata_ref_last_write_stream(ref, &write), STRATA_ERROR_UNSUPPORTED);
    check_status(strata_ref_export_dlpack(ref, STRATA_DLPACK_STREAM_NONE, NULL, &tensor), STRATA_ERROR_UNSUPPORTED);
    check_status(strata_service_get_snapshot(service, &snapshot), STRATA_ERROR_UNSUPPORTED);
    const strata_service_operation operation = {.function = test_wait_at_gate};
    check_status(strata_service_run(service, &operation, NULL, NULL), STRATA_ERROR_UNSUPPORTED);
    check_status(strata_service_launch_graph(service, NULL, NULL, NULL), STRATA_ERROR_UNSUPPORTED);
    check_ok(strata_ref_release(ref));
}

static void a_view_names_its_part_of_the_memory(void **state)
{
    (void)state;
    strata_ref *whole = test_service_allocate(service, 10000), *view, *part;
    strata_host_buffer *all = test_buffer(10000, 0), *some = test_buffer(400, 0);
    test_fill_pattern(all, 3);
    check_ok(test_copy(service, whole, all, false));
    check_ok(strata_ref_view(whole, 1000, 2000, STRATA_ELEMENT_U8, &view));
    check_ok(strata_ref_view(view, 80, 100, STRATA_ELEMENT_F32, &part));
    check_status(strata_ref_view(view, 2, 1, STRATA_ELEMENT_F32, &(strata_ref *){NULL}), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_ref_release(whole));
    check_ok(strata_ref_release(view));
    check_ok(test_copy(service, part, some, true));
    assert_true(test_has_pattern(some, 1080, 3));
    strata_host_buffer_release(all);
    strata_host_buffer_release(some);
    check_ok(strata_ref_release(part));
}

static void large_buffers_of_every_kind_arrive_whole(void **state)
{
    (void)state;
    enum { BYTES = 37 * 1000 * 1000 + 3 }; /* more than the staging area */
    strata_ref *ref = test_service_allocate(service, BYTES);
    strata_host_buffer *shared, *plain = test_buffer(BYTES, 0);
    check_ok(strata_service_buffer_create(service, BYTES, &shared));
    test_fill_pattern(plain, 1);
    check_ok(test_copy(service, ref, plain, false));
    check_ok(test_copy(service, ref, shared, true));
    assert_true(test_has_pattern(shared, 0, 1));
    test_fill_pattern(shared, 2);
    check_ok(test_copy(service, ref, shared, false));
    check_ok(test_copy(service, ref, plain, true));
    assert_true(test_has_pattern(plain, 0, 2));
    strata_host_buffer_release(shared);
    strata_host_buffer_release(plain);
    check_ok(strata_ref_release(ref));
}

static void released_memory_is_used_again(void **state)
{
    (void)state;
    strata_service_stats stats;
    check_ok(strata_service_get_stats(service, &stats));
    for (int i = 0; i < 8; i++) {
        strata_future *future;
        check_ok(strata_service_allocate_raw(service, STRATA_ELEMENT_U8, stats.total_bytes / 5 * 3, NULL, &future));
        const strata_answer answer = test_take(future);
        assert_int_equal(answer.status, STRATA_SUCCESS);
        check_ok(strata_ref_release(answer.ref));
    }
}

/* More than the staging area has slots, and more frames than the socket and the client take at once. */
static void many_copies_wait_for_room_and_arrive(void **state)
{
    (void)state;
    enum { COUNT = 12000, BYTES = 600, OTHERS = 50 };
    static strata_future *futures[COUNT];
    static strata_host_buffer *buffers[OTHERS];
    strata_ref *refs[OTHERS];
    const pid_t worker = test_worker(service);
    for (int i = 0; i < OTHERS; i++) {
        refs[i] = test_service_allocate(service, BYTES);
        buffers[i] = test_buffer(BYTES, 0);
        test_fill_pattern(buffers[i], (unsigned)i);
    }
    kill(worker, SIGSTOP);
    for (int i = 0; i < COUNT; i++)
        check_ok(strata_service_copy_from_host(service, buffers[i % OTHERS], refs[i % OTHERS], NULL, &futures[i]));
    test_sleep_ms(20);
    kill(worker, SIGCONT);
    for (int i = 0; i < COUNT; i++) {
        const strata_answer answer = test_take(futures[i]);
        assert_int_equal(answer.status, STRATA_SUCCESS);
        strata_host_buffer_release(answer.buffer);
    }
    for (int i = 0; i < OTHERS; i++) {
        memset(strata_host_buffer_memory(buffers[i]), 0, BYTES);
        check_ok(test_copy(service, refs[i], buffers[i], true));
        assert_true(test_has_pattern(buffers[i], 0, (unsigned)i));
        assert_int_equal(strata_host_buffer_handles(buffers[i]), 1);
        strata_host_buffer_release(buffers[i]);
        check_ok(strata_ref_release(refs[i]));
    }
}

static void a_request_with_the_hint_short_is_answered(void **state)
{
    (void)state;
    const strata_send_options send = {.hint = STRATA_HINT_SHORT, .priority = STRATA_PRIORITY_HIGH};
    strata_future *future;
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, &send, &future));
    check_ok(strata_ref_release(test_take(future).ref));
}

/* ---- time limits ---- */

/* From a service whose limit a busy machine's worker may miss, too. */
static strata_ref *allocate_in_time(strata_service *which)
{
    strata_answer answer = {.status = STRATA_ERROR_TIMEOUT};
    for (int tries = 0; tries < 40 && answer.status == STRATA_ERROR_TIMEOUT; tries++) {
        strata_future *future;
        check_ok(strata_service_allocate(which, STRATA_ELEMENT_U8, 64, NULL, &future));
        answer = test_take(future);
    }
    assert_int_equal(answer.status, STRATA_SUCCESS);
    return answer.ref;
}

/* The worker answers later, and keeps nothing. */
static void check_late_answer(strata_service *which, const strata_send_options *send)
{
    const uint64_t generation = test_generation(which);
    const pid_t worker = test_worker(which);
    strata_host_buffer *buffer = test_buffer(64, 5);
    strata_ref *ref = allocate_in_time(which);
    strata_future *allocated, *copied;
    strata_answer answer;
    test_sleep_ms(5);
    kill(worker, SIGSTOP);
    check_ok(strata_service_allocate(which, STRATA_ELEMENT_U8, 64, send, &allocated));
    check_ok(strata_service_copy_to_host(which, ref, buffer, send, &copied));
    check_status(strata_future_wait(allocated), STRATA_ERROR_TIMEOUT);
    check_status(strata_future_wait(copied), STRATA_ERROR_TIMEOUT);
    kill(worker, SIGCONT);
    check_ok(strata_future_take(copied, &answer));
    assert_int_equal(answer.failure, STRATA_FAILURE_TIMEOUT);
    strata_host_buffer_release(answer.buffer);
    strata_future_release(allocated);
    strata_future_release(copied);
    check_ok(strata_ref_release(allocate_in_time(which)));
    assert_int_equal(test_generation(which), generation);
    assert_true(test_buffer_has(buffer, 5));
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

static void a_request_beyond_its_time_limit_answers_timeout_and_changes_nothing(void **state)
{
    (void)state;
    check_late_answer(service, &(strata_send_options){.timeout = 30000000});
}

static void a_request_beyond_the_limit_of_the_service_answers_timeout(void **state)
{
    (void)state;
    strata_service_options options = test_options;
    options.poll_limit = test_long_enough(400000000);
    strata_service *own = test_service_make(&options);
    check_late_answer(own, NULL);
    check_ok(strata_service_destroy(own));
}

static void a_reference_of_another_service_is_refused(void **state)
{
    (void)state;
    strata_service *other = test_service_make(&test_options);
    strata_ref *ref = test_service_allocate(other, 64);
    strata_host_buffer *buffer = test_buffer(64, 0);
    check_status(test_copy(service, ref, buffer, true), STRATA_ERROR_WRONG_DEVICE);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(other));
}

/* ---- order ---- */

enum { MANY = 400 };

static int order[MANY];
static _Atomic int answered;

static void note_order(strata_future *future, void *data)
{
    (void)future;
    const int at = atomic_load(&answered); /* all are called by one thread */
    order[at] = (int)(intptr_t)data;
    atomic_store(&answered, at + 1);
}

/* Every fourth request fails before it is sent, another one in the worker. */
static void answers_come_in_the_order_of_their_requests(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 64);
    strata_host_buffer *buffer = test_buffer(64, 0), *reader = strata_host_buffer_clone(buffer);
    strata_future *last = NULL;
    answered = 0;
    for (int i = 0; i < MANY; i++) {
        const strata_send_options send = {.callback = note_order, .data = (void *)(intptr_t)i};
        strata_future_release(last);
        if (i % 4 == 1)
            check_ok(strata_service_copy_to_host(service, ref, buffer, &send, &last));
        else
            check_ok(
                strata_service_allocate(service, STRATA_ELEMENT_U8, i % 4 == 2 ? (size_t)1 << 45 : 64, &send, &last));
    }
    strata_future_wait(last);
    strata_future_release(last);
    test_wait_count(&answered, MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(order[i], i);
    strata_host_buffer_release(reader);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

/* Requests of one sender under way, waiting, and answered meanwhile, so that the client's table is in disorder. */
static void what_a_killed_worker_had_begun_is_answered_in_its_order(void **state)
{
    (void)state;
    enum { BEFORE = 60, LARGE = 12 << 20 };
    strata_service *own = test_service_make(&test_options);
    strata_ref *refs[BEFORE], *large = test_service_allocate(own, LARGE);
    strata_future *future[BEFORE], *last = NULL;
    strata_host_buffer *buffer = test_buffer(LARGE, 1);
    const pid_t worker = test_worker(own);
    for (int i = 0; i < BEFORE; i++)
        check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, &future[i]));
    for (int i = 0; i < BEFORE; i++)
        refs[i] = test_take(future[i]).ref;
    answered = 0;
    kill(worker, SIGSTOP);
    for (int i = 0; i < MANY; i++) {
        const strata_send_options send = {.callback = note_order, .data = (void *)(intptr_t)i, .sender = 1};
        strata_future_release(last);
        if (i == MANY / 2) /* of which a part is sent */
            check_ok(strata_service_copy_from_host(own, buffer, large, &send, &last));
        else
            check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, &send, &last));
    }
    test_wait_begun(own, MANY);
    kill(worker, SIGKILL);
    strata_future_wait(last);
    strata_future_release(last);
    test_wait_count(&answered, MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(order[i], i);
    for (int i = 0; i < BEFORE; i++)
        check_ok(strata_ref_release(refs[i]));
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(large));
    check_ok(strata_service_destroy(own));
}

/* ---- ends ---- */

static void a_deadline_ends_work_that_does_not(void **state)
{
    (void)state;
    strata_service *own = test_service_make(&test_options);
    strata_future *future;
    kill(test_worker(own), SIGSTOP);
    check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, &future));
    test_wait_begun(own, 1);
    check_ok(strata_service_shut_down(own, 50000000));
    check_status(strata_future_wait(future), STRATA_ERROR_STALE);
    strata_future_release(future);
    check_ok(strata_service_destroy(own));
    assert_false(test_has_zombie());
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    const test_descriptors before = test_count_descriptors();
    const size_t mappings = test_count_mappings();
    for (int i = 0; i < 3; i++) {
        strata_service *own = test_service_make(&test_options);
        strata_host_buffer *shared, *plain = test_buffer(100000, 1);
        strata_ref *ref = test_service_allocate(own, 100000);
        const uint64_t generation = test_generation(own);
        check_ok(strata_service_buffer_create(own, 100000, &shared));
        check_ok(test_copy(own, ref, plain, false));
        check_ok(test_copy(own, ref, shared, true));
        assert_true(test_count_descriptors().stay_closed);
        if (i) {
            kill(test_worker(own), SIGKILL);
            test_wait_replaced(own, generation);
        }
        strata_host_buffer_release(plain);
        if (i == 2)
            check_ok(strata_service_destroy(own));
        strata_host_buffer_release(shared);
        check_ok(strata_ref_release(ref));
        if (i < 2)
            check_ok(strata_service_destroy(own));
        assert_false(test_has_zombie());
    }
    assert_int_equal(test_count_descriptors().count, before.count);
    assert_int_equal(test_count_mappings(), mappings);
}

/* Children of a program that ignores SIGCHLD are collected by the kernel. */
static void a_program_that_ignores_its_children_has_no_zombie(void **state)
{
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    strata_service *own = test_service_make(&test_options);
    const uint64_t generation = test_generation(own);
    kill(test_worker(own), SIGKILL);
    test_wait_replaced(own, generation);
    check_ok(strata_ref_release(test_service_allocate(own, 64)));
    check_ok(strata_service_destroy(own));
    signal(SIGCHLD, SIG_DFL);
    assert_false(test_has_zombie());
}

/* The kernel would end the process with SIGXFSZ. */
static void shared_memory_above_the_limit_of_files_is_refused(void **state)
{
    (void)state;
    struct rlimit limit;
    strata_host_buffer *buffer;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit low = {.rlim_cur = 1 << 20, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    check_status(strata_service_buffer_create(service, 2 << 20, &buffer), STRATA_ERROR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_ok(strata_service_buffer_create(service, 2 << 20, &buffer));
    strata_host_buffer_release(buffer);
}

/* What needs a descriptor answers IO while the program has none, and works afterwards. */
static void without_descriptors_requests_say_so_and_the_next_ones_work(void **state)
{
    (void)state;
    const test_descriptors before = test_count_descriptors();
    strata_service *own = test_service_make(&test_options);
    strata_ref *ref = test_service_allocate(own, 5000);
    strata_host_buffer *plain = test_buffer(5000, 3), *shared;
    strata_future *load;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const strata_status copied = test_copy(own, ref, plain, false),
                        made = strata_service_buffer_create(own, 5000, &shared);
    check_ok(strata_service_load(own, test_fill_ptx, 0, NULL, &load));
    const strata_status loaded = test_take(load).status;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(copied, STRATA_ERROR_IO);
    assert_int_equal(made, STRATA_ERROR_IO);
    assert_int_equal(loaded, STRATA_ERROR_IO);
    check_ok(test_copy(own, ref, plain, false));
    check_ok(strata_service_buffer_create(own, 5000, &shared));
    check_ok(test_copy(own, ref, shared, true));
    assert_int_not_equal(test_load_fill(own), 0);
    strata_host_buffer_release(plain);
    strata_host_buffer_release(shared);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(own));
    assert_int_equal(test_count_descriptors().count, before.count);
}

/* A process that the driver starts there, such as nvidia-modprobe, would keep it open. */
static void no_program_that_the_worker_executes_has_its_socket(void **state)
{
    (void)state;
    char path[64], line[128];
    unsigned flags = 0;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/3", (int)test_worker(service));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "flags: %o", &flags);
    fclose(file);
    assert_int_not_equal(flags & O_CLOEXEC, 0);
}

static void a_forked_child_inherits_nothing(void **state)
{
    (void)state;
    static strata_host_buffer *shared; /* static: the child's leak checker finds them */
    static strata_ref *ref;
    ref = test_service_allocate(service, 4096);
    check_ok(strata_service_buffer_create(service, 4096, &shared));
    check_ok(test_copy(service, ref, shared, true));
    assert_true(test_count_descriptors().memories > 0);
    const pid_t child = fork();
    if (child == 0) {
        const test_descriptors seen = test_count_descriptors();
        const bool right = seen.memories == 0 && seen.sockets == 0 && test_count_mappings() == 0;
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_ok(test_copy(service, ref, shared, true));
    strata_host_buffer_release(shared);
    check_ok(strata_ref_release(ref));
}

/* Neither process can change its size under the other, and there is no further process that has it by name. */
static void shared_memory_is_sealed(void **state)
{
    (void)state;
    strata_host_buffer *shared, *plain = test_buffer(100, 0);
    strata_ref *ref = test_service_allocate(service, 100);
    size_t count = 0;
    check_ok(strata_service_buffer_create(service, 100, &shared));
    check_ok(test_copy(service, ref, shared, true));
    check_ok(test_copy(service, ref, plain, true)); /* through the staging area */
    for (int fd = 3; fd < 256; fd++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) <= 0 || strncmp(target, "/memfd:strata", 13) != 0)
            continue;
        const int seals = fcntl(fd, F_GET_SEALS), needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
        assert_int_equal(seals & needed, needed);
        assert_int_not_equal(ftruncate(fd, 0), 0);
        count++;
    }
    assert_true(count >= 2);
    strata_host_buffer_release(shared);
    strata_host_buffer_release(plain);
    check_ok(strata_ref_release(ref));
}

static long line_of_status(pid_t process, const char *name)
{
    char path[64], line[256];
    long value = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name), NULL, 10);
    fclose(file);
    return value;
}

static void a_worker_has_no_more_rights_than_its_parent(void **state)
{
    (void)state;
    const pid_t worker = test_worker(service);
    assert_int_equal(line_of_status(worker, "NoNewPrivs:"), 1);
    assert_int_equal(line_of_status(worker, "Uid:"), (long)getuid());
    assert_int_equal(line_of_status(worker, "Gid:"), (long)getgid());
    assert_int_equal(line_of_status(worker, "PPid:"), (long)getpid());
}

/* Descriptors of a worker are its own: a file that this program has open, inheritable, is not among them. */
static void a_worker_inherits_no_descriptor(void **state)
{
    (void)state;
    const int mine = open("/dev/zero", O_RDONLY); /* without O_CLOEXEC */
    strata_service *own = test_service_make(&test_options);
    char path[300], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)test_worker(own));
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        memset(target, 0, sizeof target);
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)test_worker(own), entry->d_name);
        if (readlink(path, target, sizeof target - 1) > 0)
            assert_string_not_equal(target, "/dev/zero");
    }
    closedir(folder);
    close(mine);
    check_ok(strata_service_destroy(own));
}

/* Returns the most bytes that a standard stream took; -1: all are closed. */
static ssize_t write_to_standard_streams(void)
{
    char text[64];
    ssize_t most = -1;
    memset(text, 'x', sizeof text);
    for (int i = 0; i <= STDERR_FILENO; i++) {
        const ssize_t written = write(i, text, sizeof text);
        most = written > most ? written : most;
    }
    return most;
}

static void check_standard_streams_of(pid_t worker)
{
    for (int i = 0; i <= STDERR_FILENO; i++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)worker, i);
        assert_true(readlink(path, target, sizeof target - 1) > 0);
        assert_string_equal(target, "/dev/null");
    }
}

/* What the program, or a library of it, writes to a standard stream that was closed goes to no file of the service. */
static void a_program_without_standard_streams_loses_nothing(void **state)
{
    (void)state;
    enum { BYTES = 4096 };
    strata_host_buffer *buffer = NULL;
    strata_future *future = NULL;
    strata_service *own = NULL;
    const test_standard standard = test_standard_close();
    strata_status status = strata_service_create(&test_options, &own);
    if (status == STRATA_SUCCESS)
        status = strata_service_wait_ready(own, 20ull * TEST_SECOND);
    if (status == STRATA_SUCCESS)
        status = strata_service_buffer_create(own, BYTES, &buffer);
    if (status == STRATA_SUCCESS)
        status = strata_service_allocate(own, STRATA_ELEMENT_U8, BYTES, NULL, &future);
    const int fd = status == STRATA_SUCCESS ? strata_future_fd(future) : -1;
    const ssize_t written = write_to_standard_streams();
    assert_int_equal(test_standard_open(&standard), 0);
    check_ok(status);
    assert_true(written < 0 && fd > STDERR_FILENO);
    const strata_answer answer = test_take(future);
    assert_int_equal(answer.status, STRATA_SUCCESS);
    assert_true(test_buffer_has(buffer, 0));
    check_ok(test_copy(own, answer.ref, buffer, true));
    check_standard_streams_of(test_worker(own));
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(answer.ref));
    check_ok(strata_service_destroy(own));
}

/* ---- the program's end ---- */

static const char *program_path;

/* This program again, which makes a service and tells its worker's process. */
static int hold(void)
{
    strata_service *own;
    if (strata_service_create(&test_options, &own) != STRATA_SUCCESS ||
        strata_service_wait_ready(own, 20ull * TEST_SECOND) != STRATA_SUCCESS)
        return 1;
    const pid_t worker = test_worker(own);
    if (write(STDOUT_FILENO, &worker, sizeof worker) != sizeof worker)
        return 1;
    for (;;)
        pause();
}

static void a_worker_dies_with_its_program(void **state)
{
    (void)state;
    int channel[2], status;
    pid_t program, worker = 0;
    char name[] = "test_isolated", mode[] = "--hold";
    char *arguments[] = {name, mode, NULL};
    posix_spawn_file_actions_t actions;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* the worker becomes this process's child */
    assert_int_equal(pipe2(channel, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, channel[1], STDOUT_FILENO);
    /* A leak sanitizer looks at the worker's memory from a process of its own, which the worker would leave behind. */
    const char *given = getenv("ASAN_OPTIONS");
    char *before = given ? strdup(given) : NULL, options[500];
    snprintf(options, sizeof options, "%s:detect_leaks=0", before ? before : "");
    setenv("ASAN_OPTIONS", options, 1);
    assert_int_equal(posix_spawn(&program, program_path, &actions, NULL, arguments, environ), 0);
    if (before)
        setenv("ASAN_OPTIONS", before, 1);
    else
        unsetenv("ASAN_OPTIONS");
    free(before);
    posix_spawn_file_actions_destroy(&actions);
    close(channel[1]);
    assert_int_equal(read(channel[0], &worker, sizeof worker), sizeof worker);
    close(channel[0]);
    assert_int_equal(kill(worker, 0), 0);
    kill(program, SIGKILL);
    assert_int_equal(waitpid(program, &status, 0), program);
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

/* ---- the worker's program ---- */

static void check_start_fails(const char *program, strata_status status, const char *text)
{
    strata_service_options options = test_options;
    strata_service *none;
    options.worker = program;
    check_ok(strata_service_create(&options, &none));
    check_status(strata_service_wait_ready(none, 20ull * TEST_SECOND), status);
    check_last_error(status, text);
    check_ok(strata_service_destroy(none));
    assert_false(test_has_zombie());
}

static void a_program_that_is_missing_or_no_worker_is_named(void **state)
{
    (void)state;
    check_start_fails("/no/such/program", STRATA_ERROR_IO, "the option worker names /no/such/program");
    check_start_fails("/bin/true", STRATA_ERROR_POISONED, "exited with status 0 when it started");
    setenv("STRATA_WORKER", "/no/such/worker", 1);
    check_start_fails(NULL, STRATA_ERROR_IO, "STRATA_WORKER names /no/such/worker");
    unsetenv("STRATA_WORKER");
}

static void the_program_itself_has_opened_no_driver(void **state)
{
    (void)state;
    strata_service_stats stats;
    check_ok(strata_service_get_stats(service, &stats));
    assert_true(stats.worker > 0 && stats.worker != getpid());
    assert_int_equal(strata_driver_state_now(), STRATA_DRIVER_CLOSED);
}

int main(int count, char **arguments)
{
    test_options.form = STRATA_SERVICE_ISOLATED;
    test_options.worker_silence = TEST_LONG_SILENCE;
    program_path = arguments[0];
    if (count == 2 && strcmp(arguments[1], "--hold") == 0)
        return hold();
    if (!test_has_worker(&test_options))
        return 77;
    const struct CMUnitTest tests[] = {
        TEST_SERVICE_CASES,
        cmocka_unit_test(a_reference_has_bytes_and_no_address),
        cmocka_unit_test(a_view_names_its_part_of_the_memory),
        cmocka_unit_test(large_buffers_of_every_kind_arrive_whole),
        cmocka_unit_test(released_memory_is_used_again),
        cmocka_unit_test(many_copies_wait_for_room_and_arrive),
        cmocka_unit_test(a_request_with_the_hint_short_is_answered),
        cmocka_unit_test(a_request_beyond_its_time_limit_answers_timeout_and_changes_nothing),
        cmocka_unit_test(a_request_beyond_the_limit_of_the_service_answers_timeout),
        cmocka_unit_test(a_reference_of_another_service_is_refused),
        cmocka_unit_test(answers_come_in_the_order_of_their_requests),
        cmocka_unit_test(what_a_killed_worker_had_begun_is_answered_in_its_order),
        cmocka_unit_test(a_deadline_ends_work_that_does_not),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(a_program_that_ignores_its_children_has_no_zombie),
        cmocka_unit_test(shared_memory_above_the_limit_of_files_is_refused),
        cmocka_unit_test(without_descriptors_requests_say_so_and_the_next_ones_work),
        cmocka_unit_test(no_program_that_the_worker_executes_has_its_socket),
        cmocka_unit_test(a_forked_child_inherits_nothing),
        cmocka_unit_test(shared_memory_is_sealed),
        cmocka_unit_test(a_worker_has_no_more_rights_than_its_parent),
        cmocka_unit_test(a_worker_inherits_no_descriptor),
        cmocka_unit_test(a_program_without_standard_streams_loses_nothing),
        cmocka_unit_test(a_worker_dies_with_its_program),
        cmocka_unit_test(a_program_that_is_missing_or_no_worker_is_named),
        cmocka_unit_test(the_program_itself_has_opened_no_driver),
    };
    return cmocka_run_group_tests(tests, make_service, destroy_service);
}
