/* A shared budget's file, and a process's own data. "With the lock": the file's lock. */
#ifndef STRATA_RESOURCES_BUDGET_SHARED_INTERNAL_H
#define STRATA_RESOURCES_BUDGET_SHARED_INTERNAL_H

#include "core/base/lock.h"
#include "core/base/thread.h"
#include "resources/budget/shared.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/types.h>

enum {
    SHARED_SLOTS = 1024,
    SHARED_TAGS = 24, /* of a process; the first: no tag; the last: all tags that came later */
    SHARED_TAG_NAME = 40,
    SHARED_PATH = 256,
    SHARED_RETIRED = 1023, /* records of a process; with the head, whole pages */
    SHARED_QUOTAS = 64,    /* of a process */
    TAG_INDEXES = 1024,
};

/* A lease or quota that nothing can be charged to. */
#define SHARED_CLOSED INT64_MIN

typedef struct shared_tag {
    char name[SHARED_TAG_NAME];
    _Atomic uint64_t in_use; /* any thread of the process, relaxed */
} shared_tag;

/* A process's part of the file. Written with the lock, except in_use and tags. */
typedef struct shared_slot {
    _Alignas(64) _Atomic int64_t in_use; /* written by the process; below 0 if it gave back what quotas were charged */
    _Atomic int64_t lease;               /* SHARED_CLOSED: the bytes in use count in its place */
    _Atomic uint32_t frozen;             /* a process is lowering the lease, or died while it did */
    _Atomic int32_t pid;                 /* 0: free */
    _Atomic uint64_t started;            /* ticks since boot */
    _Atomic uint64_t pid_namespace;
    _Atomic uint64_t seen_dead; /* nanoseconds since boot; 0: alive */
    _Atomic uint64_t image;     /* of the program: shared_identity; 0: unknown */
    _Atomic uint64_t settling;  /* bytes that completed after other processes claimed them; written by the process */
    _Alignas(64) shared_tag tags[SHARED_TAGS];
} shared_slot;

/* Retired bytes that other processes may claim; shared_retired.h. */
typedef struct shared_record {
    _Atomic uint64_t word;  /* written by a stream: the ticket, once the frees are complete */
    _Atomic uint64_t state; /* ticket << 3 | shared_record_state */
    _Atomic uint64_t bytes; /* written before the state is PENDING */
    uint64_t unused;
} shared_record;

typedef struct shared_retired_page {
    _Alignas(4096) _Atomic uint32_t used; /* records from this one on were never taken; written by the process */
    _Atomic uint32_t used_quotas;         /* quotas from this one on were never taken; written by the process */
    uint32_t unused[6];
    shared_record records[SHARED_RETIRED];
} shared_retired_page;

/* A thread's quota of bytes, within its process's part of the limit but not of its lease: shared_quota.h. */
typedef struct shared_quota {
    _Alignas(64) _Atomic int64_t used; /* charged less given back by the thread; below 0 if others charged it */
    _Atomic int64_t open;              /* what used may be: granted or SHARED_CLOSED; written with the lock */
    _Atomic int64_t granted;           /* what it takes of the limit; SHARED_CLOSED: used; written with the lock */
    _Atomic uint32_t busy;             /* the thread is charging; for its own process */
    uint32_t steps;                    /* the thread's charges so far; by it alone, as the next */
    uint32_t misses;                   /* of these, the ones beyond the quota */
} shared_quota;

typedef struct shared_quota_page {
    _Alignas(4096) shared_quota quotas[SHARED_QUOTAS];
} shared_quota_page;

typedef struct shared_file {
    uint64_t magic;
    uint32_t version, bytes;
    unsigned char device[16];
    char name[64];
    uint64_t checksum;                   /* of the constant members before it */
    _Alignas(64) _Atomic uint64_t limit; /* of a user's budget; 0: none; written with the lock */
    _Atomic uint32_t used_slots;         /* slots from this one on were never taken; written with the lock */
    shared_slot slots[SHARED_SLOTS];
    shared_retired_page retired[SHARED_SLOTS]; /* of the slots; holes for slots that were never taken */
    shared_quota_page quotas[SHARED_SLOTS];    /* likewise */
} shared_file;

_Static_assert(sizeof(shared_retired_page) == 8 * 4096, "whole pages, which the driver maps for the device");
_Static_assert(sizeof(shared_quota_page) == 4096, "one page");
_Static_assert(offsetof(shared_slot, tags) == 64, "a process's own words are one cache line");

/* Frees on one stream that are recorded together; guarded by retired_lock. */
typedef struct shared_batch {
    uint64_t ticket;        /* 0: none */
    uint64_t bytes, enough; /* so far, and how many are worth the stream's write */
    uint64_t stream;
} shared_batch;

enum { SHARED_BATCHES = 256 };

