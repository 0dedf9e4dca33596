/* cuda_mr.hpp for the other meaning of stream 0, and for the other exceptions: linked to a program without. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#define STRATA_NO_RMM                      1
#include <strata/cuda_mr.hpp>

#include "mr_meanings.hpp"

CUstream mr_meanings::stream_of_zero(strata::runtime_ref runtime)
{
    strata::mr::resource resource(runtime);
    const cuda::stream_ref zero{cudaStream_t()};
    void *memory = resource.allocate_async(256, 256, zero);
    const strata_block found = runtime.find(static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory)));
    resource.deallocate_async(memory, 256, 256, zero);
    return found.stream;
}

const std::type_info &mr_meanings::resource_type()
{
    return typeid(strata::mr::resource);
}
