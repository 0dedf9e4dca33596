/* Graphs that share a capture pool, dropped by several threads while launches are in flight. */
#include <pthread.h>
#include <string.h>

#include "support/effort.h"
#include "support/graphs.h"
#include "support/sweep.h"

enum {
    GRAPHS = 3,
    USERS = GRAPHS + 1, /* of the pool: the last is its handle */
    ORDERS = 24,        /* of the users */
    SEGMENT = 2 << 20,
};

typedef struct sharing {
    test_fixture *fixture;
    strata_capture_pool *pool;
    CUstream streams[GRAPHS];
    strata_block out[GRAPHS];
    strata_graph *graphs[GRAPHS];
    size_t blocks; /* live ones before */
    size_t in_use; /* bytes of the budget before */
} sharing;

static size_t budget_in_use(test_fixture *fixture)
{
    strata_runtime_budget budget;
    check_ok(strata_runtime_budget_snapshot(fixture->runtime, &budget));
    return budget.in_use;
}

/* Each graph fills memory of the pool and copies it out. */
static sharing share(test_fixture *fixture)
{
    sharing self = {.fixture = fixture, .pool = make_pool(fixture)};
    for (size_t i = 0; i < GRAPHS; i++) {
        self.streams[i] = test_stream(fixture, TEST_STREAM_POOL);
        self.out[i] = test_allocate(fixture, BYTES, self.streams[i]);
    }
    self.blocks = live_blocks(fixture);
    self.in_use = budget_in_use(fixture);
    for (size_t i = 0; i < GRAPHS; i++) {
        begin(fixture, self.streams[i], self.pool);
        strata_block block = test_allocate(fixture, BYTES, self.streams[i]);
        test_write(fixture, &block, (unsigned char)(i + 1), self.streams[i]);
        copy(fixture, &self.out[i], &block, self.streams[i]);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        self.graphs[i] = end(fixture, self.streams[i]);
    }
    return self;
}

static void check_values(const sharing *self)
{
    for (size_t i = 0; i < GRAPHS; i++)
        check_value(self->fixture, &self->out[i], (unsigned char)(i + 1), self->streams[i]);
}

static void close_sharing(sharing *self)
{
    check_ok(strata_runtime_reap_pending(self->fixture->runtime));
    assert_int_equal(live_blocks(self->fixture), self->blocks);
    assert_int_equal(budget_in_use(self->fixture), self->in_use);
    for (size_t i = 0; i < GRAPHS; i++) {
        test_free_on(self->fixture, &self->out[i], self->streams[i]);
        test_stream_close(self->fixture, self->streams[i]);
    }
}

/* ---- in every order ---- */

typedef struct dropper {
    const sharing *sharing;
    size_t user;
    strata_status status;
} dropper;

static void *drop(void *data)
{
    dropper *self = data;
    test_make_current();
    self->status = self->user == GRAPHS ? strata_capture_pool_release(self->sharing->pool)
                                        : strata_graph_destroy(self->sharing->graphs[self->user]);
    return NULL;
}

/* By a thread of its own. The lists of what a failed case leaves are this thread's. */
static void drop_by_thread(const sharing *self, size_t user)
{
    dropper one = {.sharing = self, .user = user};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drop, &one), 0);
    if (user == GRAPHS)
        pool_count--; /* the only one */
    for (size_t i = 0; i < graph_count && user < GRAPHS; i++)
        if (graphs[i] == self->graphs[user])
            graphs[i] = graphs[--graph_count];
    pthread_join(thread, NULL);
    check_ok(one.status);
}

/* The users in the n-th order. */
static void order_users(size_t n, size_t order[USERS])
{
    size_t left[USERS] = {0, 1, 2, 3};
    for (size_t i = 0, orders = ORDERS; i < USERS; i++) {
        orders /= USERS - i;
        const size_t at = n / orders % (USERS - i);
        order[i] = left[at];
        memmove(&left[at], &left[at + 1], (USERS - i - 1 - at) * sizeof left[0]);
    }
}

/* The first stream is held back, and the pool's memory orders all launches behind it. */
static void drop_in_order(test_fixture *fixture, const size_t order[USERS])
{
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    sharing self = share(fixture);
    test_stall *stall = test_stall_begin(self.streams[0]);
    for (size_t i = 0; i < 2 * GRAPHS; i++)
        check_ok(strata_graph_launch(self.graphs[i % GRAPHS], self.streams[i % GRAPHS]));
    for (size_t i = 0; i < USERS; i++) {
        drop_by_thread(&self, order[i]);
        assert_int_equal(live_blocks(fixture), self.blocks + (i < USERS - 1)); /* the pool's segment */
    }
    strata_block next = test_allocate(fixture, SEGMENT, other); /* perhaps the segment's memory */
    test_write(fixture, &next, 0x99, other);
    test_stall_release(stall);
    check_values(&self);
    test_stall_end(stall);
    test_free_on(fixture, &next, other);
    close_sharing(&self);
    test_stream_close(fixture, other);
}

