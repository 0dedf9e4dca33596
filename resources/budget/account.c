/* Credits, turns, and what is told about them. */
#include "resources/budget/account.h"

#include "core/base/error.h"
#include "resources/budget/shared.h"

#include <string.h>
#include <time.h>

/* What an account without a limit starts with: more than any device has, and far from the end of the numbers. */
static const int64_t boundless = INT64_C(1) << 62;

static const uint64_t smallest_advance = UINT64_C(64) << 10;

enum {
    CREDIT_SHARE = 8,       /* of the limit: what a thread keeps at most, */
    CREDIT_MOST = 16 << 20, /* and in bytes, */
    CREDIT_BLOCKS = 4,      /* or for so many of the blocks that it frees */
};

/* ---- figures ---- */

static int64_t capacity_of(uint64_t limit)
{
    return limit ? (int64_t)limit : boundless; /* who sets a limit has it below 2^62 */
}

static uint64_t limit_of(const strata_budget_account *account)
{
    return account->shared ? shared_limit(account->shared)
                           : atomic_load_explicit(&account->limit, memory_order_relaxed);
}

/* What is in use or credit of a thread; of a shared account, in use by all processes. */
static int64_t granted(const strata_budget_account *account)
{
    if (account->shared)
        return (int64_t)shared_in_use(account->shared);
    return capacity_of(atomic_load_explicit(&account->limit, memory_order_relaxed)) -
           atomic_load_explicit(&account->unassigned, memory_order_acquire) -
           atomic_load_explicit(&account->ahead, memory_order_relaxed);
}

/* What no thread used since its credit last changed by more than use. */
static uint64_t never_used(const strata_budget_account *account)
{
    uint32_t position = 0;
    uint64_t all = 0;
    for (const budget_cell *cell; (cell = strata_per_thread_next(&account->cells, &position));)
        all += atomic_load_explicit(&cell->least, memory_order_relaxed);
    return all;
}

/* Notes the most that was in use since what is granted last changed: that, less what of it was credit all the time.
 * Whoever changes it comes here before. What another thread charges meanwhile is of the next time, and so is what this
 * thread is about to give back no more: it counts as freed when its call began. Of a shared account only what its slow
 * path meets: adding up all processes takes too long. */
static void note_peak(strata_budget_account *account)
{
    const uint64_t unused = never_used(account);
    const int64_t all = granted(account);
    const uint64_t limit = limit_of(account); /* memory that is about to be reused may be counted twice for a moment */
    uint64_t now = all > 0 && (uint64_t)all > unused ? (uint64_t)all - unused : 0;
    now = limit && now > limit ? limit : now;
    uint64_t peak = atomic_load_explicit(&account->peak, memory_order_relaxed);
    while (now > peak)
        if (atomic_compare_exchange_weak_explicit(&account->peak, &peak, now, memory_order_relaxed,
                                                  memory_order_relaxed))
            return;
}

/* Bytes have come or gone. */
static void set_credit(budget_cell *cell, uint64_t credit)
{
    atomic_store_explicit(&cell->credit, credit, memory_order_relaxed);
    atomic_store_explicit(&cell->least, credit, memory_order_relaxed);
    atomic_store_explicit(&cell->before, UINT64_MAX, memory_order_relaxed);
}

/* What was charged and not decided was never in use. */
static void forget_charge(budget_cell *cell, uint64_t bytes)
{
    const uint64_t before = atomic_load_explicit(&cell->before, memory_order_relaxed);
    const uint64_t least = atomic_load_explicit(&cell->least, memory_order_relaxed) + bytes;
    atomic_store_explicit(&cell->least, least < before ? least : before, memory_order_relaxed);
}

/* Above its soft mark an account has no credits, so that passing a mark is seen at once. Asked under a cell's lock,
 * which the thread that passed the mark has taken since. */
static bool near_mark(const strata_budget_account *account, uint64_t more)
{
    if (!account->soft)
        return false;
    int64_t now = granted(account);
    return atomic_load_explicit(&account->above, memory_order_relaxed) || now < 0 ||
           (uint64_t)now + more > account->soft;
}

/* The most credit that a thread keeps, of small blocks. It can be called in at any time, but what another thread may
 * have used of it counts towards the peak. */
