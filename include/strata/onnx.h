/* ONNX Runtime: its CUDA execution provider takes memory from a runtime. Nothing of ONNX Runtime is needed here: texts
 * carry addresses, and a struct has its layout. docs/libraries.md has the calls.
 *
 * Two doors. The provider options gpu_external_alloc, gpu_external_free and gpu_external_empty_cache replace the
 * provider's arena by three C functions: one set for the process, since they have no context argument. An OrtAllocator
 * serves an environment, one for each runtime, and is given the stream (AllocOnStream).
 *
 * Functions of both answer NULL where there is no memory, and never throw, print or abort: ONNX Runtime then fails the
 * session or the run with a status. The thread's error record (strata_last_error) says why. */
#ifndef STRATA_ONNX_H
#define STRATA_ONNX_H

#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the provider options ---- */

enum { STRATA_ONNX_TEXT = 24 };

/* The three functions, and the texts for the provider options: decimal addresses. */
typedef struct strata_onnx_functions {
    void *(*allocate)(size_t bytes);
    void (*deallocate)(void *address);
    void (*empty_cache)(void); /* returns the runtime's free memory to the device (strata_runtime_trim) */
    char allocate_text[STRATA_ONNX_TEXT];
    char deallocate_text[STRATA_ONNX_TEXT];
    char empty_cache_text[STRATA_ONNX_TEXT];
    char stream_text[STRATA_ONNX_TEXT]; /* of user_compute_stream; has_user_compute_stream is "1" */
} strata_onnx_functions;

/* Binds the process's three functions to a runtime and a stream, which is the provider's user_compute_stream: requests
 * and frees are ordered with its work. Binding the same runtime and stream again gives the functions again.
 *
 * Both outlive every session with these options. On failure *out is zero. Errors: INVALID_VALUE (NULL argument,
 * STRATA_STREAM_GONE, CU_STREAM_PER_THREAD, since any thread frees), UNSUPPORTED (the stack cannot find blocks by
 * address), BUSY (another runtime or stream is bound: end its sessions and call strata_onnx_unbind),
 * OUT_OF_HOST_MEMORY, and those of the runtime. */
STRATA_API strata_status strata_onnx_bind(strata_runtime *runtime, CUstream stream, strata_onnx_functions *out);

/* Ends the binding. No session uses the functions, and no call of them is under way; from then on they answer NULL and
 * free nothing. Nothing bound: success. Errors: BUSY (memory that they gave out is not freed), FORKED. */
STRATA_API strata_status strata_onnx_unbind(void);

/* ---- an allocator ---- */

struct OrtMemoryInfo;
struct OrtKeyValuePairs;
struct OrtSyncStream;
struct OrtStatus;

/* The layout of OrtAllocator in onnxruntime_c_api.h since 1.25: `shrink` came then, `get_stats` and `alloc_on_stream`
 * in 1.23, `reserve` in 1.18, each at the end. ONNX Runtime reads no member that `version` does not have. A pointer to
 * it is cast to OrtAllocator *. Tried with the library of 1.32.0: tests/adapters/test_onnx_library.c. */
typedef struct strata_onnx_ort_allocator {
    uint32_t version;
    void *(*alloc)(struct strata_onnx_ort_allocator *self, size_t bytes);
    void (*free)(struct strata_onnx_ort_allocator *self, void *address);
    const struct OrtMemoryInfo *(*info)(const struct strata_onnx_ort_allocator *self);
    void *(*reserve)(struct strata_onnx_ort_allocator *self, size_t bytes);
    struct OrtStatus *(*get_stats)(const struct strata_onnx_ort_allocator *self, struct OrtKeyValuePairs **out);
    void *(*alloc_on_stream)(struct strata_onnx_ort_allocator *self, size_t bytes, struct OrtSyncStream *stream);
    struct OrtStatus *(*shrink)(struct strata_onnx_ort_allocator *self);
} strata_onnx_ort_allocator;

enum { STRATA_ONNX_API_VERSION = 25 /* the newest whose members are known */ };

typedef struct strata_onnx_options {
    uint32_t size;
    uint32_t api_version;             /* the program's ORT_API_VERSION; what is above STRATA_ONNX_API_VERSION is that */
    const struct OrtMemoryInfo *info; /* of the memory: OrtApi's CreateMemoryInfo; outlives the allocator */
    CUstream stream;                  /* of requests without a stream, and of frees */
    /* Members of OrtApi, for what cannot be done without it. NULL: the function that needs it is absent, as ONNX
     * Runtime permits. */
    void *(*stream_handle)(struct OrtSyncStream *stream); /* SyncStream_GetHandle: alloc_on_stream */
    void (*create_pairs)(struct OrtKeyValuePairs **out);  /* CreateKeyValuePairs, */
    void (*add_pair)(struct OrtKeyValuePairs *pairs, const char *key,
                     const char *value); /* AddKeyValuePair: get_stats */
} strata_onnx_options;

typedef struct strata_onnx_allocator strata_onnx_allocator;

/* Makes an allocator for OrtApi's RegisterAllocator and the session option session.use_env_allocators=1. Memory of
 * alloc and reserve is ordered with `stream`; memory of alloc_on_stream with the given stream, which then lives until
 * the memory is freed; a free has no stream, and is ordered with that of its allocation. On failure *out is NULL.
 * Errors: INVALID_VALUE (NULL argument or info; api_version 0; one of create_pairs and add_pair alone; a stream as
 * above), UNSUPPORTED
 * (the stack cannot find blocks by address), OUT_OF_HOST_MEMORY, and those of the runtime. */
STRATA_API strata_status strata_onnx_allocator_create(strata_runtime *runtime, const strata_onnx_options *options,
                                                      strata_onnx_allocator **out);

/* For OrtApi: the address of an OrtAllocator, valid as long as the allocator. NULL for NULL. */
STRATA_API strata_onnx_ort_allocator *strata_onnx_allocator_get(strata_onnx_allocator *allocator);

/* Once ONNX Runtime has let go (UnregisterAllocator, and the end of the environment's sessions). NULL is ignored.
 * Errors: BUSY (memory that it gave out is not freed), FORKED. */
STRATA_API strata_status strata_onnx_allocator_destroy(strata_onnx_allocator *allocator);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_onnx_bind(runtime, stream, out) strata_onnx_bind(runtime, strata_stream_as_meant(stream), out)
#endif

#ifdef __cplusplus
}
#endif

#endif
