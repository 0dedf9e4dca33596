/* The worker of an isolated service, in this process: what it says to frames that a client sends, and what is left. */
#include "service/worker/worker.h"

#include "support/worker.h"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* ---- a worker, and its client ---- */

typedef struct session {
    worker self;
    int near, far; /* the client's end, and the worker's */
    pthread_t thread;
    worker_end end;
    wire_in in;
    wire_out out;
} session;

static session run;

static void *serve(void *data)
{
    (void)data;
    run.end = worker_serve(&run.self);
    shutdown(run.far, SHUT_RDWR);
    return NULL;
}

static void flush(void)
{
    while (wire_flush(&run.out, run.near) == WIRE_LATER)
        poll(&(struct pollfd){.fd = run.near, .events = POLLOUT}, 1, 1000);
}

static void send_frame(wire_kind kind, uint64_t number, const void *payload, size_t bytes)
{
    assert_true(wire_reserve(&run.out, bytes));
    wire_put(&run.out, kind, number, payload, bytes, NULL, 0);
    flush();
}

/* The next frame; its payload is good until the next call. Kind 0: the worker has ended. */
static wire_head receive(const unsigned char **payload)
{
    wire_head head;
    size_t bytes;
    while (wire_next(&run.in, &head, payload, &bytes) != WIRE_GOES_ON) {
        assert_int_equal(poll(&(struct pollfd){.fd = run.near, .events = POLLIN}, 1, 60000), 1);
        if (wire_fill(&run.in, run.near) == WIRE_GONE)
            return (wire_head){0};
    }
    return head;
}

/* Waits for the answer to that request; *done (or NULL) is what it says. */
static wire_kind receive_answer(uint64_t number, wire_done *done)
{
    const unsigned char *payload;
    wire_head head;
    do {
        head = receive(&payload);
        assert_int_not_equal(head.kind, 0);
    } while (head.number != number || (head.kind != WIRE_DONE && head.kind != WIRE_REFUSED));
    if (head.kind == WIRE_DONE && done)
        memcpy(done, payload, sizeof *done);
    return (wire_kind)head.kind;
}

static void begin(uint32_t version, uint32_t queue_capacity)
{
    const wire_hello hello = {.version = version, .stream_count = 2, .queue_capacity = queue_capacity};
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    run = (session){.near = pair[0], .far = pair[1], .out.bound = 1 << 20};
    assert_true(worker_open(&run.self, run.far) && wire_in_open(&run.in, false));
    assert_int_equal(pthread_create(&run.thread, NULL, serve, NULL), 0);
    send_frame(WIRE_HELLO, 0, &hello, sizeof hello);
}

static void begin_ready(uint32_t queue_capacity)
{
    const unsigned char *payload;
    begin(WIRE_VERSION, queue_capacity);
    assert_int_equal(receive(&payload).kind, WIRE_READY);
}

static void end(worker_end expected)
{
    const unsigned char *payload;
    shutdown(run.near, SHUT_WR);
    while (receive(&payload).kind)
        ;
    pthread_join(run.thread, NULL);
    worker_close(&run.self);
    wire_in_close(&run.in);
    wire_out_close(&run.out);
    close(run.near);
    close(run.far);
    assert_int_equal(run.end, expected);
}

/* Of buffers; the simulated driver has mappings of its own. */
static size_t count_mappings(void)
{
    char line[512];
    size_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:shared") != NULL;
    fclose(maps);
    return count;
}

static void send_buffer(uint64_t number, size_t bytes)
{
    const wire_buffer payload = {.bytes = bytes};
    const int fd = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 &&
                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    assert_true(wire_reserve(&run.out, sizeof payload));
    wire_put_descriptor(&run.out, WIRE_BUFFER, number, &payload, sizeof payload, fd, true);
    flush();
}

/* What came before it, for the worker's service, is done when it is answered. */
static void wait_until_done(uint64_t number)
{
    const wire_send send = {.sender = 1};
    send_frame(WIRE_NOTHING, number, &send, sizeof send);
    assert_int_equal(receive_answer(number, NULL), WIRE_DONE);
}

/* ---- the first frame ---- */

static void a_worker_of_another_version_says_so(void **state)
{
    (void)state;
    const unsigned char *payload;
    wire_error packed;
    begin(WIRE_VERSION + 1, 0);
    assert_int_equal(receive(&payload).kind, WIRE_FAILED);
    memcpy(&packed, payload, sizeof packed);
    assert_int_equal(packed.status, STRATA_ERROR_UNSUPPORTED);
    assert_non_null(strstr(packed.message, "another version of Strata"));
    end(WORKER_REFUSED);
}