struct budget_shared {
    shared_file *file;       /* constant, like the next four */
    _Atomic uint64_t *limit; /* 0: none; in the file, or in one that only the group's maker of it can write */
    void *limit_map;         /* NULL: in the file */
    int limit_descriptor;    /* -1: in the file */
    dev_t limit_device;      /* identity of the limit's file; constant */
    ino_t limit_inode;
    bool sets_limit;                 /* this process can write the limit */
    _Atomic(shared_slot *) own_slot; /* NULL: opened for a visit; set once, before the slot's pid */
    int descriptor;                  /* closed last: closing any drops the process's record locks */
    char path[SHARED_PATH];          /* absolute */
    dev_t device;                    /* identity of the file; constant */
    ino_t inode;
    _Atomic int64_t counted; /* of all stacks: bytes whose charges have succeeded; any thread */
    strata_lock lock;        /* the file's lock among threads */
    int cancel;              /* what strata_cancel_forbid gave to the thread that has the lock */
    _Atomic uint32_t users;  /* layers and visits; written under files_lock */
    budget_shared *next;
    _Atomic unsigned char tag_indexes[TAG_INDEXES]; /* index of a tag in the slot, 0: unknown; any thread */
    _Atomic(const char *) problem;                  /* why the file is lost, found with its lock; never cleared */
    strata_spin retired_lock;
    uint64_t last_ticket; /* guarded by retired_lock */
    shared_batch batches[SHARED_BATCHES];
    _Atomic uint64_t words;   /* the page's address on the device; 0: not yet, or the driver does not map it */
    _Atomic bool words_asked; /* the driver was asked; set once */
    struct strata_device *device_of_words; /* whose context mapped them; written before words */
    /* By thread number, written by the thread: index of its quota + 1; 0: it has none. */
    unsigned char quota_of[STRATA_THREAD_LIMIT];
};

static inline shared_slot *shared_slot_of(const budget_shared *shared)
{
    return atomic_load_explicit(&shared->own_slot, memory_order_acquire);
}

static inline int64_t shared_lease_of(const shared_slot *slot)
{
    return atomic_load_explicit(&slot->lease, memory_order_seq_cst);
}

/* Bytes of a slot's lease that its process may not use again; below 0 if those of quotas were given back there. Reads
 * in_use before settling: completed bytes move from the first to the second. */
static inline int64_t shared_used_of_lease(const shared_slot *slot)
{
    const int64_t in_use = atomic_load_explicit(&slot->in_use, memory_order_seq_cst);
    const uint64_t settling = atomic_load_explicit(&slot->settling, memory_order_seq_cst);
    int64_t all;
    return __builtin_add_overflow(in_use, settling, &all) ? INT64_MAX : all;
}

/* ---- shared.c ---- */

/* Opens a file for a visit: takes no slot. Shares an open file: closing a second descriptor would drop its locks.
 * Errors: IO. */
strata_status shared_open_existing(const char *path, bool grouped, unsigned group, budget_shared **out);

/* ---- shared_lock.c ---- */

/* Locks a byte of the file, against other processes; byte 0 is the file's lock. */
bool shared_lock_byte(int descriptor, off_t byte, bool wait);
void shared_unlock_byte(int descriptor, off_t byte);

/* Whether another process has the lock: own locks do not show. */
bool shared_byte_is_held(int descriptor, off_t byte);

/* Takes the lock of the file, also among the threads of this process. False: the file cannot be locked. */
bool shared_lock_file(budget_shared *shared);
void shared_unlock_file(budget_shared *shared);

/* ---- shared_slot.c ---- */

/* Bytes that all slots take of the limit, with the file's lock; that one's lease and quotas do. */
uint64_t shared_leased_by(const budget_shared *shared, const shared_slot *slot);
uint64_t shared_held_by_all(const budget_shared *shared);
uint32_t shared_used_slots(const shared_file *file);

/* Bytes in use of a slot, without what other processes claimed. */
uint64_t shared_in_use_of(const budget_shared *shared, const shared_slot *slot);

/* Takes a slot for this process, and frees those of dead ones. With the file's lock. */
strata_status shared_take_slot(budget_shared *shared, const shared_terms *terms);
void shared_free_dead_slots(const budget_shared *shared);

/* Leaves the own slot. Takes the file's lock; if that fails, the lease is left: other processes can take it. */
void shared_leave_slot(budget_shared *shared);

/* Removes the file, of which no process may have a slot. Errors: BUSY, IO. */
strata_status shared_remove(budget_shared *shared);

bool shared_slot_is_alive(const budget_shared *shared, const shared_slot *slot);

/* ---- shared_retired.c ---- */

/* Bytes of the slot that other processes claimed. With the lock: stable. */
uint64_t shared_claimed(const budget_shared *shared, const shared_slot *slot);

