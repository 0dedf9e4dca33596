/* Handles of libraries, by name: cuBLAS, which Strata knows as "blas", and what the program registers (handles of
 * cuDNN, cuFFT, cuRAND, cuSOLVER, or anything else that belongs to a device's context).
 *
 * A set opens a list of names for one runtime, keeps the handles, and destroys them in reverse order. */
#ifndef STRATA_LIBRARIES_H
#define STRATA_LIBRARIES_H

#include <strata/blas.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_libraries strata_libraries;

/* One handle of a set. The strings and the handle are valid until the set is closed. */
typedef struct strata_library {
    const char *name;    /* "blas" */
    const char *version; /* as its kind told it; "" if it did not */
    void *handle;        /* of "blas" a strata_blas */
} strata_library;

/* How handles of a name are made. The callbacks are called without a lock of Strata's, and not for a set that another
 * thread closes. */
typedef struct strata_library_kind {
    uint32_t size;
    const char *name; /* letters, digits, '_' and '-'; copied */

    /* Makes a handle for work on the runtime's device; the device's context is not made current. `version` has room for
     * 64 bytes and begins empty. After a failure, which raises its error by strata_fail, nothing is left. */
    strata_status (*create)(strata_runtime *runtime, CUstream stream, void *data, void **handle, char version[64]);

    /* The end of a handle, also while the process exits. NULL: nothing to do. */
    void (*destroy)(void *handle, void *data);
    void *data;
} strata_library_kind;

/* Registers a kind, for the life of the process. Errors: INVALID_VALUE (there is one of that name; a bad name; no
 * create callback), OUT_OF_HOST_MEMORY, FORKED. */
STRATA_API strata_status strata_library_register(const strata_library_kind *kind);

/* Opens the libraries that `names` lists, separated by commas, in this order; NULL: "blas". "" opens none. What they
 * allocate is for work on `stream`. On failure all that were opened are destroyed, and *out is NULL. Errors:
 * INVALID_VALUE (no kind of a name; one given twice), OUT_OF_HOST_MEMORY, and those of the kinds. */
STRATA_API strata_status strata_libraries_open(strata_runtime *runtime, CUstream stream, const char *names,
                                               strata_libraries **out);

/* Adds a handle that the program has made; `version` may be NULL, and is copied. The set calls `destroy` unless it is
 * NULL. Errors: INVALID_VALUE (the set has that name; a bad name; NULL handle), OUT_OF_HOST_MEMORY; the handle is then
 * the program's. */
STRATA_API strata_status strata_libraries_add(strata_libraries *libraries, const char *name, const char *version,
                                              void *handle, void (*destroy)(void *handle, void *data), void *data);

/* How many there are, and one of them by its place or name. Errors: INVALID_VALUE; the message of a name lists those
 * that there are. *out is then zero. */
STRATA_API size_t strata_libraries_count(strata_libraries *libraries);
STRATA_API strata_status strata_libraries_at(strata_libraries *libraries, size_t index, strata_library *out);
STRATA_API strata_status strata_libraries_find(strata_libraries *libraries, const char *name, strata_library *out);

/* The handle "blas". NULL: the set has none. */
STRATA_API strata_blas *strata_libraries_blas(strata_libraries *libraries);

/* Destroys the handles, the last one first, and the set. No other thread uses either any more. NULL is ignored. Errors:
 * of strata_blas_destroy; the set is gone all the same. */
STRATA_API strata_status strata_libraries_close(strata_libraries *libraries);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_libraries_open(runtime, stream, names, out) \
    strata_libraries_open(runtime, strata_stream_as_meant(stream), names, out)
#endif

#ifdef __cplusplus
}
#endif

#endif
