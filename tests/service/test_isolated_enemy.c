/* The device service, isolated, whose worker is an enemy: the program itself, which speaks the worker's language and
 * says what no worker would. */
#include "support/worker.h"

#include "service/isolated/process.h"
#include "service/isolated/wire.h"

#include <poll.h>
#include <sys/mman.h>

enum { SECRETS = 64, FILLS = 6000 };

static char own_path[4096];

/* ---- the enemy ---- */

typedef struct enemy {
    wire_in in;
    wire_out out;
    bool has_secret; /* a descriptor came that is none of the service's */
} enemy;

static enemy self;

static void say(wire_kind kind, uint64_t number, const void *payload, size_t bytes)
{
    if (!wire_reserve(&self.out, bytes))
        _exit(9);
    wire_put(&self.out, kind, number, payload, bytes, NULL, 0);
    for (wire_result result; (result = wire_flush(&self.out, ISOLATED_SOCKET)) != WIRE_GOES_ON;) {
        if (result == WIRE_GONE)
            _exit(0);
        poll(&(struct pollfd){.fd = ISOLATED_SOCKET, .events = POLLOUT}, 1, -1);
    }
}

static void say_ready(void)
{
    const wire_ready ready = {.version = WIRE_VERSION, .free_bytes = 1 << 20, .total_bytes = 1 << 20};
    say(WIRE_READY, 0, &ready, sizeof ready);
}

static void say_done(uint64_t number)
{
    const wire_done done = {.ref = number, .module = number};
    say(WIRE_DONE, number, &done, sizeof done);
}

static void look_at_descriptors(void)
{
    for (int fd; (fd = wire_take_descriptor(&self.in)) >= 0; close(fd)) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        self.has_secret = self.has_secret || readlink(path, target, sizeof target - 1) <= 0 || strstr(target, "secret");
    }
}

/* The next frame, whatever it takes. The payload is good until the next call. */
static wire_head listen_for_one(void)
{
    wire_head head;
    const unsigned char *payload;
    size_t bytes;
    while (wire_next(&self.in, &head, &payload, &bytes) != WIRE_GOES_ON) {
        poll(&(struct pollfd){.fd = ISOLATED_SOCKET, .events = POLLIN}, 1, -1);
        if (wire_fill(&self.in, ISOLATED_SOCKET) == WIRE_GONE)
            _exit(0);
        look_at_descriptors();
    }
    return head;
}

static uint64_t listen_for(uint32_t kind)
{
    wire_head head;
    do
        head = listen_for_one();
    while (head.kind != kind);
    return head.number;
}

/* It lives, and is never ready. */
static void be_never_ready(void)
{
    for (;;) {
        say(WIRE_ALIVE, 0, NULL, 0);
        poll(NULL, 0, 10);
    }
}

static void wait_for_signal(void)
{
    sigset_t wanted;
    int number;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigwait(&wanted, &number);
}

/* Answers the copy that follows the fills before it was sent, and at the second signal says what it was sent. */
static void answer_too_soon(void)
{
    const wire_error found = {.status = STRATA_ERROR_CORRUPTED, .message = "a descriptor of another file came"};
    say_done(listen_for(WIRE_ALLOCATE));
    wait_for_signal();
    say_done((uint64_t)1 << 32 | (FILLS + 1)); /* the first number is used again */
    wait_for_signal();
    for (int i = 0; i < FILLS; i++) {
        const uint64_t number = listen_for(WIRE_FILL);
        if (i + 1 == FILLS)
            listen_for(WIRE_BUFFER);
        if (i + 1 == FILLS && self.has_secret)
            say(WIRE_REFUSED, number, &found, sizeof found);
        else
            say_done(number);
    }
    for (;;)
        listen_for_one();
}

/* A failure with a status that is none. */
static void fail_with_no_failure(void)
{
    const wire_error none = {.status = STRATA_ERROR_NOT_READY, .message = "not ready"};
    for (;;)
        say(WIRE_REFUSED, listen_for(WIRE_ALLOCATE), &none, sizeof none);
}

