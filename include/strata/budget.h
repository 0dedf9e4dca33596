/* `budget`: a hard limit in bytes. Live and retired bytes count (retired: freed in stream order, not known to be
 * complete). Their sum never exceeds the limit, with any number of threads, and a request that fits is never refused.
 *
 *     budget(limit=8GiB), async
 *     budget(limit=50%, soft=45%, wait=live, timeout=200ms), async
 *
 * Charges. A request is charged before it is forwarded, with the bytes that the layer below will take, rounding
 * included. Bytes are credited when the free is complete or the memory was reused. Above a pool a budget counts blocks;
 * below it, what the pool reserves.
 *
 * A request that does not fit first turns completed frees into free bytes, uses retired memory that the owner is
 * certain to reuse without counting it twice, has the layers below give up what they hold, and waits as the options
 * say. Only then the answer is OUT_OF_BUDGET.
 *
 * Accounts. A layer has a base account and any number of accounts below it: process -> tenant -> request. A request is
 * charged to its thread's account and to all accounts above, or to none. A reservation is an account whose bytes are
 * charged to the accounts above when it is made: allocations from it cannot be refused because of other accounts.
 *
 * Shared. With shared=NAME the base account's limit holds for all processes of the user, or of a group, that give the
 * name, on that device; they share a file in shared memory. Each process charges within its own lease; other processes
 * take back the unused part. The first process's limit holds until no process has the file open, or another limit is
 * set, as `strata budget` does. A process may be killed at any moment: its bytes count until the driver has its memory
 * back, and the next process that needs them takes them. The file is accessible to its user (or group) alone and is
 * checked before use; a damaged file, or one with another owner or wider access, is refused.
 *
 * Threads: every function may be called on any thread. */
#ifndef STRATA_BUDGET_H
#define STRATA_BUDGET_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_budget_account strata_budget_account;

/* What a request that does not fit waits for. A waiting request holds nothing, and smaller requests may pass it. A
 * request above the limit of an account by itself does not wait. */
typedef enum strata_budget_wait {
    STRATA_BUDGET_WAIT_RETIRED = 0, /* until the pending frees are complete */
    STRATA_BUDGET_WAIT_NONE,        /* no wait for the device in this layer */
    STRATA_BUDGET_WAIT_LIVE,        /* until it fits; `timeout` limits the wait */
} strata_budget_wait;

/* Called when the bytes in use rise to the soft mark (above: true) and when they then fall below the low mark (false),
 * in the order in which the marks were passed, one call at a time, without a lock. Usually on the thread that passed
 * the mark; while a call is running, its thread also reports the marks that other threads pass. If more than 16 wait, a
 * rise and the following fall are dropped together; the last call reports the current state. The callback may free and
 * allocate. */
typedef void (*strata_budget_soft_callback)(strata_budget_account *account, bool above, size_t in_use, void *data);

/* All zero is the default: no limit. */
typedef struct strata_budget_options {
    uint32_t size;          /* sizeof(strata_budget_options), or 0 */
    strata_amount limit;    /* zero: none; bytes are counted all the same */
    strata_amount soft;     /* the soft mark; zero: none */
    strata_amount soft_low; /* where the soft mark is armed again; zero: nine tenths of it */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    strata_budget_wait wait;
    uint64_t timeout; /* nanoseconds, with wait=live only; 0: no time-out */
    const char
        *name; /* of the base account, for messages; at most 63 bytes; NULL: "budget" or the shared name; copied */
    const char *shared; /* one limit for all processes that give this name, on this device: letters, digits, '.', '_',
                           '-'. NULL: this process alone */
    const char *shared_group; /* a group, by name or number, whose processes share it too; NULL: the user alone */
} strata_budget_options;

/* Makes a budget layer for the device with this ordinal, to be built into a stack. NULL options: the defaults. Errors:
 * INVALID_VALUE (a soft mark above the limit, a limit or mark above 2^62 bytes, an invalid percentage, wait, name or
 * group), IO (the shared file cannot be had or was refused), BUSY (1024 processes have it), DRIVER, OUT_OF_HOST_MEMORY,
 * DRIVER_NOT_FOUND. */
STRATA_API strata_status strata_budget_create(int ordinal, const strata_budget_options *options, strata_resource **out);

/* ---- accounts ---- */

/* The base account of a budget layer; NULL if `resource` is no budget. Lives as long as the layer. */
STRATA_API strata_budget_account *strata_budget_base(strata_resource *resource);

