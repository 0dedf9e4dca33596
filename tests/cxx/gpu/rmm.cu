/* cuda_mr.hpp with RMM and Thrust on a GPU: what the simulated driver cannot show, since both call the CUDA runtime.
 * `build` compiles it, once for each meaning of stream 0. */
#include <strata/cuda_mr.hpp>

#include <strata/strata.hpp>

#include "../check.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/exec_policy.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <thrust/execution_policy.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cuda/std/functional>

#include <cuda_runtime_api.h>

#include <optional>
#include <thread>

namespace
{

using strata::mr::resource;

constexpr cuda::stream_ref default_stream{cudaStream_t()};
constexpr std::size_t COUNT = 1 << 20, BYTES = COUNT * sizeof(int);

std::optional<rmm::device_buffer> until_exit; /* destroyed when the driver has shut down, or before: either is right */

std::size_t live(strata_runtime *runtime)
{
    return strata::runtime_ref(runtime).usage().live_blocks;
}

/* Must be the first case: no call of the CUDA runtime was made. */
void strata_is_the_first_contact_with_cuda()
{
    resource memory;
    void *block = memory.allocate_sync(BYTES);
    CHECK(cudaMemset(block, 1, BYTES) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    memory.deallocate_sync(block, BYTES);
    CHECK(live(memory.get()) == 0);
}

void rmms_containers_allocate_from_the_stack()
{
    resource memory("statistics, pool");
    const auto before = rmm::mr::set_current_device_resource(memory);
    {
        rmm::cuda_stream stream;
        rmm::device_buffer buffer(BYTES, stream);
        rmm::device_uvector<int> numbers(COUNT, stream);
        CHECK(live(memory.get()) == 2);
        thrust::sequence(rmm::exec_policy_nosync(stream), numbers.begin(), numbers.end());
        thrust::sort(rmm::exec_policy_nosync(stream), numbers.begin(), numbers.end(), cuda::std::greater<int>());
        CHECK(numbers.front_element(stream) == static_cast<int>(COUNT) - 1);
        CHECK(cudaMemcpyAsync(buffer.data(), numbers.data(), BYTES, cudaMemcpyDefault, stream.value()) == cudaSuccess);
        stream.synchronize();
    }
    rmm::mr::set_current_device_resource(before);
    CHECK(live(memory.get()) == 0);
}

void thrust_sorts_with_temporary_memory_of_the_stack()
{
    resource memory("statistics, pool");
    rmm::cuda_stream stream;
    rmm::device_uvector<int> numbers(COUNT, stream, memory);
    strata::mr::stream_allocator temporary(memory, stream.value());
    thrust::sequence(thrust::cuda::par_nosync(temporary).on(stream.value()), numbers.begin(), numbers.end());
    const std::size_t peak_before = strata::runtime_ref(memory.get()).usage().live_bytes;
    thrust::sort(thrust::cuda::par_nosync(temporary).on(stream.value()), numbers.begin(), numbers.end(),
                 cuda::std::greater<int>());
    CHECK(numbers.back_element(stream) == 0 && peak_before >= BYTES);
    CHECK(live(memory.get()) == 1);
}

void the_default_stream_is_this_programs()
{
    strata::runtime runtime("pool");
    resource memory{strata::runtime_ref(runtime)};
    rmm::device_buffer buffer(BYTES, default_stream, memory);
    const strata_block found = runtime.find(reinterpret_cast<CUdeviceptr>(buffer.data()));
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    CHECK(found.stream == CU_STREAM_PER_THREAD);
#else
    CHECK(found.stream == nullptr);
#endif
}

void a_small_budget_is_rmms_out_of_memory_and_can_be_retried()
{
    resource memory("budget(limit=64MiB), pool");
    std::optional<rmm::device_buffer> held;
    held.emplace(48 << 20, default_stream, memory);
    CHECK_THROWS(rmm::device_buffer(32 << 20, default_stream, memory), rmm::out_of_memory);
    rmm::mr::failure_callback_resource_adaptor<rmm::out_of_memory> retrying(
        memory,
        [](std::size_t, void *data) {
            auto *spill = static_cast<std::optional<rmm::device_buffer> *>(data);
            const bool freed = spill->has_value();
            spill->reset();
            return freed;
        },
        &held);
    rmm::device_buffer again(32 << 20, default_stream, retrying);
    CHECK(!held && again.size() == 32 << 20);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

template <class Resource> void stand_over(Resource below)
{
    strata::runtime runtime = strata::mr::runtime_over(std::move(below));
    strata::stream first(runtime), second(runtime);
    for (int round = 0; round < 8; round++) {
        strata::block block = runtime.allocate(BYTES, first);
        strata::launch(runtime, first).use(block, STRATA_ACCESS_WRITE).submit([&] {
            CHECK(cudaMemsetAsync(block.data(), round, BYTES, first.get()) == cudaSuccess);
        });
        std::vector<unsigned char> seen(BYTES);
        strata::launch(runtime, second).use(block, STRATA_ACCESS_READ).submit([&] {
            CHECK(cudaMemcpyAsync(seen.data(), block.data(), BYTES, cudaMemcpyDefault, second.get()) == cudaSuccess);
        });
        second.synchronize();
        CHECK(seen.front() == round && seen.back() == round);
    }
    CHECK(live(runtime) == 0);
}

void a_stack_stands_over_rmms_resources()
{
    stand_over(rmm::mr::cuda_memory_resource{});
    stand_over(rmm::mr::cuda_async_memory_resource{});
    stand_over(rmm::mr::pool_memory_resource(rmm::mr::cuda_memory_resource{}, 64 << 20));
    CHECK(cudaGetLastError() == cudaSuccess);
}

void rmms_pool_stands_over_a_stack()
{
    resource memory("statistics, pool");
    {
        rmm::mr::pool_memory_resource pool(memory, 64 << 20);
        rmm::device_buffer buffer(BYTES, default_stream, pool);
        CHECK(live(memory.get()) == 1);
        CHECK(cudaMemsetAsync(buffer.data(), 3, BYTES, cudaStream_t()) == cudaSuccess);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
    }
    CHECK(live(memory.get()) == 0);
}

void threads_allocate_at_once()
{
    resource memory("pool");
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([memory]() mutable {
            rmm::cuda_stream stream;
            for (int round = 0; round < 100; round++) {
                rmm::device_buffer buffer(BYTES, stream, memory);
                if (cudaMemsetAsync(buffer.data(), round, BYTES, stream.value()) != cudaSuccess)
                    std::abort();
            }
            stream.synchronize();
        });
    for (std::thread &each : threads)
        each.join();
    CHECK(live(memory.get()) == 0);
}

void a_buffer_may_live_until_the_process_ends()
{
    rmm::mr::set_current_device_resource(resource{});
    until_exit.emplace(BYTES, default_stream);
    CHECK(until_exit->data() != nullptr);
}

} // namespace

int main()
{
    static const test::test_case cases[] = {
        CASE(strata_is_the_first_contact_with_cuda),
        CASE(rmms_containers_allocate_from_the_stack),
        CASE(thrust_sorts_with_temporary_memory_of_the_stack),
        CASE(the_default_stream_is_this_programs),
        CASE(a_small_budget_is_rmms_out_of_memory_and_can_be_retried),
        CASE(a_stack_stands_over_rmms_resources),
        CASE(rmms_pool_stands_over_a_stack),
        CASE(threads_allocate_at_once),
        CASE(a_buffer_may_live_until_the_process_ends),
    };
    return test::run(cases);
}
