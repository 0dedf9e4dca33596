/* torch.cuda.set_per_process_memory_fraction. The limit holds for Strata's memory and for the segments of MemPools that
 * come from a program's own allocator: a pool of Strata's is limited to what those leave, another stack's requests are
 * compared with the rest (allocate.cc). */
#include "device.h"

#include <algorithm>

namespace strata_torch
{

void Device::set_fraction(double value)
{
    /* To the nearest byte: a program that divides bytes by the total means these bytes. */
    const auto bytes = static_cast<size_t>(value * static_cast<double>(total_bytes) + 0.5);
    std::lock_guard<std::recursive_mutex> pool_guard(pool_lock);
    allowed.store(value < 1 ? std::max<size_t>(bytes, 1) : 0, std::memory_order_relaxed);
    TORCH_CHECK(limit_pool(), "Strata: ", strata_last_error()->message);
    std::lock_guard<SpinLock> guard(lock);
    fraction = value;
}

bool Device::limit_pool() const
{
    if (!pooled)
        return true;
    const size_t most = allowed.load(std::memory_order_relaxed), own = own_bytes.load(std::memory_order_relaxed);
    size_t limit = most ? std::max<size_t>(most > own ? most - own : 0, 1) : 0; /* 0: no limit */
    if (first_limit && (!limit || first_limit < limit))
        limit = first_limit;
    return set_value("pool.limit", limit);
}

bool Device::admits_own(size_t bytes)
{
    const size_t most = allowed.load(std::memory_order_relaxed);
    if (!most)
        return true;
    const size_t own = own_bytes.load(std::memory_order_relaxed) + bytes;
    if (own > most)
        return false;
    if (own + reserved_bytes() > most)
        strata_runtime_trim(runtime, most - own, nullptr);
    return own + reserved_bytes() <= most;
}

void Device::count_own(size_t made, size_t gone)
{
    own_bytes.fetch_add(made - gone, std::memory_order_relaxed);
    limit_pool();
}

} // namespace strata_torch
