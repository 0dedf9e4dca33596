/* Strata for C++17: the C interface with owners. Header only; needs cuda.h, and the library at link time, but no CUDA
 * runtime.
 *
 *     auto runtime = strata::runtime_ref::of_device(0);
 *     strata::stream stream(runtime);
 *     strata::block block = runtime.allocate(bytes, stream);         throws strata::out_of_memory
 *
 * A stream of the program is given as strata::on(handle). strata/cuda_mr.hpp has resources for CCCL and RMM. */
#ifndef STRATA_HPP
#define STRATA_HPP

#include <strata/cxx/error.hpp>
#include <strata/cxx/graph.hpp>
#include <strata/cxx/launch.hpp>
#include <strata/cxx/reference.hpp>
#include <strata/cxx/runtime.hpp>
#include <strata/cxx/stream.hpp>
#include <strata/strata.h>

#endif
