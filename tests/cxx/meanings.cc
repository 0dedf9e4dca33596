/* Compiled with per-thread default streams, and linked to a program without. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include "meanings.hpp"

meanings::meaning meanings::on_per_thread()
{
    return strata::on;
}

strata::block meanings::allocate_on_zero(strata::runtime_ref runtime, std::size_t bytes)
{
    return runtime.allocate(bytes, strata::on(nullptr));
}

void meanings::free_on_zero(strata::block &&memory)
{
    strata::check(memory.free(strata::on(nullptr)));
}

void meanings::synchronize_zero(strata::runtime_ref runtime)
{
    runtime.synchronize(strata::on(nullptr));
}

void meanings::exceed(strata::runtime_ref runtime)
{
    (void)runtime.allocate(std::size_t{1} << 40, strata::on(nullptr));
}
