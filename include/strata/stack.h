/* Stacks: layers put on top of one another, from a text or by hand.
 *
 * A text names the layers from the outermost to the owner of the memory, in the order in which a request passes them:
 *
 *     async(release_threshold=2GiB, max_size=8GiB)
 *     mylayer(level=3), direct
 *
 * Words are letters, digits, '_', '-', '.', '%', '/', ':' and '+'; anything else goes in double quotes. A size is
 * a number with B or nothing (bytes), KB, MB, GB, TB (powers of 1000), or KiB, MiB, GiB, TiB, K, M, G, T (powers of
 * 1024), in capital or small letters. The number may have a fraction, as in 1.5GiB; parts of a byte are dropped, and a
 * size that is not zero but below one byte is an error. A duration is a number with s, ms, us, ns or nothing
 * (nanoseconds); a switch is on or off, or true, yes, 1 or false, no, 0. */
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

/* How stacks are made from texts. */
typedef enum strata_mode {
    STRATA_MODE_NORMAL = 0,
    STRATA_MODE_SANITIZER, /* an owner that takes memory for many blocks at once is replaced by one under which
                              compute-sanitizer sees every block: `async` or `pool` and its options by `direct`; a pool
                              over another layer is left out. The layers above stay (`fixed` and `binning` pass all
                              requests on), and strata_stack_text() says what was made. */
} strata_mode;

/* Chooses the mode for stacks that are made from texts from now on, those of runtimes included. Until it is called the
 * environment's STRATA_MODE decides: "sanitizer" or "normal". Any thread. Errors: INVALID_VALUE (no such mode). */
STRATA_API strata_status strata_set_mode(strata_mode mode);

/* Builds a stack of `count` resources made by hand, outermost first. On success the stack owns them; on failure the
 * caller still does, their heads are as they were, and strata_resource_destroy ends one that is not wanted any more.
 * Errors: INVALID_VALUE (also: an owner of memory that does not stand last), WRONG_DEVICE (an owner of another device's
 * memory), OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_stack_build(strata_resource *const *resources, size_t count, int ordinal,
                                            strata_stack **out);

/* Ends a resource that was made by hand and is part of no stack. NULL is ignored. Errors: INVALID_VALUE (part of a
 * stack, which ends it), FORKED. */
STRATA_API strata_status strata_resource_destroy(strata_resource *resource);

/* Ends a stack and its layers. BUSY, and nothing done, while blocks are live. INVALID_VALUE, and nothing done, for the
 * stack of a runtime, which ends with it. Pending stream-ordered frees are waited for. No call may be in flight. Layers
 * may have streams of their own, which end as strata_runtime_unregister_stream says. NULL is ignored. */
STRATA_API strata_status strata_stack_destroy(strata_stack *stack);

/* Says that captures have ended in which blocks of this stack were freed. Such a free waits until Strata sees the end:
 * when the stream's handle is passed to an allocation or a free, or here. Frees that were asked for on `stream` are
 * carried out if it is not being captured any more. Say so before the stream is destroyed: its handle may go to another
 * one, and a call with that would be taken for the end. With STRATA_STREAM_GONE all are, wherever they were asked for,
 * and the caller promises that the work which those streams had been given has finished. Any thread; waits for others
 * that carry such frees out.
 * Errors: those of a free; what could not be freed waits on. */
STRATA_API strata_status strata_stack_captures_ended(strata_stack *stack, CUstream stream);

/* The outermost resource: the one to call. Any thread. NULL for NULL. */
STRATA_API strata_resource *strata_stack_top(strata_stack *stack);

/* The layer of that name, such as "statistics": `which` counts those of the same name from the outside, from 0. NULL if
 * the stack has none, which is no failure. Any thread. */
STRATA_API strata_resource *strata_stack_layer(strata_stack *stack, const char *name, size_t which);

/* Calls visit(block, data) for each live block: its facts as the owner of the memory knows them. Other threads may go
 * on allocating and freeing: a block that lives all the while is visited once, one that comes or goes meanwhile once or
 * not at all. No lock is held around `visit`, so a block may be freed before it looks. Any thread. Errors:
 * INVALID_VALUE, FORKED. */
STRATA_API strata_status strata_stack_visit_blocks(strata_stack *stack,
                                                   void (*visit)(const strata_block *block, void *data), void *data);

/* The device that the stack was built for, as an ordinal; -1 for NULL. */
STRATA_API int strata_stack_device(const strata_stack *stack);

/* The stack as a text: names and the options that were given, outermost first; names alone if it was built by hand.
 * Lives as long as the stack. "" for NULL. */
STRATA_API const char *strata_stack_text(const strata_stack *stack);

/* Calls through a stack without a runtime: what the operation of the outermost resource documents. They are for users
 * of a stack, and stream 0 is what it means to the including program. A layer calls the operations of its upstream
 * instead, where that has been settled and 0 is the legacy default stream. A resource that is part of no stack (yet, or
 * because strata_stack_build failed) has no capabilities; every other call answers INVALID_VALUE. */
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
#define strata_stack_captures_ended(stack, stream) strata_stack_captures_ended(stack, strata_stream_as_meant(stream))
#define strata_resource_prepare_use(resource, block, stream, access) \
    strata_resource_prepare_use(resource, block, strata_stream_as_meant(stream), access)
#define strata_resource_finish_use(resource, block, stream, access) \
    strata_resource_finish_use(resource, block, strata_stream_as_meant(stream), access)
#endif

/* Reads a size such as "8GiB", "1.5 gb" or "4096" into *bytes, as described at the top. Errors: INVALID_VALUE (NULL),
 * SYNTAX (no size, too large for 64 bits, or below one byte). */
STRATA_API strata_status strata_parse_size(const char *text, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
