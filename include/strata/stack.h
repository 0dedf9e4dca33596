/* Stacks of layers, built from a text or by hand.
 *
 * A text names the layers from the outermost to the owner of the memory, with options (docs/layers/):
 * "mylayer(level=3), async(max_size=8GiB)". A layer with branches has stacks in place of options:
 * "fallback(pool(max_size=64MiB) | managed)". Words consist of letters, digits, '_', '-', '.', '%', '/', ':' and '+';
 * other text needs double quotes. A size is a number with B or no unit (bytes), KB, MB, GB, TB (powers of 1000), or
 * KiB, MiB, GiB, TiB, K, M, G, T (powers of 1024), a duration one with s, ms, us, ns or no unit (nanoseconds), in
 * either case. Between the number and its unit may be blanks, in a stack text inside double quotes: limit="8 GiB". The
 * number may have a fraction of a unit above the smallest, as in 1.5GiB; the result is rounded down, but not to zero:
 * that is an error, and so is a fraction of a byte, as in 1.5. A switch is on, true, yes, 1 or off, false, no, 0. */
#ifndef STRATA_STACK_H
#define STRATA_STACK_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Builds the stack of `text` for the device with this ordinal. Opens the driver and retains the device's primary
 * context if necessary. Errors: SYNTAX (with position and expected words), those of the layers, DRIVER_NOT_FOUND,
 * IO (too few file descriptors are left to open the driver), DRIVER. */
STRATA_API strata_status strata_stack_create(const char *text, int ordinal, strata_stack **out);

/* How stacks are made from texts. */
typedef enum strata_mode {
    STRATA_MODE_NORMAL = 0,
    STRATA_MODE_SANITIZER, /* compute-sanitizer sees every block: `direct` replaces `async` and `pool` with their
                              options, and a pool over another layer is left out; `fixed` and `binning` forward all
                              requests. strata_stack_text() shows the result. */
} strata_mode;

/* Sets the mode of stacks made from texts from now on, those of runtimes included; until then STRATA_MODE in the
 * environment ("sanitizer" or "normal") does. Errors: INVALID_VALUE (no such mode). */
STRATA_API strata_status strata_set_mode(strata_mode mode);

/* Builds a stack of `count` resources, outermost first, which it then owns. On failure the caller owns them, unchanged.
 * Errors: INVALID_VALUE (an owner of memory is not last), WRONG_DEVICE (an owner of another device's memory),
 * OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, IO, DRIVER. */
STRATA_API strata_status strata_stack_build(strata_resource *const *resources, size_t count, int ordinal,
                                            strata_stack **out);

/* Destroys a resource that is in no stack. NULL is ignored. Errors: INVALID_VALUE (in a stack). */
STRATA_API strata_status strata_resource_destroy(strata_resource *resource);

/* Destroys a stack and its layers, with no call in flight; waits for pending frees, and for all work of a device,
 * also of other libraries, where strata_runtime_reap_pending does. Without effect: BUSY (live blocks),
 * INVALID_VALUE (a runtime's stack). Streams of layers end as by strata_runtime_unregister_stream. NULL is ignored. */
STRATA_API strata_status strata_stack_destroy(strata_stack *stack);

/* Reports the end of captures during which blocks of this stack were freed. Such a free is deferred until Strata
 * observes the end: when an allocation or free names the stream, or here. Performs the frees deferred on `stream` if it
 * is not being captured; must precede the stream's destruction, since its handle may be reused. STRATA_STREAM_GONE: all
 * deferred frees; the caller guarantees that the work of those streams is complete. Waits for other threads that
 * perform such frees. Errors: those of a free; frees that failed stay deferred. */
STRATA_API strata_status strata_stack_captures_ended(strata_stack *stack, CUstream stream);

/* The outermost resource, which receives calls. NULL for NULL. */
STRATA_API strata_resource *strata_stack_top(strata_stack *stack);

/* The layer with this name; `which` counts those of one name from the outside, from 0. NULL without error if there is
 * none. */