static int be_enemy(void)
{
    const char *how = getenv("TEST_ENEMY");
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    alarm(120);
    self.out.bound = 1 << 20;
    if (!how || !wire_in_open(&self.in, true))
        return 9;
    listen_for(WIRE_HELLO);
    if (strcmp(how, "never ready") == 0)
        be_never_ready();
    say_ready();
    if (strcmp(how, "too soon") == 0)
        answer_too_soon();
    fail_with_no_failure();
    return 0;
}

/* ---- the service ---- */

static strata_service *make_service(const char *how)
{
    const strata_service_options options = {
        .form = STRATA_SERVICE_ISOLATED, .worker = own_path, .queue_capacity = 2 * FILLS, .rebuild_limit = 1};
    strata_service *service;
    setenv("TEST_ENEMY", how, 1);
    check_ok(strata_service_create(&options, &service));
    return service;
}

static void a_service_ends_though_its_worker_is_never_ready(void **state)
{
    (void)state;
    strata_service *service = make_service("never ready");
    strata_future *future;
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    check_status(strata_service_wait_ready(service, 100000000), STRATA_ERROR_TIMEOUT);
    check_ok(strata_service_shut_down(service, UINT64_MAX));
    const strata_status status = strata_future_wait_for(future, 20ull * TEST_SECOND);
    check_ok(strata_service_shut_down(service, 0)); /* ends it also after a failure */
    check_ok(strata_service_destroy(service));
    assert_int_equal(status, STRATA_ERROR_STALE);
    strata_future_release(future);
    assert_false(test_has_zombie());
}

/* The service's thread has begun so many. */
static void wait_until_begun(strata_service *service, uint64_t requests)
{
    strata_service_stats stats = {0};
    for (int i = 0; i < 4000 && stats.in_flight != requests; i++) {
        test_sleep_ms(1);
        check_ok(strata_service_get_stats(service, &stats));
    }
    assert_int_equal(stats.in_flight, requests);
}

static void open_secrets(int fds[SECRETS])
{
    for (int i = 0; i < SECRETS; i++)
        assert_true((fds[i] = memfd_create("secret", MFD_CLOEXEC)) >= 0);
}

/* Its worker reads nothing meanwhile, so that the buffer's descriptor is not sent. */
static void a_worker_that_answers_too_soon_gets_no_descriptor_of_the_program(void **state)
{
    (void)state;
    static strata_future *fills[FILLS];
    int secrets[SECRETS];
    strata_service *service = make_service("too soon");
    strata_ref *ref = test_service_allocate(service, 64);
    strata_host_buffer *buffer;
    strata_future *copy;
    for (int i = 0; i < FILLS; i++)
        check_ok(strata_service_fill(service, ref, 0, 1, NULL, &fills[i]));
    check_ok(strata_service_buffer_create(service, 64, &buffer));
    check_ok(strata_service_copy_from_host(service, buffer, ref, NULL, &copy));
    wait_until_begun(service, FILLS + 1);
    test_sleep_ms(50);
    kill(test_worker(service), SIGUSR1);
    const strata_answer answer = test_take(copy);
    assert_int_equal(answer.status, STRATA_SUCCESS);
    strata_host_buffer_release(answer.buffer);
    for (int i = 0; i < 1000 && strata_host_buffer_handles(buffer) != 1; i++)
        test_sleep_ms(1);
    strata_host_buffer_release(buffer);
    test_sleep_ms(100);
    open_secrets(secrets);
    kill(test_worker(service), SIGUSR1);
    for (int i = 0; i < FILLS; i++)
        assert_int_equal(test_take(fills[i]).status, STRATA_SUCCESS);
    for (int i = 0; i < SECRETS; i++)
        close(secrets[i]);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(service));
}

static void a_failure_of_a_worker_is_one(void **state)
{
    (void)state;
    strata_service *service = make_service("no failure");
    strata_future *future;
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_POISONED);
    strata_future_release(future);
    check_ok(strata_service_destroy(service));
}

int main(int count, char **arguments)
{
    if (count == 2 && getenv("TEST_ENEMY")) /* not by its name, which Valgrind changes */
        return be_enemy();
    (void)arguments;
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) <= 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_service_ends_though_its_worker_is_never_ready),
        cmocka_unit_test(a_worker_that_answers_too_soon_gets_no_descriptor_of_the_program),
        cmocka_unit_test(a_failure_of_a_worker_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
