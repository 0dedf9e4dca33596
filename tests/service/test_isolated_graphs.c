/* Graphs of requests, isolated: beside the cases of both forms, what becomes of them when workers end. */
#include <pthread.h>
#include <sys/resource.h>

#include "support/effort.h"
#include "support/service_graph_cases.h"
#include "support/worker.h"

/* A service of the test's own with a graph that fills `*ref` with 8. */
static strata_service *make_with_graph(strata_ref **ref, strata_service_graph **graph)
{
    strata_service *own = test_service_make(&test_options);
    *ref = test_service_allocate(own, 256);
    check_ok(strata_service_graph_begin(own, "own", graph));
    check_ok(strata_service_fill(own, *ref, 8, 1, &(strata_send_options){.graph = *graph}, NULL));
    return own;
}

static void a_graph_is_stale_when_its_worker_was_killed_and_is_recorded_again(void **state)
{
    (void)state;
    strata_ref *ref;
    strata_service_graph *graph;
    strata_future *future;
    strata_service *own = make_with_graph(&ref, &graph);
    const uint64_t generation = test_generation(own);
    check_ok(strata_service_graph_end(graph, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    check_ok(strata_service_graph_launch(graph, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    kill(test_worker(own), SIGKILL);
    test_wait_replaced(own, generation);
    check_status(strata_service_graph_launch(graph, NULL, NULL), STRATA_ERROR_STALE);
    check_last_error(STRATA_ERROR_STALE, "graph \"own\" is stale");
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));

    ref = test_service_allocate(own, 256);
    check_ok(strata_service_graph_begin(own, "own", &graph));
    check_ok(strata_service_fill(own, ref, 8, 1, &(strata_send_options){.graph = graph}, NULL));
    check_ok(strata_service_graph_end(graph, NULL, NULL));
    check_ok(strata_service_graph_launch(graph, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    assert_true(test_ref_has(own, ref, 8));
    check_ok(strata_service_destroy(own));
    strata_service_graph_release(graph); /* it outlives its service */
    check_ok(strata_ref_release(ref));
    assert_false(test_has_zombie());
}

/* What was under way with the worker answers POISONED; what had not begun, STALE with the next one. */
static void an_end_and_launches_that_a_worker_had_begun_are_answered_when_it_is_killed(void **state)
{
    (void)state;
    strata_ref *ref;
    strata_service_graph *graph;
    strata_future *made, *played;
    strata_service *own = make_with_graph(&ref, &graph);
    const pid_t worker = test_worker(own);
    kill(worker, SIGSTOP);
    check_ok(strata_service_graph_end(graph, NULL, &made));
    check_ok(strata_service_graph_launch(graph, NULL, &played)); /* waits for the worker's number of it */
    test_wait_begun(own, 2);
    assert_false(strata_future_poll(made) || strata_future_poll(played));
    kill(worker, SIGKILL);
    assert_int_equal(test_take(made).status, STRATA_ERROR_POISONED);
    assert_int_equal(test_take(played).status, STRATA_ERROR_POISONED);
    check_ok(
        strata_service_graph_launch(graph, NULL, &played)); /* also for a program that let go of the end's answer */
    assert_int_equal(test_take(played).status, STRATA_ERROR_STALE);
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(own));
}

static void a_recording_of_a_generation_that_is_over_answers_stale(void **state)
{
    (void)state;
    strata_ref *ref;
    strata_service_graph *graph;
    strata_future *future;
    strata_service *own = make_with_graph(&ref, &graph);
    const uint64_t generation = test_generation(own);
    kill(test_worker(own), SIGKILL);
    test_wait_replaced(own, generation);
    check_status(strata_service_fill(own, ref, 8, 1, &(strata_send_options){.graph = graph}, NULL), STRATA_ERROR_STALE);
    check_ok(strata_service_graph_end(graph, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_STALE);
    check_last_error(STRATA_ERROR_STALE, "request 1 of the graph: ");
    strata_future_release(future);
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(own));
}

static _Atomic int answers; /* of those that are counted */

static void note_answer(strata_future *future, void *place)
{
    (void)future;
    atomic_store((_Atomic int *)place, atomic_fetch_add(&answers, 1) + 1);
}

/* Sender 1's work is long, its end is answered behind that, and its launch waits for no answer to the end. Whether the
 * urgent request of another sender was answered before the launch. */
static bool urgent_is_first(strata_service *own, strata_ref *large, strata_ref *small, uint32_t flood)
{
    const strata_send_options one = {.sender = 1}, other = {.sender = 2},
                              first = {.sender = 3, .priority = STRATA_PRIORITY_HIGH};
    strata_service_graph *graph;
    strata_future *made, *played, *behind, *urgent;
    _Atomic int place_of_launch = 0, place_of_urgent = 0;
    atomic_store(&answers, 0);
    check_ok(strata_service_graph_begin(own, "behind a flood", &graph));
    check_ok(strata_service_fill(own, large, 77, 1, &(strata_send_options){.graph = graph}, NULL));
    for (uint32_t i = 0; i < flood; i++)
        check_ok(strata_service_fill(own, large, i, 1, &one, NULL));
    check_ok(strata_service_graph_end(graph, &one, &made));
    check_ok(strata_service_graph_launch(graph, &one, &played));
    check_ok(strata_future_on_answer(played, note_answer, &place_of_launch));
    check_ok(strata_service_fill(own, small, 5, 1, &other, &behind));
    test_sleep_ms(20); /* the service has begun all of it */
    check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, &first, &urgent));
    check_ok(strata_future_on_answer(urgent, note_answer, &place_of_urgent));
    check_ok(strata_ref_release(test_take(urgent).ref));
    assert_int_equal(test_take(behind).status, STRATA_SUCCESS);
    assert_int_equal(test_take(played).status, STRATA_SUCCESS);
    assert_true(strata_future_poll(made));
    assert_int_equal(test_take(made).status, STRATA_SUCCESS);
    assert_true(test_ref_has(own, large, 77));
    strata_service_graph_release(graph);
    while (!atomic_load(&place_of_urgent) || !atomic_load(&place_of_launch)) /* callbacks that still run */
        test_sleep_ms(1);
    return place_of_urgent < place_of_launch;
}

static void a_launch_before_the_answer_to_its_end_keeps_no_other_request_back(void **state)
{
    (void)state;
    const size_t bytes = test_on_simulated_driver() ? 32 << 20 : 1 << 30; /* a GPU fills some 3 TB a second */
    uint32_t flood = test_on_simulated_driver() ? 100 : 400;
    strata_service_options options = test_options;
    options.streams = STRATA_SERVICE_STREAM_PER_SENDER;
    strata_service *own = test_service_make(&options);
    strata_ref *large = test_service_allocate(own, bytes), *small = test_service_allocate(own, 64);
    bool first = false;
    for (int tries = 0; tries < 4 && !first; tries++, flood *= 2) /* on a busy machine a flood may be over too soon */
        first = urgent_is_first(own, large, small, flood);
    assert_true(first);
    check_ok(strata_ref_release(large));
    check_ok(strata_ref_release(small));
    check_ok(strata_service_destroy(own));
}

/* A released graph's memory is the worker's again. */
static void released_graphs_give_their_memory_back(void **state)
{
    (void)state;
    strata_service_stats stats;
    check_ok(strata_service_get_stats(service, &stats));
    for (int i = 0; i < 6; i++) {
        strata_future *future;
        check_ok(strata_service_allocate_raw(service, STRATA_ELEMENT_U8, stats.total_bytes / 5 * 3, NULL, &future));
        const strata_answer answer = test_take(future);
        assert_int_equal(answer.status, STRATA_SUCCESS);
        strata_service_graph *graph = begin(NULL);
        strata_ref *part;
        check_ok(strata_ref_view(answer.ref, 0, 64, STRATA_ELEMENT_U8, &part));
        check_ok(record_fill(graph, part, 1, 1));
        check_ok(strata_ref_release(part));
        check_ok(strata_ref_release(answer.ref));
        check_ok(end(graph));
        check_ok(play(graph));
        strata_service_graph_release(graph);
    }
}

/* More bytes than a frame takes. */
static void a_graph_of_many_requests_arrives_whole(void **state)
{
    (void)state;
    enum { COUNT = 3000, BYTES = 4096 };
    strata_ref *one = test_service_allocate(service, BYTES), *other = test_service_allocate(service, BYTES);
    strata_service_graph *graph = begin("many");
    for (int i = 0; i < COUNT; i++) {
        check_ok(record_fill(graph, one, (uint32_t)i, 1));
        check_ok(record_copy(graph, one, other));
    }
    check_ok(end(graph));
    check_ok(play(graph));
    assert_true(test_ref_has(service, other, (unsigned char)(COUNT - 1)));
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(one));
    check_ok(strata_ref_release(other));
}

