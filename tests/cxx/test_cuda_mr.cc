/* cuda_mr.hpp: compiled against the CCCL, and the RMM, of each set of headers that CMakeLists.txt finds. */
#include <strata/cuda_mr.hpp>

#include <strata/strata.hpp>

#include "check.hpp"
#include "driver.hpp"
#include "mr_meanings.hpp"

#include <cstring>
#include <stdexcept>
#include <thread>

#if STRATA_MR_THROWS_RMM
#include <rmm/cuda_device.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>
using out_of_memory = rmm::out_of_memory;
using bad_alloc = rmm::bad_alloc;
#else
using out_of_memory = std::bad_alloc;
using bad_alloc = std::bad_alloc;
#endif

namespace
{

using cuda::mr::device_accessible;
using cuda::mr::host_accessible;
using strata::mr::host_device_resource;
using strata::mr::resource;

constexpr std::size_t BYTES = 4096;
constexpr std::size_t TOO_MANY = std::size_t{1} << 40;
constexpr const char *SMALL = "budget(limit=1MiB), async";

/* ---- the concepts ---- */

#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::resource<resource> && cuda::mr::synchronous_resource<resource>);
static_assert(cuda::mr::resource_with<resource, device_accessible>);
static_assert(!cuda::mr::resource_with<resource, host_accessible>);
static_assert(cuda::mr::resource_with<host_device_resource, host_accessible, device_accessible>);
using ref = cuda::mr::resource_ref<device_accessible>;
using sync_ref = cuda::mr::synchronous_resource_ref<device_accessible>;
#else
static_assert(cuda::mr::async_resource<resource> && cuda::mr::resource<resource>);
static_assert(cuda::mr::async_resource_with<resource, device_accessible>);
static_assert(!cuda::mr::async_resource_with<resource, host_accessible>);
static_assert(cuda::mr::async_resource_with<host_device_resource, host_accessible, device_accessible>);
using ref = cuda::mr::async_resource_ref<device_accessible>;
using sync_ref = cuda::mr::resource_ref<device_accessible>;
#endif
static_assert(std::is_constructible_v<ref, resource &> && std::is_constructible_v<sync_ref, resource &>);
static_assert(std::is_nothrow_copy_constructible_v<resource> && std::is_nothrow_move_constructible_v<resource>);
static_assert(noexcept(std::declval<resource &>().deallocate(cuda::stream_ref(cudaStream_t()), nullptr, 1, 1)));
static_assert(noexcept(std::declval<resource &>().deallocate_sync(nullptr, 1, 1)));
static_assert(noexcept(std::declval<resource &>().deallocate_async(nullptr, 1, 1, cuda::stream_ref(cudaStream_t()))));
static_assert(noexcept(std::declval<resource &>().deallocate(nullptr, 1, 1)));

#if CCCL_VERSION >= 3002000
using any = cuda::mr::any_resource<device_accessible>;
static_assert(std::is_constructible_v<any, resource> && std::is_constructible_v<ref, any &>);
#endif
#if STRATA_MR_THROWS_RMM
static_assert(std::is_constructible_v<rmm::device_async_resource_ref, resource &>);
static_assert(std::is_constructible_v<rmm::host_device_async_resource_ref, host_device_resource &>);
#endif

/* ---- by the names of this CCCL ---- */

template <class Resource> void *take(Resource &from, cuda::stream_ref stream, std::size_t bytes)
{
#if CCCL_VERSION >= 3001000
    return from.allocate(stream, bytes, 256);
#else
    return from.allocate_async(bytes, 256, stream);
#endif
}

template <class Resource> void give(Resource &to, cuda::stream_ref stream, void *memory, std::size_t bytes)
{
#if CCCL_VERSION >= 3001000
    to.deallocate(stream, memory, bytes, 256);
#else
    to.deallocate_async(memory, bytes, 256, stream);
#endif
}

CUdeviceptr address_of(void *memory)
{
    return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
}

std::size_t live(strata_runtime *runtime)
{
    return strata::runtime_ref(runtime).usage().live_blocks;
}

/* ---- allocating ---- */

void the_names_of_both_generations_allocate_and_free()
{
    strata::runtime runtime("async");
    const strata::stream stream(runtime);
    const cuda::stream_ref on(stream.get());
    resource memory{strata::runtime_ref(runtime)};
    void *blocks[] = {memory.allocate(on, BYTES, 16),
                      memory.allocate(on, BYTES),
                      memory.allocate_async(BYTES, 256, on),
                      memory.allocate_async(BYTES, on),
                      memory.allocate_sync(BYTES),
                      memory.allocate(BYTES, 64),
                      memory.allocate(on, 0)};
    CHECK(live(runtime) == 6 && blocks[6] == nullptr);
    CHECK(runtime.find(address_of(blocks[0])).stream == stream.get());
    memory.deallocate(on, blocks[0], BYTES, 16);
    memory.deallocate_async(blocks[1], BYTES, 256, on);
    memory.deallocate_async(blocks[2], BYTES, on);
    memory.deallocate_sync(blocks[3], BYTES);
    memory.deallocate(blocks[4], BYTES);
    memory.deallocate(on, blocks[5], BYTES);
    memory.deallocate(on, blocks[6], 0);
    memory.deallocate_sync(nullptr, 0);
    CHECK(live(runtime) == 0);
}

void larger_alignments_are_the_stacks_to_fulfil()
{
    resource memory("pool");
    const cuda::stream_ref zero{cudaStream_t()};
    for (std::size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        void *block = memory.allocate(zero, BYTES, alignment), *settled = memory.allocate_sync(1, alignment);
        CHECK(address_of(block) % alignment == 0 && address_of(block) % 256 == 0);
        CHECK(address_of(settled) % alignment == 0);
        memory.deallocate(zero, block, BYTES, alignment);
        memory.deallocate_sync(settled, 1, alignment);
    }
}

void the_process_s_runtime_is_one_word()
{
    resource first, second(0);
    CHECK(first == second && first.get() == strata::runtime_ref::of_device(0).get());
    void *memory = first.allocate_sync(BYTES);
    second.deallocate_sync(memory, BYTES);
    CHECK(live(first.get()) == 0);
}

void erased_resources_allocate_and_free()
{
    resource memory("async");
    ref erased(memory);
    sync_ref synchronous(memory);
    const cuda::stream_ref zero{cudaStream_t()};
    void *block = take(erased, zero, BYTES);
    CHECK(live(memory.get()) == 1);
    give(erased, zero, block, BYTES);
#if CCCL_VERSION >= 3001000
    block = synchronous.allocate_sync(BYTES, 256);
    synchronous.deallocate_sync(block, BYTES, 256);
#else
    block = synchronous.allocate(BYTES, 256);
    synchronous.deallocate(block, BYTES, 256);
#endif
    CHECK(live(memory.get()) == 0);
#if CCCL_VERSION >= 3002000
    any owned(memory), copy(owned);
    CHECK(owned == copy);
    block = owned.allocate(zero, BYTES, 256);
    copy.deallocate(zero, block, BYTES, 256);
    block = copy.allocate_sync(BYTES, 256);
    memory.deallocate_sync(block, BYTES);
    CHECK(live(memory.get()) == 0);
    any other{resource("async")};
    CHECK(owned != other);
#endif
}

void copies_are_equal_and_free_one_anothers_memory()
{
    resource first("async"), copy(first), other("async"), view{strata::runtime_ref(first.get())};
    CHECK(first == copy && first == view && first != other);
    const cuda::stream_ref zero{cudaStream_t()};
    void *blocks[] = {take(first, zero, BYTES), take(copy, zero, BYTES), take(view, zero, BYTES)};
    give(copy, zero, blocks[0], BYTES);
    give(view, zero, blocks[1], BYTES);
    give(first, zero, blocks[2], BYTES);
    CHECK(live(first.get()) == 0);
    resource moved(std::move(first));
    CHECK(moved == copy && first.get() == nullptr);
}

void thrusts_temporary_memory_comes_from_the_stack()
{
    strata::runtime runtime("async");
    const strata::stream stream(runtime);
    strata::mr::stream_allocator temporary(resource{strata::runtime_ref(runtime)}, cuda::stream_ref(stream.get()));
    char *memory = temporary.allocate(std::ptrdiff_t{BYTES});
    CHECK(runtime.find(address_of(memory)).stream == stream.get());
    temporary.deallocate(memory, BYTES);
    CHECK(live(runtime) == 0);
}

/* ---- failures ---- */

template <class Exception, class Resource> bool throws(Resource &from, std::size_t bytes)
{
    try {
        (void)take(from, cuda::stream_ref(cudaStream_t()), bytes);
    } catch (const Exception &) {
        return true;
    } catch (...) {
    }
    return false;
}

void a_budget_that_is_exceeded_is_rmms_out_of_memory()
{
    resource memory(SMALL);
    ref erased(memory);
    CHECK(throws<out_of_memory>(memory, TOO_MANY) && throws<std::bad_alloc>(memory, TOO_MANY));
    CHECK(throws<strata::out_of_budget>(memory, TOO_MANY) && throws<strata::error>(memory, TOO_MANY));
    CHECK(throws<out_of_memory>(erased, TOO_MANY) && throws<strata::out_of_budget>(erased, TOO_MANY));
    CHECK_THROWS((void)memory.allocate_sync(TOO_MANY), out_of_memory);
    try {
        (void)memory.allocate_sync(TOO_MANY);
    } catch (const std::exception &failed) {
        CHECK(std::strstr(failed.what(), "budget") != nullptr);
#if STRATA_MR_THROWS_RMM
        CHECK(std::strstr(failed.what(), "out_of_memory") != nullptr);
#endif
    }
    CHECK(live(memory.get()) == 0);
}

void memory_that_the_device_lacks_is_no_budgets_failure()
{
    resource memory("async");
    CHECK(throws<out_of_memory>(memory, TOO_MANY) && throws<strata::out_of_memory>(memory, TOO_MANY));
    CHECK(!throws<strata::out_of_budget>(memory, TOO_MANY));
}

void other_failures_are_a_bad_alloc_too()
{
    resource memory("async");
    try {
        (void)memory.allocate_sync(BYTES, 3);
        CHECK(false);
#if STRATA_MR_THROWS_RMM
    } catch (const rmm::out_of_memory &) {
        CHECK(false);
#endif
    } catch (const bad_alloc &failed) {
        CHECK(dynamic_cast<const strata::error &>(failed).status() == STRATA_ERROR_INVALID_VALUE);
    }
    CHECK_THROWS((void)memory.allocate_sync(BYTES, 3), strata::error);
}

strata_status heard;
std::string heard_text; /* of all that was logged */

void hear(const strata_error *error, void *)
{
    heard = error->status;
    heard_text += error->message;
}

void a_free_that_fails_is_logged_and_not_thrown()
{
    resource memory("async");
    const cuda::stream_ref zero{cudaStream_t()};
    void *block = take(memory, zero, BYTES);
    give(memory, zero, block, BYTES);
    strata_set_log_callback(hear, nullptr);
    heard = STRATA_SUCCESS;
    give(memory, zero, block, BYTES);
    const strata_status on_stream = std::exchange(heard, STRATA_SUCCESS);
    memory.deallocate_sync(block, BYTES);
    strata_set_log_callback(nullptr, nullptr);
    CHECK_STATUS(on_stream, STRATA_ERROR_FOREIGN_POINTER);
    CHECK_STATUS(heard, STRATA_ERROR_FOREIGN_POINTER);
}

void no_runtime_is_no_resource()
{
    try {
        (void)resource(strata::runtime(nullptr));
        CHECK(false);
    } catch (const strata::error &failed) {
        CHECK_STATUS(failed.status(), STRATA_ERROR_INVALID_VALUE);
    }
    CHECK_THROWS(resource(strata::runtime_ref(nullptr)), strata::error);
}

void properties_are_those_of_the_stacks_memory()
{
    CHECK_THROWS(host_device_resource("async"), strata::error);
    CHECK_THROWS(host_device_resource("fallback(pool(max_size=4MiB) | pinned)"), strata::error);
    CHECK_THROWS(host_device_resource("fallback(pinned | pool)"), strata::error);
    (void)host_device_resource("statistics, fallback(pinned | managed)");
    host_device_resource pinned("pinned");
    void *block = pinned.allocate_sync(BYTES);
    std::memset(block, 1, BYTES);
    pinned.deallocate_sync(block, BYTES);
}

/* ---- order ---- */

/* A pool in which one block of ALMOST has room: the next one has its memory. */
constexpr const char *ROOM_FOR_ONE = "pool(max_size=4MiB)";
constexpr std::size_t ALMOST = 3 << 20;

/* The simulated driver's checker reports a fill that does not come after the one before. */
void sync_memory_is_good_on_every_stream_at_once()
{
    strata::runtime runtime(ROOM_FOR_ONE);
    resource memory{strata::runtime_ref(runtime)};
    const strata::stream first(runtime), second(runtime);
    test::make_current();
    for (unsigned char round = 1; round < 4; round++) {
        void *before = memory.allocate(cuda::stream_ref(first.get()), ALMOST);
        test::fill(address_of(before), 0xff, ALMOST, first.get());
        memory.deallocate(cuda::stream_ref(first.get()), before, ALMOST); /* while the fill may be pending */
        void *block = memory.allocate_sync(ALMOST);
        CHECK(block == before);
        test::fill(address_of(block), round, ALMOST, second.get());
        CHECK(test::first_byte(address_of(block), second.get()) == round);
        memory.deallocate_sync(block, ALMOST);
    }
}

std::uint64_t calls_of(const char *name)
{
    std::pair<const char *, std::uint64_t> wanted(name, 0);
    strata_driver_visit_calls(
        [](const char *called, std::uint64_t count, void *data) {
            auto *found = static_cast<std::pair<const char *, std::uint64_t> *>(data);
            if (std::strcmp(called, found->first) == 0)
                found->second = count;
        },
        &wanted);
    return wanted.second;
}

void memory_that_was_freed_in_sync_needs_no_wait()
{
    strata::runtime runtime(ROOM_FOR_ONE);
    resource memory{strata::runtime_ref(runtime)};
    const strata::stream stream(runtime);
    void *block = memory.allocate_sync(ALMOST);
    memory.deallocate_sync(block, ALMOST);
    const std::uint64_t waits = calls_of("cuStreamWaitEvent"), queries = calls_of("cuEventQuery");
    void *next = memory.allocate(cuda::stream_ref(stream.get()), ALMOST);
    CHECK(next == block);
    CHECK(calls_of("cuStreamWaitEvent") == waits && calls_of("cuEventQuery") == queries);
    memory.deallocate(cuda::stream_ref(stream.get()), next, ALMOST);
}

void sync_memory_is_had_also_where_the_pool_of_streams_is_empty()
{
    strata_runtime_config config{};
    config.stack_text = "async";
    config.stream_capacity = 1;
    strata::runtime runtime(config);
    const strata::stream only(runtime);
    resource memory{strata::runtime_ref(runtime)};
    void *block = memory.allocate_sync(BYTES);
    memory.deallocate_sync(block, BYTES);
    CHECK(live(runtime) == 0);
}

void threads_share_a_resource()
{
    resource memory("pool");
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([memory]() mutable {
            for (int round = 0; round < 50; round++)
                memory.deallocate_sync(memory.allocate_sync(BYTES), BYTES);
        });
    for (std::thread &each : threads)
        each.join();
    CHECK(live(memory.get()) == 0);
}

/* ---- stream 0 ---- */

void parts_of_a_program_mean_different_streams_by_zero()
{
    strata::runtime runtime("async");
    resource memory{strata::runtime_ref(runtime)};
    const cuda::stream_ref zero{cudaStream_t()};
    void *block = take(memory, zero, BYTES);
    CHECK(runtime.find(address_of(block)).stream == nullptr);
    give(memory, zero, block, BYTES);
    CHECK(mr_meanings::stream_of_zero(runtime) == CU_STREAM_PER_THREAD);
    CHECK(mr_meanings::resource_type() != typeid(resource));
}

/* ---- below a stack ---- */

/* A resource of the program, over memory of another runtime, that counts and fails. */
struct counts {
    int taken = 0, given = 0, ends = 0;
    cudaStream_t stream = nullptr; /* of the last request */
    bool full = false, broken = false;
};

class counting
{
  public:
    counting(strata::runtime_ref from, counts &to) : from_(from), counts_(&to)
    {
    }

    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment)
    {
        if (counts_->full)
            throw std::bad_alloc();
        if (counts_->broken)
            throw std::runtime_error("broken");
        counts_->taken++;
        counts_->stream = stream.get();
        return from_.allocate(stream, bytes, alignment);
    }