static uint64_t most_credit(uint64_t limit)
{
    const uint64_t share = (uint64_t)capacity_of(limit) / CREDIT_SHARE;
    return share < CREDIT_MOST ? share : CREDIT_MOST;
}

/* The same of a thread that has freed so many bytes, some of which it will want again. */
static uint64_t most_credit_after(const strata_budget_account *account, uint64_t bytes)
{
    const uint64_t most = atomic_load_explicit(&account->most_credit, memory_order_relaxed);
    const uint64_t share =
        (uint64_t)capacity_of(atomic_load_explicit(&account->limit, memory_order_relaxed)) / CREDIT_SHARE;
    const uint64_t wanted = bytes < share / CREDIT_BLOCKS ? bytes * CREDIT_BLOCKS : share;
    return wanted > most ? wanted : most;
}

/* ---- taking and giving ---- */

/* Takes at least `least` and at most `most` of what nobody was given; 0 if there is less. */
static uint64_t take_unassigned(strata_budget_account *account, uint64_t least, uint64_t most)
{
    uint64_t taken;
    if (account->shared)
        return shared_take(account->shared, least) ? least : 0;
    int64_t now = atomic_load_explicit(&account->unassigned, memory_order_acquire);
    do {
        if (now <= 0 || (uint64_t)now < least)
            return 0;
        taken = (uint64_t)now < most ? (uint64_t)now : most;
    } while (!atomic_compare_exchange_weak_explicit(&account->unassigned, &now, now - (int64_t)taken,
                                                    memory_order_acq_rel, memory_order_acquire));
    return taken;
}

static void give_unassigned(strata_budget_account *account, uint64_t bytes)
{
    if (account->shared)
        shared_give(account->shared, bytes);
    else
        atomic_fetch_add_explicit(&account->unassigned, (int64_t)bytes, memory_order_acq_rel);
}

/* The calling thread's cell. Promises have none: they are small, and their threads few. Shared accounts have none:
 * other processes could not call the credits in. */
static inline budget_cell *my_cell(strata_budget_account *account)
{
    return account->promise || account->shared ? NULL : strata_per_thread_self(&account->cells, strata_thread_self());
}

static inline void enter_flight(strata_budget_account *account, budget_cell *cell)
{
    if (cell)
        budget_enter_flight(cell);
    else
        atomic_fetch_add_explicit(&account->strays, 1, memory_order_seq_cst);
}

/* A thread that had no cell when its request was charged may have one now. What it does meanwhile, in a layer below,
 * has ended: if its cell counts a request, it is this one. */
static inline void leave_flight(strata_budget_account *account, budget_cell *cell)
{
    if (cell && atomic_load_explicit(&cell->in_flight, memory_order_relaxed))
        budget_leave_flight(cell);
    else
        atomic_fetch_sub_explicit(&account->strays, 1, memory_order_release);
}

/* Charges, and takes credit in advance; the thread is busy with its cell. */
static bool take_with_advance(strata_budget_account *account, budget_cell *cell, uint64_t bytes)
{
    uint64_t credit = atomic_load_explicit(&cell->credit, memory_order_relaxed);
    uint64_t missing = bytes - credit;
    int64_t left = atomic_load_explicit(&account->unassigned, memory_order_relaxed);
    const uint64_t half = atomic_load_explicit(&account->most_credit, memory_order_relaxed) / 2;
    uint64_t share = left > 0 ? (uint64_t)left / (2 * CREDIT_SHARE) : 0;
    share = share < half ? share : half; /* of what it may keep */
    uint64_t advance = bytes < smallest_advance ? smallest_advance : bytes;
    advance = advance > share / 4 ? share : advance * 4;
    if (near_mark(account, missing + advance))
        advance = 0;
    uint64_t most;
    if (__builtin_add_overflow(missing, advance, &most))
        return false;
    note_peak(account);
    uint64_t taken = take_unassigned(account, missing, most);
    if (!taken)
        return false;
    set_credit(cell, credit + taken - bytes);
    return true;
}

static bool take_credit(strata_budget_account *account, budget_cell *cell, uint64_t bytes)
{
    budget_enter_flight(cell);
    bool fits = false;
    if (budget_cell_enter(account, cell)) {
        uint64_t credit = atomic_load_explicit(&cell->credit, memory_order_relaxed);
        fits = credit >= bytes;
        if (fits)
            budget_use_credit(cell, credit - bytes);
        else
            fits = take_with_advance(account, cell, bytes);
        budget_cell_leave(cell);
    }
    if (!fits)
        budget_leave_flight(cell);
    return fits;
}

