/* What every room uses: lock, phase, settings, names of entry points, handles, indexes and trees by address, requests
 * to memory debuggers. Uses no other room.
 *
 * Guarded by sim.lock, and called with it held, except where noted. */
#ifndef STRATA_SIM_BASE_BASE_H
#define STRATA_SIM_BASE_BASE_H

/* Declares all exported names, old versions and per-thread variants included, as visible. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <strata/sim.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_DRIVER_VERSION 13000 /* compared with a device; newer ones are from documentation */
#define SIM_OLDEST_VERSION 12000
#define SIM_NEWEST_VERSION 13050
#define SIM_MAX_DEVICES    64
#define SIM_LEAST_MEMORY   (UINT64_C(64) << 20)
#define SIM_MOST_MEMORY    (UINT64_C(1) << 50)
#define SIM_MOST_RANGE     (UINT64_C(1) << 38) /* a pool's first address range */
#define SIM_SMALL_RANGE    (UINT64_C(1) << 30) /* where addresses are scarce: pools take several ranges */

enum {
    SIM_GRANULE = 512,          /* of every address and size handed out */
    SIM_PAGE = 2 << 20,         /* unit of device memory */
    SIM_CHUNK = 32 << 20,       /* what pools and graphs take from the device at once */
    SIM_GREATEST_PRIORITY = -5, /* the least is 0 */
    SIM_POLLS = 3,              /* CUDA_ERROR_NOT_READY answers before a query forces the work */
    SIM_LATEST_CALLS = 1000,    /* after its submission work runs, if it can, though no host needs it */
};

static inline uint64_t sim_round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* ---- files.c ---- */

/* Sets a file's size. False, with errno, after a failure; above RLIMIT_FSIZE, too, where the kernel would end the
 * process with SIGXFSZ. */
bool sim_file_resize(int file, uint64_t bytes);

/* An open file that is known again. A program may close descriptors that it does not know, as daemons do, and open its
 * own files under their numbers: nothing is written there. */
typedef struct sim_file {
    int descriptor;
    dev_t device;
    ino_t inode;
} sim_file;

/* Fills in a file; takes the descriptor, which is closed after a failure. False also for a negative descriptor. */
bool sim_file_take(sim_file *file, int descriptor);

/* Whether the descriptor is still the file's. */
bool sim_file_is_open(const sim_file *file);

/* Closes the file, unless the program has. */
void sim_file_close(const sim_file *file);

/* ---- state.c: what all rooms share ---- */

typedef enum sim_phase { SIM_NOT_INITIALIZED, SIM_RUNNING, SIM_ENDED, SIM_FORKED } sim_phase;

typedef struct sim_settings {
    uint64_t seed;
    strata_sim_policy policy;
    int devices;
    uint64_t memory;
    uint32_t check;    /* modes */
    char *check_file;  /* owned; NULL: standard error */
    bool check_writes; /* the environment asks for reports */
    int check_exit;    /* exit status after reports; 0: the program's own */
    bool lacks_virtual_memory;
    int version; /* as cuDriverGetVersion answers it */
    uint64_t latency[STRATA_SIM_KINDS];
    uint64_t rate[STRATA_SIM_KINDS]; /* bytes a microsecond; 0: unlimited */
    bool check_set;
    bool never_set;
    bool seed_set; /* by a function, which overrides the environment */
    bool policy_set;
    bool devices_set;
    bool memory_set;
} sim_settings;

typedef struct sim_state {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* the host thread completed an operation, or the driver ended */
    sim_phase phase;
    sim_settings settings;
    unsigned inside; /* calls that released the lock to wait */
    bool checking;   /* the checker is on */
} sim_state;

extern sim_state sim;

CUresult sim_phase_error(void); /* CUDA_SUCCESS while the driver runs */
/* Takes the lock. False: the calling thread holds it, and a signal handler that has interrupted it calls; a wait would
 * never end. */
bool sim_lock(void);

/* As sim_lock, for 5 seconds, and once: the thread may have been interrupted before it counts as the holder. For the
 * exiting thread. */
bool sim_lock_at_exit(void);
bool sim_ended(void); /* without the lock */

/* ---- entry.c ---- */

void sim_entry_begin(const char *name);    /* begins the thread's call */
void sim_called_as(const char *entry);     /* the thread's next call is an alias named `entry` */
void sim_entry_refused(void);              /* the call did not begin */
const char *sim_entry(void);               /* of the thread's last call */
size_t sim_entry_length(const char *name); /* without the suffix of a version or a per-thread stream */

/* ---- handles.c ---- */

/* First member of every object with a handle. */
typedef struct sim_handle {
    bool alive;
    struct sim_handle *next_free;
} sim_handle;

/* Objects of one type in an address range committed as it fills: a handle is checked without touching wild pointers.
 * Last given back, first reused, as the real driver does with streams. */
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
void *sim_slab_next(const sim_slab *slab, const void *object); /* next live object; NULL starts and ends */

/* ---- index.c ---- */

/* Objects by first granule: a table of pointers under bitmaps, each with a bit for every nonzero word of the one below.
 * Operations touch a few words. */

enum { SIM_INDEX_LEVELS = 6 };

