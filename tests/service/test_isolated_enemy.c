/* The device service, isolated, whose worker is an enemy: the program itself, which speaks the worker's language and
 * says what no worker would. */
#include "support/worker.h"

#include "service/isolated/process.h"
#include "service/isolated/wire.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <strata/service_graph.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { SECRETS = 64, FILLS = 6000 };

static char own_path[4096];

/* ---- the enemy ---- */

typedef struct enemy {
    wire_in in;
    wire_out out;
    bool has_secret; /* a descriptor came that is none of the service's */
} enemy;

static enemy own;

static void say(wire_kind kind, uint64_t number, const void *payload, size_t bytes)
{
    if (!wire_reserve(&own.out, bytes))
        _exit(9);
    wire_put(&own.out, kind, number, payload, bytes, NULL, 0);
    for (wire_result result; (result = wire_flush(&own.out, ISOLATED_SOCKET)) != WIRE_GOES_ON;) {
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
    for (int fd; (fd = wire_take_descriptor(&own.in)) >= 0; close(fd)) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        own.has_secret = own.has_secret || readlink(path, target, sizeof target - 1) <= 0 || strstr(target, "secret");
    }
}

/* The next frame, whatever it takes. The payload is good until the next call. */
static wire_head listen_for_one(void)
{
    wire_head head;
    const unsigned char *payload;
    size_t bytes;
    while (wire_next(&own.in, &head, &payload, &bytes) != WIRE_GOES_ON) {
        poll(&(struct pollfd){.fd = ISOLATED_SOCKET, .events = POLLIN}, 1, -1);
        if (wire_fill(&own.in, ISOLATED_SOCKET) == WIRE_GONE)
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
        if (i + 1 == FILLS && own.has_secret)
            say(WIRE_REFUSED, number, &found, sizeof found);
        else
            say_done(number);
    }
    for (;;)
        listen_for_one();
}

/* It ends, and a process that it leaves behind has its socket. */
static void leave_a_child(void)
{
    listen_for(WIRE_ALLOCATE);
    if (fork() == 0) {
        close(STDOUT_FILENO); /* CTest waits for their ends */
        close(STDERR_FILENO);
        poll(NULL, 0, 8000);
        _exit(0);
    }
    _exit(5);
}

/* A failure with a status that is none. */
static void fail_with_no_failure(void)
{
    const wire_error none = {.status = STRATA_ERROR_NOT_READY, .message = "not ready"};
    for (;;)
        say(WIRE_REFUSED, listen_for(WIRE_ALLOCATE), &none, sizeof none);
}

/* ---- an enemy that says anything ---- */

static unsigned seed;

static unsigned draw(unsigned limit)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % limit;
}

static void fill_at_random(void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)draw(256);
}

