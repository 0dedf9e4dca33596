/* A competitor from a library of its own, which strata_peers --peer opens: PyTorch's caching allocator comes this way,
 * and so may any other. The library exports strata_peer_get and is written in whatever has a C interface.
 *
 * Threads: allocate, release and release_elsewhere are called on several threads at once, each of which has the
 * device's primary context current. All else is called on one thread, with no other call in flight. */
#ifndef STRATA_BENCH_PEER_H
#define STRATA_BENCH_PEER_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_PEER_VERSION 1u

/* What allocate answers; the two others answer STRATA_PEER_GOOD or STRATA_PEER_BROKEN. */
enum {
    STRATA_PEER_GOOD = 0,
    STRATA_PEER_NO_MEMORY = 1, /* nothing was allocated */
    STRATA_PEER_BROKEN = 2,    /* the program stops: figures of calls that did not work are worth nothing */
};

typedef struct strata_peer {
    uint32_t version;  /* STRATA_PEER_VERSION */
    const char *label; /* of its column: up to 11 letters and digits */
    const char *about; /* a line: what it is, and which version of it */

    /* Makes it ready for the device `ordinal`. Once a process, before all else. False: it cannot be, and `why`, which
     * has room for `size` bytes, says so in a sentence. */
    int (*open)(int ordinal, char *why, size_t size);

    /* `bytes`, more than 0, for work on `stream`. */
    int (*allocate)(size_t bytes, CUstream stream, CUdeviceptr *address);

    /* Frees what was allocated on `stream`, in its order. */
    int (*release)(CUdeviceptr address, size_t bytes, CUstream stream);

    /* Frees in the order of another stream than the one it was allocated on: neither's work so far may see the memory
     * handed out again. */
    int (*release_elsewhere)(CUdeviceptr address, size_t bytes, CUstream allocated_on, CUstream stream);

    /* The most bytes that it held from the device at a time, since restart_peak. */
    uint64_t (*reserved_peak)(void);
    void (*restart_peak)(void);

    /* Gives the device back what is free. */
    void (*trim)(void);
} strata_peer;

typedef const strata_peer *(*strata_peer_getter)(void);

/* The one symbol that is looked for. */
__attribute__((visibility("default"))) const strata_peer *strata_peer_get(void);

#ifdef __cplusplus
}
#endif

#endif
