/* The inside of shared budgets: the file, and what a process has of it. */
#ifndef STRATA_RESOURCES_BUDGET_SHARED_INTERNAL_H
#define STRATA_RESOURCES_BUDGET_SHARED_INTERNAL_H

#include "core/base/lock.h"
#include "resources/budget/shared.h"

#include <sys/stat.h>
#include <sys/types.h>

enum {
    SHARED_SLOTS = 1024, /* processes */
    SHARED_TAGS = 24,    /* of one process: the first is for no tag, the last for those that came too late */
    SHARED_TAG_NAME = 40,
    SHARED_PATH = 256,
    TAG_INDEXES = 1024,
};

typedef struct shared_tag {
    char name[SHARED_TAG_NAME];
    _Atomic uint64_t in_use; /* for people; any thread of the process, relaxed */
} shared_tag;

typedef struct shared_slot {
    _Alignas(64) _Atomic uint64_t in_use; /* written by the process, read by all */
    _Atomic uint64_t lease;               /* written with the lock */
    _Atomic uint32_t frozen;        /* somebody with the lock is lowering the lease; left behind by one that died */
    _Atomic int32_t pid;            /* 0: the slot is free. This and the rest is written with the lock. */
    _Atomic uint64_t started;       /* when the process did, in ticks since the boot */
    _Atomic uint64_t pid_namespace; /* in which `pid` means something */
    _Atomic uint64_t seen_dead;     /* when it was first seen dead, in nanoseconds since the boot; 0: not */
    _Alignas(64) shared_tag tags[SHARED_TAGS];
} shared_slot;

typedef struct shared_file {
    uint64_t magic;
    uint32_t version, bytes;  /* of the file */
    unsigned char device[16]; /* uuid */
    char name[64];
    uint64_t checksum;                   /* of all before it, which never changes */
    _Alignas(64) _Atomic uint64_t limit; /* written with the lock; 0: none */
    _Atomic uint32_t used_slots;         /* slots from here on were never taken; written with the lock */
    shared_slot slots[SHARED_SLOTS];
} shared_file;

struct budget_shared {
    shared_file *file; /* mapped as long as this lives; constant */
    _Atomic(shared_slot *)
        own_slot;   /* NULL: the file is only looked at until now; set once, before the slot has its pid */
    int descriptor; /* closed last: closing any descriptor of the file ends all of the process's locks on it */
    char path[SHARED_PATH];
    dev_t device; /* which file it is, whatever it is called; constant */
    ino_t inode;
    strata_lock lock; /* the file's lock is the process's; this one tells its threads apart */
    uint32_t users;   /* layers; guarded by files_lock */
    budget_shared *next;
    _Atomic unsigned char tag_indexes[TAG_INDEXES]; /* where a tag is counted, 0: not known yet; any thread */
};

static inline shared_slot *shared_slot_of(const budget_shared *shared)
{
    return atomic_load_explicit(&shared->own_slot, memory_order_acquire);
}

/* ---- shared.c ---- */

/* For looking at a file: has one that the process has open already, since closing another descriptor of it would end
 * the process's locks, else opens the file that is there, without a slot. shared_close ends it. Errors: IO. */
strata_status shared_open_existing(const char *path, bool grouped, unsigned group, budget_shared **out);

/* ---- shared_lease.c ---- */

/* Byte 0 of the file: the file's lock. */
bool shared_lock_byte(int descriptor, off_t byte, bool wait);
void shared_unlock_byte(int descriptor, off_t byte);

/* A slot of the process's own. With the file's lock. */
strata_status shared_take_slot(budget_shared *shared, const shared_terms *terms);
void shared_leave_slot(budget_shared *shared);

/* Whether the process of a slot lives. */
bool shared_slot_is_alive(const budget_shared *shared, const shared_slot *slot);

/* ---- shared_file.c ---- */

/* Where the files are: STRATA_SHARED_DIR, else /dev/shm. */
const char *shared_directory(void);

bool shared_name_is_good(const char *name);

/* The number of a group by its name or digits. */
bool shared_find_group(const char *name, gid_t *group);

/* The path of what is asked for; a file of the user, or of a group. */
strata_status shared_file_path(const shared_terms *terms, bool grouped, gid_t group, char path[SHARED_PATH]);

/* Opens the file, never through a link, and checks whose it is and who else may write to it; the first makes it if
 * there is none. *about is what the system says about it. On failure the descriptor, if it is not -1, is still the
 * caller's to close. Errors: IO. */
strata_status shared_file_open(const char *path, bool grouped, gid_t group, int *descriptor, struct stat *about);
strata_status shared_file_open_existing(const char *path, bool grouped, gid_t group, int *descriptor,
                                        struct stat *about);

/* Maps the file and checks its head. With `terms`, what an open asks for, a new file is made whole first, with the
 * file's lock; without, it is taken as it is. Errors: IO. */
strata_status shared_file_map(int descriptor, const char *path, const shared_terms *terms, shared_file **out);

/* IO: the file cannot be `what`, for the reason in errno. */
strata_status shared_file_refuse(const char *path, const char *what);

/* IO: the file is not what it has to be: "is damaged". */
strata_status shared_file_refuse_for(const char *path, const char *what);

/* ---- shared_process.c ---- */

typedef struct shared_identity {
    int32_t pid;
    uint64_t started;       /* ticks since the boot */
    uint64_t pid_namespace; /* inode */
} shared_identity;

void shared_process_self(shared_identity *self);

/* Nanoseconds since the boot, the same for all processes of the machine. */
uint64_t shared_clock(void);

/* For a process that the kernel has taken the locks from, first seen so at `noticed`: whether its memory is back with
 * the driver. A process gives its files back while it ends, the GPU's among them, and is gone, or a zombie without
 * other threads, when that is done. Where it cannot be looked up, since it lived in another namespace, some seconds
 * have to be enough. */
bool shared_process_is_gone(const shared_identity *identity, uint64_t seen_dead);

#endif