/* Without a cell: either the turn's thread sees this flight, or this thread sees that the turn is taken. */
static bool take_as_stray(strata_budget_account *account, uint64_t bytes)
{
    enter_flight(account, NULL);
    bool fits = !atomic_load_explicit(&account->tight, memory_order_seq_cst) &&
                (!bytes || take_unassigned(account, bytes, bytes));
    if (!fits)
        leave_flight(account, NULL);
    return fits;
}

/* Gives the excess of a credit to all. What others see of it meanwhile is not less than is in use. */
static void give_excess(strata_budget_account *account, budget_cell *cell, uint64_t credit, uint64_t excess)
{
    note_peak(account);
    if (credit - excess < atomic_load_explicit(&cell->least, memory_order_relaxed))
        atomic_store_explicit(&cell->least, credit - excess, memory_order_relaxed);
    give_unassigned(account, excess);
    set_credit(cell, credit - excess);
}

/* Gives bytes back of a block that was freed, or of a request that has failed. */
static void give_back(strata_budget_account *account, budget_cell *cell, uint64_t bytes, bool failed)
{
    if (!cell || !budget_cell_enter(account, cell)) {
        if (!account->shared && !failed)
            note_peak(account); /* before it is less */
        give_unassigned(account, bytes);
        return;
    }
    if (failed)
        forget_charge(cell, bytes);
    const uint64_t credit = atomic_load_explicit(&cell->credit, memory_order_relaxed) + bytes;
    const uint64_t most = near_mark(account, 0) ? 0 : most_credit_after(account, bytes);
    if (credit > most)
        give_excess(account, cell, credit, credit - most / 2);
    else
        atomic_store_explicit(&cell->credit, credit, memory_order_relaxed);
    budget_cell_leave(cell);
}

/* ---- turns ---- */

static void call_in_credits(strata_budget_account *account)
{
    uint32_t position = 0;
    uint64_t all = 0;
    strata_heavy_barrier();
    for (budget_cell *cell; (cell = strata_per_thread_next(&account->cells, &position));)
        for (unsigned spins = 0; atomic_load_explicit(&cell->busy, memory_order_acquire);)
            strata_backoff(&spins);
    note_peak(account);
    position = 0;
    for (budget_cell *cell; (cell = strata_per_thread_next(&account->cells, &position));) {
        all += atomic_load_explicit(&cell->credit, memory_order_relaxed);
        set_credit(cell, 0);
    }
    if (all)
        give_unassigned(account, all);
    atomic_fetch_add_explicit(&account->recalls, 1, memory_order_relaxed);
}

static uint64_t own_serial(void)
{
    const strata_thread *thread = strata_thread_self();
    return thread ? thread->serial : 0;
}

/* False if the calling thread has the turn already: it came back here from a layer below, or a callback. */
static bool take_turn(strata_budget_account *account)
{
    uint64_t own = own_serial();
    if (own && atomic_load_explicit(&account->turn_owner, memory_order_relaxed) == own)
        return false;
    strata_lock_order_enter(STRATA_RANK_TURN);
    pthread_mutex_lock(&account->turn_mutex);
    while (account->turn_taken)
        pthread_cond_wait(&account->turn_free, &account->turn_mutex);
    account->turn_taken = true;
    pthread_mutex_unlock(&account->turn_mutex);
    strata_lock_order_leave(STRATA_RANK_TURN);
    atomic_store_explicit(&account->turn_owner, own, memory_order_relaxed);
    atomic_store_explicit(&account->tight, true, memory_order_seq_cst);
    call_in_credits(account);
    return true;
}

static void give_turn(strata_budget_account *account)
{
    atomic_store_explicit(&account->turn_owner, 0, memory_order_relaxed);
    atomic_store_explicit(&account->tight, false, memory_order_release);
    strata_lock_order_enter(STRATA_RANK_TURN);
    pthread_mutex_lock(&account->turn_mutex);
    account->turn_taken = false;
    pthread_cond_signal(&account->turn_free);
    pthread_mutex_unlock(&account->turn_mutex);
    strata_lock_order_leave(STRATA_RANK_TURN);
}