/* All zero is the default: no limit of its own. */
typedef struct strata_budget_account_options {
    uint32_t size;    /* sizeof(strata_budget_account_options), or 0 */
    const char *name; /* for messages; at most 63 bytes; NULL: "account"; copied */
    strata_amount limit;
    strata_amount soft, soft_low; /* as in strata_budget_options */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
} strata_budget_account_options;

/* Opens an account below `parent`. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_budget_account_open(strata_budget_account *parent,
                                                    const strata_budget_account_options *options,
                                                    strata_budget_account **out);

/* Opens an account with a reservation of `bytes`, charged to `parent` and all accounts above as a request of that size.
 * Closing it returns the unused bytes at once and the others when they are freed. A request is charged with its
 * rounding: strata_budget_charge() tells how much. Errors: OUT_OF_BUDGET (after all that a request tries, except
 * reuse), INVALID_VALUE, OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_budget_reserve(strata_budget_account *parent, size_t bytes, const char *name,
                                               strata_budget_account **out);

/* Closes an account from open or reserve. It must not be used afterwards, and no thread may be in it. Its blocks stay
 * charged until they are freed. NULL is ignored. Errors: INVALID_VALUE (a base account), BUSY (an account below it is
 * open). */
STRATA_API strata_status strata_budget_account_close(strata_budget_account *account);

/* Charges the calling thread's requests through the account's layer to `account` from now on. *previous, if not NULL,
 * receives the account before, to be entered again afterwards. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_budget_enter(strata_budget_account *account, strata_budget_account **previous);

/* Bytes of an account. Exact while no call is in flight. */
typedef struct strata_budget_usage {
    size_t limit;     /* 0: none */
    size_t in_use;    /* live, retired, and reserved by accounts below; of a shared account, in all processes */
    size_t remaining; /* SIZE_MAX without a limit */
    size_t peak; /* upper bound of in_use so far; at most the limit. Exact with one allocating thread. With more it may
                    be too high by undecided requests, for each by what its thread freed lately: at most 16 MiB or four
                    blocks. Refused requests do not count. */
    uint64_t refused; /* requests that did not fit in this account */
    uint64_t waited;  /* requests that waited for the device or for frees */
    uint64_t reused;  /* requests served by memory that was still retired */
    uint64_t recalls; /* how often the quotas of all threads were recalled */
} strata_budget_usage;

STRATA_API strata_status strata_budget_account_usage(strata_budget_account *account, strata_budget_usage *usage);

/* Changes an account's limit; 0: none. Bytes above a lower limit stay in use, and nothing is granted until enough was
 * freed. Errors: INVALID_VALUE (NULL, or a reservation), FORKED, IO (of a shared budget). */
STRATA_API strata_status strata_budget_set_limit(strata_budget_account *account, size_t bytes);

/* The charge of a request of `bytes` through the account's layer. Errors: INVALID_VALUE, and those of the layers below.
 */
STRATA_API strata_status strata_budget_charge(strata_budget_account *account, size_t bytes, size_t *charge);

/* ---- shared budgets, seen from outside ---- */

typedef struct strata_shared_tag {
    const char *name; /* "" for no tag */
    size_t in_use;
} strata_shared_tag;

typedef struct strata_shared_process {
    int pid; /* in its own namespace */
    bool alive;
    size_t leased, in_use;
    const strata_shared_tag *tags; /* tags with bytes in use */
    size_t tag_count;
} strata_shared_process;

typedef struct strata_shared_budget {
    const char *path;
    const char *name;    /* NULL if the file could not be read */
    const char *problem; /* why it could not be read; NULL: the other members are valid */
    unsigned char device_uuid[16];
    size_t limit;          /* 0: none */
    size_t leased, in_use; /* of all processes */
    const strata_shared_process *processes;
    size_t process_count;
} strata_shared_budget;

/* Calls visit for each shared budget that this user can take part in: files of the user and of the user's groups.
 * Arguments are valid during the call. Needs no driver. Errors: IO (the folder), INVALID_VALUE, OUT_OF_HOST_MEMORY,
 * FORKED. */
STRATA_API strata_status strata_shared_budget_visit(void (*visit)(const strata_shared_budget *budget, void *data),
                                                    void *data);

/* Sets the limit of the shared budget with this path, as given by visit; 0: none. Needs no driver. Errors: IO,
 * INVALID_VALUE (no such path), OUT_OF_HOST_MEMORY, FORKED. */
STRATA_API strata_status strata_shared_budget_set_limit(const char *path, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
