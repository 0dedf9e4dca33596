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
#include <uthash.h>

/* What a key names: device addresses, arrays, handles of physical memory. */
typedef enum key_space { ADDRESSES = 0, ARRAYS, HANDLES } key_space;

typedef struct passed_key {
    uint64_t value;
    uint64_t space;
} passed_key;

typedef struct passed {
    passed_key key;
    exec_kind kind;
    size_t bytes;
    uint32_t holders;
    strata_budget_account *account;
    exec_device *device; /* NULL: of none */
    CUcontext context;   /* current when it was made */
    UT_hash_handle hh;
} passed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static passed *all;                       /* guarded by the lock */
static exec_passed_sums sums[EXEC_KINDS]; /* guarded by the lock */

static passed_key key_of(exec_kind kind, uint64_t value)
{
    const key_space space = kind == EXEC_ARRAY ? ARRAYS : kind == EXEC_PHYSICAL ? HANDLES : ADDRESSES;
    return (passed_key){value, space};
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
    const strata_status status = reserve(here, bytes, charge);
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

/* Without host memory the charge stays for ever: memory is never counted too low. */
static void keep(exec_charge *charge, exec_kind kind, uint64_t key)
{
    CUcontext context = NULL;
    passed *entry = strata_host_zalloc(sizeof *entry);
    if (!entry)
        return;
    if (strata_driver_is_open())
        strata_cu.CtxGetCurrent(&context);
    *entry = (passed){.key = key_of(kind, key),
                      .kind = kind,
                      .bytes = charge->bytes,
                      .holders = 1,
                      .account = charge->account,
                      .device = charge->device,
                      .context = context};
    pthread_mutex_lock(&lock);
    HASH_ADD(hh, all, key, sizeof entry->key, entry);
    if (entry->hh.tbl) {
        sums[kind].calls++;
        sums[kind].live += entry->bytes;
        sums[kind].peak = sums[kind].live > sums[kind].peak ? sums[kind].live : sums[kind].peak;
        if (entry->device)
            atomic_fetch_add(&entry->device->passed_on, entry->bytes);
    } else {
        strata_host_free(entry);
    }
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

/* Under the lock. Returns its account, to be closed outside. */
static strata_budget_account *take_out(passed *entry)
{
    strata_budget_account *account = entry->account;
    sums[entry->kind].live -= entry->bytes;
    if (entry->device)
        atomic_fetch_sub(&entry->device->passed_on, entry->bytes);
    HASH_DEL(all, entry);
    strata_host_free(entry);
    return account;
}

static bool ends_with(const passed *entry, CUcontext context)
{
    return entry->context == context && entry->kind != EXEC_PHYSICAL && entry->kind != EXEC_POOLED;
}

void exec_passed_forget(CUcontext context)
{
    passed *entry, *next;
    pthread_mutex_lock(&lock);
    HASH_ITER(hh, all, entry, next)
    {
        if (!ends_with(entry, context))
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
    strata_error_suppress_begin();
    strata_runtime_trim(here->device->runtime, 0, &released);
    strata_error_suppress_end(false);
    return released != 0;
}