    void deallocate(cuda::stream_ref stream, void *memory, std::size_t bytes, std::size_t alignment) noexcept
    {
        counts_->given++;
        counts_->stream = stream.get();
        from_.deallocate(stream, memory, bytes, alignment);
    }

    void *allocate_sync(std::size_t bytes, std::size_t alignment)
    {
        counts_->taken++;
        return from_.allocate_sync(bytes, alignment);
    }

    void deallocate_sync(void *memory, std::size_t bytes, std::size_t alignment) noexcept
    {
        counts_->given++;
        from_.deallocate_sync(memory, bytes, alignment);
    }

    bool operator==(const counting &other) const noexcept
    {
        return counts_ == other.counts_;
    }

    bool operator!=(const counting &other) const noexcept
    {
        return !(*this == other);
    }

    [[maybe_unused]] friend void get_property(const counting &, device_accessible) noexcept
    {
    }

  private:
    resource from_;
    counts *counts_;
    std::shared_ptr<counts> held_ = {counts_, [](counts *of) { of->ends++; }};
};

/* With functions of the synchronous concept alone. */
class without_streams
{
  public:
    without_streams(strata::runtime_ref from, counts &to) : inner_(from, to)
    {
    }

    void *allocate_sync(std::size_t bytes, std::size_t alignment)
    {
        return inner_.allocate_sync(bytes, alignment);
    }

