/* Random captures against a model.
 *
 * Rounds of captures that fork and join streams, allocate, free, fill and copy, with other code's captures beside, with
 * launches, updates, discards and ends in any order, also by threads. In every other round, one driver call in a few of
 * Strata's own fails. What the model knows:
 *
 * It does at each launch what was captured, in the order in which it was: Strata orders conflicting uses, so no other
 * order may show. It keeps its own record of the nodes of a capture and of what comes before each: memory is used again
 * only by what comes after all uses of its last block, and after its free. Blocks that live do not overlap, and the
 * stack has what lives, what graphs keep, and what pools have taken that something holds.
 *
 * The checker of the simulated driver sees whatever is not ordered. */
#include <pthread.h>
#include <string.h>

#include "support/effort.h"
#include "support/graph_model.h"
#include "support/sweep.h"

/* ---- a capture ---- */

/* Memory that was given back in the capture. */
typedef struct gap {
    CUdeviceptr address;
    size_t bytes;
    uint64_t before; /* nodes that must come before work that uses it again */
} gap;

typedef struct capturing {
    model *model;
    CUstream in[STREAMS];     /* the streams of the capture, the first is its origin */
    uint64_t before[STREAMS]; /* nodes that come before the stream's next work */
    size_t count;
    model_graph made;
    gap gaps[MOST_STEPS];
    size_t gap_count;
    bool failed, spoiled; /* a call has; the end has to */
} capturing;

static capturing now; /* too large for a stack */

static size_t any_captured(capturing *self)
{
    return pick(self->model, (unsigned)self->count);
}

static void order_streams(capturing *self, size_t later, size_t earlier)
{
    test_order_after(self->in[later], self->in[earlier]);
    self->before[later] |= self->before[earlier];
}

static void fork_one(capturing *self)
{
    model *m = self->model;
    CUstream fork = m->streams[2 + pick(m, STREAMS - 2)];
    const size_t from = any_captured(self);
    size_t at = 0;
    while (at < self->count && self->in[at] != fork)
        at++;
    if (at == self->count) {
        self->in[self->count++] = fork;
        self->before[at] = 0;
    }
    order_streams(self, at, from);
}

static void check_order(const capturing *self, const strata_block *block, uint64_t before)
{
    for (size_t i = 0; i < self->gap_count; i++) {
        const gap *one = &self->gaps[i];
        if (one->address < block->address + block->bytes && block->address < one->address + one->bytes)
            assert_int_equal(one->before & ~before, 0);
    }
}

static void allocate_one(capturing *self)
{
    model *m = self->model;
    size_t at = 0;
    while (at < TEMPORARIES && m->temporaries[at].live)
        at++;
    if (at == TEMPORARIES || m->temporary_count == sizeof m->temporaries_values)
        return;
    const size_t on = any_captured(self), bytes = any_bytes(m);
    const strata_usage before = test_usage(m->fixture);
    strata_block block;
    const strata_status status = ATTEMPT(m, strata_runtime_allocate(m->fixture->runtime, bytes, self->in[on], &block));
    count_taken(m, self->made.pool, &before);
    if (status != STRATA_SUCCESS)
        return;
    check_new(m, &block);
    check_order(self, &block, self->before[on]);
    m->temporaries[at] = (temporary){
        .block = block, .live = true, .on_origin = on == 0, .number = m->temporary_count++, .before = self->before[on]};
}

static temporary *any_temporary(model *self, bool written)
{
    const size_t first = pick(self, TEMPORARIES);
    for (size_t i = 0; i < TEMPORARIES; i++) {
        temporary *one = &self->temporaries[(first + i) % TEMPORARIES];
        if (one->live && (one->written || !written))
            return one;
    }
    return NULL;
}

static bool uses(const step *one, unsigned operand)
{
    return one->to == operand || (one->copies && one->from == operand);
}

static void free_temporary(capturing *self, temporary *one)
{
    model *m = self->model;
    const bool own = one->on_origin && pick(m, 2);
    const size_t on = own ? 0 : any_captured(self);
    const strata_status status =
        ATTEMPT(m, own ? strata_runtime_deallocate(m->fixture->runtime, &one->block)
                       : strata_runtime_deallocate_on(m->fixture->runtime, &one->block, self->in[on]));
    if (status != STRATA_SUCCESS)
        return; /* it lives */
    one->live = false;
    gap *left = &self->gaps[self->gap_count++];
    *left = (gap){one->block.address, one->block.bytes, self->before[on] | one->before};
    for (size_t i = 0; i < self->made.count; i++)
        if (uses(&self->made.steps[i], TEMPORARY + one->number))
            left->before |= UINT64_C(1) << i;
}

