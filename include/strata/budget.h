/* `budget`: a hard limit in bytes for live and retired blocks together (docs/layers/budget.md). The sum never exceeds
 * the limit, with any number of threads, and a request that fits is never refused.
 *
 * Charges. A request is charged before it is forwarded, with the bytes that the layer below will take, rounding
 * included. Bytes are credited when the free is complete or the memory was reused.
 *
 * Accounts. A layer has a base account and any number below it: process -> tenant -> request. A request is charged to
 * its thread's account and to all accounts above, or to none. A reservation is an account whose bytes are charged to
 * the accounts above when it is made.
 *
 * Shared. With shared=NAME the base account's limit holds for all processes of the user, or of a group, that give the
 * name, on that device, until no process has the file open or another limit is set: a process with another limit than
 * that in force uses the latter, and a finding (INVALID_VALUE) says so. They share a file in shared memory,
 * accessible to the user (or group) alone; a damaged file, or one with another owner or wider access, is refused. The
 * bytes of a killed process count until the driver has its memory back. */
#ifndef STRATA_BUDGET_H
#define STRATA_BUDGET_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_budget_account strata_budget_account;

/* What a request that does not fit waits for, holding nothing; smaller requests may pass it. A request above an
 * account's limit by itself does not wait, and a reset of the device ends all waits (DEVICE_RESET). */
typedef enum strata_budget_wait {
    STRATA_BUDGET_WAIT_RETIRED = 0, /* for pending frees */
    STRATA_BUDGET_WAIT_NONE,        /* never for the device, in this layer */
    STRATA_BUDGET_WAIT_LIVE,        /* until it fits, at most for `timeout`; without one, DEADLOCK if all threads with
                                       blocks wait for two seconds, of a budget that is not shared */
} strata_budget_wait;

/* Called when the bytes in use rise to the soft mark (above: true) and then fall below the low mark (false): in that
 * order, one call at a time, without a lock, usually on the thread that passed the mark; during a call its thread also
 * reports other threads' marks. If more than 16 wait, a rise and the following fall are dropped together; the last call
 * reports the current state. The callback may free and allocate, but not end a stack. */
typedef void (*strata_budget_soft_callback)(strata_budget_account *account, bool above, size_t in_use, void *data);

typedef struct strata_budget_options {
    uint32_t size;
    strata_amount limit;    /* zero: none; bytes are counted */
    strata_amount soft;     /* the soft mark; zero: none */
    strata_amount soft_low; /* arms the soft mark again; zero: nine tenths of it */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    strata_budget_wait wait;
    uint64_t timeout;   /* nanoseconds, only with WAIT_LIVE; 0: no time-out */
    const char *name;   /* of the base account; at most 63 bytes; NULL: "budget" or the shared name; copied */
    const char *shared; /* one limit for all processes that give it, on this device: letters, digits, '.', '_', '-'.
                           NULL: this process alone */
    const char *shared_group; /* a group, by name or number, whose processes share it; NULL: the user's */
} strata_budget_options;

/* Makes a budget layer for the device with this ordinal, to be built into a stack. NULL options: the defaults. Errors:
 * INVALID_VALUE (a soft mark above the limit, a limit or mark above 2^62 bytes, an invalid percentage, wait, name or
 * group), IO (the shared file cannot be had or was refused, or the driver lacks file descriptors), BUSY (1024 processes
 * have it), UNSUPPORTED (shared, and the driver gives the device no uuid), DRIVER, OUT_OF_HOST_MEMORY,
 * DRIVER_NOT_FOUND. */
STRATA_API strata_status strata_budget_create(int ordinal, const strata_budget_options *options, strata_resource **out);

/* ---- accounts ---- */

/* The base account, which lives as long as the layer; NULL if `resource` is no budget. */
STRATA_API strata_budget_account *strata_budget_base(strata_resource *resource);

typedef struct strata_budget_account_options {
    uint32_t size;
    const char *name; /* at most 63 bytes; NULL: "account"; copied */
    strata_amount limit;
    strata_amount soft, soft_low; /* as in strata_budget_options */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
} strata_budget_account_options;