/* ---- references ---- */

/* Its answers come while it empties the table. */
static void a_reference_that_comes_while_the_table_is_emptied_is_not_lost(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    static char memory[COUNT];
    worker_refs refs = {0};
    uint64_t numbers[COUNT];
    size_t left = 0;
    for (size_t i = 0; i < COUNT; i++)
        assert_int_not_equal(numbers[i] = worker_refs_add(&refs, (strata_ref *)(void *)&memory[i]), 0);
    strata_ref *last = worker_refs_take(&refs, numbers[COUNT - 1]);
    assert_ptr_equal(last, &memory[COUNT - 1]);
    assert_non_null(worker_refs_take_last(&refs));
    assert_int_not_equal(worker_refs_add(&refs, last), 0);
    while (worker_refs_take_last(&refs))
        left++;
    assert_int_equal(left, COUNT - 1);
}

/* ---- shared buffers ---- */

static strata_entry_table driver; /* the entry points that the next functions stand in front of */
static int refused, registered;
static _Atomic int unregister_failures;
static sem_t at_gate, gate;
static bool waits_at_gate;

static CUresult CUDAAPI register_memory(void *memory, size_t bytes, unsigned flags)
{
    if (waits_at_gate) {
        sem_post(&at_gate);
        sem_wait(&gate);
    }
    const CUresult result = driver.MemHostRegister(memory, bytes, flags);
    refused += result != CUDA_SUCCESS;
    registered += result == CUDA_SUCCESS;
    return result;
}

static CUresult CUDAAPI unregister_memory(void *memory)
{
    if (atomic_load(&unregister_failures) && atomic_fetch_sub(&unregister_failures, 1))
        return CUDA_ERROR_UNKNOWN;
    const CUresult result = driver.MemHostUnregister(memory);
    registered -= result == CUDA_SUCCESS;
    return result;
}

static int hook(void **state)
{
    (void)state;
    driver = strata_cu;
    strata_cu.MemHostRegister = register_memory;
    strata_cu.MemHostUnregister = unregister_memory;
    refused = registered = 0;
    waits_at_gate = false;
    sem_init(&at_gate, 0, 0);
    sem_init(&gate, 0, 0);
    return 0;
}

static int unhook(void **state)
{
    (void)state;
    strata_cu = driver;
    sem_destroy(&at_gate);
    sem_destroy(&gate);
    return 0;
}

static void memory_that_the_driver_did_not_unlock_is_tried_again_and_not_reused_before(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    begin_ready(64);
    const size_t mappings = count_mappings();
    send_buffer(1, BYTES);
    wait_until_done(10);
    assert_int_equal(registered, 1);
    atomic_store(&unregister_failures, 1);
    send_frame(WIRE_BUFFER_END, 1, NULL, 0);
    wait_until_done(11);
    assert_int_equal(registered, 1);
    assert_int_equal(count_mappings(), mappings + 1);
    send_buffer(1, BYTES);
    wait_until_done(12);
    assert_int_equal(refused, 0);
    assert_int_equal(registered, 1);
    assert_int_equal(count_mappings(), mappings + 1);
    send_frame(WIRE_BUFFER_END, 1, NULL, 0);
    wait_until_done(13);
    assert_int_equal(registered, 0);
    assert_int_equal(count_mappings(), mappings);
    end(WORKER_DONE);
}

/* ---- many ends ---- */

enum { MANY = 9000 }; /* more than the worker's queue takes */

static void send_allocate(uint64_t number)
{
    const wire_allocate payload = {.send = {.sender = 1}, .length = 8, .type = STRATA_ELEMENT_U8, .raw = 1};
    send_frame(WIRE_ALLOCATE, number, &payload, sizeof payload);
}