/* Whether another thread has a request that is charged and not decided. */
static bool others_in_flight(const strata_budget_account *account, const budget_cell *mine)
{
    uint32_t position = 0;
    for (const budget_cell *cell; (cell = strata_per_thread_next(&account->cells, &position));)
        if (cell != mine && atomic_load_explicit(&cell->in_flight, memory_order_acquire))
            return true;
    return atomic_load_explicit(&account->strays, memory_order_seq_cst) != 0;
}

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Waits a little longer each time, at last asleep. False when patience is at an end. `looked`: at the clock, last. A
 * yield may take a whole slice of others' time, so these count as well. */
static bool wait_a_little(unsigned *turn, int64_t *looked, int64_t *patience)
{
    enum { PAUSES = 60, SHORT_WAITS = 256 }; /* the first of them before strata_backoff yields */
    if (*turn < PAUSES) {
        strata_backoff(turn);
        return true;
    }
    int64_t now = now_ns();
    if (*looked)
        *patience -= now - *looked;
    *looked = now;
    if (*patience <= 0)
        return false;
    if (*turn < SHORT_WAITS)
        strata_backoff(turn);
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    return true;
}

/* In the turn, where the account is this thread's alone, but for strays that came before it, and for what other
 * processes take of a shared one. */
static bool take_all_at_once(strata_budget_account *account, uint64_t bytes)
{
    if (account->shared) {
        for (unsigned spins = 0; spins < 64 && shared_make_room(account->shared, bytes, 0);)
            if (shared_take(account->shared, bytes))
                return true;
            else
                strata_backoff(&spins);
        return false;
    }
    return !bytes || take_unassigned(account, bytes, bytes);
}

/* In the turn: takes the bytes when they are there; not when no request of others could give any back any more. */
static bool take_when_given_back(strata_budget_account *account, const budget_cell *mine, uint64_t bytes,
                                 int64_t *patience)
{
    unsigned spins = 0;
    int64_t looked = 0;
    for (;;) {
        bool quiet = !others_in_flight(account, mine);
        if (take_all_at_once(account, bytes))
            return true;
        if (quiet || !wait_a_little(&spins, &looked, patience))
            return false;
    }
}

/* In the turn: whether all requests of others are decided, after waiting for them. */
static bool wait_until_decided(const strata_budget_account *account, const budget_cell *mine, int64_t *patience)
{
    unsigned spins = 0;
    int64_t looked = 0;
    while (others_in_flight(account, mine))
        if (!wait_a_little(&spins, &looked, patience))
            return false;
    return true;
}

static __attribute__((noinline)) bool charge_in_turn(strata_budget_account *account, budget_cell *cell, uint64_t bytes,
                                                     int64_t *patience)
{
    if (bytes > (uint64_t)boundless)
        return false;
    bool taken = take_turn(account);
    bool fits = taken ? take_when_given_back(account, cell, bytes, patience) : take_all_at_once(account, bytes);
    if (fits) {
        if (account->shared)
            note_peak(account);
        enter_flight(account, cell);
    }
    if (taken)
        give_turn(account);
    return fits;
}

/* ---- charges ---- */

static bool charge_one(strata_budget_account *account, uint64_t bytes, int64_t *patience)
{
    budget_cell *cell = my_cell(account);
    bool fits = cell ? take_credit(account, cell, bytes) : take_as_stray(account, bytes);
    return fits || charge_in_turn(account, cell, bytes, patience);
}

static void decide_one(strata_budget_account *account, uint64_t bytes, bool failed)
{
    budget_cell *cell = my_cell(account);
    if (failed)
        give_back(account, cell, bytes, true);
    leave_flight(account, cell);
}

bool budget_charge(strata_budget_account *account, uint64_t bytes, int64_t *patience, strata_budget_account **failing)
{
    for (strata_budget_account *level = account; level; level = budget_above(level)) {
        if (charge_one(level, bytes, patience))
            continue;
        *failing = level;
        for (strata_budget_account *charged = account; charged != level; charged = budget_above(charged))
            decide_one(charged, bytes, true);
        return false;
    }
    return true;
}

