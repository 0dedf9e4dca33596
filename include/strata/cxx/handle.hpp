/* Unique ownership of an object of the C interface that one call ends. */
#ifndef STRATA_CXX_HANDLE_HPP
#define STRATA_CXX_HANDLE_HPP

#include <strata/cxx/error.hpp>

namespace strata
{
namespace detail
{

template <class Object, strata_status (*End)(Object *)> class handle
{
  public:
    handle() = default;

    /* Takes over an object of the C interface. */
    explicit handle(Object *object) noexcept : object_(object)
    {
    }

    handle(handle &&other) noexcept : object_(other.release())
    {
    }

    handle &operator=(handle &&other) noexcept
    {
        if (this != &other) {
            (void)reset();
            object_ = other.release();
        }
        return *this;
    }

    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;

    ~handle()
    {
        (void)reset();
    }

    Object *get() const noexcept
    {
        return object_;
    }

    explicit operator bool() const noexcept
    {
        return object_ != nullptr;
    }

    /* The object is the caller's. */
    Object *release() noexcept
    {
        return std::exchange(object_, nullptr);
    }

    /* Ends the object now; the handle is empty, whatever is returned. */
    strata_status reset() noexcept
    {
        return object_ ? End(release()) : STRATA_SUCCESS;
    }

  protected:
    /* Where a call of the C interface writes its object. The handle is empty. */
    Object **place() noexcept
    {
        return &object_;
    }

  private:
    Object *object_ = nullptr;
};

} // namespace detail
} // namespace strata

#endif
