/* Memory that the driver gave although a stack is there: how much of what, for which library, and its charge to the
 * stack's budget.
 *
 * The budget refuses a charge like a request of that size. Memory may outlive the stack that it was charged to, which
 * ends with the primary context: the device's next stack takes the charge over. */
#include "adapters/exec/exec.h"

#include "adapters/exec/passed_table.h"
#include "core/base/biased_lock.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "driver/driver.h"
#include "resources/budget/take.h"

#include <strata/runtime.h>

enum { LIBRARIES = 256 }; /* the tags that are told apart; memory of later ones is counted in the whole alone */

/* Programs make and free such memory mostly on one thread. */
static strata_biased_lock lock = STRATA_BIASED_LOCK_INITIALIZER(STRATA_RANK_LEAF);
static exec_passed_sums sums[EXEC_KINDS][LIBRARIES]; /* [kind][0]: all of it; guarded by the lock, as the table */

static exec_passed_key key_of(exec_kind kind, uint64_t value)
{
    return (exec_passed_key){value, exec_kind_rows[kind].space};
}

/* Whether memory of a kind is entered into the table: without a budget and a report, only if exec_passed_has asks. */
static bool is_entered(exec_kind kind)
{
    return exec_settings_now.counts || exec_kind_rows[kind].is_asked_for;
}

static strata_tag library_of(const void *caller)
{
    const strata_tag tag = exec_settings_now.report == EXEC_REPORT_NONE ? 0 : exec_caller_tag(caller);
    return tag < LIBRARIES ? tag : 0;
}

/* ---- contexts ---- */

static bool ends_with_context(exec_kind kind)
{
    return exec_kind_rows[kind].end == EXEC_ENDS_WITH_CONTEXT;
}

static bool is_asked_for_later(exec_kind kind)
{
    return exec_kind_rows[kind].end == EXEC_MAY_END_WITH_CONTEXT;
}

static CUcontext ask_for_context(exec_kind kind)
{
    CUcontext context = NULL;
    if (ends_with_context(kind))
        strata_cu.CtxGetCurrent(&context);
    return context;
}

/* ---- sums, under the lock ---- */

static void add_to(exec_passed_sums *sum, size_t bytes)
{
    sum->live += bytes;
    sum->peak = sum->live > sum->peak ? sum->live : sum->peak;
}

/* Adds by a load and a store: only the lock's holder writes, others read without it, so that no atomic addition is
 * needed. */
static void change_passed_on(exec_device *device, uint64_t difference)
{
    const uint64_t before = atomic_load_explicit(&device->passed_on, memory_order_relaxed);
    atomic_store_explicit(&device->passed_on, before + difference, memory_order_relaxed);
}

static inline __attribute__((always_inline)) void count_bytes(const exec_passed_facts *facts, size_t bytes)
{
    add_to(&sums[facts->kind][0], bytes);
    if (facts->library)
        add_to(&sums[facts->kind][facts->library], bytes);
    if (facts->device)
        change_passed_on(facts->device, bytes);
}

static inline __attribute__((always_inline)) void discount_bytes(const exec_passed_facts *facts)
{
    sums[facts->kind][0].live -= facts->bytes;
    if (facts->library)
        sums[facts->kind][facts->library].live -= facts->bytes;
    if (facts->device)
        change_passed_on(facts->device, 0 - (uint64_t)facts->bytes);
}

static void count_call(exec_kind kind, strata_tag library)
{
    sums[kind][0].calls++;
    if (library)
        sums[kind][library].calls++;
}

/* ---- entries, under the lock ---- */

/* Field by field, from registers to the entry: a copy of the whole would have to wait for its parts to be stored. */
static inline __attribute__((always_inline)) void write_facts(exec_passed_facts *to, const exec_passed_facts *from)
{
    to->key.value = from->key.value;
    to->key.space = from->key.space;
    to->kind = from->kind;
    to->holders = from->holders;
    to->bytes = from->bytes;
    to->account = from->account;
    to->stack = from->stack;
    to->device = from->device;
    to->context = from->context;
    to->library = from->library;
}

