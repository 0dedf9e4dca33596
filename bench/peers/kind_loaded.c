/* A competitor in a library: peer.h. A call through a pointer costs a nanosecond. */
#include "bare.h"
#include "loops.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct loaded_slot {
    CUdeviceptr address;
    size_t bytes;
    CUstream stream;
} loaded_slot;

static _Noreturn void broken(const peer *self, const char *call)
{
    fprintf(stderr, "%s: %s of %s has failed\n", program_invocation_short_name, call, self->choice->text);
    exit(EXIT_FAILURE);
}

LOOP_INLINE bool loaded_allocate(peer *self, CUstream stream, size_t bytes, void *slot)
{
    loaded_slot *block = slot;
    *block = (loaded_slot){.bytes = bytes, .stream = stream};
    int answer = self->choice->loaded->allocate(bytes, stream, &block->address);
    if (answer > STRATA_PEER_NO_MEMORY)
        broken(self, "allocate");
    return answer == STRATA_PEER_GOOD;
}

LOOP_INLINE void loaded_release(peer *self, CUstream stream, void *slot)
{
    const loaded_slot *block = slot;
    if (self->choice->loaded->release(block->address, block->bytes, stream) != STRATA_PEER_GOOD)
        broken(self, "release");
}

LOOP_INLINE void loaded_release_elsewhere(peer *self, CUstream stream, void *slot)
{
    const loaded_slot *block = slot;
    if (self->choice->loaded->release_elsewhere(block->address, block->bytes, block->stream, stream) !=
        STRATA_PEER_GOOD)
        broken(self, "release_elsewhere");
}

#define loaded_release_unknown loaded_release

PEER_LOOPS(loaded, loaded_slot);

static bool open_loaded(peer *self, uint64_t most)
{
    if (most)
        return false;
    self->choice->loaded->begin(self->choice->room);
    for (size_t i = 0; i < self->stream_count; i++)
        bare_check(bare.StreamCreate(&self->streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return true;
}

/* Trims first, while the streams that the competitor may remember exist. */
static void close_loaded(peer *self)
{
    self->choice->loaded->trim();
    for (size_t i = 0; i < self->stream_count; i++)
        bare_check(bare.StreamDestroy(self->streams[i]), "cuStreamDestroy");
}

static uint64_t reserved_peak(peer *self)
{
    return self->choice->loaded->reserved_peak();
}

static void trim(peer *self)
{
    self->choice->loaded->trim();
}

static CUdeviceptr address_of(const void *slot)
{
    return ((const loaded_slot *)slot)->address;
}

const peer_kind peer_loaded = {
    .name = "library",
    .slot_bytes = sizeof(loaded_slot),
    .streams = true,
    .open = open_loaded,
    .close = close_loaded,
    .address = address_of,
    .reserved_peak = reserved_peak,
    .trim = trim,
    PEER_LOOPS_OF(loaded),
};

/* Opens the library for good, without RTLD_DEEPBIND, since it may share others with the process. */
bool peer_load(peer_choice *into, const char *path, char *why, size_t size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, size, "%s", dlerror());
        return false;
    }
    void *symbol = dlsym(library, "strata_peer_get");
    strata_peer_getter get;
    memcpy(&get, &symbol, sizeof symbol);
    const strata_peer *found = get ? get() : NULL;
    if (!found || found->version != STRATA_PEER_VERSION) {
        snprintf(why, size, "%s: it has no strata_peer_get() of version %u", path, STRATA_PEER_VERSION);
        return false;
    }
    *into = (peer_choice){.kind = &peer_loaded, .loaded = found, .device = true, .room = PEER_ROOM};
    snprintf(into->label, sizeof into->label, "%s", found->label);
    snprintf(into->text, sizeof into->text, "%s", path);
    snprintf(into->about, sizeof into->about, "%s", found->about);
    char reason[400] = "it does not say why";
    if (found->open(0, reason, sizeof reason))
        return true;
    snprintf(why, size, "%s: %s", path, reason);
    return false;
}