/* Claims what the slot's streams have completed. With the lock. */
void shared_claim_complete(const budget_shared *shared, const shared_slot *slot);

/* Lowers the own lease by what was claimed and has been returned to this process. With the lock. */
void shared_settle(budget_shared *shared);

void shared_retired_clear(const shared_file *file, const shared_slot *slot);

/* ---- shared_words.c ---- */

/* Returns whether the driver has no use of the page any more. */
bool shared_words_unmap(budget_shared *shared);

/* ---- shared_file.c ---- */

/* Removes a budget's file, and a group's limit. With the file's lock. Errors: IO. */
strata_status shared_file_remove(const char *path);

/* Whether the open file was removed. */
bool shared_file_was_removed(int descriptor);

/* Makes the pages of a slot that is taken. False: no room. */
bool shared_file_fill(int descriptor, const shared_file *file, const shared_slot *slot);

/* The folder of the files: STRATA_SHARED_DIR, as an absolute path, else /dev/shm. Errors: INVALID_VALUE. */
strata_status shared_directory(char to[PATH_MAX]);

bool shared_name_is_good(const char *name);

bool shared_find_group(const char *name, gid_t *group);

strata_status shared_file_path(const shared_terms *terms, bool grouped, gid_t group, char path[SHARED_PATH]);

/* Opens a file. Follows no links; checks owner and permissions. shared_file_open makes a missing file. On failure the
 * caller closes *descriptor unless it is -1. Errors: IO. */
strata_status shared_file_open(const char *path, bool grouped, gid_t group, int *descriptor, struct stat *about);
strata_status shared_file_open_existing(const char *path, bool grouped, gid_t group, int *descriptor,
                                        struct stat *about);

/* Maps the file and checks its head. With `terms`, initializes a new or unfinished file; needs the lock. Errors: IO. */
strata_status shared_file_map(int descriptor, const char *path, const shared_terms *terms, shared_file **out);

/* Opens the limit of a group's budget, which members read: the first process makes the file, and its user alone can
 * write it. With `terms`, makes a missing one, with the lock. shared_limit_close also undoes a failed open. Errors: IO,
 * INVALID_VALUE. */
strata_status shared_limit_open(budget_shared *shared, const shared_terms *terms, gid_t group);
void shared_limit_close(budget_shared *shared);
bool shared_limit_is_sound(const budget_shared *shared);
strata_status shared_limit_refuse(const budget_shared *shared);

typedef struct shared_user {
    char text[64];
} shared_user;

/* The user that made a group's limit. */
shared_user shared_limit_maker(const budget_shared *shared);

#define SHARED_LIMIT_SUFFIX ".limit"

/* Raises INVALID_VALUE: the path is too long. */
strata_status shared_file_refuse_path(const char *path);

/* Raises IO: the file cannot be `what` ("opened"), by errno. */
strata_status shared_file_refuse(const char *path, const char *what);

/* Raises IO: the file `what` ("is damaged"). */
strata_status shared_file_refuse_for(const char *path, const char *what);

void shared_file_unmap(shared_file *file);

/* Whether the descriptor is still the file's: a program may close it, and it may by now be another file's. Called
 * before each lock, which would be another file's, and whose end would end the program's own locks there. */
bool shared_file_has_descriptor(const budget_shared *shared);

/* Whether the file is still good; false: it was removed, renamed, replaced, truncated or overwritten while it was used,
 * and *what says which. */
bool shared_file_is_sound(const budget_shared *shared, const char **what);

/* ---- shared_bus.c ---- */

/* Protects a mapping: truncating its file does not end the process then. Under files_lock. */
void shared_bus_protect(void *begin, size_t bytes);
void shared_bus_forget(const void *begin);

/* ---- shared_process.c ---- */

typedef struct shared_identity {
    int32_t pid;
    uint64_t started;       /* ticks since boot */
    uint64_t pid_namespace; /* inode */
    uint64_t image;         /* address of the main thread's stack, which exec changes; 0: unknown */
} shared_identity;

void shared_process_self(shared_identity *self);

/* CLOCK_BOOTTIME, nanoseconds: shared by all processes. */
uint64_t shared_clock(void);

/* Whether the driver has a dead process's memory back. The kernel releases locks before it closes the GPU's files;
 * these are closed when the process is gone or a zombie without other threads. In another pid namespace: after some
 * seconds since `seen_dead`. After an exec the process lives on, but its memory is gone. */
bool shared_process_is_gone(const shared_identity *identity, uint64_t seen_dead);

/* Whether a process of this pid namespace certainly does not map the file with this inode. One that holds a lease does,
 * even if it has closed all files; one that has executed the same program again does not. Of another user's process, or
 * one with more privileges, the mappings cannot be read: true after some seconds since `seen_dead`. */
bool shared_process_lacks_file(const shared_identity *identity, ino_t inode, uint64_t seen_dead);

#endif