void budget_decide(strata_budget_account *account, uint64_t bytes, bool failed)
{
    for (strata_budget_account *level = account; level; level = budget_above(level))
        decide_one(level, bytes, failed);
}

/* What a closed promise has back goes to those above it. Nothing of the promise is touched after the last of it. */
static void pass_on(strata_budget_account *promise)
{
    int64_t bytes = atomic_exchange_explicit(&promise->unassigned, 0, memory_order_acq_rel);
    if (bytes <= 0)
        return;
    budget_release(promise->parent, (uint64_t)bytes);
    atomic_fetch_sub_explicit(&promise->kept, (uint64_t)bytes, memory_order_release);
}

/* From the outermost inwards: an account may end with the last byte that it gets back. */
void budget_release(strata_budget_account *account, uint64_t bytes)
{
    strata_budget_account *levels[BUDGET_DEPTH];
    size_t count = 0;
    for (strata_budget_account *level = account; level; level = budget_above(level))
        levels[count++] = level;
    while (count-- > 0) {
        strata_budget_account *level = levels[count];
        if (!level->parent) {
            give_back(level, my_cell(level), bytes, false);
            continue;
        }
        atomic_fetch_add_explicit(&level->pins, 1, memory_order_seq_cst); /* it stays until that is taken back */
        give_back(level, my_cell(level), bytes, false);
        if (level->promise && atomic_load_explicit(&level->closed, memory_order_seq_cst))
            pass_on(level);
        atomic_fetch_sub_explicit(&level->pins, 1, memory_order_release);
    }
}

/* ---- memory that is retired and will be reused ---- */

/* Whether bytes that come back to `source` come back to `account` too: those of a promise do once it is closed. */
static bool comes_back_to(const strata_budget_account *source, const strata_budget_account *account)
{
    while (source && source != account) {
        bool stays = source->promise && !atomic_load_explicit(&source->closed, memory_order_seq_cst);
        source = stays ? NULL : source->parent;
    }
    return source != NULL;
}

static void give_turns(strata_budget_account *account, const strata_budget_account *end)
{
    for (; account != end; account = budget_above(account))
        give_turn(account);
}

/* Whether `bytes` fit once `back` of them were given back. */
static bool has_room_ahead(strata_budget_account *account, uint64_t bytes, uint64_t back)
{
    if (account->shared) /* what is not coming back would have to be held from here on */
        return back >= bytes && shared_make_room(account->shared, bytes, back);
    int64_t least = bytes > back ? (int64_t)(bytes - back) : 0;
    return atomic_load_explicit(&account->unassigned, memory_order_acquire) >= least;
}

static void take_ahead(strata_budget_account *account, uint64_t bytes)
{
    if (account->shared)
        shared_take_ahead(account->shared, bytes);
    else {
        atomic_fetch_add_explicit(&account->ahead, (int64_t)bytes, memory_order_relaxed);
        atomic_fetch_sub_explicit(&account->unassigned, (int64_t)bytes, memory_order_acq_rel);
    }
}

static bool is_within_limit(const strata_budget_account *account)
{
    if (account->shared)
        return shared_is_covered(account->shared);
    return atomic_load_explicit(&account->unassigned, memory_order_acquire) >= 0;
}

bool budget_reuse_begin(strata_budget_account *account, uint64_t bytes, const strata_budget_account *source,
                        uint64_t reusable, int64_t *patience)
{
    for (strata_budget_account *level = account; level; level = budget_above(level)) {
        if (!take_turn(level)) {
            give_turns(account, level);
            return false;
        }
        uint64_t back = comes_back_to(source, level) ? reusable : 0;
        /* A request of others that is not decided could take that memory. */
        if (!wait_until_decided(level, my_cell(level), patience) || !has_room_ahead(level, bytes, back)) {
            give_turns(account, budget_above(level));
            return false;
        }
    }
    for (strata_budget_account *level = account; level; level = budget_above(level))
        take_ahead(level, bytes);
    return true;
}

bool budget_reuse_end(strata_budget_account *account, uint64_t bytes, bool failed)
{
    bool kept = true;
    for (strata_budget_account *level = account; level; level = budget_above(level)) {
        if (failed)
            give_unassigned(level, bytes);
        if (!level->shared)
            atomic_fetch_sub_explicit(&level->ahead, (int64_t)bytes, memory_order_relaxed);
        kept &= is_within_limit(level);
        if (!failed)
            note_peak(level);
    }
    if (kept && !failed)
        atomic_fetch_add_explicit(&account->reused, 1, memory_order_relaxed);
    give_turns(account, NULL);
    return kept;
}

