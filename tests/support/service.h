/* Services for tests: made, asked, and destroyed; a form is chosen by the test. */
#ifndef STRATA_TEST_SERVICE_H
#define STRATA_TEST_SERVICE_H

#include "support/driver.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <strata/service.h>

enum { TEST_SECOND = 1000000000 };

/* worker_silence, for tests of other things: on a busy machine a worker may say nothing for seconds. */
#define TEST_LONG_SILENCE (60ull * TEST_SECOND)

/* The kernel of driver/kernels/pattern.cu fills `bytes` bytes at `address` with a pattern of `seed`. */
static const char test_fill_ptx[] = {
#include "kernels/pattern_ptx.inc"
};

static inline strata_service *test_service_make(const strata_service_options *options)
{
    strata_service *service;
    check_ok(strata_service_create(options, &service));
    check_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    return service;
}

/* Waits for the answer and takes it; the future is gone. */
static inline strata_answer test_take(strata_future *future)
{
    strata_answer answer;
    strata_future_wait(future);
    check_ok(strata_future_take(future, &answer));
    answer.error = NULL; /* goes with the future */
    strata_future_release(future);
    return answer;
}

static inline strata_ref *test_service_allocate(strata_service *service, size_t bytes)
{
    strata_future *future;
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, bytes, NULL, &future));
    const strata_answer answer = test_take(future);
    assert_int_equal(answer.status, STRATA_SUCCESS);
    assert_non_null(answer.ref);
    return answer.ref;
}

static inline strata_host_buffer *test_buffer(size_t bytes, unsigned char value)
{
    strata_host_buffer *buffer;
    check_ok(strata_host_buffer_create(bytes, &buffer));
    memset(strata_host_buffer_memory(buffer), value, bytes);
    return buffer;
}

static inline bool test_buffer_has(const strata_host_buffer *buffer, unsigned char value)
{
    const unsigned char *memory = strata_host_buffer_memory(buffer);
    for (size_t i = 0; i < strata_host_buffer_bytes(buffer); i++)
        if (memory[i] != value)
            return false;
    return true;
}

/* Copies and waits; the buffer stays the caller's. */
static inline strata_status test_copy(strata_service *service, strata_ref *ref, strata_host_buffer *buffer,
                                      bool to_host)
{
    strata_future *future;
    const strata_status status = to_host ? strata_service_copy_to_host(service, ref, buffer, NULL, &future)
                                         : strata_service_copy_from_host(service, buffer, ref, NULL, &future);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_answer answer = test_take(future);
    if (answer.status == STRATA_SUCCESS)
        assert_ptr_equal(answer.buffer, buffer);
    strata_host_buffer_release(answer.buffer);
    return answer.status;
}

/* Whether every byte of the reference is `value`. */
static inline bool test_ref_has(strata_service *service, strata_ref *ref, unsigned char value)
{
    strata_host_buffer *buffer = test_buffer(strata_ref_len(ref), (unsigned char)~value);
    check_ok(test_copy(service, ref, buffer, true));
    const bool has = test_buffer_has(buffer, value);
    strata_host_buffer_release(buffer);
    return has;
}

/* Waits until callbacks have counted to `expected`: answers are published before their callbacks are called. */
static inline void test_wait_count(const _Atomic int *count, int expected)
{
    for (int i = 0; i < 20000 && atomic_load(count) < expected; i++)
        usleep(500);
    assert_int_equal(atomic_load(count), expected);
}

/* ---- holding the service's thread ---- */

typedef struct test_gate {
    sem_t reached, open;
} test_gate;

static inline strata_status test_wait_at_gate(strata_runtime *runtime, CUstream stream, void *data)
{
    test_gate *gate = data;
    (void)runtime;
    (void)stream;
    sem_post(&gate->reached);
    sem_wait(&gate->open);
    return STRATA_SUCCESS;
}

/* Submits a request in which the service's thread stays until the gate is opened. */
static inline strata_future *test_close_gate(strata_service *service, test_gate *gate)
{
    const strata_service_operation operation = {.function = test_wait_at_gate, .data = gate};
    strata_future *future;
    sem_init(&gate->reached, 0, 0);
    sem_init(&gate->open, 0, 0);
    check_ok(strata_service_run(service, &operation, &(strata_send_options){.hint = STRATA_HINT_LONG}, &future));
    sem_wait(&gate->reached);
    return future;
}

static inline void test_open_gate(test_gate *gate, strata_future *future)
{
    sem_post(&gate->open);
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    sem_destroy(&gate->reached);
    sem_destroy(&gate->open);
}

/* ---- faults ---- */

static inline uint64_t test_load_fill(strata_service *service)
{
    strata_future *future;
    check_ok(strata_service_load(service, test_fill_ptx, 0, NULL, &future));
    const strata_answer answer = test_take(future);
    assert_int_equal(answer.status, STRATA_SUCCESS);
    return answer.module;
}

static inline strata_argument test_value(uint64_t value)
{
    strata_argument argument = {.kind = STRATA_ARGUMENT_VALUE, .bytes = sizeof value};
    memcpy(argument.value, &value, sizeof value);
    return argument;
}

/* Launches a kernel that writes where no memory is. */
static inline strata_future *test_poison(strata_service *service)
{
    const strata_argument arguments[] = {test_value(16), test_value(4096), test_value(1)};
    const strata_kernel kernel = {
        .module = test_load_fill(service), .entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    strata_future *future;
    check_ok(strata_service_launch(service, &kernel, NULL, &future));
    return future;
}

#endif