/* The capture, or the graphs that use the block already, keep it until their end. */
static void free_outside(capturing *self, object *one)
{
    model *m = self->model;
    const size_t on = any_captured(self), index = (size_t)(one - m->objects);
    const bool kept = is_kept(m, index) || self->made.keeps[index];
    if (ATTEMPT(m, strata_runtime_deallocate_on(m->fixture->runtime, &one->block, self->in[on])) != STRATA_SUCCESS) {
        self->failed = true; /* perhaps it is kept */
        return;
    }
    one->freed = true;
    self->made.keeps[index] |= !kept && (one->pool || on > 0);
}

/* An operand, and its block. NULL: there is none. */
static const strata_block *any_operand(capturing *self, bool read, unsigned *operand)
{
    model *m = self->model;
    if (pick(m, 2)) {
        temporary *one = any_temporary(m, read);
        if (one) {
            *operand = TEMPORARY + one->number;
            return &one->block;
        }
    }
    const object *one = any_object(m, read);
    if (!one)
        return NULL;
    *operand = (unsigned)(one - m->objects);
    return &one->block;
}

/* ---- work in a capture ---- */

typedef struct work {
    const strata_block *to, *from; /* NULL: a fill */
    unsigned char value;
    size_t bytes;
    CUstream stream;
    bool submitted;
} work;

static void submit(work *self)
{
    if (self->from)
        check_cu(test_cu()->MemcpyDtoDAsync(self->to->address, self->from->address, self->bytes, self->stream));
    else
        test_fill(self->to->address, self->value, self->bytes, self->stream);
    self->submitted = true;
}

static strata_status do_plainly(model *m, work *self)
{
    strata_runtime *runtime = m->fixture->runtime;
    strata_status status = STRATA_SUCCESS;
    if (self->from)
        status = ATTEMPT(m, strata_runtime_prepare_block_use(runtime, self->from, self->stream, STRATA_ACCESS_READ));
    if (status != STRATA_SUCCESS)
        return status;
    status = ATTEMPT(m, strata_runtime_prepare_block_use(runtime, self->to, self->stream, STRATA_ACCESS_WRITE));
    if (status == STRATA_SUCCESS)
        submit(self);
    const strata_access read = self->submitted ? STRATA_ACCESS_READ : STRATA_ACCESS_NONE;
    if (self->from) {
        const strata_status finished =
            ATTEMPT(m, strata_runtime_finish_block_use(runtime, self->from, self->stream, read));
        status = status == STRATA_SUCCESS ? finished : status;
    }
    if (!self->submitted)
        return status;
    const strata_status finished =
        ATTEMPT(m, strata_runtime_finish_block_use(runtime, self->to, self->stream, STRATA_ACCESS_WRITE));
    return status == STRATA_SUCCESS ? finished : status;
}

static strata_status do_recorded(model *m, work *self)
{
    strata_launch launch;
    strata_status status =
        ATTEMPT(m, strata_launch_begin(&launch, m->fixture->runtime, self->stream, STRATA_LAUNCH_STRICT));
    if (status != STRATA_SUCCESS)
        return status;
    if (self->from)
        check_ok(strata_launch_use(&launch, self->from, STRATA_ACCESS_READ));
    check_ok(strata_launch_use(&launch, self->to, STRATA_ACCESS_WRITE));
    status = ATTEMPT(m, strata_launch_preflight(&launch));
    if (status == STRATA_SUCCESS) {
        submit(self);
        status = ATTEMPT(m, strata_launch_commit(&launch));
    }
    check_ok(strata_launch_end(&launch));
    return status;
}

static uint64_t nodes_before(const capturing *self, const step *made, size_t on)
{
    uint64_t before = self->before[on];
    for (size_t i = 0; i < self->made.count; i++) {
        const step *one = &self->made.steps[i];
        if (uses(one, made->to) || (made->copies && one->to == made->from))
            before |= one->before | UINT64_C(1) << i;
    }
    for (size_t i = 0; i < TEMPORARIES; i++) {
        const temporary *one = &self->model->temporaries[i];
        if (one->live && uses(made, TEMPORARY + one->number))
            before |= one->before;
    }
    return before;
}

