/* The statistics layer and several threads: what is live is exact when they are done, peaks are within their bounds,
 * and scopes and visits come in between at any moment. */
#include "core/base/asymmetric.h"
#include "support/statistics.h"
#include "support/statistics_inside.h"

#include <sched.h>
#include <unistd.h>

enum { STEP = 64 << 10 }; /* bytes of a thread that a peak may lack */

/* Runs one step on a thread of its own and waits for it, so that the order of all steps is known. */
typedef struct worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    void (*step)(struct worker *self); /* NULL: nothing to do; guarded by mutex */
    bool over;                         /* guarded by mutex */
    size_t bytes;
    strata_block block;
    bool good;
} worker;

static void *work(void *data)
{
    worker *self = data;
    test_make_current();
    pthread_mutex_lock(&self->mutex);
    while (!self->over) {
        if (self->step)
            self->step(self);
        self->step = NULL;
        pthread_cond_broadcast(&self->changed);
        while (!self->step && !self->over)
            pthread_cond_wait(&self->changed, &self->mutex);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

/* Those that are not over when a check fails are ended by the teardown. */
enum { WORKERS = 3 };
static worker workers[WORKERS];
static bool runs[WORKERS];

static worker *worker_begin(void)
{
    size_t which = 0;
    while (runs[which])
        which++;
    assert_true(which < WORKERS);
    worker *self = &workers[which];
    *self = (worker){.good = true};
    runs[which] = true;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->changed, NULL);
    assert_int_equal(pthread_create(&self->thread, NULL, work, self), 0);
    return self;
}

static void worker_start(worker *self, void (*step)(worker *self))
{
    pthread_mutex_lock(&self->mutex);
    self->step = step;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

static void worker_wait(worker *self)
{
    pthread_mutex_lock(&self->mutex);
    while (self->step)
        pthread_cond_wait(&self->changed, &self->mutex);
    pthread_mutex_unlock(&self->mutex);
}

static void worker_do(worker *self, void (*step)(worker *self))
{
    worker_start(self, step);
    worker_wait(self);
}

static void worker_end(worker *self)
{
    pthread_mutex_lock(&self->mutex);
    self->over = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    pthread_join(self->thread, NULL);
    pthread_mutex_destroy(&self->mutex);
    pthread_cond_destroy(&self->changed);
    runs[self - workers] = false;
}

static void allocates(worker *self)
{
    const strata_request request = {.bytes = self->bytes, .tag = tag_a};
    self->good &= strata_resource_allocate(top, &request, &self->block) == STRATA_SUCCESS;
}

static void frees(worker *self)
{
    self->good &= strata_resource_deallocate(top, &self->block, NULL) == STRATA_SUCCESS;
}

static void what_a_thread_freed_adds_nothing_to_the_peak_of_another(void **state)
{
    (void)state;
    enum { OTHERS = 3 };
    const int64_t large = 1000;
    worker *others[OTHERS];
    for (size_t i = 0; i < OTHERS; i++) {
        others[i] = worker_begin();
        others[i]->bytes = (size_t)large;
        worker_do(others[i], allocates);
        worker_do(others[i], frees);
    }
    strata_block block = allocate(100000, tag_a);
    strata_statistics_counters counters = read_all(layer, 0);
    release(&block);
    check_counter(counters.bytes, 100000, 100000, 100000 + OTHERS * large);
    check_counter(counters.blocks, 1, 1, 1 + OTHERS);
    for (size_t i = 0; i < OTHERS; i++) {
        worker_end(others[i]);
        assert_true(others[i]->good);
    }
}

static void a_scope_begins_exactly_whatever_other_threads_have_reserved(void **state)
{
    (void)state;
    strata_statistics_counters popped;
    worker *other = worker_begin();
    other->bytes = (size_t)1 << 30;
    worker_do(other, allocates);
    worker_do(other, frees);
    check_ok(strata_statistics_push(layer));
    strata_block block = allocate(100, tag_a);
    check_counter(read_tag(layer, 1, tag_a).bytes, 100, 100, 100);
    check_ok(strata_statistics_pop(layer, &popped));
    check_counter(popped.bytes, 100, 100, 100);
    check_ok(strata_statistics_reset_peaks(layer));
    check_counter(read_all(layer, 0).bytes, 100, 100, ((int64_t)1 << 30) + 100);
    other->bytes = 10; /* the other thread goes on from there */
    worker_do(other, allocates);
    strata_statistics_counter now = read_all(layer, 0).bytes;
    assert_true(now.current == 110 && now.peak >= 110);
    worker_do(other, frees);
    worker_end(other);
    assert_true(other->good);
    release(&block);
}

static void pairs_of_small_blocks(worker *self)
{
    for (size_t i = 0; i < 2 * 1024 + 2; i++) {
        allocates(self);
        frees(self);
    }
}

static void what_was_large_long_ago_does_not_widen_a_peak(void **state)
{
    (void)state;
    worker *other = worker_begin();
    other->bytes = (size_t)1 << 30;
    worker_do(other, allocates);
    worker_do(other, frees);
    other->bytes = 100;
    worker_do(other, pairs_of_small_blocks);
    check_ok(strata_statistics_push(layer));
    worker_do(other, allocates); /* reserves anew */
    strata_block block = allocate(5000, tag_a);
    strata_statistics_counter peak = read_tag(layer, 1, tag_a).bytes;
    assert_int_equal(peak.peak, 5100);
    release(&block);
    worker_do(other, frees);
    check_ok(strata_statistics_pop(layer, NULL));
    worker_end(other);
    assert_true(other->good);
}

/* One thread only takes, the other one only gives back. */
static void what_was_passed_on_long_ago_does_not_widen_a_peak(void **state)
{
    (void)state;
    enum { TIMES = 4000, SIZE = 1 << 20 };
    worker *other = worker_begin();
    other->bytes = SIZE;
    for (int i = 0; i < TIMES; i++) {
        worker_do(other, allocates);
        release(&other->block);
    }
    const strata_statistics_counter bytes = read_all(layer, 0).bytes;
    worker_end(other);
    assert_true(other->good);
    assert_int_equal(bytes.current, 0);
    assert_int_equal(bytes.peak, SIZE);
}

/* Two of three threads hold a block at each moment: the peak has no room for the windows of all three. */
static void threads_that_never_hold_blocks_all_at_once_stop_taking_the_lock(void **state)
{
    (void)state;
    const int turns = (int)test_effort(30000, 8000);
    enum { SIZE = 4096, AT_FIRST = WORKERS * 4096 + 1024 };
    worker *all[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        all[i] = worker_begin();
        all[i]->bytes = SIZE;
    }
    worker_do(all[0], allocates);
    for (int turn = 1; turn <= turns; turn++) {
        worker_do(all[turn % WORKERS], allocates);
        worker_do(all[(turn - 1) % WORKERS], frees);
    }
    worker_do(all[turns % WORKERS], frees);
    const strata_statistics_counter bytes = read_all(layer, 0).bytes;
    assert_in_range(statistics_steps(layer), 1, AT_FIRST);
    assert_int_equal(bytes.current, 0);
    assert_int_equal(bytes.peak, 2 * SIZE);
    for (int i = 0; i < WORKERS; i++) {
        worker_end(all[i]);
        assert_true(all[i]->good);
    }
}

/* Two threads take turns with a large block, beside pairs of a third: each turn exceeds what the windows leave below
 * the peak, and no turn the peak. */
static void threads_that_take_turns_below_the_peak_rarely_take_the_lock(void **state)
{
    (void)state;
    enum { TURNS = 8, PAIRS = 1500, AT_FIRST = 2 * 1024, OF_A_TURN = 64 };
    const size_t mib = (size_t)1 << 20;
    strata_block block = allocate(16 * mib, tag_a);
    release(&block);
    worker *both[2] = {worker_begin(), worker_begin()};
    for (int turn = 0; turn < TURNS; turn++) {
        worker *one = both[turn % 2];
        one->bytes = 12 * mib;
        worker_do(one, allocates);
        for (int i = 0; i < PAIRS; i++) {
            block = allocate(mib, tag_a);
            release(&block);
        }
        worker_do(one, frees);
    }
    const strata_statistics_counter bytes = read_all(layer, 0).bytes;
    assert_in_range(statistics_steps(layer), 1, AT_FIRST + TURNS * OF_A_TURN);
    assert_int_equal(bytes.current, 0);
    assert_int_equal(bytes.peak, 16 * mib);
    for (size_t i = 0; i < 2; i++) {
        worker_end(both[i]);
        assert_true(both[i]->good);
    }
}

static void peaks_of_blocks_that_go_from_thread_to_thread_are_never_too_low(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    strata_block kept[ROUNDS];
    worker *one = worker_begin();
    worker *other = worker_begin();
    one->bytes = other->bytes = 1000;
    for (size_t i = 0; i < ROUNDS; i++) { /* one allocates, the other one frees; every third stays */
        worker_do(one, allocates);
        kept[i] = other->block = one->block;
        strata_statistics_counter now = read_all(layer, 0).bytes;
        assert_true(now.current == (int64_t)(1 + i / 3) * 1000 && now.peak >= now.current);
        if (i % 3 != 2)
            worker_do(other, frees);
    }
    worker_end(one);
    worker_end(other);
    assert_true(one->good && other->good);
    strata_statistics_counters counters = read_tag(layer, 0, tag_a);
    assert_true(counters.blocks.current == ROUNDS / 3 && counters.blocks.total == ROUNDS);
    assert_true(counters.bytes.peak == (ROUNDS / 3 + 1) * 1000);
    for (size_t i = 2; i < ROUNDS; i += 3)
        release(&kept[i]);
}

/* What is surely live, and what may be, with the most of each. */
static struct {
    pthread_mutex_t mutex;
    int64_t surely, perhaps, most_surely, most_perhaps;
} crowd_model = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void crowd_note(int64_t surely, int64_t perhaps)
{
    pthread_mutex_lock(&crowd_model.mutex);
    crowd_model.surely += surely;
    crowd_model.perhaps += perhaps;
    if (crowd_model.surely > crowd_model.most_surely)
        crowd_model.most_surely = crowd_model.surely;
    if (crowd_model.perhaps > crowd_model.most_perhaps)
        crowd_model.most_perhaps = crowd_model.perhaps;
    pthread_mutex_unlock(&crowd_model.mutex);
}

/* Blocks lie in places that all threads take from and put into. */
static struct {
    pthread_mutex_t mutex;
    strata_block block;
} places[ROOM];

typedef struct crowd {
    pthread_t thread;
    unsigned seed;
    size_t steps;
    int64_t allocated, bytes;
    bool good;
} crowd;

static void exchange(crowd *self, size_t place)
{
    strata_block block = {0}, old;
    if (draw(&self->seed) % 3) {
        strata_request request = {.bytes = 1 + draw(&self->seed) % 4096, .tag = draw(&self->seed) % 2 ? tag_a : tag_b};
        crowd_note(0, (int64_t)request.bytes);
        self->good &= strata_resource_allocate(top, &request, &block) == STRATA_SUCCESS;
        crowd_note((int64_t)request.bytes, 0);
        self->allocated++;
        self->bytes += (int64_t)request.bytes;
    }
    pthread_mutex_lock(&places[place].mutex);
    old = places[place].block;
    places[place].block = block;
    pthread_mutex_unlock(&places[place].mutex);
    if (!old.id.generation)
        return;
    crowd_note(-(int64_t)old.bytes, 0);
    self->good &= strata_resource_deallocate(top, &old, NULL) == STRATA_SUCCESS;
    crowd_note(0, -(int64_t)old.bytes);
}

static void *mingle(void *data)
{
    crowd *self = data;
    test_make_current();
    for (size_t i = 0; i < self->steps; i++)
        exchange(self, draw(&self->seed) % ROOM);
    return NULL;
}

/* A crowd that is still out when a check fails is brought home by the teardown. */
static crowd everyone[THREADS];
static bool crowd_is_out;

static void begin_crowd(void)
{
    crowd *all = everyone;
    for (size_t i = 0; i < ROOM; i++)
        pthread_mutex_init(&places[i].mutex, NULL);
    crowd_model.surely = crowd_model.perhaps = crowd_model.most_surely = crowd_model.most_perhaps = 0;
    for (size_t i = 0; i < THREADS; i++) {
        all[i] = (crowd){.seed = (unsigned)i, .steps = test_effort(2000, 100), .good = true};
        assert_int_equal(pthread_create(&all[i].thread, NULL, mingle, &all[i]), 0);
    }
    crowd_is_out = true;
}

static void clear_places(void)
{
    for (size_t i = 0; i < ROOM; i++) {
        if (places[i].block.id.generation)
            release(&places[i].block);
        places[i].block = (strata_block){0};
        pthread_mutex_destroy(&places[i].mutex);
    }
}

static crowd end_crowd(void)
{
    crowd_is_out = false;
    crowd sum = {.good = true};
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(everyone[i].thread, NULL);
        sum.good &= everyone[i].good;
        sum.allocated += everyone[i].allocated;
        sum.bytes += everyone[i].bytes;
    }
    clear_places();
    return sum;
}

static void threads_that_free_each_others_blocks_leave_exact_counters_and_a_peak_within_its_bounds(void **state)
{
    (void)state;
    begin_crowd();
    crowd sum = end_crowd();
    assert_true(sum.good);
    strata_statistics_counters counters = read_all(layer, 0);
    strata_statistics_counters a = read_tag(layer, 0, tag_a), b = read_tag(layer, 0, tag_b);
    assert_true(counters.bytes.current == 0 && counters.blocks.current == 0);
    assert_true(counters.blocks.total == sum.allocated && counters.bytes.total == sum.bytes);
    assert_true(a.bytes.current == 0 && b.bytes.current == 0 && a.blocks.total + b.blocks.total == sum.allocated);
    assert_true(counters.bytes.peak >= crowd_model.most_surely - THREADS * STEP);
    assert_true(counters.bytes.peak <= crowd_model.most_perhaps);
    assert_true(value_of(stack, "statistics.retired.bytes") == 0);
}

static void begin_and_end_scopes_amid_threads(void)
{
    begin_crowd();
    strata_statistics_counters popped;
    for (size_t i = 0; i < test_effort(300, 20); i++) {
        check_ok(strata_statistics_push(layer));
        if (i % 8 == 0)
            check_ok(strata_statistics_push(layer));
        strata_statistics_counters inside = read_all(layer, 1);
        assert_true(inside.bytes.peak >= inside.bytes.current && inside.bytes.peak >= 0);
        if (i % 8 == 0)
            check_ok(strata_statistics_pop(layer, &popped));
        check_ok(strata_statistics_pop(layer, &popped));
        assert_true(popped.bytes.peak >= popped.bytes.current && popped.bytes.peak >= 0 && popped.blocks.total >= 0);
    }
    crowd sum = end_crowd();
    assert_true(sum.good);
    strata_statistics_counters counters = read_all(layer, 0);
    assert_true(counters.bytes.current == 0 && counters.blocks.current == 0);
    assert_true(counters.blocks.total == sum.allocated && counters.bytes.total == sum.bytes);
    assert_true(counters.bytes.peak >= crowd_model.most_surely - THREADS * STEP);
    assert_true(counters.bytes.peak <= crowd_model.most_perhaps);
    check_ok(strata_statistics_push(layer));
    strata_block block = allocate(12345, tag_a);
    release(&block);
    check_ok(strata_statistics_pop(layer, &popped));
    check_counter(popped.bytes, 0, 12345, 12345);
}

static void scopes_that_begin_and_end_amid_threads_never_show_less_than_there_was(void **state)
{
    (void)state;
    begin_and_end_scopes_amid_threads();
}

/* ---- peaks of threads that work at a time ---- */

typedef struct holder {
    pthread_t thread;
    pthread_barrier_t *all_hold;
    size_t blocks, bytes, rounds;
    bool good;
} holder;

static bool fill(const holder *self, strata_block *kept)
{
    const strata_request request = {.bytes = self->bytes, .tag = tag_a};
    for (size_t i = 0; i < self->blocks; i++)
        if (strata_resource_allocate(top, &request, &kept[i]) != STRATA_SUCCESS)
            return false;
    return true;
}

static bool empty(const holder *self, strata_block *kept)
{
    bool good = true;
    for (size_t i = 0; i < self->blocks; i++)
        good &= strata_resource_deallocate(top, &kept[i], NULL) == STRATA_SUCCESS;
    return good;
}

/* All threads hold all their blocks at the barrier. */
static void *hold(void *data)
{
    holder *self = data;
    test_make_current();
    strata_block *kept = calloc(self->blocks, sizeof *kept);
    self->good = kept != NULL;
    for (size_t i = 0; i < self->rounds; i++) {
        self->good = self->good && fill(self, kept);
        if (self->all_hold)
            pthread_barrier_wait(self->all_hold);
        self->good = self->good && empty(self, kept);
    }
    free(kept);
    return NULL;
}

enum { HOLDERS = 8 };

static strata_statistics_counters hold_together(size_t blocks, size_t bytes, size_t rounds, bool meet)
{
    holder holders[HOLDERS];
    pthread_barrier_t all_hold;
    bool good = true;
    pthread_barrier_init(&all_hold, NULL, HOLDERS);
    for (size_t i = 0; i < HOLDERS; i++) {
        holders[i] = (holder){.all_hold = meet ? &all_hold : NULL, .blocks = blocks, .bytes = bytes, .rounds = rounds};
        assert_int_equal(pthread_create(&holders[i].thread, NULL, hold, &holders[i]), 0);
    }
    for (size_t i = 0; i < HOLDERS; i++) {
        pthread_join(holders[i].thread, NULL);
        good &= holders[i].good;
    }
    pthread_barrier_destroy(&all_hold);
    assert_true(good);
    return read_all(layer, 0);
}

static void a_block_of_each_of_eight_threads_is_a_peak_of_eight_blocks(void **state)
{
    (void)state;
    const strata_statistics_counters counters = hold_together(1, 10 * MIB, 1, true);
    check_counter(counters.bytes, 0, 80 * (int64_t)MIB, 80 * (int64_t)MIB);
    check_counter(counters.blocks, 0, 8, 8);
}

/* The threads outlive the moments in which windows are narrow. */
static void at_most_a_block_of_each_thread_is_never_a_higher_peak(void **state)
{
    (void)state;
    const strata_statistics_counters counters = hold_together(1, 64 * MIB, test_effort(20000, 200), false);
    assert_in_range(counters.bytes.peak, 64 * MIB, 512 * (uint64_t)MIB);
    assert_in_range(counters.blocks.peak, 1, 8);
}

static void small_blocks_of_several_threads_lower_the_peak_by_at_most_64_kib_a_thread(void **state)
{
    (void)state;
    enum { BLOCKS = 4000, BYTES = 1000, ROUNDS = 3 };
    const int64_t live = (int64_t)HOLDERS * BLOCKS * BYTES;
    const strata_statistics_counters counters = hold_together(BLOCKS, BYTES, ROUNDS, true);
    assert_in_range(counters.bytes.peak, live - HOLDERS * STEP, live);
    assert_in_range(counters.blocks.peak, HOLDERS * BLOCKS - HOLDERS * 64, HOLDERS * BLOCKS);
    assert_int_equal(counters.bytes.total, live * ROUNDS);
}

static void a_peak_above_the_one_that_threads_worked_below_is_seen(void **state)
{
    (void)state;
    hold_together(1, 10 * MIB, 1, true);
    hold_together(2, 100 * KIB, test_effort(5000, 100), false); /* below it: windows are wide */
    assert_true(read_all(layer, 0).bytes.peak == 80 * (int64_t)MIB);
    assert_true(hold_together(3, 4 * MIB, 1, true).bytes.peak == 96 * (int64_t)MIB);
}

/* ---- in between; the linker puts these in front of the library's own (--wrap) ---- */

static void (*in_between)(void); /* called where a scope has taken the reservations and not given them back */

void __real_strata_heavy_barrier(void);
void __wrap_strata_heavy_barrier(void);

void __wrap_strata_heavy_barrier(void)
{
    if (in_between)
        in_between();
    __real_strata_heavy_barrier();
}

static struct {
    _Atomic bool begin, done;
    strata_block block;
    bool good, slipped_through;
} interloper;

static void *slip_through(void *data)
{
    (void)data;
    const strata_request request = {.bytes = 1000, .tag = tag_a};
    test_make_current();
    strata_block reserving;
    interloper.good = strata_resource_allocate(top, &request, &reserving) == STRATA_SUCCESS &&
                      strata_resource_deallocate(top, &reserving, NULL) == STRATA_SUCCESS;
    interloper.done = true;
    while (!interloper.begin)
        sched_yield();
    interloper.good &= strata_resource_allocate(top, &request, &interloper.block) == STRATA_SUCCESS;
    interloper.done = true;
    return NULL;
}

static void let_through(void)
{
    interloper.done = false;
    interloper.begin = true;
    usleep(20000);
    interloper.slipped_through = interloper.done;
}

/* It would fit into what its thread had reserved, which is being taken away. */
static void an_allocation_amid_the_beginning_of_a_scope_waits_for_it(void **state)
{
    (void)state;
    pthread_t thread;
    interloper.begin = interloper.done = false;
    assert_int_equal(pthread_create(&thread, NULL, slip_through, NULL), 0);
    while (!interloper.done)
        sched_yield();
    in_between = let_through;
    strata_status status = strata_statistics_push(layer);
    in_between = NULL;
    pthread_join(thread, NULL);
    check_ok(status);
    assert_true(interloper.good && !interloper.slipped_through);
    strata_block block = allocate(50, tag_a);
    strata_statistics_counter inside = read_all(layer, 1).bytes, all = read_all(layer, 0).bytes;
    release(&interloper.block);
    release(&block);
    assert_true(all.current == 1050 && all.total == 2050 && all.peak >= 1050);
    assert_true(inside.current >= 50 && inside.peak >= inside.current && inside.total >= inside.current);
    check_ok(strata_statistics_pop(layer, NULL));
}

static void where_the_kernel_has_no_barrier_scopes_begin_and_end_all_the_same(void **state)
{
    (void)state;
    const bool were_full = strata_barriers_are_full;
    strata_barriers_are_full = true;
    begin_and_end_scopes_amid_threads();
    strata_barriers_are_full = were_full;
}

static void *one_block_and_out(void *data)
{
    crowd *self = data;
    test_make_current();
    for (size_t i = 0; i < 3; i++)
        exchange(self, self->steps);
    return NULL;
}

static void what_threads_counted_stays_when_they_end(void **state)
{
    (void)state;
    crowd sum = {0};
    for (size_t i = 0; i < ROOM; i++)
        pthread_mutex_init(&places[i].mutex, NULL);
    for (size_t i = 0; i < 40; i++) {
        crowd one = {.seed = (unsigned)i, .steps = i % 8, .good = true};
        assert_int_equal(pthread_create(&one.thread, NULL, one_block_and_out, &one), 0);
        pthread_join(one.thread, NULL);
        assert_true(one.good);
        sum.allocated += one.allocated;
        sum.bytes += one.bytes;
    }
    strata_statistics_counters counters = read_all(layer, 0);
    int64_t live = 0;
    for (size_t i = 0; i < ROOM; i++)
        live += (int64_t)places[i].block.bytes;
    assert_true(counters.bytes.current == live && counters.bytes.total == sum.bytes);
    assert_true(counters.blocks.total == sum.allocated);
    clear_places();
    assert_true(read_all(layer, 0).bytes.current == 0);
}

/* ---- what is live ---- */

static void every_block_that_lives_is_seen_once_while_others_come_and_go(void **state)
{
    (void)state;
    enum { KEPT = 100, BIG = 1 << 20 };
    strata_block kept[KEPT];
    for (size_t i = 0; i < KEPT; i++)
        kept[i] = allocate(BIG + i, tag_a);
    begin_crowd();
    for (size_t i = 0; i < test_effort(100, 10); i++) {
        seen mine = {0}, stacks = {0};
        check_ok(strata_statistics_visit(layer, look, &mine));
        check_ok(strata_stack_visit_blocks(stack, count_blocks, &stacks));
        assert_false(mine.wrong || stacks.wrong);
        assert_true(mine.count >= KEPT && mine.count <= KEPT + ROOM + THREADS);
        assert_true(stacks.count >= KEPT && stacks.count <= KEPT + ROOM + THREADS);
    }
    crowd sum = end_crowd();
    assert_true(sum.good);
    seen mine = {0};
    check_ok(strata_statistics_visit(layer, look, &mine));
    assert_true(mine.count == KEPT && mine.of_tag_a == KEPT);
    assert_true(mine.bytes == (size_t)KEPT * BIG + KEPT * (KEPT - 1) / 2);
    for (size_t i = 0; i < KEPT; i++)
        release(&kept[i]);
}

static int end_all(void **state)
{
    in_between = NULL;
    for (size_t i = 0; i < WORKERS; i++)
        if (runs[i])
            worker_end(&workers[i]);
    if (crowd_is_out)
        end_crowd();
    return end(state);
}

int main(void)
{
    test_open_driver();
    if (!make_tags())
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_thread_freed_adds_nothing_to_the_peak_of_another, build, end_all),
        cmocka_unit_test_setup_teardown(a_scope_begins_exactly_whatever_other_threads_have_reserved, build, end_all),
        cmocka_unit_test_setup_teardown(what_was_large_long_ago_does_not_widen_a_peak, build, end_all),
        cmocka_unit_test_setup_teardown(what_was_passed_on_long_ago_does_not_widen_a_peak, build, end_all),
        cmocka_unit_test_setup_teardown(threads_that_never_hold_blocks_all_at_once_stop_taking_the_lock, build,
                                        end_all),
        cmocka_unit_test_setup_teardown(threads_that_take_turns_below_the_peak_rarely_take_the_lock, build, end_all),
        cmocka_unit_test_setup_teardown(peaks_of_blocks_that_go_from_thread_to_thread_are_never_too_low, build,
                                        end_all),
        cmocka_unit_test_setup_teardown(
            threads_that_free_each_others_blocks_leave_exact_counters_and_a_peak_within_its_bounds, build, end_all),
        cmocka_unit_test_setup_teardown(scopes_that_begin_and_end_amid_threads_never_show_less_than_there_was, build,
                                        end_all),
        cmocka_unit_test_setup_teardown(a_block_of_each_of_eight_threads_is_a_peak_of_eight_blocks, build, end_all),
        cmocka_unit_test_setup_teardown(at_most_a_block_of_each_thread_is_never_a_higher_peak, build, end_all),
        cmocka_unit_test_setup_teardown(small_blocks_of_several_threads_lower_the_peak_by_at_most_64_kib_a_thread,
                                        build, end_all),
        cmocka_unit_test_setup_teardown(a_peak_above_the_one_that_threads_worked_below_is_seen, build, end_all),
        cmocka_unit_test_setup_teardown(an_allocation_amid_the_beginning_of_a_scope_waits_for_it, build, end_all),
        cmocka_unit_test_setup_teardown(where_the_kernel_has_no_barrier_scopes_begin_and_end_all_the_same, build,
                                        end_all),
        cmocka_unit_test_setup_teardown(what_threads_counted_stays_when_they_end, build, end_all),
        cmocka_unit_test_setup_teardown(every_block_that_lives_is_seen_once_while_others_come_and_go, build, end_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
