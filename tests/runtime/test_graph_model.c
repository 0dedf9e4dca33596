/* Random captures against a model.
 *
 * Rounds of captures that fork and join streams, allocate, free, fill and copy, with other code's captures beside, with
 * launches, updates, discards and ends in any order. The model does at each launch what was captured, in the order in
 * which it was: Strata orders conflicting uses, so no other order may show. It knows which blocks live, and that none
 * of them overlap; the checker of the simulated driver sees whatever is not ordered. */
#include <string.h>

#include "support/captures.h"
#include "support/effort.h"
#include "support/graphs.h"
#include "support/sweep.h"

enum {
    OUTSIDE = 6,      /* blocks from outside at a time */
    TEMPORARIES = 12, /* in a capture */
    STREAMS = 5,      /* the first two are captured, the others forked */
    MOST_STEPS = 40,  /* of a capture */
    MOST_GRAPHS = 5,  /* at a time */
    ROUND = 10,       /* captures */
    UNIT = 256,       /* bytes: sizes are multiples */
    LONGEST = 24 * UNIT,
};

/* A block from outside, or what a capture left. Its memory may live on in graphs when the program has freed it. */
typedef struct object {
    strata_block block;
    unsigned char value;
    bool known; /* the value */
    bool freed;
} object;

/* What a capture does. Operands are the indices of objects, or those of temporaries from TEMPORARY on. */
enum { TEMPORARY = 1 << 16 };

typedef struct step {
    unsigned to, from;
    bool copies;
    unsigned char value;
    size_t bytes;
} step;

typedef struct model_graph {
    strata_graph *graph;
    step steps[MOST_STEPS];
    size_t count;
} model_graph;

typedef struct temporary {
    strata_block block;
    bool live, written;
    bool on_origin;  /* allocated on the stream that the capture began on */
    unsigned number; /* of the operand: reused memory is another temporary */
} temporary;

typedef struct model {
    test_fixture *fixture;
    uint64_t random;
    CUstream streams[STREAMS];
    CUstream foreign; /* captured by other code */
    bool foreign_captures;
    object objects[4096];
    size_t object_count;
    unsigned char temporaries_values[4096];
    temporary temporaries[TEMPORARIES];
    unsigned temporary_count; /* numbers given so far in this round */
    model_graph all[MOST_GRAPHS];
    size_t graph_count;
    strata_capture_pool *pools[2];
} model;

static unsigned pick(model *self, unsigned below)
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return (unsigned)(self->random >> 33) % below;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- blocks ---- */

static void check_apart(const strata_block *a, const strata_block *b)
{
    assert_true(a->address + a->bytes <= b->address || b->address + b->bytes <= a->address);
}

static void check_new(const model *self, const strata_block *block)
{
    for (size_t i = 0; i < self->object_count; i++)
        if (!self->objects[i].freed)
            check_apart(block, &self->objects[i].block);
    for (size_t i = 0; i < TEMPORARIES; i++)
        if (self->temporaries[i].live)
            check_apart(block, &self->temporaries[i].block);
}

static size_t any_bytes(model *self)
{
    return UNIT * (1 + pick(self, LONGEST / UNIT));
}

static CUstream any_stream(model *self)
{
    return self->streams[pick(self, STREAMS)];
}

static void add_object(model *self, CUstream stream)
{
    object *made = &self->objects[self->object_count];
    *made = (object){.block = test_allocate(self->fixture, any_bytes(self), stream), .known = true};
    check_new(self, &made->block);
    self->object_count++;
    made->value = (unsigned char)pick(self, 256);
    test_write(self->fixture, &made->block, made->value, stream);
}

static size_t live_objects(const model *self)
{
    size_t live = 0;
    for (size_t i = 0; i < self->object_count; i++)
        live += !self->objects[i].freed;
    return live;
}

/* NULL: none lives. */
static object *any_object(model *self, bool known)
{
    if (!self->object_count)
        return NULL;
    const size_t first = pick(self, (unsigned)self->object_count);
    for (size_t i = 0; i < self->object_count; i++) {
        object *one = &self->objects[(first + i) % self->object_count];
        if (!one->freed && (one->known || !known))
            return one;
    }
    return NULL;
}

