/* The functions that Python calls, through ctypes. */
#include "allocator.h"

#include <cstdio>
#include <pthread.h>

#define STRATA_TORCH_EXPORT extern "C" __attribute__((visibility("default")))

using strata_torch::Allocator;

/* 211 for PyTorch 2.11: the version that the shim is compiled for. */
STRATA_TORCH_EXPORT int strata_torch_version(void)
{
    return STRATA_TORCH;
}

/* Puts Strata's allocator in place of PyTorch's own. Each device gets a stack at its first use: of this text, or, if it
 * is empty, a pool; below a budget with this limit, unless that is empty. `device_count`: how many devices there are if
 * PyTorch has initialized CUDA, else 0. Returns 0, or 1 with the reason in `error`. */
STRATA_TORCH_EXPORT int strata_torch_install(const char *stack_text, const char *budget, int device_count, char *error,
                                             size_t error_bytes)
{
    try {
        static bool installed = false;
        TORCH_CHECK(!installed, "Strata is PyTorch's allocator already");
        Allocator &allocator = Allocator::get();
        allocator.set_stack(stack_text, budget);
        auto *former = c10::cuda::CUDACachingAllocator::allocator.load();
        allocator.set_former(former);
        if (device_count)
            allocator.init(device_count);
        pthread_atfork(nullptr, nullptr, Allocator::mark_forked);
        c10::cuda::CUDACachingAllocator::allocator.store(&allocator);
        c10::SetAllocator(c10::DeviceType::CUDA, &allocator, 1);
        installed = true;
        return 0;
    } catch (const c10::Error &failure) {
        snprintf(error, error_bytes, "%s", failure.what_without_backtrace());
    } catch (const std::exception &failure) {
        snprintf(error, error_bytes, "%s", failure.what());
    }
    return 1;
}

/* The runtime of a device, made if need be (a strata_runtime *); NULL with the reason in `error`. */
STRATA_TORCH_EXPORT void *strata_torch_runtime(int device, char *error, size_t error_bytes)
{
    try {
        return Allocator::get().device(static_cast<c10::DeviceIndex>(device)).runtime;
    } catch (const c10::Error &failure) {
        snprintf(error, error_bytes, "%s", failure.what_without_backtrace());
    } catch (const std::exception &failure) {
        snprintf(error, error_bytes, "%s", failure.what());
    }
    return nullptr;
}