    void deallocate_sync(void *memory, std::size_t bytes, std::size_t alignment) noexcept
    {
        inner_.deallocate_sync(memory, bytes, alignment);
    }

  private:
    counting inner_;
};

std::uint32_t capabilities(strata_runtime *runtime)
{
    return strata_resource_capabilities(strata_stack_top(strata_runtime_stack(runtime)));
}

void a_resource_is_the_owner_of_a_stack_and_lives_as_long()
{
    counts seen;
    strata::runtime below("async");
    {
        strata::runtime runtime = strata::mr::runtime_over(counting(below, seen));
        CHECK(seen.ends == 0 && (capabilities(runtime) & STRATA_CAPABILITY_STREAM_ORDERED));
        CHECK(capabilities(runtime) & STRATA_CAPABILITY_DEVICE_MEMORY);
        const strata::stream stream(runtime);
        strata::block first = runtime.allocate(BYTES, stream);
        CHECK(seen.taken == 1 && seen.stream == stream.get() && live(below) == 1);
        CHECK_OK(first.free());
        CHECK(seen.given == 1 && live(below) == 0);
        strata::block on_zero = runtime.allocate(BYTES, strata::on(nullptr));
        CHECK(seen.stream == CU_STREAM_LEGACY);
    }
    CHECK(seen.taken == 2 && seen.given == 2 && seen.ends == 1 && live(below) == 0);
}