static void free_object(model *self, object *one, CUstream stream)
{
    test_free_on(self->fixture, &one->block, stream);
    one->freed = true;
}

static void foreign_capture(model *self)
{
    if (self->foreign_captures)
        assert_int_equal(test_end_capture(self->foreign), 0); /* Strata has put nothing there, and not spoiled it */
    else
        test_begin_capture(self->foreign);
    self->foreign_captures = !self->foreign_captures;
}

/* The wait would spoil the capture of other code. */
static void check_object(model *self, const object *one, CUstream stream)
{
    if (self->foreign_captures)
        foreign_capture(self);
    const unsigned char *seen = test_read(self->fixture, &one->block, stream);
    test_synchronize(stream);
    if (one->known)
        check_bytes(seen, one->value, one->block.requested);
    self->fixture->seen_used = 0;
}

/* ---- a capture ---- */

typedef struct capturing {
    model *model;
    CUstream in[STREAMS]; /* the streams of the capture, the first is its origin */
    size_t count;
    model_graph made;
} capturing;

static CUstream any_captured(capturing *self)
{
    return self->in[pick(self->model, (unsigned)self->count)];
}

static void fork_one(capturing *self)
{
    model *m = self->model;
    CUstream fork = m->streams[2 + pick(m, STREAMS - 2)];
    for (size_t i = 0; i < self->count; i++)
        if (self->in[i] == fork) { /* joined anew */
            test_order_after(fork, any_captured(self));
            return;
        }
    test_order_after(fork, any_captured(self));
    self->in[self->count++] = fork;
}