STRATA_API strata_resource *strata_stack_layer(strata_stack *stack, const char *name, size_t which);

/* Whether the host can read all memory of the stack: no owner, of whichever branch, has
 * STRATA_CAPABILITY_DEVICE_MEMORY. False for NULL. */
STRATA_API bool strata_stack_is_host_readable(const strata_stack *stack);

/* Calls visit(block, data) for each live block, with the owner's facts. A block that is live throughout is visited
 * once, any other at most once. No lock is held around `visit`; the block may already be freed. */
STRATA_API strata_status strata_stack_visit_blocks(strata_stack *stack,
                                                   void (*visit)(const strata_block *block, void *data), void *data);

/* Freed memory that waits for one stream. */
typedef struct strata_stream_frees {
    CUstream stream; /* its handle, if `known`: of the runtime's streams, registered ones, the library's own */
    bool known;
    uint32_t stream_id; /* as in logs (logging.h) */
    uint64_t frees;     /* blocks, or of `pool` parts of memory that may have been several */
    uint64_t bytes;
} strata_stream_frees;

/* Calls visit(frees, data) for each stream that freed memory waits for, as far as is known without a question to the
 * driver; strata_runtime_reap_pending waits for all of them. Memory that waits for several counts at each; what threads
 * keep in caches for their streams, and what layers hold back (guard), does not count. `async` gives the free of memory
 * that several streams have used to a stream of the library's own, which waits for them. No lock is held around
 * `visit`. Errors: OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_stack_visit_frees(strata_stack *stack,
                                                  void (*visit)(const strata_stream_frees *frees, void *data),
                                                  void *data);

/* The device's ordinal; -1 for NULL. */
STRATA_API int strata_stack_device(const strata_stack *stack);

/* The stack's text with the options that were given; names alone if it was built by hand. Lives as long as the stack.
 * "" for NULL. */
STRATA_API const char *strata_stack_text(const strata_stack *stack);

/* Operations of the outermost resource, for users of a stack without a runtime. Layers call those of their upstream
 * instead, where stream 0 is the legacy default stream. A resource in no stack has no capabilities; all other calls
 * answer INVALID_VALUE. */
STRATA_API strata_status strata_resource_allocate(strata_resource *resource, const strata_request *request,
                                                  strata_block *out);
STRATA_API strata_status strata_resource_deallocate(strata_resource *resource, const strata_block *block,
                                                    CUstream stream);
STRATA_API strata_status strata_resource_prepare_use(strata_resource *resource, const strata_block *block,
                                                     CUstream stream, strata_access access);
STRATA_API strata_status strata_resource_finish_use(strata_resource *resource, const strata_block *block,
                                                    CUstream stream, strata_access access);
STRATA_API strata_status strata_resource_usage(strata_resource *resource, strata_usage *usage);
STRATA_API uint32_t strata_resource_capabilities(strata_resource *resource);

/* strata_resource_allocate with stream 0 as the calling thread's default stream. */
STRATA_API strata_status strata_resource_allocate_ptsz(strata_resource *resource, const strata_request *request,
                                                       strata_block *out);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_resource_allocate strata_resource_allocate_ptsz
#define strata_resource_deallocate(resource, block, stream) \
    strata_resource_deallocate(resource, block, strata_stream_as_meant(stream))
#define strata_stack_captures_ended(stack, stream) strata_stack_captures_ended(stack, strata_stream_as_meant(stream))
#define strata_resource_prepare_use(resource, block, stream, access) \
    strata_resource_prepare_use(resource, block, strata_stream_as_meant(stream), access)
#define strata_resource_finish_use(resource, block, stream, access) \
    strata_resource_finish_use(resource, block, strata_stream_as_meant(stream), access)
#endif

/* Parses a size as described at the top. Errors: SYNTAX (no size, over 64 bits, or below one byte). */
STRATA_API strata_status strata_parse_size(const char *text, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