static void say_bytes(const void *bytes, size_t count)
{
    if (send(ISOLATED_SOCKET, bytes, count, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
        _exit(0);
}

static void say_failure_at_random(wire_kind kind, uint64_t number)
{
    wire_error error;
    fill_at_random(&error, sizeof error);
    error.status = draw(40);
    error.driver_code = draw(2) ? draw(1000) : CUDA_ERROR_OUT_OF_MEMORY;
    say(kind, number, &error, sizeof error);
}

static void say_anything(uint64_t number)
{
    unsigned char bytes[256];
    fill_at_random(bytes, sizeof bytes);
    const wire_head head = {.bytes = 8 * draw(32), .kind = WIRE_READY + draw(9), .number = number};
    memcpy(bytes, &head, sizeof head);
    say_bytes(bytes, draw(2) && head.bytes ? head.bytes : draw(sizeof bytes));
}

/* To a request of that number, or to one that was not sent. */
static void answer_at_random(uint64_t number)
{
    const unsigned what = draw(100);
    if (what < 70)
        say_done(draw(8) ? number : (uint64_t)(draw(3) + 1) << 32 | draw(20));
    else if (what < 90)
        say_failure_at_random(WIRE_REFUSED, number);
    else if (what < 94)
        say_ready();
    else if (what < 95)
        say_failure_at_random(draw(2) ? WIRE_LOST : WIRE_FAILED, number);
    else if (what < 97)
        say_anything(number);
    else if (what < 98)
        _exit((int)draw(3));
}

static void be_anything(void)
{
    seed = (unsigned)getpid();
    for (;;) {
        const wire_head head = listen_for_one();
        if ((head.kind >= WIRE_ALLOCATE && head.kind <= WIRE_NOTHING) ||
            (head.kind >= WIRE_COPY && head.kind <= WIRE_PLAY_GRAPH))
            answer_at_random(head.number);
        else if (head.kind == WIRE_QUESTION)
            say(WIRE_ALIVE, 0, NULL, 0);
    }
}

static int be_enemy(void)
{
    const char *how = getenv("TEST_ENEMY");
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    alarm(120);
    own.out.bound = 1 << 20;
    if (!how || !wire_in_open(&own.in, true))
        return 9;
    listen_for(WIRE_HELLO);
    if (strcmp(how, "never ready") == 0)
        be_never_ready();
    say_ready();
    if (strcmp(how, "too soon") == 0)
        answer_too_soon();
    if (strcmp(how, "child") == 0)
        leave_a_child();
    if (strcmp(how, "anything") == 0)
        be_anything();
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
    test_wait_begun(service, FILLS + 1);
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

static void a_worker_that_is_over_is_lost_whatever_has_its_socket(void **state)
{
    (void)state;
    strata_service *service = make_service("child");
    strata_future *future;
    check_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    const uint64_t begun = test_clock();
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_POISONED);
    check_last_error(STRATA_ERROR_POISONED, "exited with status 5");
    assert_true(test_clock() - begun < test_long_enough(3ull * TEST_SECOND));
    strata_future_release(future);
    check_ok(strata_service_destroy(service));
}

/* ---- answers at random ---- */

enum { ROUNDS = 100, PLAYERS = 3, ANSWERS = 400 };

typedef struct player {
    pthread_t thread;
    strata_service *service;
    unsigned answered;
    const char *wrong; /* NULL: nothing */
} player;

/* Whatever the answer is, there is one. */
static strata_answer finish(player *self, strata_status sent, strata_future *future)
{
    strata_answer answer = {.status = sent};
    if (sent != STRATA_SUCCESS)
        return answer;
    if (strata_future_wait_for(future, 20ull * TEST_SECOND) == STRATA_ERROR_NOT_READY)
        self->wrong = "a request is not answered";
    else if (strata_future_take(future, &answer) != STRATA_SUCCESS)
        self->wrong = "an answer cannot be taken";
    strata_future_release(future);
    self->answered++;
    answer.error = NULL;
    return answer;
}

static void copy_both_ways(player *self, strata_ref *ref, strata_host_buffer *buffer)
{
    strata_future *future;
    strata_status sent = strata_service_copy_from_host(self->service, buffer, ref, NULL, &future);
    strata_host_buffer_release(finish(self, sent, future).buffer);
    sent = strata_service_copy_to_host(self->service, ref, buffer, NULL, &future);
    strata_host_buffer_release(finish(self, sent, future).buffer);
}

static void play_graph(player *self, strata_ref *ref)
{
    strata_service_graph *graph;
    strata_future *end, *launch;
    if (strata_service_graph_begin(self->service, "anything", &graph) != STRATA_SUCCESS)
        return;
    strata_service_fill(self->service, ref, 1, 1, &(strata_send_options){.graph = graph}, NULL);
    const strata_status ended = strata_service_graph_end(graph, NULL, &end);
    const strata_status launched = strata_service_graph_launch(graph, NULL, &launch);
    finish(self, ended, end);
    finish(self, launched, launch);
    strata_service_graph_release(graph);
}

static void play_once(player *self)
{
    enum { BYTES = 700000 };
    strata_future *future;
    strata_host_buffer *plain = NULL, *shared = NULL;
    strata_status sent = strata_service_allocate(self->service, STRATA_ELEMENT_U8, BYTES, NULL, &future);
    strata_ref *ref = finish(self, sent, future).ref;
    sent = strata_service_load(self->service, test_fill_ptx, 0, NULL, &future);
    finish(self, sent, future);
    if (ref && strata_host_buffer_create(BYTES, &plain) == STRATA_SUCCESS)
        copy_both_ways(self, ref, plain);
    if (ref && strata_service_buffer_create(self->service, BYTES, &shared) == STRATA_SUCCESS)
        copy_both_ways(self, ref, shared);
    if (ref)
        play_graph(self, ref);
    strata_host_buffer_release(plain);
    strata_host_buffer_release(shared);
    strata_ref_release(ref);
}

static void *play(void *data)
{
    player *self = data;
    for (unsigned i = 0; i < ROUNDS && !self->wrong && strata_service_stopped(self->service) == STRATA_SUCCESS; i++)
        play_once(self);
    return NULL;
}

static strata_escalation rebuild(strata_service *service, const strata_error *error, void *data)
{
    (void)service;
    (void)data;
    return error->driver_code % 2 ? STRATA_ESCALATION_REBUILD : STRATA_ESCALATION_GO_ON;
}

static unsigned play_with_one(const strata_service_options *options)
{
    player players[PLAYERS] = {{0}};
    unsigned answered = 0;
    strata_service *service;
    check_ok(strata_service_create(options, &service));
    for (int i = 0; i < PLAYERS; i++) {
        players[i].service = service;
        assert_int_equal(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
    for (int i = 0; i < PLAYERS; i++) {
        pthread_join(players[i].thread, NULL);
        answered += players[i].answered;
        if (players[i].wrong)
            fail_msg("%s", players[i].wrong);
    }
    check_ok(strata_service_destroy(service));
    return answered;
}

/* A service that stops, since a worker may say that there is no driver, is followed by another one. */
static void whatever_a_worker_answers_each_request_is_answered_once(void **state)
{
    (void)state;
    const strata_service_options options = {.form = STRATA_SERVICE_ISOLATED,
                                            .worker = own_path,
                                            .poll_limit = TEST_SECOND / 20,
                                            .rebuild_limit = 64,
                                            .rebuild_window = 1,
                                            .escalate = rebuild};
    setenv("TEST_ENEMY", "anything", 1);
    const size_t descriptors = test_count_descriptors().count, mappings = test_count_mappings();
    unsigned answered = 0, services = 0;
    while (answered < ANSWERS && services < ANSWERS) {
        answered += play_with_one(&options);
        services++;
    }
    print_message("%u answers of %u services\n", answered, services);
    assert_int_equal(test_count_descriptors().count, descriptors);
    assert_int_equal(test_count_mappings(), mappings);
    assert_false(test_has_zombie());
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
        cmocka_unit_test(a_worker_that_is_over_is_lost_whatever_has_its_socket),
        cmocka_unit_test(whatever_a_worker_answers_each_request_is_answered_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