typedef struct sim_index {
    void **at; /* by granule; allocated with the levels */
    uint64_t *level[SIM_INDEX_LEVELS];
    unsigned levels;
    size_t bytes; /* of the allocation */
} sim_index;

bool sim_index_open(sim_index *index, size_t granules);
void sim_index_close(sim_index *index);
void sim_index_put(sim_index *index, size_t granule, void *what);
void sim_index_remove(sim_index *index, size_t granule);
void *sim_index_floor(const sim_index *index, size_t granule); /* last at or before; or NULL */

/* ---- last_threads.c ---- */

/* Names the calling thread as one that keeps no process alive. Needs no lock. */
void sim_last_threads_mark(void);

/* Ends the process, on a new thread with this signal mask, if the main thread has ended and only marked threads are
 * left. Called by a marked thread that has nothing to do, every SIM_LOOK_MS. Needs no lock. */
enum { SIM_LOOK_MS = 200 };
void sim_last_threads_look(const sigset_t *mask);

/* ---- output.c ---- */

/* Opens a file to write, to append to it or in place of what it has; a file that it makes is this user's alone. No link
 * is followed, and nothing that another user has prepared is opened. /dev/stderr and the like are copied. -1 if that
 * fails. Needs no lock. */
int sim_output_open(const char *path, bool append);

/* Writes all, and raises neither SIGPIPE nor SIGXFSZ. Returns how much was written: less, with errno, after a failure.
 * Needs no lock. */
size_t sim_output_write(int descriptor, const char *text, size_t bytes);

/* ---- tree.c ---- */

/* An intrusive treap, ordered by key, then tie; the pair is unique. Priorities are hashed from keys: equal keys make
 * equal trees. */
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

/* The node with the greatest key that is at most `key`; NULL: none. */
sim_node *sim_tree_floor(const sim_tree *tree, uint64_t key);

/* The first node at or after (key, tie); NULL: none. */
sim_node *sim_tree_ceiling(const sim_tree *tree, uint64_t key, uint64_t tie);

static inline sim_node *sim_tree_first(const sim_tree *tree)
{
    return sim_tree_ceiling(tree, 0, 0);
}

/* A 64-bit hash. */
static inline uint64_t sim_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/* ---- debugger.c ---- */

/* What memory debuggers know of simulated memory.
 *
 * Memcheck and the address sanitizer would take the mappings behind device memory for the program's own. The driver
 * marks bytes when an operation runs, not when it is called for: inaccessible outside allocations and after a free,
 * fresh at an allocation, written when a kernel declares it. The tools see copies and fills; memcheck carries unwritten
 * bytes along.
 *
 * A host that follows a device address faults without a tool. The marks find errors of host kernels, host functions,
 * and the host with pinned and managed memory (memory/in_flight.c).
 *
 * Memory that the program maps counts as written while mapped: no tool carries marks between two addresses of a piece.
 *
 * Leak checkers scan the heap and variables, perhaps while the driver exists, as after a libFuzzer input: the driver's
 * mappings with objects are registered.
 *
 * The address sanitizer marks eight bytes at once: a partly closed group may stay open.
 *
 * Without a tool the functions do nothing. Called with sim.lock held. */

/* Whether a Valgrind tool runs the process, which then has only some tens of gigabytes of addresses to reserve. */
bool sim_debugger_is_valgrind(void);

bool sim_debugger_is_there(void); /* Valgrind or a sanitizer */

/* Marks bytes that belong to no allocation. */
void sim_bytes_close(const char *memory, uint64_t bytes);

/* An allocation begins, or ends; tools report it as the program's. `held` bytes from its beginning are its alone. */
void sim_bytes_born(const char *memory, uint64_t bytes, uint64_t held);
void sim_bytes_gone(const char *memory, uint64_t bytes);

void sim_bytes_written(const char *memory, uint64_t bytes);

/* Memcheck only, for bytes of an allocation: inaccessible, or not written. Until written or the allocation ends. */
void sim_bytes_fence(const char *memory, uint64_t bytes);
void sim_bytes_unwritten(const char *memory, uint64_t bytes);

/* Between the two, memcheck reports no errors of this thread. */
void sim_debugger_look_away(void);
void sim_debugger_look_again(void);

/* Removes all marks: the addresses are free for any use. sim_bytes_forget_range: of a whole mapping whose used parts
 * were forgotten already, at a cost that does not depend on the size. */
void sim_bytes_forget(const char *memory, uint64_t bytes);
void sim_bytes_forget_range(const char *memory, uint64_t bytes);

/* Registers, or unregisters, a range with pointers to the driver's memory for leak checkers. */
void sim_bytes_hold_pointers(const char *memory, uint64_t bytes);
void sim_bytes_hold_no_pointers(const char *memory, uint64_t bytes);

/* Closes bytes that the host must not touch for now, and keeps the tool's marks. Does nothing without a tool, if some
 * are closed already, or without memory. */
typedef struct sim_in_flight_range sim_in_flight_range;
void sim_bytes_in_flight(sim_in_flight_range **ranges, const char *memory, uint64_t bytes);
void sim_bytes_landed(sim_in_flight_range **ranges); /* all of the list */

#endif
