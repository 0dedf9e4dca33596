/* Strata as a memory resource of CCCL (cuda::mr), and so of RMM, cuDF and Thrust; and the other way round, a resource
 * of theirs as the layer that a stack's memory comes from. Header only, C++17 (what RMM 26.08 and later include needs
 * C++20).
 *
 *     rmm::mr::set_current_device_resource(strata::mr::resource{});              the process's runtime of device 0
 *     strata::mr::resource own{"budget(limit=4GiB), statistics, pool"};          a runtime of its own, which copies
 * share strata::layer below = strata::mr::layer_over(rmm::mr::cuda_async_memory_resource{});
 *
 * CCCL 3.0 and 3.1 (CUDA 13.1) changed the names of the concepts' functions; a resource has those of both.
 *
 * Needs CCCL's headers and what these include: CUDA's runtime API. If <rmm/error.hpp> is there, a request that fails
 * throws RMM's exceptions, which are in librmm: link it, or define STRATA_NO_RMM.
 *
 * What a class does depends on the including program in two points: what stream 0 means, and what is thrown. Each
 * combination has a namespace of its own, so that parts of one program may differ. */
#ifndef STRATA_CUDA_MR_HPP
#define STRATA_CUDA_MR_HPP

#include <cuda/version>
/* CCCL 3.0 and 3.1 have it all behind this name; it must come before the first include of the header below. */
#if CCCL_VERSION < 3002000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#ifdef _CUDA_MEMORY_RESOURCE /* its include guard */
#error "<cuda/memory_resource> before <strata/cuda_mr.hpp> is empty in CCCL before 3.2: include this header first, \
or define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE for the file"
#endif
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <strata/callback.h>
#include <strata/cxx/runtime.hpp>

#include <memory>
#include <type_traits>

#if !defined(STRATA_NO_RMM) && __has_include(<rmm/error.hpp>)
#include <rmm/error.hpp>
#define STRATA_MR_THROWS_RMM 1
#else
#define STRATA_MR_THROWS_RMM 0
#endif

#ifdef STRATA_PER_THREAD_STREAMS
#if STRATA_MR_THROWS_RMM
#define STRATA_MR_NAMESPACE per_thread_stream_zero_rmm
#else
#define STRATA_MR_NAMESPACE per_thread_stream_zero
#endif
#elif STRATA_MR_THROWS_RMM
#define STRATA_MR_NAMESPACE legacy_stream_zero_rmm
#else
#define STRATA_MR_NAMESPACE legacy_stream_zero
#endif

namespace strata
{
namespace mr
{
inline namespace STRATA_MR_NAMESPACE
{

namespace detail
{

#if STRATA_MR_THROWS_RMM
/* Also a strata::error. RMM's handlers look for "out_of_memory" in the text. */
template <class Kind, class Standard> class thrown final : public Kind, public Standard
{
  public:
    explicit thrown(const strata_error &record) : Kind(record), Standard(record.message)
    {
    }

    const char *what() const noexcept override
    {
        return Standard::what();
    }
};

using out_of_memory_base = rmm::out_of_memory;
using bad_alloc_base = rmm::bad_alloc;
#else
template <class Kind, class Standard> using thrown = strata::detail::thrown<Kind, Standard>;
using out_of_memory_base = std::bad_alloc;
using bad_alloc_base = std::bad_alloc;
#endif

/* Throws for a request that failed: always a std::bad_alloc. */
[[noreturn]] inline void refuse(strata_status status)
{
    const strata_error record = strata::detail::record_of(status);
    switch (status) {
    case STRATA_ERROR_OUT_OF_MEMORY:
        throw thrown<out_of_memory, out_of_memory_base>(record);
    case STRATA_ERROR_OUT_OF_BUDGET:
        throw thrown<out_of_budget, out_of_memory_base>(record);
    default:
        throw thrown<error, bad_alloc_base>(record);
    }
}

inline stream_ref settled(cuda::stream_ref stream) noexcept
{
    return strata::on(stream.get());
}

inline CUdeviceptr address_of(void *pointer) noexcept
{
    return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(pointer));
}

inline void *pointer_to(CUdeviceptr address) noexcept
{
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(address));
}

/* A stream of the runtime's pool, which has no work unless the program gave one back with work; the legacy default
 * stream if the pool has none left. */
class idle_stream
{
  public:
    explicit idle_stream(strata_runtime *runtime) noexcept
    {
        (void)stream::try_make(owned_, runtime_ref(runtime));
    }

    operator stream_ref() const noexcept
    {
        return owned_ ? stream_ref(owned_) : stream_ref(nullptr, true);
    }

