/* What every room stands on: the lock and the phase, settings, names of entry points, objects that handles point to,
 * indexes and trees by address, requests to memory debuggers. Uses no other room.
 *
 * Guarded by sim.lock, except where a comment says otherwise; functions are called with it held. */
#ifndef STRATA_SIM_BASE_BASE_H
#define STRATA_SIM_BASE_BASE_H

/* Every name as the driver exports it, older versions and variants for per-thread streams included, and visible from
 * outside. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <strata/sim.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_DRIVER_VERSION 13000
#define SIM_MAX_DEVICES    64
#define SIM_LEAST_MEMORY   (UINT64_C(64) << 20)
#define SIM_MOST_MEMORY    (UINT64_C(1) << 50)
#define SIM_MOST_RANGE     (UINT64_C(1) << 38) /* of addresses, that a pool begins with */
#define SIM_SMALL_RANGE    (UINT64_C(1) << 30) /* where the process has few addresses: pools have several ranges */

enum {
    SIM_GRANULE = 512,          /* every address and size handed out is a multiple of it */
    SIM_PAGE = 2 << 20,         /* device memory is taken and given back in multiples of it */
    SIM_CHUNK = 32 << 20,       /* what memory pools take from the device and give back, one at a time */
    SIM_GREATEST_PRIORITY = -5, /* of streams; the least is 0 */
    SIM_POLLS = 3,              /* queries that answer "not ready" before one forces the work */
};

static inline uint64_t sim_round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* ---- state.c: what all rooms share ---- */

typedef enum sim_phase { SIM_NOT_INITIALIZED, SIM_RUNNING, SIM_ENDED, SIM_FORKED } sim_phase;

typedef struct sim_settings {
    uint64_t seed;
    strata_sim_policy policy;
    int devices;
    uint64_t memory;
    uint32_t check;    /* modes of the checker */
    char *check_file;  /* owned; NULL: standard error */
    bool check_writes; /* reports are written: the environment turned the checker on, or says where or what for */
    int check_exit;    /* status to exit with after reports; 0: the program's own */
    bool lacks_virtual_memory;
    uint64_t latency[STRATA_SIM_KINDS];
    uint64_t rate[STRATA_SIM_KINDS]; /* bytes a microsecond; 0: any number */
    bool check_set;
    bool never_set;
    bool seed_set; /* by a function, so that the environment does not count */
    bool policy_set;
    bool devices_set;
    bool memory_set;
} sim_settings;

typedef struct sim_state {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* an operation was completed by the host thread, or the driver ended */
    sim_phase phase;
    sim_settings settings;
    unsigned inside; /* calls that gave the lock away to wait */
    bool checking;   /* the checker is on */
} sim_state;

extern sim_state sim;

CUresult sim_phase_error(void); /* CUDA_SUCCESS while the driver runs */
bool sim_ended(void);           /* without the lock */

/* ---- entry.c: names of entry points ---- */

void sim_entry_begin(const char *name);    /* the thread's call begins */
void sim_called_as(const char *entry);     /* the next call that begins is this one by a further name */
void sim_entry_refused(void);              /* that call did not begin */
const char *sim_entry(void);               /* of the thread's last call */
size_t sim_entry_length(const char *name); /* without the suffix of a version or of a per-thread stream */

/* ---- handles.c: objects that handles point to ---- */

/* First member of every object with a handle. */
typedef struct sim_handle {
    bool alive;
    struct sim_handle *next_free;
} sim_handle;

/* Objects of one type, in one address range that is committed as it fills. A handle can therefore be told from a wild
 * pointer without touching it. The last object given back is the first to be handed out again, as with the real
 * driver's streams. */
typedef struct sim_slab {
    size_t object_bytes;
    char *base;
    size_t capacity;
    size_t made;
    uint64_t alive;
    sim_handle *free;
} sim_slab;

bool sim_slab_open(sim_slab *slab, size_t object_bytes);
void sim_slab_close(sim_slab *slab);
void *sim_slab_take(sim_slab *slab); /* zeroed, or NULL */
void sim_slab_give(sim_slab *slab, void *object);
bool sim_slab_has(const sim_slab *slab, const void *object);
void *sim_slab_next(const sim_slab *slab, const void *object); /* the next live one; NULL starts and ends */

/* ---- index.c ---- */

/* What begins at which granule of an extent: a table of pointers, and over it a bitmap with summaries, each level
 * having a bit for each word of the level below that is not zero. Noting, forgetting and finding the last beginning at
 * or before a granule touch a few words, however many there are. */

enum { SIM_INDEX_LEVELS = 6 };

typedef struct sim_index {
    void **at; /* by granule; one allocation with the levels */
    uint64_t *level[SIM_INDEX_LEVELS];
    unsigned levels;
    size_t bytes; /* of the allocation */
} sim_index;

