// CCCL's header before Strata's, which CCCL before 3.2 does not allow: it is not compiled, and the error says why.
#include <cuda/memory_resource>
#include <cuda/version>
#if CCCL_VERSION >= 3002000
#error "CCCL is 3.2 or later"
#endif
#include <strata/cuda_mr.hpp>