/* ---- what is told ---- */

bool budget_never_fits(const strata_budget_account *account, uint64_t bytes)
{
    uint64_t limit = limit_of(account);
    return bytes > (limit ? limit : (uint64_t)boundless);
}

const char *budget_advice(const strata_budget_account *account, uint64_t bytes, bool others_had_their_time)
{
    if (budget_never_fits(account, bytes))
        return account->promise    ? "It is more than was promised: promise more, or ask for less"
               : limit_of(account) ? "It is beyond the limit alone: raise that, or ask for less"
                                   : "No account counts so much: ask for less";
    if (account->promise)
        return "Free what was allocated from the promise, or promise more";
    return others_had_their_time
               ? "Nobody freed enough within the timeout: free memory, wait longer, or raise the limit"
               : "Free memory, let requests wait (wait=live), or raise the limit";
}

uint64_t budget_in_use(strata_budget_account *account)
{
    uint32_t position = 0;
    uint64_t credits = 0;
    for (const budget_cell *cell; (cell = strata_per_thread_next(&account->cells, &position));)
        credits += atomic_load_explicit(&cell->credit, memory_order_relaxed);
    int64_t all = granted(account);
    return all > 0 && (uint64_t)all > credits ? (uint64_t)all - credits : 0;
}

/* While an account is above its mark no thread has credit there: what is granted is in use. */
bool budget_has_to_tell(const strata_budget_account *account)
{
    bool was = atomic_load_explicit(&account->above, memory_order_relaxed);
    return account->soft && was != (granted(account) >= (int64_t)(was ? account->soft_low : account->soft));
}

/* Notes that a mark was crossed, if it was. While a callback takes so long that the list is full, a crossing that takes
 * back the last one that waits leaves it out: what is told goes up and down by turns, and ends with how it is. */
static bool note_crossing(strata_budget_account *account)
{
    bool was = atomic_load_explicit(&account->above, memory_order_relaxed);
    uint64_t in_use = budget_in_use(account);
    if (was == (in_use >= (was ? account->soft_low : account->soft)))
        return false;
    strata_lock_order_enter(STRATA_RANK_TURN);
    pthread_mutex_lock(&account->turn_mutex);
    bool crossed = atomic_load_explicit(&account->above, memory_order_relaxed) == was;
    if (crossed && account->noted - account->told == BUDGET_CROSSINGS)
        account->noted--;
    else if (crossed)
        account->crossings[account->noted++ % BUDGET_CROSSINGS] = (budget_crossing){!was, in_use};
    if (crossed)
        atomic_store_explicit(&account->above, !was, memory_order_relaxed);
    pthread_mutex_unlock(&account->turn_mutex);
    strata_lock_order_leave(STRATA_RANK_TURN);
    if (crossed && !was && take_turn(account)) /* calls in the credits */
        give_turn(account);
    return crossed;
}

/* The next crossing to tell; false if there is none, or another thread is telling. `telling`: this one is. */
static bool next_crossing(strata_budget_account *account, bool *telling, budget_crossing *crossing)
{
    strata_lock_order_enter(STRATA_RANK_TURN);
    pthread_mutex_lock(&account->turn_mutex);
    bool mine = *telling || !account->telling, any = mine && account->told != account->noted;
    if (any)
        *crossing = account->crossings[account->told++ % BUDGET_CROSSINGS];
    if (mine)
        account->telling = *telling = any;
    pthread_mutex_unlock(&account->turn_mutex);
    strata_lock_order_leave(STRATA_RANK_TURN);
    return any;
}

/* The call in which a mark is passed may be hushed. */
static void call_back(strata_budget_account *account, const budget_crossing *crossing)
{
    strata_error_aside aside;
    strata_error_set_aside(&aside);
    account->soft_callback(account, crossing->above, (size_t)crossing->in_use, account->soft_data);
    strata_error_take_back(&aside);
}

