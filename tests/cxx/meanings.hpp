/* A part of the program for which stream 0 is the calling thread's: meanings.cc. */
#ifndef STRATA_TEST_MEANINGS_HPP
#define STRATA_TEST_MEANINGS_HPP

#include <strata/strata.hpp>

namespace meanings
{

using meaning = strata::stream_ref (*)(CUstream);

/* strata::on, as that part sees it. */
meaning on_per_thread();

strata::block allocate_on_zero(strata::runtime_ref runtime, std::size_t bytes);
void free_on_zero(strata::block &&memory);
void synchronize_zero(strata::runtime_ref runtime);

/* Throws out_of_budget from that part. */
void exceed(strata::runtime_ref runtime);

} // namespace meanings

#endif
