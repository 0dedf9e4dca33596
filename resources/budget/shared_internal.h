/* The layout of a shared budget's file, and what a process keeps of it. "With the lock": the file's lock. */
#ifndef STRATA_RESOURCES_BUDGET_SHARED_INTERNAL_H
#define STRATA_RESOURCES_BUDGET_SHARED_INTERNAL_H

#include "core/base/lock.h"
#include "resources/budget/shared.h"

#include <sys/stat.h>
#include <sys/types.h>

enum {
    SHARED_SLOTS = 1024,
    SHARED_TAGS = 24, /* of a process; first: no tag, last: tags that came too late */
    SHARED_TAG_NAME = 40,
    SHARED_PATH = 256,
    TAG_INDEXES = 1024,
};

typedef struct shared_tag {
    char name[SHARED_TAG_NAME];
    _Atomic uint64_t in_use; /* any thread of the process, relaxed: display */
} shared_tag;

/* Written with the lock, except in_use and tags. */
typedef struct shared_slot {
    _Alignas(64) _Atomic uint64_t in_use; /* written by the process */
    _Atomic uint64_t lease;
    _Atomic uint32_t frozen;  /* a process lowers the lease, or died meanwhile */
    _Atomic int32_t pid;      /* 0: free */
    _Atomic uint64_t started; /* ticks since boot */
    _Atomic uint64_t pid_namespace;
    _Atomic uint64_t seen_dead; /* nanoseconds since boot; 0: alive */
    _Alignas(64) shared_tag tags[SHARED_TAGS];
} shared_slot;

typedef struct shared_file {
    uint64_t magic;
    uint32_t version, bytes;
    unsigned char device[16];
    char name[64];
    uint64_t checksum;                   /* of the constant members before it */
    _Alignas(64) _Atomic uint64_t limit; /* 0: none; written with the lock */
    _Atomic uint32_t used_slots;         /* later slots were never taken; written with the lock */
    shared_slot slots[SHARED_SLOTS];
} shared_file;

struct budget_shared {
    shared_file *file;               /* constant */
    _Atomic(shared_slot *) own_slot; /* NULL: opened for a visit; set once, before the slot's pid */
    int descriptor; /* closed last: closing any descriptor of the file drops the process's record locks */
    char path[SHARED_PATH];
    dev_t device; /* identity of the file; constant */
    ino_t inode;
    strata_lock lock; /* the file's lock among threads */
    uint32_t users;   /* layers and visits; guarded by files_lock */
    budget_shared *next;
    _Atomic unsigned char tag_indexes[TAG_INDEXES]; /* of a tag, 0: unknown; any thread */
};

static inline shared_slot *shared_slot_of(const budget_shared *shared)
{
    return atomic_load_explicit(&shared->own_slot, memory_order_acquire);
}

/* ---- shared.c ---- */

/* For visits: takes no slot. Shares a file that is open already, because closing a second descriptor would drop its
 * locks. Errors: IO. */
strata_status shared_open_existing(const char *path, bool grouped, unsigned group, budget_shared **out);

/* ---- shared_lease.c ---- */

/* Byte 0: the file's lock. */
bool shared_lock_byte(int descriptor, off_t byte, bool wait);
void shared_unlock_byte(int descriptor, off_t byte);

/* With the lock. */
strata_status shared_take_slot(budget_shared *shared, const shared_terms *terms);
void shared_leave_slot(budget_shared *shared);

bool shared_slot_is_alive(const budget_shared *shared, const shared_slot *slot);

/* ---- shared_file.c ---- */

/* STRATA_SHARED_DIR, else /dev/shm. */
const char *shared_directory(void);

bool shared_name_is_good(const char *name);

bool shared_find_group(const char *name, gid_t *group);

strata_status shared_file_path(const shared_terms *terms, bool grouped, gid_t group, char path[SHARED_PATH]);

/* Follows no links; checks owner and permissions. shared_file_open makes a missing file. After a failure, the caller
 * closes *descriptor unless it is -1. Errors: IO. */
strata_status shared_file_open(const char *path, bool grouped, gid_t group, int *descriptor, struct stat *about);
strata_status shared_file_open_existing(const char *path, bool grouped, gid_t group, int *descriptor,
                                        struct stat *about);

/* Maps the file and checks its head. With `terms`, initializes a new or unfinished file; needs the lock. Errors: IO. */
strata_status shared_file_map(int descriptor, const char *path, const shared_terms *terms, shared_file **out);

/* IO: the file cannot be `what`, by errno. */
strata_status shared_file_refuse(const char *path, const char *what);

/* IO: the file `what`. */
strata_status shared_file_refuse_for(const char *path, const char *what);

/* ---- shared_process.c ---- */

typedef struct shared_identity {
    int32_t pid;
    uint64_t started;       /* ticks since boot */
    uint64_t pid_namespace; /* inode */
} shared_identity;

void shared_process_self(shared_identity *self);

/* CLOCK_BOOTTIME, in nanoseconds: one clock of all processes. */
uint64_t shared_clock(void);

/* Whether the driver has a dead process's memory back. The kernel releases locks before it closes the GPU's files;
 * these are closed when the process is gone or a zombie without other threads. In another pid namespace: after some
 * seconds since `seen_dead`. */
bool shared_process_is_gone(const shared_identity *identity, uint64_t seen_dead);

#endif