/* Names of kernels make a request as large as it can be. What fits is recorded still, and arrives. */
static void a_request_that_makes_a_graph_too_large_is_refused_and_named(void **state)
{
    (void)state;
    enum { NAME = 16000, LEAST = (64 << 20) / (NAME + 200), MOST = (64 << 20) / NAME };
    char *name = calloc(1, NAME + 1), text[128];
    strata_ref *ref = test_service_allocate(service, 64);
    const uint64_t module = test_load_fill(service);
    strata_service_graph *graph = begin("large");
    const strata_send_options into = {.graph = graph};
    const strata_kernel kernel = {.module = module, .entry = memset(name, 'k', NAME)};
    int count = 0;
    while (count < MOST && strata_service_launch(service, &kernel, &into, NULL) == STRATA_SUCCESS)
        count++;
    assert_in_range(count, LEAST, MOST - 1);
    snprintf(text, sizeof text, "graph \"large\" does not record request %d: its requests would have more than 64 MiB",
             count + 1);
    check_last_error(STRATA_ERROR_INVALID_VALUE, text);
    check_ok(record_fill(graph, ref, 1, 1));
    const strata_status status = end(graph);
    assert_int_not_equal(status, STRATA_SUCCESS);
    check_last_error(status, "request 1 of the graph: ");
    strata_service_graph_release(graph);
    free(name);
    check_ok(strata_ref_release(ref));
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
}

