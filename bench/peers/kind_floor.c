/* Host memory of the same sizes: an allocator without streams, devices and identities. jemalloc, where the build has
 * one of its own, else the C library's. Nobody touches the memory, here as elsewhere. */
#include "loops.h"

#if defined(STRATA_PEERS_JEMALLOC)
/* As jemalloc's manual has them; the prefix is that of the private build. */
void *strata_je_mallocx(size_t size, int flags);
void strata_je_dallocx(void *memory, int flags);

const char *const peer_floor_label = "jemalloc";
const char *const peer_floor_about = "host memory: mallocx and dallocx of the jemalloc in this build";
#else
const char *const peer_floor_label = "malloc";
const char *const peer_floor_about = "host memory: the C library's malloc and free; there is no jemalloc in this build";
#endif

typedef struct floor_slot {
    void *memory;
} floor_slot;

LOOP_INLINE bool floor_allocate(peer *self, CUstream stream, size_t bytes, void *slot)
{
    (void)self;
    (void)stream;
#if defined(STRATA_PEERS_JEMALLOC)
    void *memory = strata_je_mallocx(bytes, 0);
#else
    void *memory = malloc(bytes);
#endif
    __asm__ volatile("" : : "r"(memory) : "memory"); /* or the compiler sees that nobody needs it */
    ((floor_slot *)slot)->memory = memory;
    return memory != NULL;
}

LOOP_INLINE void floor_release(peer *self, CUstream stream, void *slot)
{
    (void)self;
    (void)stream;
#if defined(STRATA_PEERS_JEMALLOC)
    strata_je_dallocx(((floor_slot *)slot)->memory, 0);
#else
    free(((floor_slot *)slot)->memory);
#endif
}

#define floor_release_elsewhere floor_release
#define floor_release_unknown   floor_release

PEER_LOOPS(floor, floor_slot);

static bool open_floor(peer *self, uint64_t most)
{
    (void)self;
    return most == 0;
}

static void close_floor(peer *self)
{
    (void)self;
}

static CUdeviceptr address_of(const void *slot)
{
    return (CUdeviceptr)(uintptr_t)((const floor_slot *)slot)->memory;
}

static uint64_t reserved_peak(peer *self)
{
    (void)self;
    return 0;
}

static bool allocate_one(peer *self, CUstream stream, size_t bytes, void *slot)
{
    return floor_allocate(self, stream, bytes, slot);
}

static void release_one(peer *self, CUstream stream, void *slot)
{
    floor_release(self, stream, slot);
}

const peer_kind peer_floor = {
    .name = "host",
    .slot_bytes = sizeof(floor_slot),
    .open = open_floor,
    .close = close_floor,
    .allocate = allocate_one,
    .release = release_one,
    .release_elsewhere = release_one,
    .release_unknown = release_one,
    .address = address_of,
    .reserved_peak = reserved_peak,
    .trim = close_floor,
    PEER_LOOPS_OF(floor),
};