/* Opens an account below `parent`, until it is closed or its stack ends. Errors: OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_budget_account_open(strata_budget_account *parent,
                                                    const strata_budget_account_options *options,
                                                    strata_budget_account **out);

/* Opens an account with a reservation of `bytes`, charged as a request of that size. Other accounts cannot cause a
 * refusal of allocations from it, which are charged with their rounding (strata_budget_charge). Closing returns the
 * unused bytes at once, the others when they are freed. Errors: OUT_OF_BUDGET (after all that a request tries, except
 * reuse), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_budget_reserve(strata_budget_account *parent, size_t bytes, const char *name,
                                               strata_budget_account **out);

/* Closes an account from open or reserve. No thread may be in it or use it afterwards; its blocks stay charged until
 * they are freed. NULL is ignored. Errors: INVALID_VALUE (a base account), BUSY (an account below it is open). */
STRATA_API strata_status strata_budget_account_close(strata_budget_account *account);

/* Charges the calling thread's requests through the account's layer to `account` from now on. *previous, if not NULL:
 * the account before. Errors: OUT_OF_HOST_MEMORY.
 *
 * For programs that serve many from one thread a request can name its account itself (strata_request.account), which
 * counts in that layer in place of the thread's; the request answers INVALID_VALUE if that is of another stack. */
STRATA_API strata_status strata_budget_enter(strata_budget_account *account, strata_budget_account **previous);

/* Bytes of an account. Exact while no call is in flight. */
typedef struct strata_budget_usage {
    size_t limit;     /* 0: none */
    size_t in_use;    /* live, retired, reserved by accounts below; shared: of all processes */
    size_t remaining; /* SIZE_MAX without a limit */
    size_t peak;      /* most in use at once, of requests that succeeded; exact with one allocating thread, else it may
                         lack 64 KiB of each; shared: as this process saw it (docs/layers/budget.md) */
    uint64_t refused; /* that did not fit in this account */
    uint64_t waited;  /* for the device or for frees */
    uint64_t reused;  /* requests served by retired memory */
    uint64_t recalls; /* of the quotas of all threads */
} strata_budget_usage;

/* Fills *usage. */
STRATA_API strata_status strata_budget_account_usage(strata_budget_account *account, strata_budget_usage *usage);

/* Changes an account's limit; 0: none. Above a lower limit nothing is granted until enough was freed. Errors:
 * INVALID_VALUE (a reservation), IO (of a shared budget). */
STRATA_API strata_status strata_budget_set_limit(strata_budget_account *account, size_t bytes);

/* The charge of a request of `bytes` through the account's layer. Errors: those of the layers below. */
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
    const strata_shared_tag *tags; /* with bytes in use */
    size_t tag_count;
    size_t freed; /* in `tags`, not in `in_use`: complete frees that others took before this process looked */
} strata_shared_process;

typedef struct strata_shared_budget {
    const char *path;
    const char *name;    /* NULL if the file could not be read */
    const char *problem; /* why not; NULL: the other members are valid */
    unsigned char device_uuid[16];
    size_t limit;  /* 0: none */
    size_t leased; /* of all processes */
    size_t in_use; /* of processes that live */
    const strata_shared_process *processes;
    size_t process_count;
    size_t dead_in_use; /* of processes that died: counts until another process comes or needs room */
} strata_shared_budget;

/* Calls visit for each shared budget that this user can take part in, in the order of their files' names, with
 * arguments valid during the call. Needs no driver. Errors: IO (the folder), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_shared_budget_visit(void (*visit)(const strata_shared_budget *budget, void *data),
                                                    void *data);

/* Sets the limit of the shared budget with this path, as given by visit; 0: none. Needs no driver. Errors: IO,
 * INVALID_VALUE (no such path), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_shared_budget_set_limit(const char *path, size_t bytes);

/* Removes the shared budget with this path, as given by visit, of which no living process has a part. Needs no driver.
 * Errors: BUSY (processes use it), IO, INVALID_VALUE (no such path), OUT_OF_HOST_MEMORY, FORKED. */
STRATA_API strata_status strata_shared_budget_remove(const char *path);

#ifdef __cplusplus
}
#endif

#endif
