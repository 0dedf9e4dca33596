/* Stacks: layers put on top of one another, from a text or by hand.
 *
 * A text names the layers from the outermost to the owner of the memory, in the order in which a request passes them:
 *
 *     async(release_threshold=2GiB, max_size=8GiB)
 *     mylayer(level=3), direct
 *
 * Words are letters, digits, '_', '-', '.', '%', '/', ':' and '+'; anything else goes in double quotes. Sizes are
 * bytes, or a number with KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB, K, M, G, T (powers of 1024). */
#ifndef STRATA_STACK_H
#define STRATA_STACK_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Builds the stack that `text` describes for the device `ordinal`; nothing is left of it if that fails. Opens the
 * driver and retains the device's primary context if that has not happened yet. Any thread. Errors: SYNTAX (with the
 * position and what was expected), what the layers' makers answer, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_stack_create(const char *text, int ordinal, strata_stack **out);

/* Builds a stack of `count` resources made by hand, outermost first. On success the stack owns them; on failure the
 * caller still does, and their heads are as they were. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND,
 * DRIVER. */
STRATA_API strata_status strata_stack_build(strata_resource *const *resources, size_t count, int ordinal,
                                            strata_stack **out);

/* Ends a stack and its layers. BUSY, and nothing done, while blocks are live. Pending stream-ordered frees are waited
 * for. No call may be in flight. NULL is ignored. */
STRATA_API strata_status strata_stack_destroy(strata_stack *stack);

/* The outermost resource: the one to call. Any thread. */
STRATA_API strata_resource *strata_stack_top(strata_stack *stack);

/* The device that the stack was built for, as an ordinal. */
STRATA_API int strata_stack_device(const strata_stack *stack);

/* The stack as a text: names and the options that were given, outermost first; names alone if it was built by hand.
 * Lives as long as the stack. */
STRATA_API const char *strata_stack_text(const strata_stack *stack);

/* Calls through a stack without a runtime: what the operation of the outermost resource documents. They are for users
 * of a stack, and stream 0 is what it means to the including program. A layer calls the operations of its upstream
 * instead, where that has been settled and 0 is the legacy default stream. */
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

/* strata_resource_allocate with stream 0 as the calling thread's own default stream. */
STRATA_API strata_status strata_resource_allocate_ptsz(strata_resource *resource, const strata_request *request,
                                                       strata_block *out);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_resource_allocate strata_resource_allocate_ptsz
#define strata_resource_deallocate(resource, block, stream) \
    strata_resource_deallocate(resource, block, strata_stream_as_meant(stream))
#define strata_resource_prepare_use(resource, block, stream, access) \
    strata_resource_prepare_use(resource, block, strata_stream_as_meant(stream), access)
#define strata_resource_finish_use(resource, block, stream, access) \
    strata_resource_finish_use(resource, block, strata_stream_as_meant(stream), access)
#endif

/* Reads a size such as "8GiB", "512 MB" or "4096" into *bytes. Errors: SYNTAX, with the position. */
STRATA_API strata_status strata_parse_size(const char *text, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