void budget_tell(strata_budget_account *account)
{
    bool crossed = false, telling = false;
    budget_crossing crossing;
    for (unsigned noted = 0; noted < BUDGET_CROSSINGS && budget_has_to_tell(account) && note_crossing(account); noted++)
        crossed = true;
    while (crossed && next_crossing(account, &telling, &crossing))
        if (account->soft_callback)
            call_back(account, &crossing);
}

void budget_usage(strata_budget_account *account, strata_budget_usage *usage)
{
    note_peak(account);
    uint64_t limit = limit_of(account);
    bool closed = account->promise && atomic_load_explicit(&account->closed, memory_order_acquire);
    uint64_t in_use = closed ? atomic_load_explicit(&account->kept, memory_order_relaxed) : budget_in_use(account);
    *usage = (strata_budget_usage){
        .limit = (size_t)limit,
        .in_use = (size_t)in_use,
        .remaining = !limit           ? SIZE_MAX
                     : limit > in_use ? (size_t)(limit - in_use)
                                      : 0,
        .peak = (size_t)atomic_load_explicit(&account->peak, memory_order_relaxed),
        .refused = atomic_load_explicit(&account->refused, memory_order_relaxed),
        .waited = atomic_load_explicit(&account->waited, memory_order_relaxed),
        .reused = atomic_load_explicit(&account->reused, memory_order_relaxed),
        .recalls = atomic_load_explicit(&account->recalls, memory_order_relaxed),
    };
}

strata_status budget_change_limit(strata_budget_account *account, uint64_t limit)
{
    if (account->shared)
        return shared_set_limit(account->shared, limit);
    bool taken = take_turn(account);
    int64_t change = capacity_of(limit) - capacity_of(atomic_load_explicit(&account->limit, memory_order_relaxed));
    atomic_store_explicit(&account->limit, limit, memory_order_relaxed);
    atomic_store_explicit(&account->most_credit, most_credit(limit), memory_order_relaxed);
    atomic_fetch_add_explicit(&account->unassigned, change, memory_order_acq_rel);
    if (taken)
        give_turn(account);
    return STRATA_SUCCESS;
}

/* ---- beginning and ending ---- */

void budget_account_init(strata_budget_account *account, struct budget *layer, strata_budget_account *parent,
                         const budget_terms *terms)
{
    account->layer = layer;
    account->parent = parent;
    account->promise = terms->promise;
    account->shared = terms->shared;
    account->depth = parent ? parent->depth + 1 : 0;
    strncpy(account->name, terms->name, BUDGET_NAME - 1);
    account->alone = !parent && !terms->shared;
    atomic_init(&account->limit, terms->limit);
    atomic_init(&account->most_credit, most_credit(terms->limit));
    atomic_init(&account->unassigned, capacity_of(terms->limit));
    atomic_init(&account->kept, terms->promise ? terms->limit : 0);
    account->soft = terms->soft;
    account->soft_low = terms->soft_low;
    account->soft_callback = terms->soft_callback;
    account->soft_data = terms->soft_data;
    strata_per_thread_init(&account->cells, sizeof(budget_cell));
    if (account->alone)
        strata_per_thread_take_number(&account->cells);
    strata_barriers_open();
    pthread_mutex_init(&account->turn_mutex, NULL);
    pthread_cond_init(&account->turn_free, NULL);
}

void budget_account_end(strata_budget_account *account)
{
    shared_close(account->shared);
    strata_per_thread_destroy(&account->cells);
    pthread_cond_destroy(&account->turn_free);
    pthread_mutex_destroy(&account->turn_mutex);
}

void budget_account_shut(strata_budget_account *account)
{
    atomic_fetch_add_explicit(&account->pins, 1, memory_order_seq_cst);
    atomic_store_explicit(&account->closed, true, memory_order_seq_cst);
    if (account->promise)
        pass_on(account);
    atomic_fetch_sub_explicit(&account->pins, 1, memory_order_release);
}

bool budget_account_is_over(strata_budget_account *account)
{
    if (!atomic_load_explicit(&account->closed, memory_order_acquire) || account->children)
        return false;
    bool none = account->promise ? atomic_load_explicit(&account->kept, memory_order_acquire) == 0
                                 : budget_in_use(account) == 0;
    /* Who gave the last of them back had a pin before. */
    return none && !atomic_load_explicit(&account->strays, memory_order_seq_cst) &&
           !atomic_load_explicit(&account->pins, memory_order_seq_cst);
}