/* An account and its bytes. */
typedef struct charged {
    strata_budget_account *account; /* NULL: nothing is charged */
    size_t bytes;
} charged;

/* Sizes above any memory are cut, so that the budget refuses them as what does not fit. */
static size_t charged_bytes(size_t bytes)
{
    static const size_t most = (size_t)INT64_MAX / 2;
    return exec_least(bytes, most);
}

/* Called without the lock. */
static void give_back(charged what)
{
    if (what.account)
        budget_give(what.account, charged_bytes(what.bytes));
}

static charged charge_of(const exec_passed_facts *facts)
{
    return (charged){facts->account, facts->bytes};
}

/* Enters memory. An older entry of the key is of memory whose end was not seen; its charge is returned, to be given
 * back outside of the lock. Without host memory the new charge is never given back: memory is not counted too low. */
static inline __attribute__((always_inline)) charged put(const exec_passed_facts *facts)
{
    charged stale = {0};
    passed **link = passed_link(facts->key), *entry = *link;
    if (__builtin_expect(entry != NULL, 0)) {
        stale = charge_of(&entry->facts);
        discount_bytes(&entry->facts);
    } else if (!(entry = passed_add(link))) {
        return stale;
    }
    write_facts(&entry->facts, facts);
    count_bytes(&entry->facts, facts->bytes);
    if (__builtin_expect(passed_now.entry_count > passed_now.bucket_count, 0))
        passed_grow();
    return stale;
}

/* ---- searches ---- */

typedef bool search_wants(const exec_passed_facts *facts, const void *of);

typedef struct search {
    search_wants *wants;
    const void *of;
    exec_passed_key *keys; /* NULL: they are counted */
    size_t count, room;
} search;

static void add_if_wanted(const exec_passed_facts *facts, void *data)
{
    search *found = data;
    if (!found->wants(facts, found->of))
        return;
    if (found->keys && found->count < found->room)
        found->keys[found->count] = facts->key;
    found->count++;
}

/* Calls visit, without the lock, for the keys of the memory that is wanted, by which there may be other memory
 * meanwhile. Memory made during the search may be left out. Without host memory there are no calls. */
static void visit_found(search_wants *wants, void (*visit)(exec_passed_key key, const void *of), const void *of)
{
    search found = {.wants = wants, .of = of};
    strata_biased_take(&lock);
    passed_visit(add_if_wanted, &found);
    strata_biased_release(&lock);
    found.room = found.count;
    found.count = 0;
    found.keys = found.room ? strata_host_zalloc(found.room * sizeof *found.keys) : NULL;
    if (!found.keys)
        return;
    strata_biased_take(&lock);
    passed_visit(add_if_wanted, &found);
    strata_biased_release(&lock);
    for (size_t i = 0; i < exec_least(found.count, found.room); i++)
        visit(found.keys[i], of);
    strata_host_free(found.keys);
}

/* ---- charges ---- */

static inline __attribute__((always_inline)) strata_status take(exec_charge *charge)
{
    charge->stack = atomic_load(&charge->device->number); /* before its budget is looked at */
    strata_budget_account *account = charge->device->account;
    const strata_status status = budget_take(account, charged_bytes(charge->bytes));
    if (status == STRATA_SUCCESS)
        charge->account = account;
    return status;
}

static CUresult refuse(const exec_charge *charge, strata_status status)
{
    exec_count(&exec_counts_now.refused);
    exec_refusal_note(charge->device, exec_kind_rows[charge->kind].name, charge->bytes, status);
    return exec_result_of(status);
}

/* Meets a reset before a charge, and builds the next stack, so that the charge is not made to the budget of the former
 * one. */
static void meet_reset(int ordinal)
{
    exec_device_meet_reset(ordinal);
    if (!exec_device_at((size_t)ordinal))
        (void)exec_device_start(ordinal);
}

enum { TRIES = 16 /* of charges that wait while the device is reset, one after the other */ };

