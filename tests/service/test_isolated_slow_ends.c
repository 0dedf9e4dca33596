/* Workers that are not over soon after they were killed: the device may still write to memory that they share. */
#include "support/worker.h"

#include "service/isolated/isolated.h"

#include <sys/socket.h>

bool __real_isolated_process_wait(isolated_process *process, uint64_t nanoseconds);
bool __wrap_isolated_process_wait(isolated_process *process, uint64_t nanoseconds);

static _Atomic bool slow; /* no process is seen to be over */

bool __wrap_isolated_process_wait(isolated_process *process, uint64_t nanoseconds)
{
    return !atomic_load(&slow) && __real_isolated_process_wait(process, nanoseconds);
}

static const strata_service_options isolated = {.form = STRATA_SERVICE_ISOLATED, .worker_silence = TEST_LONG_SILENCE};

/* A copy to a buffer that the service shares, and one to another buffer, that a worker has begun and is killed with. */
typedef struct lost_copies {
    strata_service *service;
    strata_ref *ref;
    strata_host_buffer *shared, *plain;
    strata_future *to_shared, *to_plain;
} lost_copies;

static void begin(lost_copies *self)
{
    const strata_service_options options = isolated;
    self->service = test_service_make(&options);
    self->ref = test_service_allocate(self->service, 5000);
    check_ok(strata_service_buffer_create(self->service, 5000, &self->shared));
    self->plain = test_buffer(5000, 1);
    kill(test_worker(self->service), SIGSTOP);
    check_ok(strata_service_copy_to_host(self->service, self->ref, self->shared, NULL, &self->to_shared));
    check_ok(strata_service_copy_to_host(self->service, self->ref, self->plain, NULL, &self->to_plain));
    test_wait_begun(self->service, 2);
}

static void wait_for_handles(const strata_host_buffer *buffer, size_t handles)
{
    for (int i = 0; i < 4000 && strata_host_buffer_handles(buffer) != handles; i++)
        test_sleep_ms(1);
    assert_int_equal(strata_host_buffer_handles(buffer), handles);
}

static void end(lost_copies *self)
{
    wait_for_handles(self->shared, 1);
    strata_host_buffer_release(self->shared);
    strata_host_buffer_release(self->plain);
    check_ok(strata_ref_release(self->ref));
    check_ok(strata_service_destroy(self->service));
    assert_false(test_has_zombie());
}

static void a_buffer_that_a_dying_worker_may_write_is_not_given_back(void **state)
{
    (void)state;
    lost_copies self;
    begin(&self);
    const uint64_t generation = test_generation(self.service);
    atomic_store(&slow, true);
    kill(test_worker(self.service), SIGKILL);
    strata_answer answer = test_take(self.to_shared);
    assert_int_equal(answer.status, STRATA_ERROR_POISONED);
    assert_null(answer.buffer); /* the copy goes on */
    answer = test_take(self.to_plain);
    assert_int_equal(answer.status, STRATA_ERROR_POISONED);
    assert_ptr_equal(answer.buffer, self.plain);
    strata_host_buffer_release(answer.buffer);
    test_wait_replaced(self.service, generation);
    check_ok(strata_ref_release(test_service_allocate(self.service, 64)));
    assert_int_equal(strata_host_buffer_handles(self.shared), 2);
    atomic_store(&slow, false);
    end(&self);
}

static void a_service_that_stops_lets_go_of_such_buffers(void **state)
{
    (void)state;
    lost_copies self;
    begin(&self);
    check_ok(strata_service_shut_down(self.service, UINT64_MAX)); /* no other worker is made */
    atomic_store(&slow, true);
    kill(test_worker(self.service), SIGKILL);
    assert_null(test_take(self.to_shared).buffer);
    strata_host_buffer_release(test_take(self.to_plain).buffer);
    test_sleep_ms(50);
    assert_int_equal(strata_host_buffer_handles(self.shared), 2);
    atomic_store(&slow, false);
    end(&self);
}

static void a_deadline_answers_at_once_and_the_end_comes_when_it_can(void **state)
{
    (void)state;
    lost_copies self;
    begin(&self);
    atomic_store(&slow, true);
    check_ok(strata_service_shut_down(self.service, 0));
    assert_int_equal(test_take(self.to_shared).status, STRATA_ERROR_STALE);
    strata_host_buffer_release(test_take(self.to_plain).buffer);
    check_status(strata_service_destroy(self.service), STRATA_ERROR_BUSY);
    atomic_store(&slow, false);
    end(&self);
}

/* None of them is forgotten: it would stay as a zombie, and its descriptor open. */
static void beyond_eight_workers_that_are_not_over_none_is_started(void **state)
{
    (void)state;
    enum { PLACES = 8 };
    strata_service_options options = isolated;
    options.rebuild_limit = 64;
    const size_t descriptors = test_count_descriptors().count;
    strata_service *service = test_service_make(&options);
    uint64_t generation = 0;
    atomic_store(&slow, true);
    for (int i = 0; i < PLACES; i++) {
        if (i)
            test_wait_replaced(service, generation);
        generation = test_generation(service);
        const pid_t worker = test_worker(service);
        assert_true(worker > 0);
        kill(worker, SIGKILL);
        for (int j = 0; j < 4000 && test_generation(service) == generation; j++)
            test_sleep_ms(1);
    }
    check_status(strata_service_wait_ready(service, TEST_SECOND / 2), STRATA_ERROR_TIMEOUT);
    check_last_error(STRATA_ERROR_TIMEOUT, "8 killed workers");
    atomic_store(&slow, false);
    check_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    check_ok(strata_service_destroy(service));
    assert_int_equal(test_count_descriptors().count, descriptors);
    assert_false(test_has_zombie());
}

/* What was left for want of room is sent, and with it what has ended since: the link wakes the service's thread for the
 * first end only, so that none may be left there. */
static void an_end_behind_others_that_waited_for_room_is_sent_with_them(void **state)
{
    (void)state;
    static strata_service own;
    service_client client = {.worker = 1, .out.bound = 1 << 20};
    isolated_remote *released;
    isolated_buffer *ended;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    check_ok(service_mailbox_open(&own.mailbox, true));
    client.link = isolated_link_make(&own.mailbox);
    client.socket = pair[0];
    own.client = &client;
    isolated_link_change_worker(client.link, client.worker, false);
    isolated_remote_release(isolated_remote_new(client.link, 1, client.worker, false));
    isolated_link_take(client.link, &client.released, &client.unshared);
    isolated_remote_release(isolated_remote_new(client.link, 2, client.worker, false));
    isolated_send(&own);
    isolated_link_take(client.link, &released, &ended);
    assert_null(client.released);
    assert_null(released);
    wire_out_close(&client.out);
    isolated_link_unhold(client.link);
    service_mailbox_close(&own.mailbox);
    close(pair[0]);
    close(pair[1]);
}

/* Exits with 77 without a driver. */
int main(void)
{
    if (!test_has_worker(&isolated))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_that_a_dying_worker_may_write_is_not_given_back),
        cmocka_unit_test(a_service_that_stops_lets_go_of_such_buffers),
        cmocka_unit_test(a_deadline_answers_at_once_and_the_end_comes_when_it_can),
        cmocka_unit_test(beyond_eight_workers_that_are_not_over_none_is_started),
        cmocka_unit_test(an_end_behind_others_that_waited_for_room_is_sent_with_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
