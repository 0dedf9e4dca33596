/* A competitor in a library, which strata_peers --peer opens, such as PyTorch's caching allocator. The library exports
 * strata_peer_get, in any language with a C interface.
 *
 * Threads: allocate, release and release_elsewhere are called on several threads at once, each with the device's
 * primary context current. Everything else is called on one thread, with no other call in flight. */
#ifndef STRATA_BENCH_PEER_H
#define STRATA_BENCH_PEER_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_PEER_VERSION 2u

/* Bytes of `begin`: all that are free. */
#define STRATA_PEER_ALONE UINT64_MAX

/* What allocate returns. The two releases return STRATA_PEER_GOOD or STRATA_PEER_BROKEN. */
enum {
    STRATA_PEER_GOOD = 0,
    STRATA_PEER_NO_MEMORY = 1, /* nothing was allocated */
    STRATA_PEER_BROKEN = 2,    /* the program stops: failed calls make figures meaningless */
};

typedef struct strata_peer {
    uint32_t version;  /* STRATA_PEER_VERSION */
    const char *label; /* its column: up to 11 characters */
    const char *about; /* one line: its name and version */

    /* Prepares the device `ordinal`. Called once, first. False: it cannot, and `why`, of `size` bytes, has the reason.
     */
    int (*open)(int ordinal, char *why, size_t size);

    /* Allocates `bytes`, more than 0, for work on `stream`. */
    int (*allocate)(size_t bytes, CUstream stream, CUdeviceptr *address);

    /* Frees in the order of `stream`, on which the block was allocated. */
    int (*release)(CUdeviceptr address, size_t bytes, CUstream stream);

    /* Frees in the order of another stream than the one it was allocated on. The memory must not be reused before the
     * work on either stream so far is done. */
    int (*release_elsewhere)(CUdeviceptr address, size_t bytes, CUstream allocated_on, CUstream stream);

    /* Begins afresh, as far as it can: nothing is allocated. `room` bytes are for it to take beforehand, not before it
     * allocates, since others use the device, too; STRATA_PEER_ALONE: nothing else does, and it takes now what it takes
     * in a program of its own. */
    void (*begin)(uint64_t room);

    /* The most bytes that it held from the device since `begin`. */
    uint64_t (*reserved_peak)(void);

    /* Returns free memory to the device. Nothing is allocated. */
    void (*trim)(void);
} strata_peer;

typedef const strata_peer *(*strata_peer_getter)(void);

/* The symbol that strata_peers looks up. */
__attribute__((visibility("default"))) const strata_peer *strata_peer_get(void);

#ifdef __cplusplus
}
#endif

#endif
