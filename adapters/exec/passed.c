/* Memory that the driver gave although a stack is there: how much of what, and its charge to the stack's budget.
 *
 * A charge is a reservation in the budget, which refuses it like a request of that size. */
#include "adapters/exec/exec.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "driver/driver.h"

#include <strata/runtime.h>

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#define HASH_FUNCTION(key, bytes, hash) \
    ((hash) = hash_of((const passed_key *)(const void *)(key))) /* its own takes as long as all else */
#include <uthash.h>

/* What a key names: addresses, arrays and other objects, handles of physical memory, devices. */
typedef enum key_space { ADDRESSES = 0, OBJECTS, HANDLES, DEVICES } key_space;

typedef struct passed_key {
    uint64_t value;
    uint64_t space;
} passed_key;

/* Addresses end in zeros: the upper half of the product has all bits. */
static unsigned hash_of(const passed_key *key)
{
    return (unsigned)((key->value + key->space) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

typedef struct passed {
    passed_key key;
    exec_kind kind;
    size_t bytes;
    uint32_t holders;
    strata_budget_account *account;
    exec_device *device; /* NULL: of none */
    CUcontext context;   /* current when it was made */
    struct passed *next_spare;
    UT_hash_handle hh;
} passed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static passed *all;                       /* guarded by the lock */
static passed *spare;                     /* linked by `next_spare`; guarded by the lock */
static exec_passed_sums sums[EXEC_KINDS]; /* guarded by the lock */

static passed_key key_of(exec_kind kind, uint64_t value)
{
    static const key_space spaces[EXEC_KINDS] = {
        [EXEC_ARRAY] = OBJECTS,     [EXEC_EXTERNAL] = OBJECTS,
        [EXEC_PHYSICAL] = HANDLES,  [EXEC_IMPORTED_PHYSICAL] = HANDLES,
        [EXEC_MULTICAST] = HANDLES, [EXEC_GRAPH] = DEVICES,
    };
    return (passed_key){value, spaces[kind]};
}

/* ---- charges ---- */

static strata_status reserve(const exec_here *here, size_t bytes, exec_charge *charge)
{
    return strata_budget_reserve(here->device->account, bytes, "passed on", &charge->account);
}

CUresult exec_charge_begin(const exec_here *here, size_t bytes, exec_charge *charge)
{
    *charge = (exec_charge){.device = here->device, .bytes = bytes};
    if (here->refused)
        return CUDA_ERROR_NOT_PERMITTED;
    if (!here->device || !here->device->account || !bytes)
        return CUDA_SUCCESS;
    strata_status status = reserve(here, bytes, charge);
    if (status == STRATA_ERROR_OUT_OF_BUDGET && exec_free_waiting(here->device))
        status = reserve(here, bytes, charge);
    if (status == STRATA_SUCCESS)
        return CUDA_SUCCESS;
    exec_count(&exec_counts_now.refused);
    exec_refusal_note(here->device, bytes, status);
    return exec_result_of(status);
}

static void cancel(exec_charge *charge)
{
    if (charge->account)
        strata_budget_account_close(charge->account);
}

/* Under the lock. */
static void add_bytes(passed *entry, size_t bytes)
{
    exec_passed_sums *sum = &sums[entry->kind];
    entry->bytes += bytes;
    sum->live += bytes;
    sum->peak = sum->live > sum->peak ? sum->live : sum->peak;
    if (entry->device)
        atomic_fetch_add(&entry->device->passed_on, bytes);
}

/* Under the lock, as the next ones. */
static passed *take_spare(void)
{
    passed *entry = spare;
    if (!entry)
        return strata_host_zalloc(sizeof *entry);
    spare = entry->next_spare;
    return entry;
}

static void give_spare(passed *entry)
{
    entry->next_spare = spare;
    spare = entry;
}

/* NULL without host memory. */
static passed *add_entry(const exec_charge *charge, exec_kind kind, passed_key key, CUcontext context)
{
    passed *entry = take_spare();
    if (!entry)
        return NULL;
    *entry = (passed){.key = key,
                      .kind = kind,
                      .holders = 1,
                      .account = charge->account,
                      .device = charge->device,
                      .context = context};
    HASH_ADD(hh, all, key, sizeof entry->key, entry);
    if (!entry->hh.tbl) {
        give_spare(entry);
        return NULL;
    }
    add_bytes(entry, charge->bytes);
    return entry;
}

static bool ends_with_context(exec_kind kind)
{
    return kind != EXEC_PHYSICAL && kind != EXEC_POOLED && kind != EXEC_IMPORTED_PHYSICAL && kind != EXEC_MULTICAST &&
           kind != EXEC_GRAPH;
}

/* NULL: none, or the memory outlives it. */
static CUcontext context_of(exec_kind kind)
{
    CUcontext context = NULL;
    if (ends_with_context(kind) && strata_driver_is_open())
        strata_cu.CtxGetCurrent(&context);
    return context;
}

/* Without host memory the charge stays for ever: memory is never counted too low. */
static void keep(const exec_charge *charge, exec_kind kind, uint64_t key)
{
    const CUcontext context = context_of(kind);
    pthread_mutex_lock(&lock);
    if (add_entry(charge, kind, key_of(kind, key), context))
        sums[kind].calls++;
    pthread_mutex_unlock(&lock);
}

CUresult exec_charge_end(exec_charge *charge, CUresult result, exec_kind kind, uint64_t key)
{
    if (result == CUDA_SUCCESS)
        keep(charge, kind, key);
    else
        cancel(charge);
    return result;
}

/* ---- what was passed on ---- */

static passed *find(passed_key key)
{
    passed *entry = NULL;
    HASH_FIND(hh, all, &key, sizeof key, entry);
    return entry;
}

bool exec_passed_has(exec_kind kind, uint64_t key)
{
    pthread_mutex_lock(&lock);
    const bool has = find(key_of(kind, key)) != NULL;
    pthread_mutex_unlock(&lock);
    return has;
}

void exec_passed_hold(uint64_t key)
{
    pthread_mutex_lock(&lock);
    passed *entry = find(key_of(EXEC_PHYSICAL, key));
    if (entry)
        entry->holders++;
    pthread_mutex_unlock(&lock);
}

/* ---- memory without a charge ---- */

void exec_passed_note(exec_kind kind, uint64_t key, size_t bytes)
{
    const exec_charge charge = {.bytes = bytes};
    if (!exec_open_driver()) /* it may be the program's first call; the report comes at the driver's end */
        return;
    const CUcontext context = context_of(kind);
    pthread_mutex_lock(&lock);
    passed *entry = find(key_of(kind, key));
    if (entry)
        entry->holders++;
    else
        add_entry(&charge, kind, key_of(kind, key), context);
    sums[kind].calls++;
    pthread_mutex_unlock(&lock);
}

void exec_passed_grow(exec_kind kind, uint64_t key, size_t bytes)
{
    pthread_mutex_lock(&lock);
    passed *entry = find(key_of(kind, key));
    if (entry && entry->kind == kind && bytes > entry->bytes)
        add_bytes(entry, bytes - entry->bytes);
    pthread_mutex_unlock(&lock);
}

void exec_passed_called(exec_kind kind)
{
    pthread_mutex_lock(&lock);
    sums[kind].calls++;
    pthread_mutex_unlock(&lock);
}

/* ---- ends ---- */

/* Under the lock. Returns its account, to be closed outside. */
static strata_budget_account *take_out(passed *entry)
{
    strata_budget_account *account = entry->account;
    sums[entry->kind].live -= entry->bytes;
    if (entry->device)
        atomic_fetch_sub(&entry->device->passed_on, entry->bytes);
    HASH_DEL(all, entry);
    give_spare(entry);
    return account;
}

void exec_passed_forget(CUcontext context)
{
    passed *entry, *next;
    pthread_mutex_lock(&lock);
    HASH_ITER(hh, all, entry, next)
    {
        if (entry->context != context || !ends_with_context(entry->kind))
            continue;
        strata_budget_account *account = take_out(entry);
        if (account)
            strata_budget_account_close(account);
    }
    pthread_mutex_unlock(&lock);
}

void exec_passed_drop(exec_kind kind, uint64_t key)
{
    strata_budget_account *account = NULL;
    pthread_mutex_lock(&lock);
    passed *entry = find(key_of(kind, key));
    if (entry && --entry->holders == 0)
        account = take_out(entry);
    pthread_mutex_unlock(&lock);
    if (account)
        strata_budget_account_close(account);
}

/* ---- what the driver holds for a device ---- */

/* Under the lock. The amount's reservation is made anew; what does not fit is counted without one. */
static void recharge(passed *entry, size_t bytes)
{
    const exec_here here = {.device = entry->device};
    exec_charge charge;
    if (entry->account)
        strata_budget_account_close(entry->account);
    strata_error_suppress_begin();
    exec_charge_begin(&here, bytes, &charge);
    strata_error_suppress_end(false);
    entry->account = charge.account;
}

void exec_passed_set(exec_device *device, exec_kind kind, size_t bytes)
{
    const exec_charge nothing = {.device = device};
    const passed_key key = key_of(kind, (uint64_t)device->ordinal);
    pthread_mutex_lock(&lock);
    passed *entry = find(key);
    if (!entry)
        entry = add_entry(&nothing, kind, key, NULL);
    if (entry && entry->bytes != bytes) {
        recharge(entry, bytes);
        add_bytes(entry, bytes - entry->bytes); /* the difference may be below zero: it wraps around everywhere */
    }
    pthread_mutex_unlock(&lock);
}

exec_passed_sums exec_passed_read(exec_kind kind)
{
    pthread_mutex_lock(&lock);
    const exec_passed_sums read = sums[kind];
    pthread_mutex_unlock(&lock);
    return read;
}

bool exec_make_room(const exec_here *here)
{
    size_t released = 0;
    if (!here->device)
        return false;
    exec_free_waiting(here->device);
    strata_error_suppress_begin();
    strata_runtime_trim(here->device->runtime, 0, &released);
    strata_error_suppress_end(false);
    return released != 0;
}
