/* Live and reserved bytes. */
#include "tools/replay/footprint.h"

#include "driver/driver.h"

static size_t free_on_device(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    return strata_cu.MemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS ? free_bytes : 0;
}

void footprint_open(footprint *made, strata_runtime *runtime)
{
    *made = (footprint){.runtime = runtime};
    pthread_mutex_init(&made->lock, NULL);
    made->free_before = free_on_device();
    made->least_free = made->free_before;
}

void footprint_close(footprint *made)
{
    pthread_mutex_destroy(&made->lock);
}

static size_t watermark_of_stack(const footprint *of)
{
    strata_usage usage;
    return strata_runtime_usage(of->runtime, &usage) == STRATA_SUCCESS ? usage.reserved_peak : 0;
}

static void look_at_device(footprint *of)
{
    if (of->source == FOOTPRINT_STACK)
        return;
    pthread_mutex_lock(&of->lock);
    if (of->source == FOOTPRINT_UNKNOWN)
        of->source = watermark_of_stack(of) ? FOOTPRINT_STACK : FOOTPRINT_DEVICE;
    if (of->source == FOOTPRINT_DEVICE) {
        size_t free_bytes = free_on_device();
        if (free_bytes && free_bytes < of->least_free)
            of->least_free = free_bytes;
    }
    pthread_mutex_unlock(&of->lock);
}

void footprint_grow(footprint *of, uint64_t bytes)
{
    uint64_t live = atomic_fetch_add_explicit(&of->live_bytes, bytes, memory_order_relaxed) + bytes;
    uint64_t peak = atomic_load_explicit(&of->peak_bytes, memory_order_relaxed);
    while (live > peak) {
        if (atomic_compare_exchange_weak_explicit(&of->peak_bytes, &peak, live, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            look_at_device(of);
            return;
        }
    }
}

void footprint_shrink(footprint *of, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&of->live_bytes, bytes, memory_order_relaxed);
}

uint64_t footprint_peak_reserved(footprint *of)
{
    size_t watermark = watermark_of_stack(of);
    if (watermark)
        return watermark;
    pthread_mutex_lock(&of->lock);
    size_t taken = of->free_before - of->least_free;
    pthread_mutex_unlock(&of->lock);
    return taken;
}