static void
a_shared_pool_dropped_by_threads_in_every_order_is_freed_once_behind_launches_in_flight(test_fixture *fixture)
{
    const size_t step = test_is_swept() || test_under_valgrind() ? 5 : 1;
    for (size_t n = 0; n < ORDERS; n += step) {
        size_t order[USERS];
        order_users(n, order);
        drop_in_order(fixture, order);
    }
}

/* ---- at a time ---- */

typedef struct user {
    const sharing *sharing;
    pthread_barrier_t *start;
    size_t number;
    strata_status status;
} user;

static strata_status fill_within(strata_runtime *runtime, CUstream stream, const strata_block *block)
{
    strata_status status = strata_runtime_prepare_block_use(runtime, block, stream, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    test_cu()->MemsetD8Async(block->address, 0x77, block->requested, stream);
    return strata_runtime_finish_block_use(runtime, block, stream, STRATA_ACCESS_WRITE);
}

/* Makes and launches a graph of the pool while others launch theirs, and drops it. Its last block outlives it: the
 * free is not refused because other launches write its segment. */
static strata_status capture_beside(const user *self, CUstream stream)
{
    strata_runtime *runtime = self->sharing->fixture->runtime;
    strata_block freed, lives = {0};
    strata_graph *graph;
    strata_status status = strata_capture_begin(runtime, stream, STRATA_CAPTURE_THREAD_LOCAL, self->sharing->pool);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_runtime_allocate(runtime, BYTES, stream, &freed);
    if (status == STRATA_SUCCESS)
        status = fill_within(runtime, stream, &freed);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_deallocate(runtime, &freed);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_allocate(runtime, BYTES, stream, &lives);
    if (status == STRATA_SUCCESS)
        status = fill_within(runtime, stream, &lives);
    const strata_status ended = strata_capture_end(runtime, stream, &graph);
    if (status == STRATA_SUCCESS)
        status = ended;
    if (status == STRATA_SUCCESS)
        status = strata_graph_launch(graph, stream);
    const strata_status destroyed = strata_graph_destroy(graph);
    const strata_status freed_last = lives.address ? strata_runtime_deallocate(runtime, &lives) : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = destroyed;
    return status == STRATA_SUCCESS ? freed_last : status;
}

static void *use_and_drop(void *data)
{
    user *self = data;
    const sharing *of = self->sharing;
    CUstream stream = self->number < GRAPHS ? of->streams[self->number] : of->streams[0];
    CUstream own;
    test_make_current();
    if (test_cu()->StreamCreate(&own, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        self->status = STRATA_ERROR_DRIVER;
    pthread_barrier_wait(self->start);
    for (int i = 0; i < 3 && self->status == STRATA_SUCCESS; i++)
        self->status = self->number == GRAPHS ? capture_beside(self, own)
                                              : strata_graph_launch(of->graphs[self->number], i % 2 ? own : stream);
    const strata_status dropped =
        self->number == GRAPHS ? strata_capture_pool_release(of->pool) : strata_graph_destroy(of->graphs[self->number]);
    if (self->status == STRATA_SUCCESS)
        self->status = dropped;
    test_cu()->StreamDestroy(own);
    return NULL;
}

static void use_and_drop_at_a_time(test_fixture *fixture)
{
    pthread_barrier_t start;
    pthread_t threads[USERS];
    user users[USERS];
    sharing self = share(fixture);
    assert_int_equal(pthread_barrier_init(&start, NULL, USERS), 0);
    for (size_t i = 0; i < USERS; i++)
        users[i] = (user){.sharing = &self, .start = &start, .number = i};
    graph_count -= GRAPHS; /* the threads drop them */
    pool_count--;
    for (size_t i = 0; i < USERS; i++)
        if (pthread_create(&threads[i], NULL, use_and_drop, &users[i]) != 0)
            abort(); /* the others wait at the barrier */
    for (size_t i = 0; i < USERS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    for (size_t i = 0; i < USERS; i++)
        check_ok(users[i].status);
    check_values(&self);
    close_sharing(&self);
}

static void
a_shared_pool_used_and_dropped_by_threads_at_a_time_is_freed_once_behind_launches_in_flight(test_fixture *fixture)
{
    if (test_is_swept())
        return; /* threads make it another run each time */
    for (size_t rounds = test_effort(60, 5); rounds; rounds--)
        use_and_drop_at_a_time(fixture);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_shared_pool_dropped_by_threads_in_every_order_is_freed_once_behind_launches_in_flight),
        TEST_CASE(a_shared_pool_used_and_dropped_by_threads_at_a_time_is_freed_once_behind_launches_in_flight),
    };
    static const char *const stacks[] = {"pool", "async", "budget(limit=4GiB), statistics, pool",
                                         "logging(format=memory), aligned, async"};
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? 2 : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
