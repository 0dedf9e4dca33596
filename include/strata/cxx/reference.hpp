/* References (ref.h): counted handles of typed memory. Each object is one reference; clone() makes another. */
#ifndef STRATA_CXX_REFERENCE_HPP
#define STRATA_CXX_REFERENCE_HPP

#include <strata/cxx/runtime.hpp>
#include <strata/ref.h>

namespace strata
{

/* The element type of a C++ type. Specialize it for others, such as __half. */
template <class Element> struct element_type;

#define STRATA_CXX_ELEMENT(type, name)                                 \
    template <> struct element_type<type> {                            \
        static constexpr strata_element value = STRATA_ELEMENT_##name; \
    };
STRATA_CXX_ELEMENT(float, F32)
STRATA_CXX_ELEMENT(double, F64)
STRATA_CXX_ELEMENT(std::int8_t, I8)
STRATA_CXX_ELEMENT(std::int16_t, I16)
STRATA_CXX_ELEMENT(std::int32_t, I32)
STRATA_CXX_ELEMENT(std::int64_t, I64)
STRATA_CXX_ELEMENT(std::uint8_t, U8)
STRATA_CXX_ELEMENT(std::uint16_t, U16)
STRATA_CXX_ELEMENT(std::uint32_t, U32)
STRATA_CXX_ELEMENT(std::uint64_t, U64)
#undef STRATA_CXX_ELEMENT

/* The destructor releases; a free that fails is tried again later (strata_ref_release). */
class reference : public detail::handle<strata_ref, strata_ref_release>
{
  public:
    using handle::handle;

    /* `length` elements for work on `stream`; with `zeroed`, zeros are written there first. */
    reference(runtime_ref runtime, strata_element type, std::size_t length, stream_ref stream, bool zeroed = false)
    {
        check((strata_ref_allocate)(runtime.get(), type, length, zeroed, stream.handle(), place()));
    }

    template <class Element>
    static reference of(runtime_ref runtime, std::size_t length, stream_ref stream, bool zeroed = false)
    {
        return {runtime, element_type<Element>::value, length, stream, zeroed};
    }

    static strata_status try_make(reference &out, runtime_ref runtime, strata_element type, std::size_t length,
                                  stream_ref stream, bool zeroed = false) noexcept
    {
        const strata_status status = out.reset();
        return status == STRATA_SUCCESS
                   ? (strata_ref_allocate)(runtime.get(), type, length, zeroed, stream.handle(), out.place())
                   : status;
    }

    /* Takes the block's memory over. After an exception the block is as before. */
    static reference adopt(block &&memory, strata_element type, std::size_t length)
    {
        reference made;
        check(strata_ref_adopt(memory.runtime(), &memory.facts(), type, length, made.place()));
        (void)memory.release();
        return made;
    }

    reference clone() const noexcept
    {
        return reference(strata_ref_clone(get()));
    }

    /* `length` elements from `offset` bytes on. Keeps the whole memory. */
    reference view(std::size_t offset, std::size_t length, strata_element type) const
    {
        reference made;
        check(strata_ref_view(get(), offset, length, type, made.place()));
        return made;
    }

    /* Throws STALE if the memory can no longer be used. */
    strata_ref_memory access() const
    {
        strata_ref_memory memory;
        check(strata_ref_access(get(), &memory));
        return memory;
    }

    template <class Element> Element *data() const
    {
        return reinterpret_cast<Element *>(static_cast<std::uintptr_t>(access().address));
    }

    void record_write(stream_ref stream) const
    {
        check((strata_ref_record_write)(get(), stream.handle()));
    }

    std::size_t size() const noexcept
    {
        return strata_ref_len(get());
    }

    strata_element type() const noexcept
    {
        return strata_ref_type(get());
    }
};

} // namespace strata

#endif
