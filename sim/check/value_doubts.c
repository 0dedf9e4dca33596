/* Pairs of records that only waits for values order. What a wait comes after shrinks when another write turns out to
 * suit it: then these pairs are judged again. The oldest are dropped when there are too many. */
#include "check/check.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_DOUBTS = 16384 };

/* Guarded by sim.lock. Their records are held. */
static struct {
    sim_finding *at;
    size_t count;
    size_t capacity;
} doubts;

static void drop_records(const sim_finding *finding)
{
    sim_access_record_drop((sim_access_record *)(uintptr_t)finding->first);
    sim_access_record_drop((sim_access_record *)(uintptr_t)finding->second);
}

static bool same(const sim_finding *one, const sim_finding *other)
{
    return one->first == other->first && one->second == other->second && one->kind == other->kind &&
           one->shadow == other->shadow && one->directed == other->directed && one->elsewhere == other->elsewhere;
}

static bool make_room(void)
{
    if (doubts.count == MOST_DOUBTS) {
        size_t half = MOST_DOUBTS / 2;
        for (size_t i = 0; i < half; i++)
            drop_records(&doubts.at[i]);
        memmove(doubts.at, doubts.at + half, half * sizeof *doubts.at);
        doubts.count -= half;
        sim_check.other_bytes -= half * sizeof *doubts.at;
    }
    if (doubts.count < doubts.capacity)
        return true;
    size_t capacity = doubts.capacity ? 2 * doubts.capacity : 64;
    sim_finding *at = realloc(doubts.at, capacity * sizeof *at);
    if (!at)
        return false;
    doubts.at = at;
    doubts.capacity = capacity;
    return true;
}

static void remember(const sim_finding *finding)
{
    if (doubts.count > 0 && same(&doubts.at[doubts.count - 1], finding))
        return;
    if (!make_room()) {
        sim_check_give_up();
        return;
    }
    sim_access_record_hold((sim_access_record *)(uintptr_t)finding->first);
    sim_access_record_hold((sim_access_record *)(uintptr_t)finding->second);
    doubts.at[doubts.count++] = *finding;
    sim_check.other_bytes += sizeof *finding;
}

typedef enum pair_order { UNORDERED, FOR_NOW, FOR_SURE } pair_order;

/* How a finding's records are ordered. Only by a wait for a value can the one submitted first come second. */
static pair_order order_of(const sim_finding *finding)
{
    bool swapped = !finding->directed && finding->second->order < finding->first->order;
    const sim_access_record *first = swapped ? finding->second : finding->first;
    const sim_access_record *second = swapped ? finding->first : finding->second;
    if (sim_access_record_surely_after(second, first))
        return FOR_SURE;
    if (!sim_values_released())
        return UNORDERED;
    bool after = sim_values_after(second, first) || (!finding->directed && sim_values_after(first, second));
    return after ? FOR_NOW : UNORDERED;
}

void sim_judge_order(const sim_finding *finding)
{
    pair_order order = order_of(finding);
    if (order == UNORDERED)
        sim_report(finding);
    else if (order == FOR_NOW)
        remember(finding);
}

/* Judges all pairs again. Keeps those in doubt; of the others, with `report`, reports those that are unordered. */
static void judge_again(bool report)
{
    size_t kept = 0;
    for (size_t i = 0; i < doubts.count; i++) {
        sim_finding finding = doubts.at[i];
        pair_order order = order_of(&finding);
        if (order == FOR_NOW) {
            doubts.at[kept++] = finding;
            continue;
        }
        if (order == UNORDERED && report)
            sim_report(&finding);
        drop_records(&finding);
        sim_check.other_bytes -= sizeof finding;
    }
    doubts.count = kept;
}

void sim_doubts_judge(void)
{
    judge_again(true);
}

void sim_doubts_settle(void)
{
    judge_again(false);
}

/* Forgets a shadow: a report of its pairs says nothing of the allocation from then on. */
void sim_doubts_forget_shadow(const sim_shadow *shadow)
{
    for (size_t i = 0; i < doubts.count; i++)
        if (doubts.at[i].shadow == shadow)
            doubts.at[i].shadow = NULL;
}

void sim_doubts_close(void)
{
    for (size_t i = 0; i < doubts.count; i++)
        drop_records(&doubts.at[i]);
    sim_check.other_bytes -= doubts.count * sizeof *doubts.at;
    free(doubts.at);
    doubts.at = NULL;
    doubts.count = 0;
    doubts.capacity = 0;
}