CUresult exec_charge_budget(exec_charge *charge, const exec_device *there)
{
    if (charge->device != there)
        meet_reset(charge->device->ordinal);
    strata_status status = exec_set_aside_first(charge->device, true);
    if (status != STRATA_SUCCESS)
        return refuse(charge, status);
    status = take(charge);
    if (status == STRATA_ERROR_OUT_OF_BUDGET && exec_free_waiting(charge->device))
        status = take(charge);
    if (status == STRATA_ERROR_OUT_OF_BUDGET && charge->device->budget_counts_free &&
        exec_make_room(&(exec_here){.device = charge->device}))
        status = take(charge);
    for (unsigned tries = 0; status == STRATA_ERROR_DEVICE_RESET && tries < TRIES; tries++) {
        exec_device_await_ended(charge->device);
        meet_reset(charge->device->ordinal);
        status = take(charge);
    }
    return status == STRATA_SUCCESS ? CUDA_SUCCESS : refuse(charge, status);
}

/* ---- charges to a stack of before ---- */

static bool is_of_former_stack(const exec_passed_facts *facts)
{
    return facts->account && facts->stack != atomic_load(&facts->device->number);
}

/* Takes the charge to a former stack out of an entry: another thread that looks meanwhile finds none. False: there is
 * none. */
static bool take_out_former(exec_passed_key key, exec_passed_facts *facts)
{
    strata_biased_take(&lock);
    passed *entry = passed_find(key);
    const bool former = entry && is_of_former_stack(&entry->facts);
    if (former) {
        *facts = entry->facts;
        entry->facts.account = NULL;
    }
    strata_biased_release(&lock);
    return former;
}

/* Gives the old charge back first, as a shared budget would count both. Memory that does not fit then is counted
 * without a charge. */
static void move_charge(exec_passed_key key)
{
    exec_passed_facts facts;
    if (!take_out_former(key, &facts))
        return;
    exec_charge charge = {.device = facts.device, .bytes = facts.bytes};
    give_back(charge_of(&facts));
    strata_error_suppress_begin();
    if (charge.device->account)
        (void)take(&charge);
    strata_error_suppress_end(false);
    strata_biased_take(&lock);
    passed *entry = passed_find(key);
    if (entry && entry->facts.device == facts.device && entry->facts.bytes == facts.bytes && !entry->facts.account) {
        entry->facts.account = charge.account;
        entry->facts.stack = charge.stack;
        charge.account = NULL;
    }
    strata_biased_release(&lock);
    give_back((charged){charge.account, charge.bytes}); /* the memory was freed meanwhile */
}

static bool is_of_device_and_former(const exec_passed_facts *facts, const void *device)
{
    return facts->device == device && is_of_former_stack(facts);
}

static void move_found(exec_passed_key key, const void *device)
{
    (void)device;
    move_charge(key);
}

void exec_passed_move(exec_device *device)
{
    visit_found(is_of_device_and_former, move_found, device);
}

static void keep(const exec_charge *charge, uint64_t key)
{
    const exec_kind kind = charge->kind;
    const exec_passed_facts facts = {.key = key_of(kind, key),
                                     .kind = kind,
                                     .holders = 1,
                                     .bytes = charge->bytes,
                                     .account = charge->account,
                                     .stack = charge->stack,
                                     .device = charge->device,
                                     .context = ends_with_context(kind) ? charge->context : NULL,
                                     .library = library_of(charge->caller)};
    strata_biased_take(&lock);
    const charged stale = put(&facts);
    count_call(kind, facts.library);
    strata_biased_release(&lock);
    give_back(stale);
    if (is_of_former_stack(&facts)) /* the device has got another stack during the call */
        move_charge(facts.key);
}

CUresult exec_charge_end(exec_charge *charge, CUresult result, uint64_t key)
{
    if (result == CUDA_SUCCESS && !exec_is_forked()) {
        if (charge->device)
            exec_device_meet_reset_beside(charge->device);
        if (is_entered(charge->kind))
            keep(charge, key);
    } else {
        give_back((charged){charge->account, charge->bytes});
    }
    return result;
}

