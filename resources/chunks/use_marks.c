/* Marks by address, in the sizes of their ranges. */
#include "resources/chunks/use_marks.h"

enum {
    SIZES = 10,    /* of ranges, 2 MiB to 1 GiB */
    PART_BITS = 4, /* a block's ranges are at most a 16th of it */
};

static uint8_t load(const _Atomic uint8_t *mark)
{
    return atomic_load_explicit(mark, memory_order_relaxed);
}

/* Index of the mark of the range of POOL_MARK_UNIT << size bytes that has the unit. */
static size_t mark_of(unsigned size, uint64_t unit)
{
    return (size_t)(2 * POOL_MARK_UNITS - (2 * POOL_MARK_UNITS >> size)) + ((unit & (POOL_MARK_UNITS - 1)) >> size);
}

static unsigned size_for(uint64_t bytes)
{
    const unsigned bits = 63 - (unsigned)__builtin_clzll(bytes / POOL_MARK_UNIT + 1);
    if (bits < PART_BITS)
        return 0;
    return bits - PART_BITS < SIZES ? bits - PART_BITS : SIZES - 1;
}

static void mark(pool_use_marks *marks, CUdeviceptr address, uint64_t bytes, unsigned size)
{
    const uint8_t window = load(&marks->window);
    const uint64_t from = address / POOL_MARK_UNIT, last = (address + bytes - 1) / POOL_MARK_UNIT;
    for (uint64_t unit = from >> size << size; unit <= last; unit += UINT64_C(1) << size)
        atomic_store_explicit(&marks->last[mark_of(size, unit)], window, memory_order_relaxed);
}

void pool_mark_use(pool_use_marks *marks, CUdeviceptr address, uint64_t bytes)
{
    mark(marks, address, bytes, size_for(bytes));
}

void pool_mark_units(pool_use_marks *marks, CUdeviceptr address, uint64_t bytes)
{
    mark(marks, address, bytes, 0);
}

void pool_mark_all(pool_use_marks *marks)
{
    mark(marks, 0, (uint64_t)POOL_MARK_UNITS * POOL_MARK_UNIT, SIZES - 1);
}

bool pool_is_marked(const pool_use_marks *marks, CUdeviceptr address, uint64_t bytes)
{
    const uint8_t window = load(&marks->window);
    const uint64_t from = address / POOL_MARK_UNIT, last = (address + bytes - 1) / POOL_MARK_UNIT;
    bool marked = false;
    for (unsigned size = 0; size < SIZES; size++)
        for (uint64_t unit = from >> size << size; unit <= last && !marked; unit += UINT64_C(1) << size)
            marked = (uint8_t)(window - load(&marks->last[mark_of(size, unit)])) <= 1;
    return marked;
}

void pool_marks_next_window(pool_use_marks *marks)
{
    atomic_store_explicit(&marks->window, (uint8_t)(load(&marks->window) + 1), memory_order_relaxed);
}
