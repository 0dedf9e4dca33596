/* The defaults of a service's polling, as values: the test holds the service's clock, and sees how long its thread asks
 * to sleep. */
#include "support/service.h"
#include "support/stall.h"

#include "service/service.h"

static _Atomic uint64_t held_at; /* 0: the clock goes on */
static _Atomic unsigned sleeps;
static _Atomic uint64_t last_sleep; /* nanoseconds */

uint64_t __real_service_clock(void);
uint64_t __wrap_service_clock(void);
void __real_service_mailbox_sleep(service_mailbox *box, int fd, uint64_t nanoseconds);
void __wrap_service_mailbox_sleep(service_mailbox *box, int fd, uint64_t nanoseconds);

uint64_t __wrap_service_clock(void)
{
    const uint64_t held = atomic_load(&held_at);
    return held ? held : __real_service_clock();
}

void __wrap_service_mailbox_sleep(service_mailbox *box, int fd, uint64_t nanoseconds)
{
    atomic_store(&last_sleep, nanoseconds);
    atomic_fetch_add(&sleeps, 1);
    __real_service_mailbox_sleep(box, fd, nanoseconds);
}

/* Rounds of the thread that begin after the call, as it has returned. */
static void let_it_poll(void)
{
    const unsigned before = atomic_load(&sleeps);
    while (atomic_load(&sleeps) < before + 3)
        usleep(100);
}

static strata_status stall(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    *(test_stall **)data = test_stall_begin(stream);
    return STRATA_SUCCESS;
}

static void polling_asks_every_50_us_and_gives_up_after_300_s(void **state)
{
    (void)state;
    const uint64_t begun = __real_service_clock(), limit = 300ull * TEST_SECOND;
    test_stall *stalled;
    const strata_service_operation operation = {.function = stall, .data = &stalled};
    strata_future *future;
    strata_service *service = test_service_make(NULL);
    atomic_store(&held_at, begun);
    check_ok(strata_service_run(service, &operation, NULL, &future));
    let_it_poll();
    assert_int_equal(atomic_load(&last_sleep), 50000);
    atomic_store(&held_at, begun + limit - 1);
    let_it_poll();
    assert_false(strata_future_poll(future));
    atomic_store(&held_at, begun + limit);
    let_it_poll();
    assert_true(strata_future_poll(future));
    check_status(strata_future_wait(future), STRATA_ERROR_TIMEOUT);
    strata_future_release(future);
    atomic_store(&held_at, 0);
    test_stall_end(stalled);
    check_ok(strata_service_destroy(service));
}

/* Exits with 77 without a driver. */
int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(polling_asks_every_50_us_and_gives_up_after_300_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
