/* Status codes, and a thread's record of its last failure. */
#ifndef STRATA_STATUS_H
#define STRATA_STATUS_H

#include <strata/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, code, text): all statuses. Codes are never reused. */
#define STRATA_STATUS_MAP(X)                                                            \
    X(SUCCESS, 0, "success")                                                            \
    X(ERROR_INVALID_VALUE, 1, "invalid argument")                                       \
    X(ERROR_OUT_OF_MEMORY, 2, "out of device memory")                                   \
    X(ERROR_OUT_OF_HOST_MEMORY, 3, "out of host memory")                                \
    X(ERROR_OUT_OF_BUDGET, 4, "budget limit exceeded")                                  \
    X(ERROR_USE_AFTER_FREE, 5, "use after free: the block was freed")                   \
    X(ERROR_DOUBLE_FREE, 6, "double free: the block was already freed")                 \
    X(ERROR_FOREIGN_POINTER, 7, "unknown address or block")                             \
    X(ERROR_SIZE_MISMATCH, 8, "block size mismatch")                                    \
    X(ERROR_WRONG_DEVICE, 9, "block of another device")                                 \
    X(ERROR_BLOCK_IN_USE, 10, "block in use: a prepared use is not finished")           \
    X(ERROR_STREAM_MISUSE, 11, "invalid use of a stream")                               \
    X(ERROR_STREAM_CAPTURE, 12, "the stream is being captured into a graph")            \
    X(ERROR_STREAMS_EXHAUSTED, 13, "all streams of the pool are in use")                \
    X(ERROR_NOT_COMMITTED, 14, "a prepared launch was not committed")                   \
    X(ERROR_NOT_READY, 15, "work on the device is not finished")                        \
    X(ERROR_SYNTAX, 16, "syntax error")                                                 \
    X(ERROR_UNSUPPORTED, 17, "not supported by the driver, the device or the layer")    \
    X(ERROR_DRIVER_NOT_FOUND, 18, "no CUDA driver could be opened")                     \
    X(ERROR_DRIVER, 19, "a CUDA driver call failed")                                    \
    X(ERROR_SHUT_DOWN, 20, "the CUDA driver has shut down")                             \
    X(ERROR_FORKED, 21, "CUDA cannot be used in a forked child")                        \
    X(ERROR_BUSY, 22, "the object is still in use")                                     \
    X(ERROR_IO, 23, "a file could not be read or written")                              \
    X(ERROR_CORRUPTED, 24, "memory around a block or of a freed block was overwritten") \
    X(ERROR_DEADLOCK, 25, "deadlock: every thread that could free memory waits for it") \
    X(ERROR_DEVICE_RESET, 26, "the primary context of the device was reset")            \
    X(ERROR_STALE, 27, "the reference is stale: its memory can no longer be used")      \
    X(ERROR_SHARED, 28, "the object is shared")                                         \
    X(ERROR_SEALED, 29, "the object is sealed")                                         \
    X(ERROR_TIMEOUT, 30, "the time limit was reached")                                  \
    X(ERROR_CANCELLED, 31, "the request was cancelled")                                 \
    X(ERROR_QUEUE_FULL, 32, "the queue is full")                                        \
    X(ERROR_POISONED, 33, "an earlier failure made the context unusable")               \
    X(ERROR_LIBRARY, 34, "a call of another library failed")

typedef enum strata_status {
#define STRATA_STATUS_ENUM(name, code, text) STRATA_##name = code,
    STRATA_STATUS_MAP(STRATA_STATUS_ENUM)
#undef STRATA_STATUS_ENUM
} strata_status;

/* Such as "STRATA_ERROR_OUT_OF_MEMORY"; "STRATA_ERROR_UNKNOWN" for an invalid value. Never NULL. At any time. */
STRATA_API const char *strata_status_name(strata_status status);

/* One line of text. Never NULL. At any time. */
STRATA_API const char *strata_status_text(strata_status status);

/* A failure. Numbers that do not apply are zero; sizes are bytes. */
typedef struct strata_error {
    strata_status status;
    CUresult driver_code;    /* CUDA_SUCCESS if no driver call failed */
    const char *driver_name; /* "CUDA_ERROR_OUT_OF_MEMORY", or NULL; static */
    const char *driver_call; /* the failed entry point: "cuMemAlloc", or NULL; static */
    size_t requested;
    size_t in_use;        /* live and retired, at the failure */
    size_t remaining;     /* would have been granted */
    size_t limit;         /* the limit that was reached; 0: none */
    size_t reserved_free; /* reserved from the device and free */
    size_t largest_free;  /* largest free extent of these */
    size_t device_free;   /* as the driver reports it */
    uint32_t tag;         /* of the block in question */
    uint64_t generation;  /* of that block; 0: none */
    char message[512];    /* what happened, where, and what to do */
} strata_error;

/* The calling thread's last failure; success does not clear it. Before any failure: STRATA_SUCCESS and an empty
 * message. Never NULL; valid until the thread ends. */
STRATA_API const strata_error *strata_last_error(void);

/* Receives failures and findings on the thread on which they occur. Must not call Strata. `error` is valid during the
 * call. */
typedef void (*strata_log_callback)(const strata_error *error, void *data);

/* Sets the log callback of the process. NULL, the default: errors are not logged, and findings and leaks are written to
 * standard error. The environment variable STRATA_REPORT decides otherwise (docs/install.md). Any
 * thread; calls in flight on other threads may still reach the previous callback. */
STRATA_API void strata_set_log_callback(strata_log_callback callback, void *data);

/* The code with which a CUDA program knows the status: OUT_OF_MEMORY and OUT_OF_BUDGET are CUDA_ERROR_OUT_OF_MEMORY;
 * the table stands in docs/replace.md. For DRIVER, the calling thread's last driver code if its last failure is that
 * one; else CUDA_ERROR_UNKNOWN, as for an invalid value. At any time. */
STRATA_API CUresult strata_status_to_cuda(strata_status status);

/* The same as the number of a cudaError_t, for programs on the CUDA runtime. */
STRATA_API int strata_status_to_cudart(strata_status status);

/* "major.minor.patch". */
STRATA_API const char *strata_version_string(void);

#ifdef __cplusplus
}
#endif

#endif
