/* `budget`: a hard limit in bytes. What is live and what is retired (freed in stream order and not known complete)
 * counts; the sum is never above the limit, at no moment and under any number of threads, and a request that fits is
 * never refused.
 *
 *     budget(limit=8GiB), async
 *     budget(limit=50%, soft=45%, wait=live, timeout=200ms), async
 *
 * Charges. A request is charged before it goes down, with what the layer below says that it will take, rounding
 * included, and bytes are given back when the free has completed or the memory was handed out again. Above a pool a
 * budget counts blocks, below it what the pool reserves.
 *
 * On a breach the layer turns finished frees into free bytes, hands out retired memory that the owner is sure to reuse
 * without counting it twice, lets layers below give up what they hold back, and waits as the options say. Only when
 * nothing of that helps does it answer OUT_OF_BUDGET.
 *
 * Accounts. A layer has one account, the base, and any number below it: process -> tenant -> request. A request is
 * charged to its thread's account and to all above that, or to none. A promise is an account whose bytes are charged to
 * those above it when it is made: what is allocated from it cannot be refused for what others take.
 *
 * Shared. With shared=NAME the base account's limit is one for all processes of the user, or of a group, that give the
 * name: a file in shared memory, for that device. Each process charges within a lease of its own, which others take
 * back as far as it is not used. The first process's limit holds until no process has the file any more, or somebody
 * sets another one, as `strata budget` does. A process may be killed at any moment: what it used counts until its
 * memory is back with the driver, then the next one who needs it has it. The file belongs to its user alone and is
 * checked before it is used; one that is damaged, of another owner or open to others is refused.
 *
 * Threads: every function may be called on any thread. */
#ifndef STRATA_BUDGET_H
#define STRATA_BUDGET_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_budget_account strata_budget_account;

/* What a request that does not fit waits for. While it waits it holds nothing, and smaller requests go before it. What
 * is beyond the limit of its account or of one above alone waits for nothing. */
typedef enum strata_budget_wait {
    STRATA_BUDGET_WAIT_RETIRED = 0, /* until the frees that are pending have finished */
    STRATA_BUDGET_WAIT_NONE,        /* nothing: this layer never waits for the device */
    STRATA_BUDGET_WAIT_LIVE,        /* until it fits, whoever frees; `timeout` says for how long */
} strata_budget_wait;

/* Told when the bytes in use rise to the soft mark (above: true) and when they have then fallen below the low one
 * (false): one call after another, in the order in which the marks were passed, with what was in use then, and no lock
 * held. Usually on the thread whose request or free passed the mark; while a call is under way, on any thread, the
 * marks that are passed wait for its end and are told by its thread, and who passed them goes on. If more than 16
 * wait, a rise and the fall after it are left out as a pair; the last call says how it is. It may free and allocate. */
typedef void (*strata_budget_soft_callback)(strata_budget_account *account, bool above, size_t in_use, void *data);

/* All zero is the default: no limit. */
typedef struct strata_budget_options {
    uint32_t size;          /* sizeof(strata_budget_options), or 0 */
    strata_amount limit;    /* zero: none; the bytes are counted all the same */
    strata_amount soft;     /* the soft mark; zero: none */
    strata_amount soft_low; /* where the soft mark is armed again; zero: nine tenths of it */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    strata_budget_wait wait;
    uint64_t timeout; /* nanoseconds, with wait=live alone; 0: for ever. A text cannot say 0, but leave it out */
    const char
        *name; /* of the base account, for messages; at most 63 bytes. NULL: "budget", or the shared name. Copied. */
    const char *shared; /* the limit is one for all processes that give this name, on this device, see below; letters,
                           digits, '.', '_', '-'. NULL: this process's alone. */
    const char *shared_group; /* a group, by name or number, whose processes may share it too; NULL: the user's alone */
} strata_budget_options;

/* Makes a budget layer for the device `ordinal`, to be built into a stack. NULL options are the defaults.
 * Errors: INVALID_VALUE (a soft mark above the limit, a limit or mark beyond 2^62 bytes, a percentage that is none, no
 * such wait, a name or group that is none), IO (the shared file cannot be had, or is not what it has to be), BUSY (1024
 * processes have it), DRIVER, OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND. */
STRATA_API strata_status strata_budget_create(int ordinal, const strata_budget_options *options, strata_resource **out);

/* ---- accounts ---- */

/* The account of a budget layer; NULL if `resource` is none. Lives as long as the layer. */
STRATA_API strata_budget_account *strata_budget_base(strata_resource *resource);