void further_layers_stand_above_it()
{
    counts seen;
    strata::runtime below("async");
    strata_budget_options options{};
    options.limit.bytes = 1 << 20;
    std::vector<strata::layer> above;
    above.push_back(strata::layer::make(strata_budget_create, 0, &options));
    strata::runtime runtime = strata::mr::runtime_over(counting(below, seen), 0, std::move(above));
    CHECK_THROWS((void)runtime.allocate(2 << 20, strata::on(nullptr)), strata::out_of_budget);
    CHECK(seen.taken == 0);
    const strata::block good = runtime.allocate(BYTES, strata::on(nullptr));
    CHECK(seen.taken == 1);
}

strata_status answer(strata::runtime &runtime)
{
    strata::block block;
    return strata::block::try_make(block, runtime, BYTES, strata::on(nullptr));
}

void what_the_resource_throws_is_the_requests_status()
{
    counts seen;
    strata::runtime below(SMALL);
    strata::runtime runtime = strata::mr::runtime_over(counting(below, seen));
    seen.full = true;
    CHECK_STATUS(answer(runtime), STRATA_ERROR_OUT_OF_MEMORY);
    seen.full = false;
    seen.broken = true;
    heard_text.clear();
    strata_set_log_callback(hear, nullptr);
    const strata_status broken = answer(runtime);
    strata_set_log_callback(nullptr, nullptr);
    CHECK_STATUS(broken, STRATA_ERROR_LIBRARY);
    CHECK(heard_text.find("threw: broken") != std::string::npos);
    seen.broken = false;
    CHECK_THROWS((void)runtime.allocate(2 << 20, strata::on(nullptr)), strata::out_of_budget);
    CHECK_OK(answer(runtime));
    CHECK(live(runtime) == 0 && live(below) == 0);
}

