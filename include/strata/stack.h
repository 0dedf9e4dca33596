/* Stacks of layers, built from a text or by hand.
 *
 * A text names the layers from the outermost to the owner of the memory, in the order in which a request passes them:
 *
 *     async(release_threshold=2GiB, max_size=8GiB)
 *     mylayer(level=3), direct
 *
 * Words consist of letters, digits, '_', '-', '.', '%', '/', ':' and '+'; other text needs double quotes. A size is a
 * number with B or no unit (bytes), KB, MB, GB, TB (powers of 1000), or KiB, MiB, GiB, TiB, K, M, G, T (powers of
 * 1024), in upper or lower case. The number may have a fraction, as in 1.5GiB; fractions of a byte are dropped, and a
 * positive size below one byte is an error. A duration is a number with s, ms, us, ns or no unit (nanoseconds). A
 * switch is on, true, yes, 1 or off, false, no, 0. */
#ifndef STRATA_STACK_H
#define STRATA_STACK_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Builds the stack that `text` describes for the device with this ordinal; a failure leaves nothing. Opens the driver
 * and retains the device's primary context if necessary. Any thread. Errors: SYNTAX (with position and expected words),
 * those of the layers, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_stack_create(const char *text, int ordinal, strata_stack **out);

/* How stacks are made from texts. */
typedef enum strata_mode {
    STRATA_MODE_NORMAL = 0,
    STRATA_MODE_SANITIZER, /* compute-sanitizer sees every block: `direct` replaces `async` and `pool` with their
                              options, and a pool over another layer is left out. Other layers stay (`fixed` and
                              `binning` forward all requests). strata_stack_text() shows the result. */
} strata_mode;

/* Sets the mode of stacks that are made from texts from now on, those of runtimes included. Until then the
 * environment's STRATA_MODE decides: "sanitizer" or "normal". Any thread. Errors: INVALID_VALUE (no such mode). */
STRATA_API strata_status strata_set_mode(strata_mode mode);

/* Builds a stack of `count` resources, outermost first. On success the stack owns them. On failure the caller owns
 * them, unchanged; strata_resource_destroy destroys one that is not needed. Errors: INVALID_VALUE (also: an owner of
 * memory that is not last), WRONG_DEVICE (an owner of another device's memory), OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND,
 * DRIVER. */
STRATA_API strata_status strata_stack_build(strata_resource *const *resources, size_t count, int ordinal,
                                            strata_stack **out);

/* Destroys a resource that is in no stack. NULL is ignored. Errors: INVALID_VALUE (in a stack, which destroys it),
 * FORKED. */
STRATA_API strata_status strata_resource_destroy(strata_resource *resource);

/* Destroys a stack and its layers; waits for pending stream-ordered frees. BUSY, without effect, while blocks are live;
 * INVALID_VALUE, without effect, for the stack of a runtime. No call may be in flight. Streams of layers end as
 * strata_runtime_unregister_stream describes. NULL is ignored. */
STRATA_API strata_status strata_stack_destroy(strata_stack *stack);

/* Reports that captures have ended during which blocks of this stack were freed. Such a free is deferred until Strata
 * observes the end of the capture: when an allocation or free names the stream, or here. Frees deferred on `stream` are
 * performed if it is not being captured. Call this before the stream is destroyed: its handle may be reused.
 * STRATA_STREAM_GONE performs all deferred frees; the caller then guarantees that the work of those streams is
 * complete. Any thread; waits for other threads that perform such frees. Errors: those of a free; frees that failed
 * stay deferred. */
STRATA_API strata_status strata_stack_captures_ended(strata_stack *stack, CUstream stream);

/* The outermost resource, which receives calls. Any thread. NULL for NULL. */
STRATA_API strata_resource *strata_stack_top(strata_stack *stack);

/* The layer with this name, such as "statistics". `which` counts layers of the same name from the outside, from 0. NULL
 * without error if there is none. Any thread. */
STRATA_API strata_resource *strata_stack_layer(strata_stack *stack, const char *name, size_t which);

/* Calls visit(block, data) for each live block, with the facts that the owner of the memory has. Other threads may
 * allocate and free: a block that is live throughout is visited once, any other block at most once. No lock is held
 * around `visit`; the block may already be freed. Any thread. Errors: INVALID_VALUE, FORKED. */
STRATA_API strata_status strata_stack_visit_blocks(strata_stack *stack,
                                                   void (*visit)(const strata_block *block, void *data), void *data);

/* The ordinal of the stack's device; -1 for NULL. */
STRATA_API int strata_stack_device(const strata_stack *stack);

/* The stack as a text, outermost layer first, with the options that were given; names alone if it was built by hand.
 * Lives as long as the stack. "" for NULL. */
STRATA_API const char *strata_stack_text(const strata_stack *stack);

/* Operations of a stack without a runtime, as documented for the operations of the outermost resource. They are for
 * users of a stack; stream 0 is translated. Layers call the operations of their upstream instead, where 0 is the legacy
 * default stream. A resource that is in no stack has no capabilities; all other calls answer INVALID_VALUE. */
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

/* Parses a size such as "8GiB", "1.5 gb" or "4096", as described at the top. Errors: INVALID_VALUE (NULL), SYNTAX (no
 * size, over 64 bits, or below one byte). */
STRATA_API strata_status strata_parse_size(const char *text, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
