/* Runtimes, their streams, stacks, and blocks of memory.
 *
 * Each class owns one object, can be moved and not copied, and ends it in its destructor, which does not throw. The
 * throwing members have a twin that answers a status instead: try_make, reset, free. A destructor whose call fails
 * leaves the object to the library (a block stays live); the log callback and strata_last_error() know why. Objects of
 * a runtime end before it. */
#ifndef STRATA_CXX_RUNTIME_HPP
#define STRATA_CXX_RUNTIME_HPP

#include <strata/cxx/handle.hpp>
#include <strata/cxx/stream.hpp>
#include <strata/ref.h>
#include <strata/runtime.h>
#include <strata/stack.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata
{

class block;
class runtime_ref;

/* The tag of this name (strata_tag_intern). */
inline strata_tag tag_of(const char *name)
{
    strata_tag tag;
    check(strata_tag_intern(name, &tag));
    return tag;
}

/* ---- stacks ---- */

/* A layer that is in no stack yet. */
class layer : public detail::handle<strata_resource, strata_resource_destroy>
{
  public:
    using handle::handle;

    /* Calls a function such as strata_budget_create with these arguments and the place for the layer. */
    template <class Create, class... Arguments> static layer make(Create create, Arguments... arguments)
    {
        layer made;
        check(create(arguments..., made.place()));
        return made;
    }
};

class stack : public detail::handle<strata_stack, strata_stack_destroy>
{
  public:
    using handle::handle;

    /* From a text (stack.h). */
    explicit stack(const char *text, int ordinal = 0)
    {
        check(strata_stack_create(text, ordinal, place()));
    }

    /* Of layers, outermost first, which it takes over. After an exception they are the caller's. */
    explicit stack(std::vector<layer> &layers, int ordinal = 0)
    {
        std::vector<strata_resource *> raw;
        for (const layer &each : layers)
            raw.push_back(each.get());
        check(strata_stack_build(raw.data(), raw.size(), ordinal, place()));
        for (layer &each : layers)
            (void)each.release();
        layers.clear();
    }
};

/* ---- memory ---- */

struct allocation_options {
    std::size_t alignment = 0; /* a power of two; 0: the stack's own, at least 256 */
    strata_tag tag = 0;
};

/* A block that is freed at its end: in the order of its allocation stream, after every recorded use. If that stream is
 * not known to the runtime (on()), its handle must still be valid; of CU_STREAM_PER_THREAD the destroying thread's is
 * taken, and uses on other threads are to be recorded. free(stream) names another one. */
class block
{
  public:
    block() = default;

    block(runtime_ref runtime, std::size_t bytes, stream_ref stream, allocation_options options = {});

    /* Takes over a block of the C interface. */
    block(strata_runtime *runtime, const strata_block &facts, bool known_stream = true) noexcept
        : runtime_(runtime), facts_(facts), known_(known_stream)
    {
    }

    static strata_status try_make(block &out, strata_runtime *runtime, std::size_t bytes, stream_ref stream,
                                  allocation_options options = {}) noexcept;

    block(block &&other) noexcept
        : runtime_(std::exchange(other.runtime_, nullptr)), facts_(std::exchange(other.facts_, strata_block{})),
          known_(other.known_)
    {
    }

    block &operator=(block &&other) noexcept
    {
        if (this != &other) {
            (void)free();
            runtime_ = std::exchange(other.runtime_, nullptr);
            facts_ = std::exchange(other.facts_, strata_block{});
            known_ = other.known_;
        }
        return *this;
    }

    block(const block &) = delete;
    block &operator=(const block &) = delete;

    ~block()
    {
        (void)free();
    }

    /* Frees it now, as the destructor. After an error it is as before. An empty one: nothing happens. */
    strata_status free() noexcept
    {
        if (!runtime_)
            return STRATA_SUCCESS;
        return ended(known_ ? strata_runtime_deallocate(runtime_, &facts_)
                            : (strata_runtime_deallocate_on)(runtime_, &facts_, facts_.stream));
    }

    /* Frees it in the order of `stream`. */
    strata_status free(stream_ref stream) noexcept
    {
        return runtime_ ? ended((strata_runtime_deallocate_on)(runtime_, &facts_, stream.handle())) : STRATA_SUCCESS;
    }

    /* The block is the caller's. */
    strata_block release() noexcept
    {
        runtime_ = nullptr;
        return std::exchange(facts_, strata_block{});
    }

    /* All zero if the object is empty. */
    const strata_block &facts() const noexcept
    {
        return facts_;
    }

    CUdeviceptr address() const noexcept
    {
        return facts_.address;
    }

    void *data() const noexcept
    {
        return reinterpret_cast<void *>(static_cast<std::uintptr_t>(facts_.address));
    }

    /* Usable bytes, at least those of the request. */
    std::size_t bytes() const noexcept
    {
        return facts_.bytes;
    }

    strata_runtime *runtime() const noexcept
    {
        return runtime_;
    }

    explicit operator bool() const noexcept
    {
        return runtime_ != nullptr;
    }

  private:
    strata_status ended(strata_status status) noexcept
    {
        if (status == STRATA_SUCCESS)
            (void)release();
        return status;
    }

    strata_runtime *runtime_ = nullptr;
    strata_block facts_{};
    bool known_ = true;
};

/* ---- runtimes ---- */

/* A runtime of another owner: the process's, or one of the class below. Copies are cheap. */
class runtime_ref
{
  public:
    runtime_ref(strata_runtime *runtime) noexcept : runtime_(runtime)
    {
    }

    /* The process's runtime of this device. */
    static runtime_ref of_device(int ordinal = 0)
    {
        strata_runtime *found;
        check(strata_runtime_get(ordinal, &found));
        return found;
    }

    strata_runtime *get() const noexcept
    {
        return runtime_;
    }

    operator strata_runtime *() const noexcept
    {
        return runtime_;
    }

    int device() const noexcept
    {
        return strata_runtime_device(runtime_);
    }

    block allocate(std::size_t bytes, stream_ref stream, allocation_options options = {}) const
    {
        return {*this, bytes, stream, options};
    }

    strata_usage usage() const
    {
        strata_usage counted;
        check(strata_runtime_usage(runtime_, &counted));
        return counted;
    }

    strata_runtime_budget budget() const
    {
        strata_runtime_budget snapshot;
        check(strata_runtime_budget_snapshot(runtime_, &snapshot));
        return snapshot;
    }

    std::size_t bytes_outstanding() const noexcept
    {
        return strata_runtime_bytes_outstanding(runtime_);
    }

    /* The live block that contains the address. */
    strata_block find(CUdeviceptr address) const
    {
        strata_block found;
        check(strata_runtime_find(runtime_, address, &found));
        return found;
    }

    void reap_pending() const
    {
        check(strata_runtime_reap_pending(runtime_));
    }

    /* Bytes that went back to the device. */
    std::size_t trim(std::size_t keep_bytes = 0) const
    {
        std::size_t released;
        check(strata_runtime_trim(runtime_, keep_bytes, &released));
        return released;
    }

    void synchronize(stream_ref stream) const
    {
        check((strata_runtime_stream_synchronize)(runtime_, stream.handle()));
    }

  protected:
    strata_runtime *runtime_;
};

/* A private runtime. Its end waits for pending frees. References may live on, and are stale (strata_runtime_abandon).
 * If blocks or streams of it are left, it stays for them. */
class runtime : public runtime_ref
{
  public:
    /* The default stack, on this device. */
    explicit runtime(int ordinal = 0) : runtime_ref(nullptr)
    {
        strata_runtime_config config{};
        config.device = ordinal;
        check(try_make(*this, config));
    }

    explicit runtime(const char *stack_text, int ordinal = 0) : runtime_ref(nullptr)
    {
        strata_runtime_config config{};
        config.device = ordinal;
        config.stack_text = stack_text;
        check(try_make(*this, config));
    }

    explicit runtime(const strata_runtime_config &config) : runtime_ref(nullptr)
    {
        check(try_make(*this, config));
    }

    /* Takes the stack over, whose device it gets. After an exception the stack is as before. */
    explicit runtime(stack &&layers) : runtime_ref(nullptr)
    {
        strata_runtime_config config{};
        config.device = strata_stack_device(layers.get());
        config.stack = layers.get();
        check(try_make(*this, config));
        (void)layers.release();
    }

    /* Takes over a private runtime of the C interface. A runtime_ref has another owner. */
    explicit runtime(strata_runtime *owned) noexcept : runtime_ref(owned)
    {
    }

    explicit runtime(runtime_ref) = delete;

    /* None: for try_make. */
    explicit runtime(std::nullptr_t) noexcept : runtime_ref(nullptr)
    {
    }

    static strata_status try_make(runtime &out, const strata_runtime_config &config) noexcept
    {
        const strata_status status = out.reset();
        return status == STRATA_SUCCESS ? strata_runtime_create(&config, &out.runtime_) : status;
    }

    runtime(runtime &&other) noexcept : runtime_ref(other.release())
    {
    }

    runtime &operator=(runtime &&other) noexcept
    {
        if (this != &other) {
            (void)reset();
            runtime_ = other.release();
        }
        return *this;
    }

    runtime(const runtime &) = delete;
    runtime &operator=(const runtime &) = delete;

    ~runtime()
    {
        (void)reset();
    }

    explicit operator bool() const noexcept
    {
        return runtime_ != nullptr;
    }

    /* The runtime is the caller's. */
    strata_runtime *release() noexcept
    {
        return std::exchange(runtime_, nullptr);
    }

    /* Ends it now. After an error it is as before, and the call may be repeated. */
    strata_status reset() noexcept
    {
        const strata_status status = strata_runtime_abandon(runtime_);
        if (status == STRATA_SUCCESS)
            runtime_ = nullptr;
        return status;
    }
};

/* ---- streams ---- */

/* A stream of the runtime's pool. */
class stream : public detail::known_stream<strata_runtime_stream_acquire, strata_runtime_stream_release>
{
  public:
    stream() = default;

    explicit stream(runtime_ref runtime)
    {
        check(begin(runtime.get(), nullptr));
    }

    static strata_status try_make(stream &out, runtime_ref runtime) noexcept
    {
        return out.begin(runtime.get(), nullptr);
    }
};

/* A stream of the program that is registered with the runtime; it is destroyed after this object. */
class registered_stream : public detail::known_stream<detail::register_stream, strata_runtime_unregister_stream>
{
  public:
    registered_stream() = default;

    registered_stream(runtime_ref runtime, CUstream handle)
    {
        check(begin(runtime.get(), handle));
    }

    static strata_status try_make(registered_stream &out, runtime_ref runtime, CUstream handle) noexcept
    {
        return out.begin(runtime.get(), handle);
    }
};

/* ---- */

#pragma push_macro("strata_runtime_allocate_request")
#undef strata_runtime_allocate_request

inline strata_status block::try_make(block &out, strata_runtime *runtime, std::size_t bytes, stream_ref stream,
                                     allocation_options options) noexcept
{
    strata_status status = out.free();
    if (status != STRATA_SUCCESS)
        return status;
    strata_request request{};
    request.bytes = bytes;
    request.alignment = options.alignment;
    request.stream = stream.handle();
    request.tag = options.tag;
    status = strata_runtime_allocate_request(runtime, &request, &out.facts_);
    if (status == STRATA_SUCCESS) {
        out.runtime_ = runtime;
        out.known_ = stream.known();
    }
    return status;
}

#pragma pop_macro("strata_runtime_allocate_request")

inline block::block(runtime_ref runtime, std::size_t bytes, stream_ref stream, allocation_options options)
{
    check(try_make(*this, runtime.get(), bytes, stream, options));
}

} // namespace strata

#endif