void a_resource_without_streams_is_waited_for()
{
    counts seen;
    strata::runtime below("async");
    {
        strata::runtime runtime = strata::mr::runtime_over(without_streams(below, seen));
        CHECK(!(capabilities(runtime) & STRATA_CAPABILITY_STREAM_ORDERED));
        const strata::stream stream(runtime);
        test::make_current();
        strata::block block = runtime.allocate(BYTES, stream);
        strata::launch(runtime, stream).use(block, STRATA_ACCESS_WRITE).submit([&] {
            test::fill(block.address(), 3, BYTES, stream.get());
        });
        CHECK_OK(block.free());
        CHECK(seen.taken == 1 && seen.given == 1);
    }
    CHECK(seen.ends == 1);
}

void a_resource_that_makes_no_layer_ends_at_once()
{
    counts seen;
    strata::runtime below("async");
    CHECK_THROWS((void)strata::mr::layer_over(counting(below, seen), 12345), strata::error);
    CHECK(seen.ends == 1);
    {
        const strata::layer unused = strata::mr::layer_over(counting(below, seen));
    }
    CHECK(seen.ends == 2);
}

void a_runtime_that_copies_share_ends_with_the_last()
{
    counts seen;
    strata::runtime below("async");
    {
        resource first(strata::mr::runtime_over(counting(below, seen)));
        {
            const resource copy(first);
        }
        CHECK(seen.ends == 0);
#if CCCL_VERSION >= 3002000
        any erased(std::move(first));
        any copy(erased);
        erased = any{resource("async")};
        CHECK(seen.ends == 0);
        copy.deallocate_sync(copy.allocate_sync(BYTES, 256), BYTES, 256);
#endif
    }
    CHECK(seen.ends == 1 && seen.taken == seen.given);
}