/* While the driver takes its time, so that none of the ends is done. */
static void many_ends_of_references_fill_no_queue(void **state)
{
    (void)state;
    static uint64_t refs[MANY];
    begin_ready(1);
    for (size_t i = 0; i < MANY; i++) {
        wire_done done;
        send_allocate(i + 1);
        assert_int_equal(receive_answer(i + 1, &done), WIRE_DONE);
        refs[i] = done.ref;
    }
    waits_at_gate = true;
    send_buffer(1, 4096);
    sem_wait(&at_gate);
    waits_at_gate = false;
    for (size_t i = 0; i < MANY; i++)
        send_frame(WIRE_RELEASE, 0, &refs[i], sizeof refs[i]);
    send_allocate(MANY + 1);
    send_frame(WIRE_QUESTION, 0, NULL, 0); /* its answer: the worker has taken all of them */
    const unsigned char *payload;
    wire_head head = receive(&payload);
    const bool was_refused = head.kind == WIRE_REFUSED;
    while (head.kind != WIRE_ALIVE)
        head = receive(&payload);
    sem_post(&gate);
    assert_false(was_refused);
    assert_int_equal(receive_answer(MANY + 1, NULL), WIRE_DONE);
    send_frame(WIRE_BUFFER_END, 1, NULL, 0);
    wait_until_done(MANY + 2);
    end(WORKER_DONE);
}

static void many_ends_of_buffers_fill_no_queue(void **state)
{
    (void)state;
    begin_ready(1);
    const size_t mappings = count_mappings();
    for (size_t i = 0; i < MANY; i++) {
        send_buffer(i + 1, 4096);
        if (i % 256 == 0)
            wait_until_done(MANY + 10);
    }
    wait_until_done(MANY + 10);
    waits_at_gate = true;
    send_buffer(0, 4096);
    sem_wait(&at_gate);
    waits_at_gate = false;
    for (size_t i = 0; i < MANY; i++)
        send_frame(WIRE_BUFFER_END, i + 1, NULL, 0);
    send_allocate(1);
    send_frame(WIRE_QUESTION, 0, NULL, 0);
    const unsigned char *payload;
    wire_head head = receive(&payload);
    const bool was_refused = head.kind == WIRE_REFUSED;
    while (head.kind != WIRE_ALIVE)
        head = receive(&payload);
    sem_post(&gate);
    assert_false(was_refused);
    assert_int_equal(receive_answer(1, NULL), WIRE_DONE);
    send_frame(WIRE_BUFFER_END, 0, NULL, 0);
    wait_until_done(2);
    assert_int_equal(registered, 0);
    assert_int_equal(count_mappings(), mappings);
    end(WORKER_DONE);
}

/* ---- modules ---- */

static void send_image(uint64_t number, const void *image, size_t bytes)
{
    const wire_load payload = {.send.sender = 1, .bytes = bytes};
    const int fd = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && write(fd, image, bytes) == (ssize_t)bytes &&
                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    assert_true(wire_reserve(&run.out, sizeof payload));
    wire_put_descriptor(&run.out, WIRE_LOAD, number, &payload, sizeof payload, fd, true);
    flush();
}

/* The client's own check does not stand in for the worker's. */
static void a_client_that_sends_torn_images_is_refused_before_the_driver_reads_them(void **state)
{
    (void)state;
    static const unsigned char elf[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 190, 0};
    static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 200, 0, 0, 0, 0, 0, 0, 0, 1, 2};
    static const unsigned char wrapper[24] = {0xb1, 0x43, 0x62, 0x46, 1};
    static const struct {
        const unsigned char *bytes;
        size_t count;
    } images[] = {{elf, sizeof elf}, {fatbin, sizeof fatbin}, {wrapper, sizeof wrapper}};
    begin_ready(0);
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++) {
        const unsigned char *payload;
        wire_error packed;
        send_image(i + 1, images[i].bytes, images[i].count);
        const wire_head head = receive(&payload);
        assert_int_equal(head.number, i + 1);
        assert_int_equal(head.kind, WIRE_REFUSED);
        memcpy(&packed, payload, sizeof packed);
        assert_int_equal(packed.status, STRATA_ERROR_INVALID_VALUE);
        assert_non_null(strstr(packed.message, "is not whole"));
    }
    send_image(9, test_fill_ptx, sizeof test_fill_ptx);
    assert_int_equal(receive_answer(9, NULL), WIRE_DONE);
    end(WORKER_DONE);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_of_another_version_says_so),
        cmocka_unit_test(a_reference_that_comes_while_the_table_is_emptied_is_not_lost),
        cmocka_unit_test_setup_teardown(memory_that_the_driver_did_not_unlock_is_tried_again_and_not_reused_before,
                                        hook, unhook),
        cmocka_unit_test_setup_teardown(many_ends_of_references_fill_no_queue, hook, unhook),
        cmocka_unit_test_setup_teardown(many_ends_of_buffers_fill_no_queue, hook, unhook),
        cmocka_unit_test(a_client_that_sends_torn_images_is_refused_before_the_driver_reads_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