/* The operands of the step in hand are kept. */
static void count_step(capturing *self, size_t on)
{
    model *m = self->model;
    step *made = &self->made.steps[self->made.count];
    made->before = nodes_before(self, made, on);
    self->before[on] = made->before | UINT64_C(1) << self->made.count;
    for (size_t i = 0; i < TEMPORARIES; i++)
        if (m->temporaries[i].live && TEMPORARY + m->temporaries[i].number == made->to)
            m->temporaries[i].written = true;
    if (made->to < TEMPORARY)
        self->made.keeps[made->to] = true;
    if (made->copies && made->from < TEMPORARY)
        self->made.keeps[made->from] = true;
    self->made.count++;
}

static void do_work(capturing *self, work *one)
{
    model *m = self->model;
    const size_t on = any_captured(self);
    one->stream = self->in[on];
    const strata_status status = pick(m, 2) ? do_plainly(m, one) : do_recorded(m, one);
    if (one->submitted)
        count_step(self, on);
    self->failed |= status != STRATA_SUCCESS;
    self->spoiled |= status != STRATA_SUCCESS && one->submitted;
}

static void fill_one(capturing *self)
{
    model *m = self->model;
    step *made = &self->made.steps[self->made.count];
    *made = (step){.value = (unsigned char)pick(m, 256)};
    const strata_block *to = any_operand(self, false, &made->to);
    if (to)
        do_work(self, &(work){.to = to, .value = made->value, .bytes = to->requested});
}

/* The whole target is written. */
static void copy_one(capturing *self)
{
    step *made = &self->made.steps[self->made.count];
    *made = (step){.copies = true};
    const strata_block *from = any_operand(self, true, &made->from), *to = any_operand(self, false, &made->to);
    if (!from || !to || from == to || to->requested > from->requested)
        return;
    made->bytes = to->requested;
    do_work(self, &(work){.to = to, .from = from, .bytes = made->bytes});
}

static void do_step(capturing *self)
{
    model *m = self->model;
    temporary *one;
    switch (pick(m, 12)) {
    case 0:
        fork_one(self);
        break;
    case 1:
        order_streams(self, 0, any_captured(self));
        break;
    case 2:
    case 3:
    case 4:
        allocate_one(self);
        break;
    case 5:
    case 6:
        if ((one = any_temporary(m, false)))
            free_temporary(self, one);
        break;
    case 7:
    case 8:
        fill_one(self);
        break;
    case 9:
    case 10:
        copy_one(self);
        break;
    default:
        if (live_objects(m) > 2 && pick(m, 4) == 0)
            free_outside(self, any_object(m, false));
    }
}

/* What the capture has not freed is the program's from now on. */
static void keep_temporaries(model *self, model_pool *pool)
{
    for (size_t i = 0; i < TEMPORARIES; i++) {
        temporary *one = &self->temporaries[i];
        if (one->live)
            self->objects[self->object_count++] = (object){.block = one->block, .pool = pool};
        one->live = false;
    }
}

static void add_graph(model *self, const model_graph *made, strata_graph *graph)
{
    model_graph *one = &self->all[self->graph_count++];
    *one = *made;
    one->graph = graph;
    one->pool->pool = strata_graph_pool(graph);
}

static void discard(capturing *self)
{
    const strata_status status = strata_capture_discard(self->model->fixture->runtime, self->in[0]);
    assert_true(status == STRATA_SUCCESS || status == STRATA_ERROR_INVALID_VALUE); /* a failed end has done it */
    forget_capture(self->in[0]);
}

static void end_one(capturing *self)
{
    model *m = self->model;
    strata_graph *graph = NULL;
    arm(m);
    const strata_status status = strata_capture_end(m->fixture->runtime, self->in[0], &graph);
    if (self->spoiled && fault_nth)
        check_cu(test_sim_control()->clear_faults());
    else if (!self->spoiled)
        disarm(status);
    if (status != STRATA_SUCCESS) {
        assert_null(graph);
        strata_error_suppress_begin(); /* as is known */
        discard(self);
        strata_error_suppress_end(false);
        return;
    }
    assert_false(self->spoiled);
    forget_capture(self->in[0]);
    graphs[graph_count++] = graph;
    add_graph(m, &self->made, graph);
}

/* Puts the capture into a graph, or beside it where its nodes are others. */
static void update_one(capturing *self, model_graph *old)
{
    model *m = self->model;
    strata_graph_update_info info;
    strata_graph *instead = NULL;
    const strata_status status = strata_graph_update(old->graph, self->in[0], &info, &instead);
    forget_capture(self->in[0]);
    if (status == STRATA_SUCCESS) {
        self->made.graph = old->graph;
        *old = self->made;
        return;
    }
    assert_int_equal(info.result == STRATA_GRAPH_UPDATED, 0);
    assert_non_null(instead);
    graphs[graph_count++] = instead;
    add_graph(m, &self->made, instead);
}

