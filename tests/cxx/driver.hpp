/* Driver calls of the tests, looked up in the driver that Strata has opened. */
#ifndef STRATA_TEST_DRIVER_HPP
#define STRATA_TEST_DRIVER_HPP

#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>

#include "check.hpp"

namespace test
{

/* The entry point with this symbol's name. */
template <class Call> Call driver_call(const char *symbol)
{
    strata_driver_info driver;
    CHECK_OK(strata_driver_get_info(&driver));
    void *library = dlopen(driver.library, RTLD_NOW); /* stays open, as Strata's own */
    void *found = library ? dlsym(library, symbol) : nullptr;
    require(found != nullptr, symbol, __FILE__, __LINE__);
    return reinterpret_cast<Call>(found);
}

/* Device 0's primary context, current on the calling thread. */
inline void make_current()
{
    CUcontext context;
    CHECK(driver_call<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain")(&context, 0) == CUDA_SUCCESS);
    CHECK(driver_call<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent")(context) == CUDA_SUCCESS);
}

/* A stream of the program. */
class own_stream
{
  public:
    own_stream()
    {
        make_current();
        CHECK(driver_call<PFN_cuStreamCreate_v2000>("cuStreamCreate")(&handle_, CU_STREAM_NON_BLOCKING) ==
              CUDA_SUCCESS);
    }

    own_stream(const own_stream &) = delete;
    own_stream &operator=(const own_stream &) = delete;

    ~own_stream()
    {
        (void)driver_call<PFN_cuStreamDestroy_v4000>("cuStreamDestroy_v2")(handle_);
    }

    operator CUstream() const
    {
        return handle_;
    }

  private:
    CUstream handle_ = nullptr;
};

inline void fill(CUdeviceptr address, unsigned char value, std::size_t bytes, CUstream stream)
{
    const auto call = driver_call<PFN_cuMemsetD8Async_v3020>("cuMemsetD8Async");
    CHECK(call(address, value, bytes, stream) == CUDA_SUCCESS);
}

/* The first byte, after the stream's work. */
inline unsigned char first_byte(CUdeviceptr address, CUstream stream)
{
    unsigned char byte = 0;
    CHECK(driver_call<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize")(stream) == CUDA_SUCCESS);
    CHECK(driver_call<PFN_cuMemcpyDtoH_v3020>("cuMemcpyDtoH_v2")(&byte, address, 1) == CUDA_SUCCESS);
    return byte;
}

} // namespace test

#endif
