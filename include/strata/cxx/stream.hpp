/* Streams as arguments, and streams of a runtime.
 *
 * Stream 0 means what it means to the including program: the legacy default stream, or the calling thread's with
 * CUDA_API_PER_THREAD_DEFAULT_STREAM. Only the function on() depends on that, and it stands in a namespace of its own
 * for each meaning. All classes are the same in both kinds of program, may be linked together, and handed from one to
 * the other. In the classes, names of C functions stand in parentheses: the C headers' macros for per-thread streams do
 * not apply there. */
#ifndef STRATA_CXX_STREAM_HPP
#define STRATA_CXX_STREAM_HPP

#include <strata/cxx/error.hpp>
#include <strata/runtime.h>

namespace strata
{

/* A stream whose meaning is settled. Owns nothing. */
class stream_ref
{
  public:
    /* 0 is the legacy default stream. `known`: to the runtime, as its own, or registered (runtime.h). */
    constexpr stream_ref(CUstream handle, bool known) noexcept : handle_(handle), known_(known)
    {
    }

    constexpr CUstream handle() const noexcept
    {
        return handle_;
    }

    constexpr bool known() const noexcept
    {
        return known_;
    }

    friend constexpr bool operator==(stream_ref a, stream_ref b) noexcept
    {
        return a.handle_ == b.handle_;
    }

    friend constexpr bool operator!=(stream_ref a, stream_ref b) noexcept
    {
        return !(a == b);
    }

  private:
    CUstream handle_;
    bool known_;
};

namespace detail
{

inline stream_ref legacy_zero(CUstream stream) noexcept
{
    return {stream, !stream || stream == CU_STREAM_LEGACY};
}

inline stream_ref per_thread_zero(CUstream stream) noexcept
{
    return {stream ? stream : CU_STREAM_PER_THREAD, stream == CU_STREAM_LEGACY};
}

} // namespace detail

/* A stream of the program, also a cudaStream_t. 0: see above. The handle must be valid as long as something is freed on
 * it: a block's destructor frees on the stream of its allocation. */
#ifdef STRATA_PER_THREAD_STREAMS
inline namespace per_thread_stream_zero
{
inline stream_ref on(CUstream stream) noexcept
{
    return detail::per_thread_zero(stream);
}
} // namespace per_thread_stream_zero
#else
inline namespace legacy_stream_zero
{
inline stream_ref on(CUstream stream) noexcept
{
    return detail::legacy_zero(stream);
}
} // namespace legacy_stream_zero
#endif

namespace detail
{

/* A stream that a runtime knows until End. An end that fails leaves it known; the log callback is told. */
template <strata_status (*Begin)(strata_runtime *, CUstream *), strata_status (*End)(strata_runtime *, CUstream)>
class known_stream
{
  public:
    known_stream() = default;

    known_stream(known_stream &&other) noexcept
        : runtime_(std::exchange(other.runtime_, nullptr)), handle_(std::exchange(other.handle_, nullptr))
    {
    }

    known_stream &operator=(known_stream &&other) noexcept
    {
        if (this != &other) {
            (void)reset();
            runtime_ = std::exchange(other.runtime_, nullptr);
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }

    known_stream(const known_stream &) = delete;
    known_stream &operator=(const known_stream &) = delete;

    ~known_stream()
    {
        (void)reset();
    }

    CUstream get() const noexcept
    {
        return handle_;
    }

    explicit operator bool() const noexcept
    {
        return runtime_ != nullptr;
    }

    operator stream_ref() const noexcept
    {
        return {handle_, true};
    }

    /* Waits on the host for the stream's work (strata_runtime_stream_synchronize). */
    void synchronize() const
    {
        check((strata_runtime_stream_synchronize)(runtime_, handle_));
    }

    /* Ends it now. After an error the object is as before, and the call may be repeated. */
    strata_status reset() noexcept
    {
        const strata_status status = runtime_ ? End(runtime_, handle_) : STRATA_SUCCESS;
        if (status == STRATA_SUCCESS) {
            runtime_ = nullptr;
            handle_ = nullptr;
        }
        return status;
    }

  protected:
    strata_status begin(strata_runtime *runtime, CUstream handle) noexcept
    {
        strata_status status = reset();
        if (status != STRATA_SUCCESS)
            return status;
        status = Begin(runtime, &handle);
        if (status == STRATA_SUCCESS) {
            runtime_ = runtime;
            handle_ = handle;
        }
        return status;
    }

  private:
    strata_runtime *runtime_ = nullptr;
    CUstream handle_ = nullptr;
};

inline strata_status register_stream(strata_runtime *runtime, CUstream *handle)
{
    return strata_runtime_register_stream(runtime, *handle);
}

} // namespace detail

} // namespace strata

#endif
