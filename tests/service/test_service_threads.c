/* Many threads send requests at a time: none is lost, none is answered twice, and each sender's order holds. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "support/effort.h"
#include "support/service.h"

enum { THREADS = 16, WINDOW = 64, BYTES = 256 };

static strata_service *service;
static size_t each; /* requests of a thread */

typedef struct sender {
    pthread_t thread;
    unsigned number;
    uint64_t random;
    strata_ref *ref;
    _Atomic size_t sent, answered, refused;
    _Atomic size_t under_way;
    _Atomic size_t last[3]; /* of each priority: number of the last request that was answered in its turn */
    _Atomic size_t out_of_order, wrong;
} sender;

typedef struct sent_request {
    sender *from;
    size_t number;
    strata_priority priority;
    bool copies, cuts; /* may be cut short */
    _Atomic int answers;
} sent_request;

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    return *random ^= *random << 17;
}

static bool is_cut(strata_status status)
{
    return status == STRATA_ERROR_TIMEOUT || status == STRATA_ERROR_CANCELLED;
}

static _Atomic bool told; /* the first wrong answer is printed */

static void note_wrong(sender *self, const strata_answer *answer)
{
    if (atomic_fetch_add(&self->wrong, 1) == 0 && !atomic_exchange(&told, true))
        print_error("wrong answer: %s: %s\n", strata_status_name(answer->status),
                    answer->error ? answer->error->message : "");
}

/* Answers come in order, but for those that are cut short. */
static void note_answer(strata_future *future, void *data)
{
    sent_request *request = data;
    sender *self = request->from;
    strata_answer answer;
    if (atomic_fetch_add(&request->answers, 1) != 0 || strata_future_take(future, &answer) != STRATA_SUCCESS)
        note_wrong(self, &answer);
    const bool cut = is_cut(answer.status);
    if (answer.status != STRATA_SUCCESS && !(request->cuts && cut))
        note_wrong(self, &answer);
    if (!cut) {
        const size_t before = atomic_exchange(&self->last[request->priority], request->number);
        if (before >= request->number)
            atomic_fetch_add(&self->out_of_order, 1);
    }
    if (request->copies && answer.status == STRATA_SUCCESS &&
        !test_buffer_has(answer.buffer, (unsigned char)self->number))
        note_wrong(self, &answer);
    strata_ref_release(answer.ref);
    strata_host_buffer_release(answer.buffer);
    atomic_fetch_add(&self->answered, 1);
    atomic_fetch_sub(&self->under_way, 1);
    free(request);
}

static strata_status send_one(sender *self, sent_request *request, uint64_t random, strata_future **out)
{
    const strata_send_options send = {.priority = request->priority,
                                      .timeout = request->cuts && random & 64 ? 1000 + random % 100000 : 0,
                                      .sender = self->number + 1,
                                      .callback = note_answer,
                                      .data = request};
    if (!request->copies)
        return strata_service_allocate(service, STRATA_ELEMENT_U8, BYTES, &send, out);
    strata_host_buffer *buffer = test_buffer(BYTES, 0);
    const strata_status status = strata_service_copy_to_host(service, self->ref, buffer, &send, out);
    strata_host_buffer_release(buffer);
    return status;
}

static void send_any(sender *self, size_t number)
{
    const uint64_t random = next(&self->random);
    sent_request *request = calloc(1, sizeof *request);
    *request = (sent_request){.from = self,
                              .number = number,
                              .priority = (strata_priority)(random % 3),
                              .copies = random & 8,
                              .cuts = (random & 48) == 48};
    strata_future *future = NULL;
    const bool cancel = request->cuts && !(random & 64);
    atomic_fetch_add(&self->under_way, 1);
    if (send_one(self, request, random, cancel ? &future : NULL) != STRATA_SUCCESS) {
        atomic_fetch_sub(&self->under_way, 1);
        atomic_fetch_add(&self->refused, 1);
        free(request);
        return;
    }
    atomic_fetch_add(&self->sent, 1);
    if (cancel) {
        strata_future_cancel(future);
        strata_future_release(future);
    }
}

static void *run(void *data)
{
    sender *self = data;
    for (size_t i = 1; i <= each; i++) {
        while (atomic_load(&self->under_way) >= WINDOW)
            usleep(20); /* threads that yield in a loop can keep a worker from running for seconds */
        send_any(self, i);
    }
    while (atomic_load(&self->under_way))
        usleep(100);
    return NULL;
}

static void meet(const strata_service_options *options)
{
    static sender senders[THREADS];
    memset(senders, 0, sizeof senders);
    service = test_service_make(options);
    for (unsigned i = 0; i < THREADS; i++) {
        sender *self = &senders[i];
        self->number = i;
        self->random = 0x9e3779b97f4a7c15ull * (i + 1);
        self->ref = test_service_allocate(service, BYTES);
        strata_host_buffer *buffer = test_buffer(BYTES, (unsigned char)i);
        check_ok(test_copy(service, self->ref, buffer, false));
        strata_host_buffer_release(buffer);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&senders[i].thread, NULL, run, &senders[i]), 0);
    size_t sent = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(senders[i].thread, NULL);
        assert_int_equal(atomic_load(&senders[i].answered), atomic_load(&senders[i].sent));
        assert_int_equal(atomic_load(&senders[i].out_of_order), 0);
        assert_int_equal(atomic_load(&senders[i].wrong), 0);
        assert_int_equal(atomic_load(&senders[i].refused), 0);
        sent += atomic_load(&senders[i].sent);
        check_ok(strata_ref_release(senders[i].ref));
    }
    strata_service_stats stats;
    check_ok(strata_service_get_stats(service, &stats));
    assert_int_equal(stats.done + stats.failed, sent + 2 * THREADS);
    assert_int_equal(stats.failed, stats.timeouts + stats.cancelled);
    check_ok(strata_service_destroy(service));
}

static void on_one_stream(void **state)
{
    (void)state;
    meet(NULL);
}

static void on_a_stream_for_each_sender(void **state)
{
    (void)state;
    meet(&(strata_service_options){.streams = STRATA_SERVICE_STREAM_PER_SENDER, .stream_count = 16});
}

static void on_pooled_streams_with_host_functions(void **state)
{
    (void)state;
    meet(&(strata_service_options){.streams = STRATA_SERVICE_STREAM_POOLED,
                                   .completion = STRATA_COMPLETION_HOST_FUNCTION});
}

static void on_pooled_streams_with_a_thread_that_waits(void **state)
{
    (void)state;
    meet(&(strata_service_options){.streams = STRATA_SERVICE_STREAM_POOLED,
                                   .completion = STRATA_COMPLETION_SYNCHRONIZING});
}

static void in_a_worker(void **state)
{
    (void)state;
    meet(&(strata_service_options){.form = STRATA_SERVICE_ISOLATED, .worker_silence = TEST_LONG_SILENCE});
}

int main(void)
{
    test_open_driver();
    each = getenv("STRATA_TEST_FULL")   ? 62500 /* a million in each way */
           : test_on_simulated_driver() ? test_effort(500, 50)
                                        : 15625;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_stream),
        cmocka_unit_test(on_a_stream_for_each_sender),
        cmocka_unit_test(on_pooled_streams_with_host_functions),
        cmocka_unit_test(on_pooled_streams_with_a_thread_that_waits),
        cmocka_unit_test(in_a_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