/* ---- what was passed on ---- */

bool exec_passed_has(exec_kind kind, uint64_t key)
{
    if (exec_is_forked())
        return false;
    strata_biased_take(&lock);
    const bool has = passed_find(key_of(kind, key)) != NULL;
    strata_biased_release(&lock);
    return has;
}

void exec_passed_hold(uint64_t key)
{
    if (exec_is_forked())
        return;
    strata_biased_take(&lock);
    passed *entry = passed_find(key_of(EXEC_PHYSICAL, key));
    if (entry)
        entry->facts.holders++;
    strata_biased_release(&lock);
}

/* ---- memory without a charge ---- */

static bool has_holders(exec_kind kind)
{
    return kind >= EXEC_IMPORTED;
}

void exec_passed_note(exec_kind kind, uint64_t key, size_t bytes, const void *caller)
{
    if (!exec_open_driver()) /* it may be the program's first call; the report comes at the driver's end */
        return;
    if (!is_entered(kind))
        return;
    const exec_passed_facts facts = {.key = key_of(kind, key),
                                     .kind = kind,
                                     .holders = 1,
                                     .bytes = bytes,
                                     .context = ask_for_context(kind),
                                     .library = library_of(caller)};
    charged stale = {0};
    strata_biased_take(&lock);
    passed *entry = has_holders(kind) ? passed_find(facts.key) : NULL;
    if (entry)
        entry->facts.holders++;
    else
        stale = put(&facts);
    count_call(kind, facts.library);
    strata_biased_release(&lock);
    give_back(stale);
}

void exec_passed_grow(exec_kind kind, uint64_t key, size_t bytes)
{
    if (exec_is_forked())
        return;
    strata_biased_take(&lock);
    passed *entry = passed_find(key_of(kind, key));
    if (entry && entry->facts.kind == kind && bytes > entry->facts.bytes) {
        count_bytes(&entry->facts, bytes - entry->facts.bytes);
        entry->facts.bytes = bytes;
    }
    strata_biased_release(&lock);
}

void exec_passed_called(exec_kind kind, const void *caller)
{
    if (!is_entered(kind) || exec_is_forked())
        return;
    const strata_tag library = library_of(caller);
    strata_biased_take(&lock);
    count_call(kind, library);
    strata_biased_release(&lock);
}

exec_passed_sums exec_passed_read(exec_kind kind, strata_tag library)
{
    strata_biased_take(&lock);
    const exec_passed_sums read = library < LIBRARIES ? sums[kind][library] : (exec_passed_sums){0};
    strata_biased_release(&lock);
    return read;
}

/* ---- ends ---- */

void exec_release_begin(exec_kind kind, uint64_t key, exec_release *release)
{
    release->facts.holders = 0;
    if (!is_entered(kind) || exec_is_forked())
        return;
    strata_biased_take(&lock);
    passed **link = passed_link(key_of(kind, key)), *entry = *link;
    if (entry) {
        write_facts(&release->facts, &entry->facts);
        if (--entry->facts.holders == 0) {
            discount_bytes(&entry->facts);
            passed_remove(link);
        }
    }
    strata_biased_release(&lock);
}

static void put_back(const exec_passed_facts *facts)
{
    charged stale = {0};
    strata_biased_take(&lock);
    passed *entry = facts->holders > 1 ? passed_find(facts->key) : NULL;
    if (entry)
        entry->facts.holders++;
    else
        stale = put(facts);
    strata_biased_release(&lock);
    give_back(stale);
}

/* Whether the driver no longer knows the address. */
static bool is_gone(uint64_t address)
{
    CUmemorytype type;
    return EXEC_CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
           CUDA_ERROR_INVALID_VALUE;
}

/* A refused free may be of memory that has ended unseen, by another thread or with the context of its stream: that is
 * not put back. */
