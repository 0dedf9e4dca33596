/* Before each block of C of the documents: Strata, and as much of the libraries that a document names as it needs to
 * compile. The declarations are those of the libraries' headers, without their types' contents. */
#ifndef STRATA_TESTS_DOCUMENTS_PRELUDE_H
#define STRATA_TESTS_DOCUMENTS_PRELUDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/strata.h>

/* ---- the CUDA runtime ---- */

typedef CUstream cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
cudaError_t cudaMalloc(void **address, size_t bytes);
cudaError_t cudaFree(void *address);
cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *address, cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemPoolTrimTo(CUmemoryPool pool, size_t keep);
cudaError_t cudaDeviceGetDefaultMemPool(CUmemoryPool *pool, int device);

/* ---- cuTensorNet, cuStateVec, cuDSS ---- */

typedef void *cutensornetHandle_t;
typedef void *custatevecHandle_t;
typedef void *cudssHandle_t;
typedef struct cutensornetDeviceMemHandler_t cutensornetDeviceMemHandler_t;
typedef struct custatevecDeviceMemHandler_t custatevecDeviceMemHandler_t;
typedef struct cudssDeviceMemHandler_t cudssDeviceMemHandler_t;
int cutensornetSetDeviceMemHandler(cutensornetHandle_t handle, const cutensornetDeviceMemHandler_t *handler);
int custatevecSetDeviceMemHandler(custatevecHandle_t handle, const custatevecDeviceMemHandler_t *handler);
int cudssSetDeviceMemHandler(cudssHandle_t handle, const cudssDeviceMemHandler_t *handler);

/* ---- NCCL ---- */

typedef struct ncclComm *ncclComm_t;
#define NCCL_WIN_COLL_SYMMETRIC 0x01

/* ---- ONNX Runtime ---- */

#define ORT_API_VERSION 25
typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtSyncStream OrtSyncStream;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtCUDAProviderOptionsV2 OrtCUDAProviderOptionsV2;
typedef struct OrtApi {
    OrtStatus *(*UpdateCUDAProviderOptions)(OrtCUDAProviderOptionsV2 *options, const char *const *keys,
                                            const char *const *values, size_t count);
    OrtStatus *(*RegisterAllocator)(OrtEnv *env, OrtAllocator *allocator);
    void *(*SyncStream_GetHandle)(OrtSyncStream *stream);
    void (*CreateKeyValuePairs)(OrtKeyValuePairs **out);
    void (*AddKeyValuePair)(OrtKeyValuePairs *pairs, const char *key, const char *value);
} OrtApi;

#endif
