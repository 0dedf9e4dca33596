/* Slabs. Committed memory is kept: it matches the most objects ever alive at once. */
#include "base/base.h"
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SLAB_OBJECTS = 1 << 20,
    TOLD_OBJECTS = 1 << 8, /* registered with leak checkers at once */
};

bool sim_slab_open(sim_slab *slab, size_t object_bytes)
{
    size_t rounded = (size_t)sim_round_up(object_bytes, 64);
    size_t bytes = rounded * SLAB_OBJECTS;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return false;
    *slab = (sim_slab){.object_bytes = rounded, .base = base, .capacity = SLAB_OBJECTS};
    return true;
}

static char *part_of(const sim_slab *slab, size_t object)
{
    return slab->base + object * slab->object_bytes;
}

void sim_slab_close(sim_slab *slab)
{
    for (size_t i = 0; i < slab->made; i += TOLD_OBJECTS)
        sim_bytes_hold_no_pointers(part_of(slab, i), TOLD_OBJECTS * slab->object_bytes);
    if (slab->base)
        munmap(slab->base, slab->capacity * slab->object_bytes);
    *slab = (sim_slab){0};
}

void *sim_slab_take(sim_slab *slab)
{
    void *object = slab->free;
    if (object) {
        slab->free = slab->free->next_free;
    } else if (slab->made < slab->capacity) {
        object = part_of(slab, slab->made);
        if (slab->made % TOLD_OBJECTS == 0)
            sim_bytes_hold_pointers(object, TOLD_OBJECTS * slab->object_bytes);
        slab->made++;
    } else {
        return NULL;
    }
    memset(object, 0, slab->object_bytes);
    ((sim_handle *)object)->alive = true;
    slab->alive++;
    return object;
}

void sim_slab_give(sim_slab *slab, void *object)
{
    sim_handle *handle = object;
    handle->alive = false;
    handle->next_free = slab->free;
    slab->free = handle;
    slab->alive--;
}

bool sim_slab_has(const sim_slab *slab, const void *object)
{
    uintptr_t offset = (uintptr_t)object - (uintptr_t)slab->base;
    if (offset >= slab->made * slab->object_bytes || offset % slab->object_bytes != 0)
        return false;
    return ((const sim_handle *)object)->alive;
}

void *sim_slab_next(const sim_slab *slab, const void *object)
{
    size_t index = 0;
    if (object)
        index = (size_t)((const char *)object - slab->base) / slab->object_bytes + 1;
    for (; index < slab->made; index++) {
        void *candidate = slab->base + index * slab->object_bytes;
        if (((sim_handle *)candidate)->alive)
            return candidate;
    }
    return NULL;
}