/* False: a fault struck. */
static bool begin_one(capturing *self, strata_capture_pool *pool)
{
    model *m = self->model;
    strata_runtime *runtime = m->fixture->runtime;
    kept_runtime = runtime;
    if (ATTEMPT(m, strata_capture_begin(runtime, self->in[0], STRATA_CAPTURE_GLOBAL, pool)) != STRATA_SUCCESS) {
        assert_false(strata_is_stream_capturing(runtime, self->in[0]));
        return false;
    }
    captured[captured_count++] = self->in[0];
    return true;
}

static model_pool *any_pool(model *self)
{
    const unsigned choice = pick(self, SHARED + 1);
    if (choice < SHARED)
        return &self->pools[choice];
    self->pools[self->pool_count] = (model_pool){0};
    return &self->pools[self->pool_count++];
}

static void do_steps(capturing *self, unsigned steps)
{
    for (unsigned i = 0; i < steps && self->made.count < MOST_STEPS && !self->failed; i++)
        do_step(self);
    for (size_t i = 1; i < self->count; i++)
        order_streams(self, 0, i);
}

static void capture(model *self)
{
    capturing *here = &now;
    model_graph *old =
        self->graph_count && pick(self, 5) == 0 ? &self->all[pick(self, (unsigned)self->graph_count)] : NULL;
    model_pool *pool = old ? old->pool : any_pool(self);
    const bool was_held = pool->held;
    *here = (capturing){.model = self, .count = 1, .made.pool = pool};
    here->in[0] = self->streams[pick(self, 2)];
    if (!begin_one(here, pool->pool))
        return;
    pool->held = true;
    do_steps(here, 1 + pick(self, old ? 3 : MOST_STEPS));
    if ((here->failed && !here->spoiled) || pick(self, 10) == 0)
        discard(here);
    else if (old && !here->failed)
        update_one(here, old);
    else
        end_one(here);
    pool->held = was_held;
    keep_temporaries(self, pool);
}

/* ---- between captures ---- */

static void do_launch(model *self, const model_graph *graph, CUstream stream)
{
    const uint64_t before = strata_graph_num_replays(graph->graph);
    const strata_status status = ATTEMPT(self, strata_graph_launch(graph->graph, stream));
    const bool ran = strata_graph_num_replays(graph->graph) > before;
    assert_true(ran || status != STRATA_SUCCESS);
    if (status != STRATA_SUCCESS && ran) { /* perhaps it is not noted */
        if (self->foreign_captures)
            foreign_capture(self);
        test_synchronize(stream);
    }
    for (size_t i = 0; i < graph->count && ran; i++) {
        const step *one = &graph->steps[i];
        const unsigned char value = !one->copies             ? one->value
                                    : one->from >= TEMPORARY ? self->temporaries_values[one->from - TEMPORARY]
                                                             : self->objects[one->from].value;
        if (one->to >= TEMPORARY)
            self->temporaries_values[one->to - TEMPORARY] = value;
        else
            self->objects[one->to].value = value;
    }
}

static void destroy_one(model *self, size_t which)
{
    check_ok(destroy(self->all[which].graph));
    self->all[which] = self->all[--self->graph_count];
}

static void act(model *self)
{
    object *one = any_object(self, false);
    switch (pick(self, 8)) {
    case 0:
        if (live_objects(self) < OUTSIDE)
            add_object(self, any_stream(self));
        break;
    case 1:
        if (one)
            check_object(self, one, any_stream(self));
        break;
    case 2:
        if (one && live_objects(self) > 2)
            free_object(self, one, any_stream(self));
        break;
    case 3:
        if (one) {
            CUstream stream = any_stream(self);
            one->value = (unsigned char)pick(self, 256);
            test_write(self->fixture, &one->block, one->value, stream);
        }
        break;
    case 4:
        if (self->graph_count && pick(self, 3) == 0)
            destroy_one(self, pick(self, (unsigned)self->graph_count));
        break;
    default:
        if (self->graph_count)
            do_launch(self, &self->all[pick(self, (unsigned)self->graph_count)], any_stream(self));
    }
}