  private:
    stream owned_;
};

inline strata_status synchronize(strata_runtime *runtime, stream_ref stream) noexcept
{
    return (strata_runtime_stream_synchronize)(runtime, stream.handle());
}

/* Memory that any stream may use at once. */
inline strata_status allocate_settled(block &out, strata_runtime *runtime, std::size_t bytes,
                                      allocation_options options) noexcept
{
    const idle_stream idle(runtime);
    strata_status status = block::try_make(out, runtime, bytes, idle, options);
    if (status == STRATA_SUCCESS)
        status = synchronize(runtime, idle);
    return status;
}

/* Frees memory that no work uses any more. Does not wait. */
inline strata_status free_settled(strata_runtime *runtime, CUdeviceptr address) noexcept
{
    if (!address)
        return STRATA_SUCCESS;
    const idle_stream idle(runtime);
    return (strata_runtime_deallocate_address)(runtime, address, static_cast<stream_ref>(idle).handle());
}

} // namespace detail

/* ---- a stack as a resource ---- */

/* A handle of a runtime: copies are equal to it and free one another's memory, and so are all resources of one runtime.
 * Any thread may use it. The device needs not be current.
 *
 * A request that fails throws a std::bad_alloc that is a strata::error: rmm::out_of_memory (or std::bad_alloc) and
 * strata::out_of_memory where memory or a budget does not suffice, rmm::bad_alloc (or std::bad_alloc) else.
 *
 * Frees throw nothing. One that fails (a foreign or dead address) leaves the memory as it is: the log callback and
 * strata_last_error() have the reason.
 *
 * Work on other streams than those of the requests is the caller's to order, as with every resource of CCCL.
 *
 * At the end of the process resources may be destroyed late: once the driver has shut down, frees do nothing, and the
 * end of a runtime neither. A runtime whose blocks are still live stays. */
template <class... Properties> class basic_resource
{
    static constexpr bool host = (std::is_same_v<Properties, cuda::mr::host_accessible> || ...);

  public:
#if CCCL_VERSION >= 3002000
    using default_queries = cuda::mr::properties_list<Properties...>;
#endif

    /* Of the process's runtime of this device: its stack is STRATA_STACK's, or the default. */
    explicit basic_resource(int ordinal = 0) : basic_resource(runtime_ref::of_device(ordinal))
    {
    }

    /* Of a new runtime with this stack, which ends with the last copy. */
    explicit basic_resource(const char *stack_text, int ordinal = 0)
        : basic_resource(strata::runtime(stack_text, ordinal))
    {
    }

    /* Takes the runtime over: it ends with the last copy. */
    explicit basic_resource(strata::runtime &&owned)
    {
        std::shared_ptr<strata::runtime> shared = std::make_shared<strata::runtime>(std::move(owned));
        runtime_ = std::shared_ptr<strata_runtime>(shared, shared->get());
        check_capabilities();
    }

    /* Of a runtime that outlives all copies and their memory. Throws INVALID_VALUE for none, UNSUPPORTED if its stack
     * cannot find blocks by address, or the host cannot read memory that has the property host_accessible. */
    explicit basic_resource(runtime_ref of) : runtime_(std::shared_ptr<strata_runtime>(), of.get())
    {
        check_capabilities();
    }

    /* Written out, since nvcc takes a defaulted one for a function of the device, too, and warns. */
    basic_resource(const basic_resource &other) noexcept : runtime_(other.runtime_)
    {
    }

    basic_resource(basic_resource &&other) noexcept : runtime_(std::move(other.runtime_))
    {
    }

    basic_resource &operator=(const basic_resource &other) noexcept
    {
        runtime_ = other.runtime_;
        return *this;
    }

    basic_resource &operator=(basic_resource &&other) noexcept
    {
        runtime_ = std::move(other.runtime_);
        return *this;
    }

    ~basic_resource()
    {
    }

    strata_runtime *get() const noexcept
    {
        return runtime_.get();
    }

    /* ---- CCCL 3.1 and later ---- */

    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = 256)
    {
        return request(detail::settled(stream), bytes, alignment);
    }

    void deallocate(cuda::stream_ref stream, void *memory, std::size_t, std::size_t = 256) noexcept
    {
        free(detail::settled(stream), memory);
    }

    /* Memory that any stream may use at once: the call waits on the host for the allocation alone. */
    void *allocate_sync(std::size_t bytes, std::size_t alignment = 256)
    {
        block made;
        const strata_status status =
            detail::allocate_settled(made, get(), bytes, allocation_options{beyond_default(alignment), 0});
        if (status != STRATA_SUCCESS)
            detail::refuse(status);
        return detail::pointer_to(made.release().address);
    }

    /* No work uses the memory any more. */
    void deallocate_sync(void *memory, std::size_t, std::size_t = 256) noexcept
    {
        (void)detail::free_settled(get(), detail::address_of(memory));
    }

