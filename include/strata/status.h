/* Status codes, and the calling thread's record of its last failure. */
#ifndef STRATA_STATUS_H
#define STRATA_STATUS_H

#include <strata/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, code, text): all statuses. Codes are never reused. */
#define STRATA_STATUS_MAP(X)                                                           \
    X(SUCCESS, 0, "success")                                                           \
    X(ERROR_INVALID_VALUE, 1, "an argument is not one that this call takes")           \
    X(ERROR_OUT_OF_MEMORY, 2, "the device has no memory for the request")              \
    X(ERROR_OUT_OF_HOST_MEMORY, 3, "the host has no memory for Strata's book-keeping") \
    X(ERROR_OUT_OF_BUDGET, 4, "the request does not fit the limit of a budget")        \
    X(ERROR_USE_AFTER_FREE, 5, "the block was freed; its identity is stale")           \
    X(ERROR_DOUBLE_FREE, 6, "the block was freed before")                              \
    X(ERROR_FOREIGN_POINTER, 7, "the address or block does not belong here")           \
    X(ERROR_SIZE_MISMATCH, 8, "the size is not the one that was allocated")            \
    X(ERROR_WRONG_DEVICE, 9, "the block belongs to another device")                    \
    X(ERROR_BLOCK_IN_USE, 10, "the block is in use between a prepare and its finish")  \
    X(ERROR_STREAM_MISUSE, 11, "the stream cannot be used in this way")                \
    X(ERROR_STREAM_CAPTURE, 12, "the stream is being captured into a graph")           \
    X(ERROR_STREAMS_EXHAUSTED, 13, "every stream of the pool is taken")                \
    X(ERROR_NOT_COMMITTED, 14, "a launch was prepared and never committed")            \
    X(ERROR_NOT_READY, 15, "work on the device has not finished")                      \
    X(ERROR_SYNTAX, 16, "a text could not be understood")                              \
    X(ERROR_UNSUPPORTED, 17, "the driver, the device or the layer cannot do this")     \
    X(ERROR_DRIVER_NOT_FOUND, 18, "no CUDA driver could be opened")                    \
    X(ERROR_DRIVER, 19, "a CUDA driver call failed")                                   \
    X(ERROR_SHUT_DOWN, 20, "the CUDA driver has shut down")                            \
    X(ERROR_FORKED, 21, "CUDA cannot be used in a forked child")                       \
    X(ERROR_BUSY, 22, "the object is still in use")                                    \
    X(ERROR_IO, 23, "a file could not be read or written")                             \
    X(ERROR_CORRUPTED, 24, "memory around a block, or of a freed one, was overwritten")

typedef enum strata_status {
#define STRATA_STATUS_ENUM(name, code, text) STRATA_##name = code,
    STRATA_STATUS_MAP(STRATA_STATUS_ENUM)
#undef STRATA_STATUS_ENUM
} strata_status;

/* The name of a status, such as "STRATA_ERROR_OUT_OF_MEMORY"; "STRATA_ERROR_UNKNOWN" for an invalid value. Never NULL.
 * Any thread, at any time. */
STRATA_API const char *strata_status_name(strata_status status);

/* One line of text for a status. Never NULL. Any thread, at any time. */
STRATA_API const char *strata_status_text(strata_status status);

/* Details of a failure. Numbers that do not apply are zero; sizes are in bytes. */
typedef struct strata_error {
    strata_status status;
    CUresult driver_code;    /* the driver's result; CUDA_SUCCESS if no driver call failed */
    const char *driver_name; /* its name, such as "CUDA_ERROR_OUT_OF_MEMORY", or NULL; static */
    const char *driver_call; /* the entry point that failed, such as "cuMemAlloc", or NULL; static */
    size_t requested;        /* bytes asked for */
    size_t in_use;           /* live and retired bytes at the time of the failure */
    size_t remaining;        /* bytes that would have been granted */
    size_t limit;            /* the limit that was reached; 0: none */
    size_t reserved_free;    /* bytes reserved from the device and free */
    size_t largest_free;     /* largest free extent of these */
    size_t device_free;      /* free on the device, as the driver reports it */
    uint32_t tag;            /* of the block in question */
    uint64_t generation;     /* of the block in question; 0: no block */
    char message[512];       /* what happened, where, and what to do */
} strata_error;

/* The calling thread's last failure. Successful calls do not clear it. Before any failure, status is STRATA_SUCCESS and
 * the message is empty. Never NULL; valid until the thread ends. */
STRATA_API const strata_error *strata_last_error(void);

/* Receives failures and findings when they occur, on the thread on which they occur. Must not call Strata. `error` is
 * valid during the call. */
typedef void (*strata_log_callback)(const strata_error *error, void *data);

/* Sets the log callback of the process. NULL, the default, means silence: Strata prints nothing by itself. Any thread;
 * calls in flight on other threads may still reach the previous callback. */
STRATA_API void strata_set_log_callback(strata_log_callback callback, void *data);

/* Strata's version as "major.minor.patch". */
STRATA_API const char *strata_version_string(void);

#ifdef __cplusplus
}
#endif

#endif
