/* RMM's pool, arena and binning resources as competitors of strata_peers, over its cuda_memory_resource. build-rmm
 * compiles a library of each against librmm's public headers: STRATA_RMM is the name of a struct below.
 *
 * A resource takes memory when it is made, and gives back what is free only with its end. So `trim` ends it, and the
 * next allocation makes another. */
#include "peer.h"

#include <rmm/cuda_device.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/version_config.hpp>

#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

#define TEXT_OF(word) #word
#define TEXT(word)    TEXT_OF(word)

namespace
{

constexpr std::size_t alignment = 256;

/* ---- the device's memory, counted ---- */

std::atomic<uint64_t> held, held_peak; /* bytes; by any thread */

void count_allocation(std::size_t bytes)
{
    const uint64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    uint64_t peak = held_peak.load(std::memory_order_relaxed);
    while (peak < now && !held_peak.compare_exchange_weak(peak, now, std::memory_order_relaxed))
        continue;
}

class counted_memory
{
  public:
    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t align = alignment)
    {
        void *memory = from_.allocate(stream, bytes, align);
        count_allocation(bytes);
        return memory;
    }

    void deallocate(cuda::stream_ref stream, void *memory, std::size_t bytes, std::size_t align = alignment) noexcept
    {
        from_.deallocate(stream, memory, bytes, align);
        held.fetch_sub(bytes, std::memory_order_relaxed);
    }

    void *allocate_sync(std::size_t bytes, std::size_t align = alignment)
    {
        void *memory = from_.allocate_sync(bytes, align);
        count_allocation(bytes);
        return memory;
    }

    void deallocate_sync(void *memory, std::size_t bytes, std::size_t align = alignment) noexcept
    {
        from_.deallocate_sync(memory, bytes, align);
        held.fetch_sub(bytes, std::memory_order_relaxed);
    }

    bool operator==(const counted_memory &) const noexcept
    {
        return true;
    }

    friend void get_property(const counted_memory &, cuda::mr::device_accessible) noexcept
    {
    }

  private:
    rmm::mr::cuda_memory_resource from_;
};

/* ---- the resources, made as RMM's random_allocations makes them ---- */

/* How much may be taken: `room`, or all that is free, if that is less. */
std::size_t available(uint64_t room)
{
    const std::size_t free = rmm::available_device_memory().first;
    return static_cast<std::size_t>(std::min<uint64_t>(free, room));
}

std::size_t half(std::size_t bytes)
{
    return bytes / 2 / alignment * alignment;
}

struct pool {
    using type = rmm::mr::pool_memory_resource;
    static constexpr const char *about = "pool_memory_resource(half of the device's free memory)";

    static type make(uint64_t room)
    {
        return type{counted_memory{}, half(available(room))};
    }
};

struct arena {
    using type = rmm::mr::arena_memory_resource;
    static constexpr const char *about = "arena_memory_resource(the device's free memory less 64 MiB)";
    static constexpr std::size_t spared = std::size_t{64} << 20; /* for CUDA itself */

    static type make(uint64_t room)
    {
        const std::size_t bytes = available(room);
        return type{counted_memory{}, bytes > spared ? bytes - spared : bytes};
    }
};

struct binning {
    using type = rmm::mr::binning_memory_resource;
    static constexpr const char *about = "binning_memory_resource(256 KiB to 4 MiB) over its pool";

    static type make(uint64_t room)
    {
        return type{pool::make(room), 18, 22};
    }
};

using chosen = STRATA_RMM;

/* The resource, or NULL: made under the lock, ended with no other call in flight. */
std::atomic<chosen::type *> made;
std::mutex making;
uint64_t room_given; /* written by begin */

chosen::type *make()
{
    std::lock_guard<std::mutex> guard(making);
    chosen::type *now = made.load(std::memory_order_relaxed);
    if (!now) {
        now = new chosen::type(chosen::make(room_given));
        made.store(now, std::memory_order_release);
    }
    return now;
}

chosen::type *resource()
{
    chosen::type *now = made.load(std::memory_order_acquire);
    return __builtin_expect(now != nullptr, 1) ? now : make();
}

/* ---- the competitor ---- */

int say(const char *call, const char *what)
{
    std::fprintf(stderr, "RMM's " TEXT(STRATA_RMM) ", %s: %s\n", call, what);
    return STRATA_PEER_BROKEN;
}

void *pointer_to(CUdeviceptr address)
{
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

int open_device(int ordinal, char *why, size_t size)
{
    cudaError_t answer = cudaSetDevice(ordinal);
    if (answer == cudaSuccess)
        answer = cudaFree(nullptr);
    if (answer == cudaSuccess)
        return 1;
    std::snprintf(why, size, "cudaSetDevice: %s", cudaGetErrorString(answer));
    return 0;
}

int allocate(size_t bytes, CUstream stream, CUdeviceptr *address)
{
    try {
        void *memory = resource()->allocate(cuda::stream_ref{stream}, bytes, alignment);
        *address = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(memory));
        return STRATA_PEER_GOOD;
    } catch (const std::bad_alloc &) {
        return STRATA_PEER_NO_MEMORY;
    } catch (const std::exception &failure) {
        return say("allocate", failure.what());
    }
}

int release(CUdeviceptr address, size_t bytes, CUstream stream)
{
    made.load(std::memory_order_relaxed)->deallocate(cuda::stream_ref{stream}, pointer_to(address), bytes, alignment);
    return STRATA_PEER_GOOD;
}

/* RMM leaves it to its user to order the streams. */
int release_elsewhere(CUdeviceptr address, size_t bytes, CUstream allocated_on, CUstream stream)
{
    static thread_local cudaEvent_t event; /* lives as long as the process */
    cudaError_t answer = event ? cudaSuccess : cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (answer == cudaSuccess)
        answer = cudaEventRecord(event, allocated_on);
    if (answer == cudaSuccess)
        answer = cudaStreamWaitEvent(stream, event, 0);
    if (answer != cudaSuccess)
        return say("release_elsewhere", cudaGetErrorString(answer));
    return release(address, bytes, stream);
}

void trim()
{
    delete made.exchange(nullptr, std::memory_order_acq_rel);
}

/* Alone, it is made before the clock runs, as in RMM's program. */
void begin(uint64_t room)
{
    trim();
    room_given = room;
    held_peak.store(held.load(std::memory_order_relaxed), std::memory_order_relaxed);
    if (room != STRATA_PEER_ALONE)
        return;
    try {
        make();
    } catch (const std::exception &failure) {
        say("begin", failure.what()); /* allocate tries again */
    }
}

uint64_t reserved_peak()
{
    return held_peak.load(std::memory_order_relaxed);
}

std::string describe()
{
    return std::string("RMM " TEXT(RMM_VERSION_MAJOR) "." TEXT(RMM_VERSION_MINOR) ": ") + chosen::about +
           " over cuda_memory_resource";
}

} // namespace

const strata_peer *strata_peer_get(void)
{
    static const std::string about = describe();
    static const strata_peer self = [] {
        strata_peer filled{};
        filled.version = STRATA_PEER_VERSION;
        filled.label = "rmm-" TEXT(STRATA_RMM);
        filled.about = about.c_str();
        filled.open = open_device;
        filled.allocate = allocate;
        filled.release = release;
        filled.release_elsewhere = release_elsewhere;
        filled.begin = begin;
        filled.reserved_peak = reserved_peak;
        filled.trim = trim;
        return filled;
    }();
    return &self;
}