/* The limit keeps what is open, so that the worker cannot be sent a file. */
static void an_end_that_lacks_a_descriptor_keeps_the_recording(void **state)
{
    (void)state;
    struct rlimit limit, none;
    strata_future *made, *played;
    strata_ref *ref = test_service_allocate(service, 64);
    strata_service_graph *graph = begin("scarce");
    check_ok(record_fill(graph, ref, 1, 1));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    check_ok(strata_service_graph_end(graph, NULL, &made));
    const strata_status sent = strata_service_graph_launch(graph, NULL, &played); /* refused if the end has failed */
    const strata_status status = strata_future_wait(made);
    const strata_status launched = sent == STRATA_SUCCESS ? test_take(played).status : sent;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, STRATA_ERROR_IO);
    check_status(strata_future_wait(made), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "memfd_create");
    strata_future_release(made);
    assert_int_equal(launched, STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_graph_launch(graph, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "still recorded");
    check_ok(record_fill(graph, ref, 2, 1));
    check_ok(end(graph));
    check_ok(play(graph));
    assert_true(test_ref_has(service, ref, 2));
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));
}

/* ---- workers killed at random moments ---- */

typedef struct player {
    pthread_t thread;
    unsigned seed;
    _Atomic bool *ends;
    _Atomic uint64_t right, answered; /* launches with right bytes; callbacks */
    uint64_t sent;
    const char *wrong; /* NULL: nothing */
    strata_status wrong_status;
} player;

static void count_answer(strata_future *future, void *data)
{
    (void)future;
    atomic_fetch_add(&((player *)data)->answered, 1);
}

static strata_send_options counted(player *self)
{
    return (strata_send_options){.callback = count_answer, .data = self};
}

static bool is_honest(strata_status status)
{
    return status == STRATA_ERROR_STALE || status == STRATA_ERROR_POISONED;
}

/* False: a failure, of which only some may be. */
static bool finish(player *self, strata_status status, strata_future *future, strata_answer *out)
{
    strata_answer answer = {.status = status};
    if (status == STRATA_SUCCESS) {
        self->sent++;
        answer = test_take(future);
    }
    if (answer.status != STRATA_SUCCESS && !is_honest(answer.status)) {
        self->wrong = "an answer is neither right nor honest";
        self->wrong_status = answer.status;
    }
    if (out)
        *out = answer;
    else
        strata_host_buffer_release(answer.buffer);
    return answer.status == STRATA_SUCCESS;
}

static bool record(strata_service_graph *graph, strata_ref *const refs[2], uint32_t value)
{
    const strata_send_options into = {.graph = graph};
    return strata_service_fill(service, refs[0], value, 1, &into, NULL) == STRATA_SUCCESS &&
           strata_service_copy(service, refs[0], refs[1], &into, NULL) == STRATA_SUCCESS;
}