CUresult exec_release_end(const exec_release *release, CUresult result)
{
    const exec_passed_facts *facts = &release->facts;
    const bool ended = result == CUDA_ERROR_INVALID_VALUE && facts->holders == 1 &&
                       facts->key.space == EXEC_ADDRESSES && is_gone(facts->key.value);
    if (result != CUDA_SUCCESS && facts->holders && !ended)
        put_back(facts);
    else if (facts->holders == 1)
        give_back(charge_of(facts));
    return result;
}

void exec_passed_drop(exec_kind kind, uint64_t key)
{
    exec_release release;
    exec_release_begin(kind, key, &release);
    exec_release_end(&release, CUDA_SUCCESS);
}

/* ---- the end of a context ---- */

static bool may_have_ended(const exec_passed_facts *facts, const void *context)
{
    return is_asked_for_later(facts->kind) || (ends_with_context(facts->kind) && facts->context == context);
}

static void drop_if_gone(exec_passed_key key, const void *context)
{
    exec_passed_facts facts = {0};
    strata_biased_take(&lock);
    const passed *entry = passed_find(key);
    if (entry)
        facts = entry->facts;
    strata_biased_release(&lock);
    if (!entry || (is_asked_for_later(facts.kind) ? !is_gone(key.value) : facts.context != context))
        return;
    while (facts.holders--)
        exec_passed_drop(facts.kind, key.value);
}

/* Without host memory what has ended stays counted. */
void exec_passed_forget(CUcontext context)
{
    if (!exec_is_forked())
        visit_found(may_have_ended, drop_if_gone, context);
}

/* ---- what the driver holds for a device ---- */

/* What does not fit is counted without a charge. */
static exec_charge charge_amount(exec_device *device, exec_kind kind, size_t bytes)
{
    const exec_here here = {.device = device};
    exec_charge charge;
    strata_error_suppress_begin();
    exec_charge_begin(&here, kind, bytes, NULL, &charge);
    strata_error_suppress_end(false);
    return charge;
}

/* Takes out the charge for the former amount, which the caller gives back. False: the amount has not changed. */
static bool take_out_amount(exec_passed_facts *facts, size_t bytes)
{
    strata_biased_take(&lock);
    passed *entry = passed_find(facts->key);
    const bool changes = (entry ? entry->facts.bytes : 0) != bytes;
    if (entry && changes) {
        *facts = entry->facts;
        entry->facts.account = NULL;
    }
    strata_biased_release(&lock);
    return changes;
}

/* No lock is held around the charge, which may ask the loader for the caller's name. Of two threads that set an amount
 * at once each puts its own, and gives back what it finds. */
void exec_passed_set(exec_device *device, exec_kind kind, size_t bytes)
{
    exec_passed_facts facts = {
        .key = key_of(kind, (uint64_t)device->ordinal), .kind = kind, .holders = 1, .device = device};
    if (!is_entered(kind) || !take_out_amount(&facts, bytes))
        return;
    give_back(charge_of(&facts));
    const exec_charge charge = charge_amount(device, kind, bytes);
    facts.account = charge.account;
    facts.stack = charge.stack;
    facts.bytes = bytes;
    strata_biased_take(&lock);
    const charged stale = put(&facts);
    strata_biased_release(&lock);
    give_back(stale);
}

static size_t reserved_bytes(const exec_device *device)
{
    strata_usage usage;
    return strata_runtime_usage(device->runtime, &usage) == STRATA_SUCCESS ? usage.reserved_bytes : 0;
}

bool exec_make_room(const exec_here *here)
{
    size_t released = 0;
    if (!here->device)
        return false;
    strata_error_suppress_begin();
    const size_t before = reserved_bytes(here->device);
    exec_free_waiting(here->device);
    if (!exec_captures_under_way()) /* async gives back nothing that is not known to be complete */
        strata_runtime_reap_pending(here->device->runtime);
    strata_runtime_trim(here->device->runtime, 0, &released);
    const bool fell = reserved_bytes(here->device) < before; /* also by frees of direct, and by waits of async */
    strata_error_suppress_end(false);
    return released || fell;
}