/* All zero is the default: no limit of its own. */
typedef struct strata_budget_account_options {
    uint32_t size;    /* sizeof(strata_budget_account_options), or 0 */
    const char *name; /* for messages; at most 63 bytes, NULL: "account". Copied. */
    strata_amount limit;
    strata_amount soft, soft_low; /* as above */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
} strata_budget_account_options;

/* Opens an account below `parent`. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_budget_account_open(strata_budget_account *parent,
                                                    const strata_budget_account_options *options,
                                                    strata_budget_account **out);

/* Promises `bytes`: charges them to `parent` and all above it, now, as a request of that size would be, and opens an
 * account that has them. When it is closed, what is not in use goes back, and the rest when it is freed. The charge of
 * a request includes its rounding: strata_budget_charge() says what to ask for. Errors: OUT_OF_BUDGET (after
 * everything that a request tries, but for reuse), INVALID_VALUE, OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_budget_reserve(strata_budget_account *parent, size_t bytes, const char *name,
                                               strata_budget_account **out);

/* Closes an account that was opened or reserved: the caller does not name it again, and no thread is in it. Blocks that
 * are charged to it stay charged until they are freed. Errors: INVALID_VALUE (a base account), BUSY (an account below
 * it is open). NULL is ignored. */
STRATA_API strata_status strata_budget_account_close(strata_budget_account *account);

/* From now on the calling thread's requests through the account's layer are charged to `account`. *previous, if not
 * NULL, receives the account before, to be entered again afterwards. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_budget_enter(strata_budget_account *account, strata_budget_account **previous);

/* What an account knows, in bytes. Exact where no call is in flight. */
typedef struct strata_budget_usage {
    size_t limit;     /* 0: none */
    size_t in_use;    /* live, retired, and promised to accounts below; of a shared account, in all processes */
    size_t remaining; /* SIZE_MAX without a limit */
    size_t peak;      /* no moment had more in use than this; at most the limit. Exact where one thread allocates; with
                         more it may be too high by requests of others that are not decided, and for each of them by
                         what it freed lately, at most 16 MiB or four of its blocks. What is refused does not count. */
    uint64_t refused; /* requests that did not fit here; those that did not fit above are counted there */
    uint64_t waited;  /* requests that waited for the device or for others */
    uint64_t reused;  /* requests that were served by memory which was retired at the time */
    uint64_t recalls; /* how often the credits of all threads were called in */
} strata_budget_usage;

STRATA_API strata_status strata_budget_account_usage(strata_budget_account *account, strata_budget_usage *usage);

/* Changes an account's limit; 0 is none. Where more is in use than a new limit allows, it stays, and nothing more is
 * granted until enough was freed. Errors: INVALID_VALUE (NULL, or a promise), FORKED, IO (of a shared budget). */
STRATA_API strata_status strata_budget_set_limit(strata_budget_account *account, size_t bytes);

/* What a request of `bytes` through the account's layer is charged. Errors: INVALID_VALUE, and those of the layers
 * below. */
STRATA_API strata_status strata_budget_charge(strata_budget_account *account, size_t bytes, size_t *charge);

/* ---- shared budgets, seen from outside ---- */

typedef struct strata_shared_tag {
    const char *name; /* "" for no tag */
    size_t in_use;
} strata_shared_tag;

typedef struct strata_shared_process {
    int pid; /* as its own namespace has it */
    bool alive;
    size_t leased, in_use;
    const strata_shared_tag *tags; /* those with bytes in use */
    size_t tag_count;
} strata_shared_process;

typedef struct strata_shared_budget {
    const char *path;
    const char *name;    /* NULL where the file could not be read */
    const char *problem; /* why it could not; NULL where it could, and then the rest is there */
    unsigned char device_uuid[16];
    size_t limit;          /* 0: none */
    size_t leased, in_use; /* by all processes */
    const strata_shared_process *processes;
    size_t process_count;
} strata_shared_budget;

/* Calls visit for each shared budget that this user can have a part in: the user's own files, and those of the user's
 * groups. What it is given is good during the call. Needs no driver. Errors: IO (the folder), INVALID_VALUE,
 * OUT_OF_HOST_MEMORY, FORKED. */
STRATA_API strata_status strata_shared_budget_visit(void (*visit)(const strata_shared_budget *budget, void *data),
                                                    void *data);

/* Sets the limit of the shared budget with this path, as visit gives it; 0 is none. Needs no driver. Errors: IO,
 * INVALID_VALUE (no such path), OUT_OF_HOST_MEMORY, FORKED. */
STRATA_API strata_status strata_shared_budget_set_limit(const char *path, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