/* Launches the graph and looks at what it wrote. */
static bool launch_once(player *self, strata_service_graph *graph, strata_ref *const refs[2], uint32_t value)
{
    const strata_send_options send = counted(self);
    strata_future *future = NULL;
    strata_status status = strata_service_fill(service, refs[1], ~value, 1, &send, &future);
    if (!finish(self, status, future, NULL))
        return false;
    status = strata_service_graph_launch(graph, &send, &future);
    if (!finish(self, status, future, NULL))
        return false;
    strata_host_buffer *buffer = test_buffer(strata_ref_len(refs[1]), (unsigned char)~value);
    status = strata_service_copy_to_host(service, refs[1], buffer, &send, &future);
    const bool copied = finish(self, status, future, NULL);
    if (copied && !test_buffer_has(buffer, (unsigned char)value))
        self->wrong = "a graph left wrong bytes";
    strata_host_buffer_release(buffer);
    return copied;
}

static bool end_first(player *self, strata_service_graph *graph)
{
    const strata_send_options send = counted(self);
    strata_future *future = NULL;
    const strata_status status = strata_service_graph_end(graph, &send, &future);
    return finish(self, status, future, NULL);
}

/* The answer to the end comes first, whatever both are. */
static bool end_and_launch(player *self, strata_service_graph *graph)
{
    const strata_send_options send = counted(self);
    strata_future *made = NULL, *played = NULL;
    const strata_status ended = strata_service_graph_end(graph, &send, &made);
    const strata_status sent = ended == STRATA_SUCCESS ? strata_service_graph_launch(graph, &send, &played) : ended;
    const bool launched = finish(self, sent, played, NULL);
    if (launched && !strata_future_poll(made))
        self->wrong = "a launch is answered before the end";
    return finish(self, ended, made, NULL) && launched;
}

static void play_once(player *self, uint32_t value)
{
    strata_ref *refs[2] = {NULL, NULL};
    const strata_send_options send = counted(self);
    strata_service_graph *graph = NULL;
    strata_answer answer;
    bool fine = true;
    for (int i = 0; i < 2 && fine; i++) {
        strata_future *future = NULL;
        const strata_status status = strata_service_allocate(service, STRATA_ELEMENT_U8, 3000, &send, &future);
        fine = finish(self, status, future, &answer);
        refs[i] = answer.ref;
    }
    fine =
        fine && strata_service_graph_begin(service, "random", &graph) == STRATA_SUCCESS && record(graph, refs, value);
    fine = fine && (value % 2 ? end_and_launch : end_first)(self, graph);
    for (int i = 0; i < 20 && fine; i++) {
        fine = launch_once(self, graph, refs, value);
        atomic_fetch_add(&self->right, fine);
    }
    strata_service_graph_release(graph);
    strata_ref_release(refs[0]);
    strata_ref_release(refs[1]);
}

static void *keep_playing(void *data)
{
    player *self = data;
    while (!atomic_load(self->ends) && !self->wrong)
        play_once(self, self->seed++ % 256);
    return NULL;
}

static uint64_t count_right(player *players, size_t count)
{
    uint64_t right = 0;
    for (size_t i = 0; i < count; i++)
        right += atomic_load(&players[i].right);
    return right;
}

/* Of a worker that has done some work, or of one that is ready and has perhaps done none. */
static void kill_worker(player *players, size_t count, bool works, unsigned microseconds)
{
    check_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    const uint64_t before = count_right(players, count);
    for (int i = 0; i < 60000 && works && count_right(players, count) <= before; i++)
        test_sleep_ms(1);
    usleep(microseconds);
    const pid_t worker = test_worker(service);
    const uint64_t generation = test_generation(service);
    if (worker) {
        kill(worker, SIGKILL);
        test_wait_replaced(service, generation);
    }
}