bool sim_index_open(sim_index *index, size_t granules);
void sim_index_close(sim_index *index);
void sim_index_put(sim_index *index, size_t granule, void *what);
void sim_index_remove(sim_index *index, size_t granule);
void *sim_index_floor(const sim_index *index, size_t granule); /* NULL: nothing begins there or before */

/* ---- tree.c ---- */

/* An ordered set of nodes that live inside the things they order: a treap whose priorities are hashed from the keys, so
 * that the same keys make the same tree. Nodes are ordered by key, then by tie; no two nodes of a tree share both. */
typedef struct sim_node {
    struct sim_node *left;
    struct sim_node *right;
    uint64_t key;
    uint64_t tie;
    uint64_t priority;
} sim_node;

typedef struct sim_tree {
    sim_node *root;
} sim_tree;

void sim_tree_insert(sim_tree *tree, sim_node *node, uint64_t key, uint64_t tie);
void sim_tree_remove(sim_tree *tree, sim_node *node);

/* The node with the greatest key that is at most `key`. */
sim_node *sim_tree_floor(const sim_tree *tree, uint64_t key);

/* The first node at or after (key, tie). */
sim_node *sim_tree_ceiling(const sim_tree *tree, uint64_t key, uint64_t tie);

static inline sim_node *sim_tree_first(const sim_tree *tree)
{
    return sim_tree_ceiling(tree, 0, 0);
}

/* The scrambler of the simulation: a good 64-bit hash of x. */
static inline uint64_t sim_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/* ---- debugger.c ---- */

/* What memory debuggers are told of simulated memory.
 *
 * Valgrind's memcheck and the address sanitizer know of each byte of the process whether the program may touch it;
 * memcheck knows also whether anything was ever written there. The bytes of device memory lie in large mappings that
 * they would take for the program's own, all of them good: so the driver says, as work runs, which are whose. Bytes are
 * closed outside allocations, and from a free on; fresh at an allocation; written when a kernel says that it writes
 * them, or copies and fills do, which the tools see for themselves, and with which memcheck carries what was never
 * written from place to place. All of that happens when the operation runs, not when it is called for.
 *
 * A host that follows a device address faults with or without a tool. What is found here goes wrong in code that has
 * real pointers: host kernels, host functions, and the host with pinned and managed memory
 * (in_flight.c).
 *
 * Memory that the program maps itself is as good as any file's while it is mapped, and gone afterwards: one piece may
 * be seen at several addresses, between which no tool carries anything.
 *
 * The leak checker of the sanitizers looks for pointers in the heap and in variables alone. The driver's objects lie in
 * mappings of their own, and what they hold would be taken for leaked by a check while the driver is there, as
 * libFuzzer does after an input: so the driver says where they are.
 *
 * The address sanitizer closes eight bytes at once: where only some of eight are to be closed, they may stay open.
 *
 * Without a tool a request costs a few instructions; the functions do nothing else. Called with sim.lock held. */

/* Whether Valgrind runs the process: whichever of its tools, the addresses that a process can have are some tens of
 * gigabytes then, and what is reserved in advance must be less. */
bool sim_debugger_is_valgrind(void);

bool sim_debugger_is_there(void); /* any of them */

/* No allocation has the bytes. */
void sim_bytes_close(const char *memory, uint64_t bytes);

/* An allocation is there from now on, and gone: a tool that follows those of the program reports it as it does theirs.
 * `held` bytes from its beginning belong to no other. */
void sim_bytes_born(const char *memory, uint64_t bytes, uint64_t held);
void sim_bytes_gone(const char *memory, uint64_t bytes);

void sim_bytes_written(const char *memory, uint64_t bytes);

/* For memcheck alone: bytes of an allocation that its user must not touch for now, or that were not written yet.
 * Until they are written or the allocation ends. */
void sim_bytes_fence(const char *memory, uint64_t bytes);
void sim_bytes_unwritten(const char *memory, uint64_t bytes);

/* Between the two, memcheck says nothing of what this thread reads. */
void sim_debugger_look_away(void);
void sim_debugger_look_again(void);

/* The addresses are free for any use. The second is for a whole mapping before it goes, in which every part that was in
 * use has been forgotten already: its costs do not depend on how large it is. */
void sim_bytes_forget(const char *memory, uint64_t bytes);
void sim_bytes_forget_range(const char *memory, uint64_t bytes);

/* Pointers to the driver's own memory are there from now on, or not any more: a leak checker follows them. */
void sim_bytes_hold_pointers(const char *memory, uint64_t bytes);
void sim_bytes_hold_no_pointers(const char *memory, uint64_t bytes);

/* Bytes that the host must not touch for a time: what a tool knows of them is put aside, and they are closed. Nothing
 * happens if no tool listens, if some of the bytes are closed already, or without memory. */
typedef struct sim_in_flight_range sim_in_flight_range;
void sim_bytes_in_flight(sim_in_flight_range **ranges, const char *memory, uint64_t bytes);
void sim_bytes_landed(sim_in_flight_range **ranges); /* all of the list */

#endif