static void allocate_one(capturing *self)
{
    model *m = self->model;
    size_t at = 0;
    while (at < TEMPORARIES && m->temporaries[at].live)
        at++;
    if (at == TEMPORARIES || m->temporary_count == sizeof m->temporaries_values)
        return;
    CUstream stream = any_captured(self);
    temporary *one = &m->temporaries[at];
    const strata_block block = test_allocate(m->fixture, any_bytes(m), stream);
    check_new(m, &block);
    *one =
        (temporary){.block = block, .live = true, .on_origin = stream == self->in[0], .number = m->temporary_count++};
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

static void free_temporary(capturing *self, temporary *one)
{
    model *m = self->model;
    const bool own = one->on_origin && pick(m, 2);
    check_ok(own ? strata_runtime_deallocate(m->fixture->runtime, &one->block)
                 : strata_runtime_deallocate_on(m->fixture->runtime, &one->block, any_captured(self)));
    one->live = false;
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

static void count_step(capturing *self, const step *made)
{
    for (size_t i = 0; made->to >= TEMPORARY && i < TEMPORARIES; i++)
        if (self->model->temporaries[i].live && self->model->temporaries[i].number == made->to - TEMPORARY)
            self->model->temporaries[i].written = true;
    self->made.count++;
}

static void fill_one(capturing *self)
{
    model *m = self->model;
    step *made = &self->made.steps[self->made.count];
    *made = (step){.value = (unsigned char)pick(m, 256)};
    const strata_block *to = any_operand(self, false, &made->to);
    if (!to)
        return;
    test_write(m->fixture, to, made->value, any_captured(self));
    count_step(self, made);
}

/* The whole target is written: its rest is filled first. */
static void copy_one(capturing *self)
{
    model *m = self->model;
    strata_runtime *runtime = m->fixture->runtime;
    step *made = &self->made.steps[self->made.count];
    *made = (step){.copies = true};
    const strata_block *from = any_operand(self, true, &made->from), *to = any_operand(self, false, &made->to);
    if (!from || !to || from == to || to->requested > from->requested)
        return;
    CUstream stream = any_captured(self);
    made->bytes = smaller(from->requested, to->requested);
    check_ok(strata_runtime_prepare_block_use(runtime, from, stream, STRATA_ACCESS_READ));
    check_ok(strata_runtime_prepare_block_use(runtime, to, stream, STRATA_ACCESS_WRITE));
    check_cu(test_cu()->MemcpyDtoDAsync(to->address, from->address, made->bytes, stream));
    check_ok(strata_runtime_finish_block_use(runtime, from, stream, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(runtime, to, stream, STRATA_ACCESS_WRITE));
    count_step(self, made);
}

static void do_step(capturing *self)
{
    model *m = self->model;
    switch (pick(m, 12)) {
    case 0:
        fork_one(self);
        break;
    case 1:
        test_order_after(self->in[0], any_captured(self));
        break;
    case 2:
    case 3:
    case 4:
        allocate_one(self);
        break;
    case 5:
    case 6: {
        temporary *one = any_temporary(m, false);
        if (one)
            free_temporary(self, one);
        break;
    }
    case 7:
    case 8:
        fill_one(self);
        break;
    case 9:
    case 10:
        copy_one(self);
        break;
    default:
        if (live_objects(m) > 2 && pick(m, 4) == 0) {
            object *one = any_object(m, false);
            free_object(m, one, any_captured(self));
        }
    }
}

/* What the capture has not freed is the program's from now on. */
static void keep_temporaries(model *self)
{
    for (size_t i = 0; i < TEMPORARIES; i++) {
        temporary *one = &self->temporaries[i];
        if (one->live)
            self->objects[self->object_count++] = (object){.block = one->block};
        one->live = false;
    }
}

static void do_launch(model *self, const model_graph *graph, CUstream stream)
{
    check_ok(strata_graph_launch(graph->graph, stream));
    for (size_t i = 0; i < graph->count; i++) {
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

static void capture(model *self)
{
    capturing here = {.model = self, .count = 1};
    strata_capture_pool *choice[] = {NULL, self->pools[0], self->pools[1]};
    here.in[0] = self->streams[pick(self, 2)];
    begin(self->fixture, here.in[0], choice[pick(self, 3)]);
    const unsigned steps = 1 + pick(self, MOST_STEPS);
    for (unsigned i = 0; i < steps && here.made.count < MOST_STEPS; i++)
        do_step(&here);
    for (size_t i = 1; i < here.count; i++)
        test_order_after(here.in[0], here.in[i]);
    if (pick(self, 10) == 0) {
        check_ok(strata_capture_discard(self->fixture->runtime, here.in[0]));
        forget_capture(here.in[0]);
    } else {
        here.made.graph = end(self->fixture, here.in[0]);
        self->all[self->graph_count++] = here.made;
    }
    keep_temporaries(self);
}

/* ---- between captures ---- */

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
    for (size_t i = 0; i < STREAMS; i++)
        self->streams[i] = test_stream(fixture, i % 2 ? TEST_STREAM_UNKNOWN : TEST_STREAM_POOL);
    self->foreign = test_stream(fixture, TEST_STREAM_UNKNOWN);
    for (size_t i = 0; i < 2; i++)
        self->pools[i] = make_pool(fixture);
    for (size_t i = 0; i < 3; i++)
        add_object(self, any_stream(self));
}

static void close_round(model *self)
{
    if (self->foreign_captures)
        foreign_capture(self);
    for (size_t i = 0; i < 2; i++) {
        if (pick(self, 2))
            check_ok(release_pool(self->pools[i]));
        else
            self->pools[i] = NULL; /* clear_away has it */
    }
    for (size_t i = 0; i < self->object_count; i++)
        if (!self->objects[i].freed && pick(self, 2))
            free_object(self, &self->objects[i], any_stream(self));
    while (self->graph_count)
        destroy_one(self, pick(self, (unsigned)self->graph_count));
    for (size_t i = 0; i < self->object_count; i++)
        if (!self->objects[i].freed)
            free_object(self, &self->objects[i], any_stream(self));
    while (pool_count)
        check_ok(strata_capture_pool_release(pools[--pool_count]));
    for (size_t i = 0; i < STREAMS; i++)
        test_stream_close(self->fixture, self->streams[i]);
    test_stream_close(self->fixture, self->foreign);
}

static model round_model; /* too large for a stack */

static void a_round(test_fixture *fixture, uint64_t seed)
{
    model *self = &round_model;
    const size_t before = live_blocks(fixture);
    open_round(self, fixture, seed);
    for (unsigned i = 0; i < ROUND; i++) {
        if (self->graph_count == MOST_GRAPHS)
            destroy_one(self, pick(self, MOST_GRAPHS));
        if (pick(self, 4) == 0)
            foreign_capture(self);
        capture(self);
        for (unsigned acts = pick(self, 12); acts; acts--)
            act(self);
    }
    close_round(self);
    assert_int_equal(live_blocks(fixture), before);
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