static void open_round(model *self, test_fixture *fixture, uint64_t seed)
{
    *self = (model){.fixture = fixture, .random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
    self->fails = seed % 2 == 0 && test_sim_control() && !test_is_swept();
    self->before = test_usage(fixture);
    for (size_t i = 0; i < STREAMS; i++)
        self->streams[i] = test_stream(fixture, i % 2 ? TEST_STREAM_UNKNOWN : TEST_STREAM_POOL);
    self->foreign = test_stream(fixture, TEST_STREAM_UNKNOWN);
    for (; self->pool_count < SHARED; self->pool_count++)
        self->pools[self->pool_count] = (model_pool){.pool = make_pool(fixture), .held = true};
    for (size_t i = 0; i < 3; i++)
        add_object(self, any_stream(self));
}

static void release_shared(model *self, size_t which)
{
    if (self->pools[which].held)
        check_ok(release_pool(self->pools[which].pool));
    self->pools[which].held = false;
}

static void *destroy_graph(void *graph)
{
    test_make_current();
    return strata_graph_destroy(graph) == STRATA_SUCCESS ? NULL : graph;
}

/* Each graph on a thread of its own, at a time. */
static void destroy_by_threads(model *self)
{
    pthread_t threads[MOST_GRAPHS];
    void *failed[MOST_GRAPHS];
    size_t started = 0;
    while (started < self->graph_count &&
           pthread_create(&threads[started], NULL, destroy_graph, self->all[started].graph) == 0)
        started++;
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], &failed[i]);
    assert_int_equal(started, self->graph_count);
    graph_count -= self->graph_count; /* there are no others */
    self->graph_count = 0;
    for (size_t i = 0; i < started; i++)
        assert_null(failed[i]);
}

static void free_objects(model *self, bool all)
{
    for (size_t i = 0; i < self->object_count; i++)
        if (!self->objects[i].freed && (all || pick(self, 2)))
            free_object(self, &self->objects[i], any_stream(self));
}

static void close_round(model *self)
{
    if (self->foreign_captures)
        foreign_capture(self);
    for (size_t i = 0; i < SHARED; i++)
        if (pick(self, 2))
            release_shared(self, i);
    free_objects(self, false);
    check_memory(self);
    if (pick(self, 3) == 0 && !test_is_swept())
        destroy_by_threads(self);
    while (self->graph_count)
        destroy_one(self, pick(self, (unsigned)self->graph_count));
    check_memory(self);
    free_objects(self, true);
    for (size_t i = 0; i < SHARED; i++)
        release_shared(self, i);
    check_memory(self);
    for (size_t i = 0; i < STREAMS; i++)
        test_stream_close(self->fixture, self->streams[i]);
    test_stream_close(self->fixture, self->foreign);
}

static model round_model; /* too large for a stack */

static size_t budget_in_use(test_fixture *fixture)
{
    strata_runtime_budget budget;
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_ok(strata_runtime_budget_snapshot(fixture->runtime, &budget));
    return budget.in_use;
}

static void a_round(test_fixture *fixture, uint64_t seed)
{
    model *self = &round_model;
    const size_t before = live_blocks(fixture), in_use = budget_in_use(fixture);
    open_round(self, fixture, seed);
    for (unsigned i = 0; i < ROUND; i++) {
        if (self->graph_count == MOST_GRAPHS)
            destroy_one(self, pick(self, MOST_GRAPHS));
        if (pick(self, 4) == 0)
            foreign_capture(self);
        capture(self);
        check_memory(self);
        for (unsigned acts = pick(self, 12); acts; acts--) {
            act(self);
            check_memory(self);
        }
    }
    close_round(self);
    assert_int_equal(live_blocks(fixture), before);
    assert_int_equal(budget_in_use(fixture), in_use);
}

static void random_captures_do_what_the_model_does(test_fixture *fixture)
{
    const size_t captures = getenv("STRATA_TEST_FULL") ? 10000 : test_effort(400, 30);
    const size_t rounds = test_is_swept() ? 1 : captures / ROUND;
    const char *first = getenv("STRATA_TEST_ROUND"); /* to begin with */
    kept_runtime = fixture->runtime;
    for (size_t i = first ? strtoul(first, NULL, 10) : 0; i < rounds; i++) {
        if (!test_is_swept())
            print_message("round %zu\n", i);
        a_round(fixture, i + 1);
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(random_captures_do_what_the_model_does),
    };
    static const char *const stacks[] = {"pool", "budget(limit=4GiB), statistics, pool, direct", "async",
                                         "logging(format=memory), aligned, pool"};
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? 1 : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
