/* The launch recorder (launch.h), ended by its destructor.
 *
 *     strata::launch launch(runtime, stream);
 *     launch.use(input, STRATA_ACCESS_READ).use(output, STRATA_ACCESS_WRITE);
 *     launch.submit([&] { kernel<<<...>>>(...); });
 *
 * It belongs to one thread. Work that was prepared and neither committed nor cancelled counts as submitted, also where
 * an exception leaves the scope: the destructor then reports NOT_COMMITTED. */
#ifndef STRATA_CXX_LAUNCH_HPP
#define STRATA_CXX_LAUNCH_HPP

#include <strata/cxx/reference.hpp>
#include <strata/cxx/runtime.hpp>
#include <strata/launch.h>

namespace strata
{

class launch
{
  public:
    launch() = default;

    launch(runtime_ref runtime, stream_ref stream, strata_launch_mode mode = STRATA_LAUNCH_STRICT)
    {
        check(try_make(*this, runtime, stream, mode));
    }

    static strata_status try_make(launch &out, runtime_ref runtime, stream_ref stream,
                                  strata_launch_mode mode = STRATA_LAUNCH_STRICT) noexcept
    {
        strata_status status = out.end();
        if (status == STRATA_SUCCESS)
            status = (strata_launch_begin)(&out.launch_, runtime.get(), stream.handle(), mode);
        out.begun_ = status == STRATA_SUCCESS;
        return status;
    }

    launch(launch &&other) noexcept
        : launch_(std::exchange(other.launch_, strata_launch{})), begun_(std::exchange(other.begun_, false))
    {
    }

    launch &operator=(launch &&other) noexcept
    {
        if (this != &other) {
            (void)end();
            launch_ = std::exchange(other.launch_, strata_launch{});
            begun_ = std::exchange(other.begun_, false);
        }
        return *this;
    }

    launch(const launch &) = delete;
    launch &operator=(const launch &) = delete;

    ~launch()
    {
        (void)end();
    }

    explicit operator bool() const noexcept
    {
        return begun_;
    }

    /* ---- what the work uses ---- */

    launch &use(const block &used, strata_access access)
    {
        return use(used.facts(), access);
    }

    launch &use(const strata_block &used, strata_access access)
    {
        check(strata_launch_use(&launch_, &used, access));
        return *this;
    }

    launch &use(const reference &used, strata_access access)
    {
        check(strata_launch_use_ref(&launch_, used.get(), access));
        return *this;
    }

    launch &use(CUdeviceptr address, strata_access access)
    {
        check(strata_launch_use_address(&launch_, address, access));
        return *this;
    }

    /* ---- submitting it ---- */

    void preflight()
    {
        check(strata_launch_preflight(&launch_));
    }

    void commit()
    {
        check(strata_launch_commit(&launch_));
    }

    void cancel()
    {
        check(strata_launch_cancel(&launch_));
    }

    /* preflight, `work()`, commit. If work throws, what it may have submitted counts as submitted. */
    template <class Work> void submit(Work &&work)
    {
        preflight();
        std::forward<Work>(work)();
        commit();
    }

    /* Ends it now. NOT_COMMITTED: see above. */
    strata_status end() noexcept
    {
        return std::exchange(begun_, false) ? strata_launch_end(&launch_) : STRATA_SUCCESS;
    }

    /* The C object, for further calls. Not ended by the caller. */
    strata_launch *get() noexcept
    {
        return &launch_;
    }

  private:
    strata_launch launch_{};
    bool begun_ = false;
};

} // namespace strata

#endif
