/* A part of the program with another meaning of stream 0 and other exceptions: mr_meanings.cc. */
#ifndef STRATA_TEST_MR_MEANINGS_HPP
#define STRATA_TEST_MR_MEANINGS_HPP

#include <strata/strata.hpp>

#include <typeinfo>

namespace mr_meanings
{

/* Of an allocation on stream 0. */
CUstream stream_of_zero(strata::runtime_ref runtime);

const std::type_info &resource_type();

} // namespace mr_meanings

#endif
