/* Former places against a list of all, with points that become complete by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "core/base/host_memory.h"
#include "resources/chunks/formers.h"

enum { MOST = 20000, CHUNKS = 40, TIMELINES = 5, POINTS = 3, STEPS = 30000 };

typedef struct place {
    strata_point points[POINTS]; /* 0: none */
    CUdeviceptr address;         /* 0: none */
    uint32_t chunk;
} place;

static struct {
    pool_chunk_store store;
    pool_chunk chunks[CHUNKS + 1];
    place places[MOST + 1]; /* by extent */
    uint32_t extents, count;
    uint64_t completed[TIMELINES + 1];
    size_t asked;
} all;

static uint64_t random_state;

static uint64_t pick(uint64_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 20) % below;
}

static bool is_over(strata_point point)
{
    return strata_point_epoch(point) <= all.completed[strata_point_timeline(point)];
}

static bool ask(strata_point point)
{
    all.asked++;
    return is_over(point);
}

static strata_point next_point(void *data, uint32_t extent)
{
    assert_ptr_equal(data, &all);
    for (size_t i = 0; i < POINTS; i++)
        if (all.places[extent].points[i] && !is_over(all.places[extent].points[i]))
            return all.places[extent].points[i] | STRATA_POINT_WRITE;
    return 0;
}

static int begin(void **state)
{
    (void)state;
    memset(&all, 0, sizeof all);
    random_state = 5;
    all.store.chunks = all.chunks;
    for (size_t i = 1; i <= CHUNKS; i++)
        all.chunks[i].units = 1;
    return 0;
}

static int end(void **state)
{
    (void)state;
    strata_host_free(all.store.formers);
    return 0;
}

static void leave(uint32_t chunk, CUdeviceptr address, const strata_point points[POINTS])
{
    const uint32_t extent = ++all.extents;
    place *left = &all.places[extent];
    left->chunk = chunk;
    left->address = address;
    memcpy(left->points, points, sizeof left->points);
    all.chunks[chunk].address = address;
    assert_true(pool_formers_leave(&all.store, chunk, extent, next_point(&all, extent)));
    assert_int_equal(all.chunks[chunk].address, 0);
    all.count++;
}

static void look(void)
{
    all.asked = 0;
    pool_formers_look(&all.store, ask, next_point, &all);
}

/* Forgets those that are over, by rising addresses. Returns how many. */
static size_t forget_those_over(void)
{
    size_t count = 0;
    CUdeviceptr last = 0;
    for (uint32_t number; (number = pool_formers_over(&all.store, last)) != 0; count++) {
        const pool_former *former = pool_former_at(&all.store, number);
        place *gone = &all.places[former->extent];
        assert_true(former->address == gone->address && former->address >= last && former->chunk == gone->chunk);
        assert_int_equal(next_point(&all, former->extent), 0);
        last = former->address + 1;
        gone->address = 0;
        pool_formers_forget(&all.store, number);
        all.count--;
    }
    assert_int_equal(all.store.former_count, all.count);
    return count;
}

/* By the list. */
static size_t count_those_over(void)
{
    size_t count = 0;
    for (uint32_t extent = 1; extent <= all.extents; extent++)
        count +=
            all.places[extent].address && !all.chunks[all.places[extent].chunk].awaited && !next_point(&all, extent);
    return count;
}

/* ---- cases ---- */

static void a_look_asks_once_for_each_timeline_however_many_places_wait(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MOST; i++) {
        const strata_point points[POINTS] = {strata_point_make((uint16_t)(1 + i % 2), 1 + pick(1000)),
                                             strata_point_make(3, 1 + pick(1000))};
        leave(1 + i % CHUNKS, (i + 1) * UINT64_C(512), points);
    }
    for (int i = 0; i < 3; i++) {
        look();
        assert_int_equal(all.asked, 2);
        assert_int_equal(forget_those_over(), 0);
    }
    all.completed[1] = 1000; /* those now wait for the third timeline */
    look();
    assert_int_equal(all.asked, MOST / 2 + 2);
    look();
    assert_int_equal(all.asked, 2);
    all.completed[3] = 500;
    const size_t over = count_those_over();
    look();
    assert_true(over > 0 && all.asked == over + 2);
    assert_int_equal(forget_those_over(), over);
    look();
    assert_int_equal(all.asked, 2);
}

static void those_over_of_a_chunk_that_a_thread_waits_for_stay(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        leave(1 + i % 2, (3 - i) * UINT64_C(512), (const strata_point[POINTS]){strata_point_make(1, i + 1)});
    all.completed[1] = 3;
    all.chunks[1].awaited = true;
    look();
    assert_int_equal(forget_those_over(), 1);
    all.chunks[1].awaited = false;
    assert_int_equal(forget_those_over(), 2);
    assert_int_equal(all.chunks[1].former | all.chunks[2].former, 0);
}

static void go_back(uint32_t chunk)
{
    uint32_t latest = 0;
    for (uint32_t extent = 1; extent <= all.extents; extent++)
        if (all.places[extent].address && all.places[extent].chunk == chunk)
            latest = extent;
    if (!latest)
        return;
    assert_int_equal(pool_formers_go_back(&all.store, chunk), latest);
    assert_int_equal(all.chunks[chunk].address, all.places[latest].address);
    all.places[latest].address = 0;
    all.count--;
}

static void places_are_over_when_all_their_points_are(void **state)
{
    (void)state;
    uint64_t epochs[TIMELINES + 1] = {0};
    for (int step = 0; step < STEPS && all.extents < MOST; step++) {
        const uint16_t timeline = (uint16_t)(1 + pick(TIMELINES));
        strata_point points[POINTS] = {0};
        size_t over;
        switch (pick(8)) {
        case 0:
            all.completed[timeline] += pick(epochs[timeline] - all.completed[timeline] + 1);
            look();
            over = count_those_over();
            assert_int_equal(forget_those_over(), over);
            break;
        case 1:
            go_back((uint32_t)(1 + pick(CHUNKS)));
            break;
        default:
            for (size_t i = 0; i < POINTS; i++)
                points[i] = pick(2) ? strata_point_make(timeline, epochs[timeline] += 1 + pick(3)) : 0;
            points[0] = points[0] ? points[0] : strata_point_make(timeline, ++epochs[timeline]);
            points[1] = points[1] ? strata_point_make((uint16_t)(1 + timeline % TIMELINES), 1 + pick(100)) : 0;
            leave((uint32_t)(1 + pick(CHUNKS)), (1 + (uint64_t)step * 7919 % STEPS) * 512, points);
        }
    }
    for (size_t i = 1; i <= TIMELINES; i++)
        all.completed[i] = STRATA_POINT_EPOCH_MASK;
    look();
    forget_those_over();
    assert_int_equal(all.store.former_count, 0);
    for (size_t i = 1; i <= CHUNKS; i++)
        assert_int_equal(all.chunks[i].former, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_look_asks_once_for_each_timeline_however_many_places_wait, begin, end),
        cmocka_unit_test_setup_teardown(those_over_of_a_chunk_that_a_thread_waits_for_stay, begin, end),
        cmocka_unit_test_setup_teardown(places_are_over_when_all_their_points_are, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
