/* A private runtime for each test, over the stack that the test runs on, with streams of every kind. The fixture cleans
 * up after a failed test. */
#ifndef STRATA_TEST_FIXTURE_H
#define STRATA_TEST_FIXTURE_H

#include "support/driver.h"
#include "support/stall.h"

/* How the runtime knows a stream. */
typedef enum test_stream_kind {
    TEST_STREAM_POOL = 0,   /* of the runtime's pool */
    TEST_STREAM_REGISTERED, /* the user's own, registered */
    TEST_STREAM_UNKNOWN,    /* the user's own, not registered */
    TEST_STREAM_ZERO,       /* 0, the legacy default stream */
    TEST_STREAM_LEGACY,     /* CU_STREAM_LEGACY, another name of it */
    TEST_STREAM_PER_THREAD, /* CU_STREAM_PER_THREAD of the thread that uses it */
    TEST_STREAM_KINDS,
} test_stream_kind;

const char *test_stream_kind_name(test_stream_kind kind);

/* Kinds with a new stream for each call of test_stream; the others have one stream. */
static inline bool test_stream_kind_is_many(test_stream_kind kind)
{
    return kind <= TEST_STREAM_UNKNOWN;
}

/* Whether the driver itself orders two streams of these kinds: only names of the one legacy stream. The per-thread
 * stream is ordered with the legacy one; the fixture's streams are non-blocking. */
static inline bool test_stream_kinds_are_ordered(test_stream_kind a, test_stream_kind b)
{
    return !test_stream_kind_is_many(a) && !test_stream_kind_is_many(b);
}

enum { TEST_STREAM_ROOM = 256, TEST_SEEN_BYTES = 4 << 20 };

typedef struct test_stream_record {
    CUstream handle;
    test_stream_kind kind;
} test_stream_record;

typedef struct test_fixture {
    const char *stack; /* the text that the runtime was made of */
    strata_event_mode events;
    strata_runtime *runtime;
    test_stream_record streams[TEST_STREAM_ROOM]; /* open ones */
    size_t stream_count;
    unsigned char *seen; /* pinned, for test_copy_back */
    size_t seen_used;
} test_fixture;

/* A stream of this kind, open until it is closed or the test ends. New streams are non-blocking. */
CUstream test_stream(test_fixture *fixture, test_stream_kind kind);

/* Releases, unregisters or destroys the stream, by its kind. Default streams stay. */
void test_stream_close(test_fixture *fixture, CUstream stream);

/* For tests that destroy or unregister a stream themselves. */
void test_stream_forget(test_fixture *fixture, CUstream stream);

/* Called, if it is set, before the clean-up after a case: undoes the program's changes to its environment. */
extern void (*test_before_clearing)(void);

/* Closes every stream that can be closed. Returns whether all were. For teardowns. */
bool test_fixture_close_streams(test_fixture *fixture);

/* ---- bytes on the device ---- */

/* Submits a fill of the block's first `bytes` bytes. */
void test_fill(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);

/* Submits a copy to pinned memory, which holds the bytes after a wait for the stream, until the test ends. */
const unsigned char *test_copy_back(test_fixture *fixture, CUdeviceptr address, size_t bytes, CUstream stream);

/* Checks that every byte is `value`, and prints the first that is not. */
#define check_bytes(bytes, value, count) test_check_bytes((bytes), (value), (count), __FILE__, __LINE__)
void test_check_bytes(const unsigned char *bytes, unsigned char value, size_t count, const char *file, int line);

void test_synchronize(CUstream stream);

/* ---- blocks ---- */

strata_block test_allocate(test_fixture *fixture, size_t bytes, CUstream stream);
void test_free_on(test_fixture *fixture, const strata_block *block, CUstream stream);

/* Uses the whole block, with prepare and finish: a fill with `value`, or a copy back. */
void test_write(test_fixture *fixture, const strata_block *block, unsigned char value, CUstream stream);
const unsigned char *test_read(test_fixture *fixture, const strata_block *block, CUstream stream);

strata_usage test_usage(test_fixture *fixture);

/* Whether the stack's owner has this name, whatever its options: for behaviour of one owner. */
bool test_owner_is(const test_fixture *fixture, const char *owner);

/* Another owner of the same kind, alone and with default options, for stacks that a test builds. */
strata_status test_owner_create(const test_fixture *fixture, strata_resource **out);

/* ---- running ---- */

typedef struct test_case {
    const char *name;
    void (*run)(test_fixture *fixture);
} test_case;

#define TEST_CASE(function) \
    {                       \
#function, function \
    }

/* Runs every case on every stack, each in a runtime of its own; the test's name is "case [stack]". Returns main's exit
 * status. */
int test_run_on(const char *const *stacks, size_t stack_count, const test_case *cases, size_t case_count);

/* Runs the cases on every resource, with its default stack. */
int test_run_on_every_resource(const test_case *cases, size_t case_count);

/* Runs the cases on stacks that allocate in stream order. */
int test_run_on_stream_ordered(const test_case *cases, size_t case_count);

/* Replaces the fixture's runtime with one of that event mode; streams must be closed and blocks freed. */
void test_use_events(test_fixture *fixture, strata_event_mode events);

#endif