    /* ---- CCCL 3.0 ---- */

    void *allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream)
    {
        return request(detail::settled(stream), bytes, alignment);
    }

    void *allocate_async(std::size_t bytes, cuda::stream_ref stream)
    {
        return request(detail::settled(stream), bytes, 0);
    }

    void deallocate_async(void *memory, std::size_t, std::size_t, cuda::stream_ref stream) noexcept
    {
        free(detail::settled(stream), memory);
    }

    void deallocate_async(void *memory, std::size_t, cuda::stream_ref stream) noexcept
    {
        free(detail::settled(stream), memory);
    }

    void *allocate(std::size_t bytes, std::size_t alignment = 256)
    {
        return allocate_sync(bytes, alignment);
    }

    void deallocate(void *memory, std::size_t bytes, std::size_t alignment = 256) noexcept
    {
        deallocate_sync(memory, bytes, alignment);
    }

    /* ---- */

    friend bool operator==(const basic_resource &a, const basic_resource &b) noexcept
    {
        return a.get() == b.get();
    }

    friend bool operator!=(const basic_resource &a, const basic_resource &b) noexcept
    {
        return !(a == b);
    }

    template <class Property, std::enable_if_t<(std::is_same_v<Property, Properties> || ...), int> = 0>
    friend void get_property(const basic_resource &, Property) noexcept
    {
    }

  private:
    void check_capabilities() const
    {
        if (!get())
            raise(strata_fail(STRATA_ERROR_INVALID_VALUE, "strata::mr: runtime is NULL"));
        strata_stack *stack = strata_runtime_stack(get());
        if (!(strata_resource_capabilities(strata_stack_top(stack)) & STRATA_CAPABILITY_FIND))
            raise(strata_fail(STRATA_ERROR_UNSUPPORTED,
                              "strata::mr: the stack cannot find blocks by address; end it in another owner"));
        if (host && !strata_stack_is_host_readable(stack))
            raise(strata_fail(STRATA_ERROR_UNSUPPORTED,
                              "strata::mr: the stack's memory is not the host's; end it in pinned or managed"));
    }

    /* Every stack aligns to 256 bytes or more. */
    static std::size_t beyond_default(std::size_t alignment) noexcept
    {
        const bool fulfilled = alignment <= 256 && (alignment & (alignment - 1)) == 0;
        return fulfilled ? 0 : alignment;
    }

    void *request(stream_ref stream, std::size_t bytes, std::size_t alignment)
    {
        block made;
        const strata_status status =
            block::try_make(made, get(), bytes, stream, allocation_options{beyond_default(alignment), 0});
        if (status != STRATA_SUCCESS)
            detail::refuse(status);
        return detail::pointer_to(made.release().address);
    }

    void free(stream_ref stream, void *memory) noexcept
    {
        (void)(strata_runtime_deallocate_address)(get(), detail::address_of(memory), stream.handle());
    }

    std::shared_ptr<strata_runtime> runtime_; /* without a count: of another owner */
};

using resource = basic_resource<cuda::mr::device_accessible>;

/* For stacks that end in pinned or managed memory. */
using host_device_resource = basic_resource<cuda::mr::host_accessible, cuda::mr::device_accessible>;

/* Bytes for work on one stream, as Thrust's execution policies take them for their temporary memory:
 *
 *     strata::mr::stream_allocator temporary(strata::mr::resource{}, stream);
 *     thrust::sort(thrust::cuda::par_nosync(temporary).on(stream), first, last);
 */
class stream_allocator
{
  public:
    using value_type = char;

    stream_allocator(resource from, cuda::stream_ref stream) noexcept : from_(std::move(from)), stream_(stream)
    {
    }

    char *allocate(std::ptrdiff_t bytes)
    {
        return static_cast<char *>(from_.allocate(stream_, static_cast<std::size_t>(bytes)));
    }

    void deallocate(char *memory, std::size_t bytes) noexcept
    {
        from_.deallocate(stream_, memory, bytes);
    }

  private:
    resource from_;
    cuda::stream_ref stream_;
};

/* ---- a resource below a stack ---- */