/* ---- RMM ---- */

#if STRATA_MR_THROWS_RMM
void rmms_adaptors_stand_over_a_stack()
{
    resource memory(SMALL);
    const cuda::stream_ref zero{cudaStream_t()};
    int asked = 0;
    rmm::mr::failure_callback_resource_adaptor<rmm::out_of_memory> retrying(
        memory, [](std::size_t, void *count) { return ++*static_cast<int *>(count) < 3; }, &asked);
    CHECK(throws<rmm::out_of_memory>(retrying, TOO_MANY));
    CHECK(asked == 3);
    rmm::mr::limiting_resource_adaptor limited(memory, 2 * BYTES);
    void *block = limited.allocate(zero, BYTES, 256);
    CHECK(live(memory.get()) == 1 && limited.get_allocated_bytes() == BYTES);
    CHECK(throws<rmm::out_of_memory>(limited, 2 * BYTES));
    limited.deallocate(zero, block, BYTES, 256);
    CHECK(live(memory.get()) == 0);
}

void a_resource_of_rmm_stands_below_a_stack()
{
    resource memory("async");
    rmm::mr::limiting_resource_adaptor limited(memory, 2 * BYTES);
    strata::runtime runtime = strata::mr::runtime_over(limited);
    const strata::block good = runtime.allocate(BYTES, strata::on(nullptr));
    CHECK(limited.get_allocated_bytes() == BYTES && live(memory.get()) == 1);
    CHECK_THROWS((void)runtime.allocate(2 * BYTES, strata::on(nullptr)), strata::out_of_memory);
}

