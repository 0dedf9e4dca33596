/* The version of PyTorch that a shim is compiled for. The virtual table of its allocator class changes with each minor
 * version, so a shim serves one of them: 211 is 2.11. */
#ifndef STRATA_ADAPTERS_TORCH_VERSION_H
#define STRATA_ADAPTERS_TORCH_VERSION_H

#include <torch/headeronly/version.h>

#define STRATA_TORCH (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

#if STRATA_TORCH < 211
#error "PyTorch 2.11 or later is needed"
#endif

#endif
