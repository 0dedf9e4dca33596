/* Workers of an isolated device service, killed at random moments while threads copy: every request is answered once,
 * with the right bytes or an honest error, and nothing is left behind. */
#include <pthread.h>

#include "support/effort.h"
#include "support/worker.h"

enum { THREADS = 4, LARGEST = 900000 };

static strata_service_options test_options;
static strata_service *service;

typedef struct player {
    pthread_t thread;
    unsigned seed;
    _Atomic bool *ends;
    uint64_t sent, failed;
    _Atomic uint64_t right, answered; /* copies with right bytes; callbacks */
    const char *wrong;                /* what must not be; NULL: nothing */
    strata_status wrong_status;
    uint64_t longest; /* from the submission to the answer, ns */
} player;

static unsigned draw(unsigned *seed, unsigned limit)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % limit;
}

static void count_answer(strata_future *future, void *data)
{
    (void)future;
    atomic_fetch_add(&((player *)data)->answered, 1);
}

/* A worker is gone, or the memory of one: nothing else may go wrong. */
static bool is_honest(strata_status status, strata_failure_class class)
{
    return status == STRATA_ERROR_STALE || (status == STRATA_ERROR_POISONED && class == STRATA_FAILURE_POISONED);
}

/* Waits for the answer; false: it is a failure. */
static bool finish(player *self, strata_status sent, strata_future *future, strata_answer *answer)
{
    *answer = (strata_answer){0};
    if (sent != STRATA_SUCCESS) {
        if (sent != STRATA_ERROR_STALE) {
            self->wrong = "a request is refused";
            self->wrong_status = sent;
        }
        return false;
    }
    const uint64_t begun = test_clock();
    self->sent++;
    strata_future_wait(future);
    const uint64_t took = test_clock() - begun;
    self->longest = took > self->longest ? took : self->longest;
    if (strata_future_take(future, answer) != STRATA_SUCCESS)
        self->wrong = "an answer cannot be taken";
    strata_future_release(future);
    strata_host_buffer_release(answer->buffer);
    if (answer->status == STRATA_SUCCESS)
        return true;
    if (!is_honest(answer->status, answer->failure)) {
        self->wrong = "an answer is neither right nor honest";
        self->wrong_status = answer->status;
    }
    self->failed++;
    return false;
}

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(seed + i * 13 + i / 253);
}

/* Allocates, copies there and back, and looks at the bytes. */
static void play_once(player *self, strata_host_buffer *buffer)
{
    const strata_send_options send = {.callback = count_answer, .data = self};
    const size_t bytes = strata_host_buffer_bytes(buffer);
    unsigned char *memory = strata_host_buffer_memory(buffer), *expected = malloc(bytes);
    strata_future *future = NULL;
    strata_answer answer;
    strata_status status = strata_service_allocate(service, STRATA_ELEMENT_U8, bytes, &send, &future);
    fill(expected, bytes, draw(&self->seed, 256));
    if (finish(self, status, future, &answer)) {
        strata_ref *ref = answer.ref;
        memcpy(memory, expected, bytes);
        status = strata_service_copy_from_host(service, buffer, ref, &send, &future);
        if (finish(self, status, future, &answer)) {
            memset(memory, 0, bytes);
            status = strata_service_copy_to_host(service, ref, buffer, &send, &future);
            if (finish(self, status, future, &answer)) {
                atomic_fetch_add(&self->right, 1);
                if (memcmp(memory, expected, bytes) != 0)
                    self->wrong = "an answer has wrong bytes";
            }
        }
        strata_ref_release(ref);
    }
    free(expected);
}

static strata_host_buffer *make_buffer(player *self, bool shared)
{
    strata_host_buffer *buffer = NULL;
    const size_t bytes = 1 + draw(&self->seed, LARGEST);
    while (shared && strata_service_buffer_create(service, bytes, &buffer) != STRATA_SUCCESS)
        strata_service_wait_ready(service, TEST_SECOND);
    if (!shared)
        strata_host_buffer_create(bytes, &buffer);
    return buffer;
}

/* A buffer that a killed worker may still write stays held until its process is over, which takes longer with a GPU. */
static bool is_given_back(const strata_host_buffer *buffer)
{
    for (int i = 0; i < 20000 && strata_host_buffer_handles(buffer) != 1; i++)
        test_sleep_ms(1);
    return strata_host_buffer_handles(buffer) == 1;
}

static void *play(void *data)
{
    player *self = data;
    while (!atomic_load(self->ends) && !self->wrong) {
        strata_host_buffer *buffer = make_buffer(self, draw(&self->seed, 2));
        for (unsigned i = 0; i < 4 && !self->wrong; i++)
            play_once(self, buffer);
        if (!self->wrong && !is_given_back(buffer))
            self->wrong = "a handle of a buffer is missing, or is left";
        strata_host_buffer_release(buffer);
    }
    return NULL;
}

static uint64_t count_right(player *players)
{
    uint64_t right = 0;
    for (unsigned i = 0; i < THREADS; i++)
        right += atomic_load(&players[i].right);
    return right;
}

/* One in four has done some work. */
static void kill_workers(player *players, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t right = count_right(players);
        for (int j = 0; j < 60000 && i % 4 == 3 && count_right(players) == right; j++)
            test_sleep_ms(1);
        strata_service_stats stats;
        check_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
        const struct timespec time = {.tv_nsec = draw(&seed, 30000000)};
        nanosleep(&time, NULL);
        check_ok(strata_service_get_stats(service, &stats));
        const uint64_t generation = stats.generation;
        if (!stats.worker)
            continue;
        kill(stats.worker, SIGKILL);
        for (int j = 0; j < 20000 && test_generation(service) == generation; j++)
            test_sleep_ms(1);
        assert_int_not_equal(test_generation(service), generation);
    }
}

static void every_answer_is_right_or_honest_while_workers_are_killed(void **state)
{
    (void)state;
    const size_t kills = getenv("STRATA_TEST_FULL") && !test_under_valgrind() ? 1000 : test_effort(30, 4);
    const test_descriptors before = test_count_descriptors();
    const size_t mappings = test_count_mappings();
    strata_service_options options = test_options;
    options.rebuild_window = 1;
    service = test_service_make(&options);
    player players[THREADS] = {0};
    _Atomic bool ends = false;
    for (unsigned i = 0; i < THREADS; i++) {
        players[i] = (player){.seed = i + 1, .ends = &ends};
        assert_int_equal(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
    kill_workers(players, kills, 1);
    atomic_store(&ends, true);
    uint64_t failed = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(players[i].thread, NULL);
        if (players[i].wrong)
            print_error("%s: %s\n", players[i].wrong, strata_status_name(players[i].wrong_status));
        assert_null(players[i].wrong);
        failed += players[i].failed;
    }
    print_message("%zu workers killed: %llu copies right, %llu requests failed\n", kills,
                  (unsigned long long)count_right(players), (unsigned long long)failed);
    assert_true(count_right(players) >= kills / 4);
    check_ok(strata_service_destroy(service));
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(atomic_load(&players[i].answered), players[i].sent);
    assert_false(test_has_zombie());
    assert_int_equal(test_count_descriptors().count, before.count);
    assert_int_equal(test_count_mappings(), mappings);
}

/* Exits with 77 without a driver. */
int main(void)
{
    test_options.form = STRATA_SERVICE_ISOLATED;
    test_options.worker_silence = TEST_LONG_SILENCE;
    if (!test_has_worker(&test_options))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_is_right_or_honest_while_workers_are_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