/* It is never taken back: RMM's table ends with the process. */
void a_stack_becomes_a_devices_resource()
{
    const rmm::cuda_device_id device{0};
    (void)rmm::mr::set_per_device_resource(device, resource("async"));
    rmm::device_async_resource_ref current = rmm::mr::get_per_device_resource_ref(device);
    const cuda::stream_ref zero{cudaStream_t()};
    void *block = current.allocate(zero, BYTES, 256);
    CHECK(block != nullptr);
    current.deallocate(zero, block, BYTES, 256);
}
#endif

} // namespace

int main()
{
    static const test::test_case cases[] = {
        CASE(the_names_of_both_generations_allocate_and_free),
        CASE(larger_alignments_are_the_stacks_to_fulfil),
        CASE(the_process_s_runtime_is_one_word),
        CASE(erased_resources_allocate_and_free),
        CASE(copies_are_equal_and_free_one_anothers_memory),
        CASE(thrusts_temporary_memory_comes_from_the_stack),
        CASE(a_budget_that_is_exceeded_is_rmms_out_of_memory),
        CASE(memory_that_the_device_lacks_is_no_budgets_failure),
        CASE(other_failures_are_a_bad_alloc_too),
        CASE(a_free_that_fails_is_logged_and_not_thrown),
        CASE(no_runtime_is_no_resource),
        CASE(properties_are_those_of_the_stacks_memory),
        CASE(sync_memory_is_good_on_every_stream_at_once),
        CASE(memory_that_was_freed_in_sync_needs_no_wait),
        CASE(sync_memory_is_had_also_where_the_pool_of_streams_is_empty),
        CASE(threads_share_a_resource),
        CASE(parts_of_a_program_mean_different_streams_by_zero),
        CASE(a_resource_is_the_owner_of_a_stack_and_lives_as_long),
        CASE(further_layers_stand_above_it),
        CASE(what_the_resource_throws_is_the_requests_status),
        CASE(a_resource_without_streams_is_waited_for),
        CASE(a_resource_that_makes_no_layer_ends_at_once),
        CASE(a_runtime_that_copies_share_ends_with_the_last),
#if STRATA_MR_THROWS_RMM
        CASE(rmms_adaptors_stand_over_a_stack),
        CASE(a_resource_of_rmm_stands_below_a_stack),
        CASE(a_stack_becomes_a_devices_resource),
#endif
    };
    CHECK_OK(strata_driver_count_calls());
    std::printf("CCCL %d, exceptions of %s\n", CCCL_VERSION, STRATA_MR_THROWS_RMM ? "RMM" : "the C++ library");
    return test::run(cases);
}
