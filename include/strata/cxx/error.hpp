/* Failures as exceptions: what was thrown tells the status, and has a copy of the thread's error record.
 *
 *     strata::error                    every failure of a call of Strata
 *       strata::out_of_memory          the device's memory, or a budget, does not suffice
 *         strata::out_of_budget        a budget does not
 *
 * Every exception is also a std::exception; those of out_of_memory, and of memory of the host, are a std::bad_alloc.
 * The classes above derive from neither, so that each exception has that base once and every handler is unambiguous.
 * Catch by reference. Copies do not allocate. */
#ifndef STRATA_CXX_ERROR_HPP
#define STRATA_CXX_ERROR_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "strata's C++ headers need C++17"
#endif

#include <strata/status.h>

#include <cstdio>
#include <exception>
#include <new>
#include <utility>

namespace strata
{

class STRATA_API error
{
  public:
    virtual ~error() = default;

    strata_status status() const noexcept
    {
        return record_.status;
    }

    /* Sizes, driver code and message, as strata_last_error() had them. */
    const strata_error &record() const noexcept
    {
        return record_;
    }

    /* What happened, where, and what to do. */
    const char *message() const noexcept
    {
        return record_.message;
    }

    /* The status' name and the message. */
    virtual const char *what() const noexcept
    {
        return text_;
    }

  protected:
    explicit error(const strata_error &record) noexcept : record_(record)
    {
        std::snprintf(text_, sizeof text_, "%s: %s", strata_status_name(record.status), record.message);
    }

    error(const error &) = default;
    error &operator=(const error &) = default;

  private:
    strata_error record_;
    char text_[sizeof(strata_error::message) + 64];
};

class STRATA_API out_of_memory : public error
{
  protected:
    using error::error;
};

class STRATA_API out_of_budget : public out_of_memory
{
  protected:
    using out_of_memory::out_of_memory;
};

namespace detail
{

/* What is thrown: a kind of failure, and a standard exception. */
template <class Kind, class Standard> class thrown final : public Kind, public Standard
{
  public:
    explicit thrown(const strata_error &record) noexcept : Kind(record)
    {
    }

    const char *what() const noexcept override
    {
        return Kind::what();
    }
};

/* The thread's record if it is of this failure, else one with the status alone. */
inline strata_error record_of(strata_status status) noexcept
{
    const strata_error *last = strata_last_error();
    if (last->status == status)
        return *last;
    strata_error record{};
    record.status = status;
    std::snprintf(record.message, sizeof record.message, "%s", strata_status_text(status));
    return record;
}

} // namespace detail

/* Throws the failure that the calling thread met last. */
[[noreturn]] inline void raise(strata_status status)
{
    const strata_error record = detail::record_of(status);
    switch (status) {
    case STRATA_ERROR_OUT_OF_MEMORY:
        throw detail::thrown<out_of_memory, std::bad_alloc>(record);
    case STRATA_ERROR_OUT_OF_BUDGET:
        throw detail::thrown<out_of_budget, std::bad_alloc>(record);
    case STRATA_ERROR_OUT_OF_HOST_MEMORY:
        throw detail::thrown<error, std::bad_alloc>(record);
    default:
        throw detail::thrown<error, std::exception>(record);
    }
}

/* Throws unless a call of the C interface was successful. */
inline void check(strata_status status)
{
    if (status != STRATA_SUCCESS)
        raise(status);
}

} // namespace strata

#endif