namespace detail
{

/* The functions of a resource, by any of their names. A stream-ordered one is preferred. */
template <class Resource> class upstream
{
    template <class Other>
    static auto has_new(Other &other)
        -> decltype(other.allocate(cuda::stream_ref(cudaStream_t()), 1, 256), std::true_type());
    static std::false_type has_new(...);

    template <class Other>
    static auto has_old(Other &other)
        -> decltype(other.allocate_async(1, 256, cuda::stream_ref(cudaStream_t())), std::true_type());
    static std::false_type has_old(...);

    template <class Other>
    static auto has_sync(Other &other) -> decltype(other.allocate_sync(1, 256), std::true_type());
    static std::false_type has_sync(...);

    static constexpr bool is_new = decltype(has_new(std::declval<Resource &>()))::value;
    static constexpr bool is_old = decltype(has_old(std::declval<Resource &>()))::value;
    static constexpr bool is_sync = decltype(has_sync(std::declval<Resource &>()))::value;

  public:
    static constexpr bool stream_ordered = is_new || is_old;

    explicit upstream(Resource &&held) : resource_(std::move(held))
    {
    }

    void *take(CUstream stream, std::size_t bytes, std::size_t alignment)
    {
        if constexpr (is_new)
            return resource_.allocate(named(stream), bytes, alignment);
        else if constexpr (is_old)
            return resource_.allocate_async(bytes, alignment, named(stream));
        else if constexpr (is_sync)
            return resource_.allocate_sync(bytes, alignment);
        else
            return resource_.allocate(bytes, alignment);
    }

    void give(CUstream stream, void *memory, std::size_t bytes, std::size_t alignment)
    {
        if constexpr (is_new)
            resource_.deallocate(named(stream), memory, bytes, alignment);
        else if constexpr (is_old)
            resource_.deallocate_async(memory, bytes, alignment, named(stream));
        else if constexpr (is_sync)
            resource_.deallocate_sync(memory, bytes, alignment);
        else
            resource_.deallocate(memory, bytes, alignment);
    }

  private:
    /* To the layer 0 is the legacy stream, to the resource perhaps not. */
    static cuda::stream_ref named(CUstream stream) noexcept
    {
        return cuda::stream_ref(stream ? stream : CU_STREAM_LEGACY);
    }

    Resource resource_;
};

/* The layer replaces the record by one of its own: the exception's text goes to the log. */
inline strata_status told(strata_status status, const char *what) noexcept
{
    return strata_fail(status, "strata::mr: the resource below the stack threw: %s", what);
}

/* No exception leaves a callback. */
template <class Action> strata_status guarded(Action action) noexcept
{
    try {
        action();
        return STRATA_SUCCESS;
    } catch (const error &failure) {
        return failure.status();
    } catch (const std::bad_alloc &failure) {
        return told(STRATA_ERROR_OUT_OF_MEMORY, failure.what());
    } catch (const std::exception &failure) {
        return told(STRATA_ERROR_LIBRARY, failure.what());
    } catch (...) {
        return told(STRATA_ERROR_LIBRARY, "something that is no std::exception");
    }
}

template <class Resource>
strata_status take_upstream(CUdeviceptr *address, std::size_t bytes, std::size_t alignment, CUstream stream, void *data)
{
    return guarded(
        [=] { *address = address_of(static_cast<upstream<Resource> *>(data)->take(stream, bytes, alignment)); });
}

template <class Resource>
strata_status give_upstream(CUdeviceptr address, std::size_t bytes, std::size_t alignment, CUstream stream, void *data)
{
    return guarded(
        [=] { static_cast<upstream<Resource> *>(data)->give(stream, pointer_to(address), bytes, alignment); });
}

template <class Resource> void end_upstream(void *data)
{
    delete static_cast<upstream<Resource> *>(data);
}

} // namespace detail

/* The layer `callback` (callback.h) over a resource of CCCL or RMM, which it holds until the stack ends: the last layer
 * of a stack. A resource_ref does not hold what it refers to. The resource is called by several threads at once, with
 * the device current. Frees are stream-ordered if the resource is; else they wait on the host. What it throws becomes
 * OUT_OF_MEMORY if it is a std::bad_alloc, the status of a strata::error, else LIBRARY; the log callback has its text.
 */
template <class Resource> layer layer_over(Resource below, int ordinal = 0)
{
    using held = detail::upstream<Resource>;
    auto data = std::make_unique<held>(std::move(below));
    strata_callback_options options{};
    options.size = sizeof options;
    options.allocate = detail::take_upstream<Resource>;
    options.deallocate = detail::give_upstream<Resource>;
    options.destroyed = detail::end_upstream<Resource>;
    options.data = data.get();
    options.stream_ordered = held::stream_ordered;
    options.host_memory = cuda::has_property<Resource, cuda::mr::host_accessible>;
    layer made = layer::make(strata_callback_create, ordinal, static_cast<const strata_callback_options *>(&options));
    (void)data.release();
    return made;
}

/* A runtime whose stack is that layer alone; `above`: further layers, outermost first, which it takes over. */
template <class Resource> runtime runtime_over(Resource below, int ordinal = 0, std::vector<layer> above = {})
{
    above.push_back(layer_over(std::move(below), ordinal));
    return runtime(stack(above, ordinal));
}

} // namespace STRATA_MR_NAMESPACE
} // namespace mr
} // namespace strata

#undef STRATA_MR_NAMESPACE

#endif
