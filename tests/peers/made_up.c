/* Competitors for the tests of strata_peers, of which some are faulty. STRATA_MADE_UP in the environment chooses one:
 *   honest   reuses memory only when no block is live
 *   overlap  at times a block begins in the middle of the one before
 *   early    memory freed on one stream is reused on any other at once
 *   small    as honest, with little memory
 *   told     as honest; each `begin` is printed to stderr
 *   shut     cannot be opened */
#include "bench/peers/peer.h"

#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FREE_LIMIT = 4096, GRANULE = 512, SMALL_BYTES = 16 << 20 };

static const size_t most_bytes = (size_t)1 << 30;

typedef struct piece {
    CUdeviceptr address;
    size_t bytes;
} piece;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static CUdeviceptr arena;
static size_t capacity, used, peak, live, made;
static piece freed[FREE_LIMIT];
static size_t freed_count;

static int is(const char *what)
{
    const char *chosen = getenv("STRATA_MADE_UP");
    return strcmp(chosen ? chosen : "honest", what) == 0;
}

static int open_arena(int ordinal, char *why, size_t size)
{
    (void)ordinal;
    PFN_cuMemAlloc_v3020 allocate = NULL;
    void *library = dlopen(getenv("STRATA_SIM_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "cuMemAlloc_v2") : NULL;
    memcpy(&allocate, &symbol, sizeof symbol);
    capacity = is("small") ? SMALL_BYTES : most_bytes;
    if (is("shut") || !allocate || allocate(&arena, capacity) != CUDA_SUCCESS) {
        snprintf(why, size, "it was made up so");
        return 0;
    }
    return 1;
}

/* Returns the block freed last, if it is large enough. Only the competitor `early` keeps any. */
static int take_freed(size_t bytes, CUdeviceptr *address)
{
    for (size_t i = freed_count; i-- > 0;)
        if (freed[i].bytes >= bytes) {
            *address = freed[i].address;
            freed[i] = freed[--freed_count];
            return 1;
        }
    return 0;
}

static int take_new(size_t bytes, CUdeviceptr *address)
{
    bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    if (bytes > capacity - used)
        return STRATA_PEER_NO_MEMORY;
    *address = arena + used;
    used += bytes;
    if (used > peak)
        peak = used;
    if (is("overlap") && ++made % 50 == 0 && used > bytes)
        *address -= GRANULE;
    return STRATA_PEER_GOOD;
}

static int allocate(size_t bytes, CUstream stream, CUdeviceptr *address)
{
    (void)stream;
    pthread_mutex_lock(&lock);
    int answer = take_freed(bytes, address) ? STRATA_PEER_GOOD : take_new(bytes, address);
    live += answer == STRATA_PEER_GOOD;
    pthread_mutex_unlock(&lock);
    return answer;
}

static int release(CUdeviceptr address, size_t bytes, CUstream stream)
{
    (void)stream;
    pthread_mutex_lock(&lock);
    live--;
    if (is("early") && freed_count < FREE_LIMIT)
        freed[freed_count++] = (piece){address, bytes};
    pthread_mutex_unlock(&lock);
    return STRATA_PEER_GOOD;
}

static int release_elsewhere(CUdeviceptr address, size_t bytes, CUstream allocated_on, CUstream stream)
{
    (void)allocated_on;
    return release(address, bytes, stream);
}

static uint64_t reserved_peak(void)
{
    return peak;
}

static void begin(uint64_t room)
{
    if (is("told"))
        fprintf(stderr, "begin %s, %zu bytes used\n", room == STRATA_PEER_ALONE ? "alone" : "with others", used);
    peak = used;
}

/* All streams are idle. */
static void trim(void)
{
    if (live)
        return;
    used = 0;
    freed_count = 0;
}

const strata_peer *strata_peer_get(void)
{
    static const strata_peer self = {
        .version = STRATA_PEER_VERSION,
        .label = "madeup",
        .about = "a competitor that is made up",
        .open = open_arena,
        .allocate = allocate,
        .release = release,
        .release_elsewhere = release_elsewhere,
        .reserved_peak = reserved_peak,
        .begin = begin,
        .trim = trim,
    };
    return &self;
}