static void every_graph_is_right_or_honest_while_workers_are_killed(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    const bool full = getenv("STRATA_TEST_FULL") && !test_under_valgrind();
    const unsigned kills = full ? 1000 : (unsigned)test_effort(12, 3);
    const test_descriptors before = test_count_descriptors();
    const size_t mappings = test_count_mappings();
    strata_service *shared = service;
    strata_service_options options = test_options;
    player players[THREADS] = {0};
    _Atomic bool ends = false;
    options.rebuild_window = 1;
    service = test_service_make(&options);
    for (unsigned i = 0; i < THREADS; i++) {
        players[i] = (player){.seed = 60 * i, .ends = &ends};
        assert_int_equal(pthread_create(&players[i].thread, NULL, keep_playing, &players[i]), 0);
    }
    for (unsigned i = 0; i < kills; i++)
        kill_worker(players, THREADS, i % 4 != 2, i * 7919 % 20000);
    atomic_store(&ends, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(players[i].thread, NULL);
        if (players[i].wrong)
            print_error("%s: %s\n", players[i].wrong, strata_status_name(players[i].wrong_status));
        assert_null(players[i].wrong);
    }
    const uint64_t right = count_right(players, THREADS);
    print_message("%u workers killed: %llu launches right\n", kills, (unsigned long long)right);
    assert_true(right >= kills / 4 * 3);
    check_ok(strata_service_destroy(service));
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(atomic_load(&players[i].answered), players[i].sent);
    service = shared;
    assert_false(test_has_zombie());
    assert_int_equal(test_count_descriptors().count, before.count);
    assert_int_equal(test_count_mappings(), mappings);
}

/* ---- sizes of the processes ---- */

/* Resident bytes. */
static size_t size_of(pid_t process)
{
    char path[64];
    size_t all = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)process);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &all, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void make_and_release(strata_ref *one, strata_ref *other, uint32_t value)
{
    strata_service_graph *graph = begin("step");
    check_ok(record_fill(graph, one, value % 256, 1));
    check_ok(record_copy(graph, one, other));
    check_ok(end(graph));
    check_ok(play(graph));
    strata_service_graph_release(graph);
    if (value % 64 == 0)
        assert_true(test_ref_has(service, other, (unsigned char)value));
}

/* Sanitizers keep what was freed for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MAY_GROW = 256 << 20 };
#else
enum { MAY_GROW = 1 << 20 };
#endif

/* With STRATA_TEST_FULL for ten minutes. */
static void graphs_that_come_and_go_leave_both_processes_as_large_as_they_were(void **state)
{
    (void)state;
    const bool full = getenv("STRATA_TEST_FULL") && !test_under_valgrind();
    const size_t few = test_effort(600, 20), most = full ? SIZE_MAX : few;
    strata_ref *one = test_service_allocate(service, 3000), *other = test_service_allocate(service, 3000);
    const pid_t worker = test_worker(service);
    const uint64_t begun = test_clock();
    size_t count = 0;
    for (; count < few; count++)
        make_and_release(one, other, (uint32_t)count);
    const size_t own = size_of(getpid()), its = size_of(worker);
    for (size_t i = 0; i < most && (!full || test_clock() - begun < 600ull * TEST_SECOND); i++)
        make_and_release(one, other, (uint32_t)count++);
    const size_t own_after = size_of(getpid()), its_after = size_of(worker);
    print_message("%zu graphs: the program had %zu KiB and has %zu, the worker %zu and %zu\n", count, own / 1024,
                  own_after / 1024, its / 1024, its_after / 1024);
    assert_true(own_after < own + MAY_GROW);
    assert_true(its_after < its + MAY_GROW);
    check_ok(strata_ref_release(one));
    check_ok(strata_ref_release(other));
}

/* Exits with 77 without a driver. */
int main(void)
{
    test_options.form = STRATA_SERVICE_ISOLATED;
    test_options.worker_silence = TEST_LONG_SILENCE;
    if (!test_has_worker(&test_options))
        return 77;
    const struct CMUnitTest tests[] = {
        TEST_SERVICE_GRAPH_CASES,
        cmocka_unit_test(graphs_that_come_and_go_leave_both_processes_as_large_as_they_were),
        cmocka_unit_test(a_graph_is_stale_when_its_worker_was_killed_and_is_recorded_again),
        cmocka_unit_test(an_end_and_launches_that_a_worker_had_begun_are_answered_when_it_is_killed),
        cmocka_unit_test(a_recording_of_a_generation_that_is_over_answers_stale),
        cmocka_unit_test(a_launch_before_the_answer_to_its_end_keeps_no_other_request_back),
        cmocka_unit_test(released_graphs_give_their_memory_back),
        cmocka_unit_test(a_graph_of_many_requests_arrives_whole),
        cmocka_unit_test(a_request_that_makes_a_graph_too_large_is_refused_and_named),
        cmocka_unit_test(an_end_that_lacks_a_descriptor_keeps_the_recording),
        cmocka_unit_test(every_graph_is_right_or_honest_while_workers_are_killed),
    };
    return cmocka_run_group_tests(tests, make_service, destroy_service);
}
