/* References: counted handles of typed memory, which know when they have become stale.
 *
 * A reference keeps its memory alive until it is released, and until work that was given the memory through the launch
 * recorder or a record_write is complete. It does not keep the device's state (device_state.h): strata_ref_access says
 * whether the memory can still be used. Threads pass references freely; each clone is released once.
 *
 * A release frees the memory in the order of its allocation stream, after every recorded use. If that stream is not
 * known, work on it must be recorded, too. */
#ifndef STRATA_REF_H
#define STRATA_REF_H

#include <strata/device_state.h>
#include <strata/emitter.h>
#include <strata/launch.h>
#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, bytes, text): all element types. C64 and C128 are complex numbers of two F32 and of two F64. */
#define STRATA_ELEMENT_MAP(X) \
    X(F16, 2, "f16")          \
    X(BF16, 2, "bf16")        \
    X(F32, 4, "f32")          \
    X(F64, 8, "f64")          \
    X(F8E4M3, 1, "f8e4m3")    \
    X(F8E5M2, 1, "f8e5m2")    \
    X(I8, 1, "i8")            \
    X(I16, 2, "i16")          \
    X(I32, 4, "i32")          \
    X(I64, 8, "i64")          \
    X(U8, 1, "u8")            \
    X(U16, 2, "u16")          \
    X(U32, 4, "u32")          \
    X(U64, 8, "u64")          \
    X(C64, 8, "c64")          \
    X(C128, 16, "c128")

typedef enum strata_element {
    STRATA_ELEMENT_NONE = 0,
#define STRATA_ELEMENT_ENUM(name, bytes, text) STRATA_ELEMENT_##name,
    STRATA_ELEMENT_MAP(STRATA_ELEMENT_ENUM)
#undef STRATA_ELEMENT_ENUM
} strata_element;

/* Bytes of one element, and its name such as "f32". 0 and "" for an invalid value. */
STRATA_API size_t strata_element_bytes(strata_element type);
STRATA_API const char *strata_element_name(strata_element type);

/* Why memory cannot be used, in the order in which it is checked. */
typedef enum strata_stale_reason {
    STRATA_STALE_NOT = 0,         /* it can be used */
    STRATA_STALE_STATE_DROPPED,   /* the device's state was dropped: its runtime has ended or was abandoned */
    STRATA_STALE_SHUTTING_DOWN,   /* strata_device_state_begin_shutdown */
    STRATA_STALE_CONTEXT_REBUILT, /* the context was rebuilt after the reference was made, or was reset */
} strata_stale_reason;

typedef struct strata_ref strata_ref;

/* What a reference gives access to. */
typedef struct strata_ref_memory {
    CUdeviceptr address;       /* of the first element; 0 if there is none, and for memory of an isolated service */
    size_t bytes;              /* of all elements */
    const strata_block *block; /* that they lie in; valid while the reference is held; empty without elements, and for
                                  foreign memory (dlpack.h) */
    strata_stale_reason stale; /* the reason for STALE */
} strata_ref_memory;

/* ---- making and releasing ---- */

/* Allocates `length` elements for work on `stream`; with `zeroed`, zeros are written there first. No element: no
 * memory. On failure *out is NULL. Errors: INVALID_VALUE (no such type; the bytes overflow), STALE (shutdown has
 * begun), and those of strata_runtime_allocate and of a write. */
STRATA_API strata_status strata_ref_allocate(strata_runtime *runtime, strata_element type, size_t length, bool zeroed,
                                             CUstream stream, strata_ref **out);

/* Makes a reference to a live block of the runtime, whose memory it then owns: the caller does not free the block.
 * After an error the block is the caller's. Errors: INVALID_VALUE (no such type; the elements overflow or exceed the
 * block; its address is not a multiple of their size), STALE (shutdown has begun), USE_AFTER_FREE, FOREIGN_POINTER,
 * OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_ref_adopt(strata_runtime *runtime, const strata_block *block, strata_element type,
                                          size_t length, strata_ref **out);

/* Another reference to the memory of `whole`: `length` elements of `type` from `offset` bytes on. It keeps the whole
 * memory alive. Errors: INVALID_VALUE (no such type; out of range; misaligned: its address is not a multiple of the
 * element's size), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_ref_view(strata_ref *whole, size_t offset, size_t length, strata_element type,
                                         strata_ref **out);

/* One more reference, to be released on its own: returns `ref`. On the thread that made the reference this costs no
 * locked instruction, nor does its release, until another thread releases one of several; elsewhere one each. NULL for
 * NULL. */
STRATA_API strata_ref *strata_ref_clone(strata_ref *ref);

/* Ends one reference; the last one frees the memory. Of a stale reference the memory is freed too, but where the device
 * has it no more (the context was reset, the driver has shut down) no driver call is made for it. Between preflight and
 * commit of a launch with the block, the free is deferred to the commit. A free that fails, or that another prepared
 * use forbids, is tried again by later commits and last releases, by strata_runtime_reap_pending, and when the runtime
 * ends; the reference is gone all the same. NULL is ignored. Errors: those of strata_runtime_deallocate; of an
 * abandoned runtime those of strata_runtime_destroy, which the last release performs. */
STRATA_API strata_status strata_ref_release(strata_ref *ref);

/* ---- access ---- */

/* Gives the memory, if it can be used. Errors: STALE, with the reason in out->stale; the other members are then 0. */
STRATA_API strata_status strata_ref_access(const strata_ref *ref, strata_ref_memory *out);

/* Gives the memory of `count` references, or of none: if one is stale, its reason is in its element of `out`, and all
 * else in `out` is 0. After success there was a moment at which none was stale. */
STRATA_API strata_status strata_refs_access(const strata_ref *const *refs, size_t count, strata_ref_memory *out);

/* The address alone, for calls that take a bare pointer, after the checks of strata_ref_access; 0 without elements. */
STRATA_API strata_status strata_ref_raw_device_ptr(const strata_ref *ref, CUdeviceptr *out);

/* Facts. Of NULL: 0, true, STRATA_ELEMENT_NONE, STRATA_DEVICE_NONE. The device is STRATA_DEVICE_NONE after its state
 * was dropped; the generation is that of the device's state when the memory was allocated or adopted. */
STRATA_API size_t strata_ref_len(const strata_ref *ref);
STRATA_API bool strata_ref_is_empty(const strata_ref *ref);
STRATA_API strata_element strata_ref_type(const strata_ref *ref);
STRATA_API int strata_ref_device_id(const strata_ref *ref);
STRATA_API uint64_t strata_ref_generation(const strata_ref *ref);

/* Writes type, length and generation: "f32[1024], generation 0". */
STRATA_API void strata_ref_print(const strata_ref *ref, strata_write_callback write, void *data);

/* ---- uses ---- */

/* As strata_launch_use, for the reference's block. From here to the end of the launch, commit or cancel, the launch has
 * a reference of its own. Also checked by preflight. Foreign memory (dlpack.h) is FOREIGN_POINTER in strict mode, left
 * out and not held in permissive mode. Errors: also STALE, and INVALID_VALUE (`access` writes read-only memory). */
STRATA_API strata_status strata_launch_use_ref(strata_launch *launch, strata_ref *ref, strata_access access);

/* Records that work submitted to `stream` writes the memory: later uses, and the free, come after it. Errors: STALE,
 * INVALID_VALUE (read-only memory), STREAM_MISUSE (foreign memory: dlpack.h), and those of
 * strata_runtime_record_block_use. */
STRATA_API strata_status strata_ref_record_write(strata_ref *ref, CUstream stream);

typedef enum strata_last_write_kind {
    STRATA_LAST_WRITE_NONE = 0, /* nothing wrote the memory that work could have to wait for */
    STRATA_LAST_WRITE_STREAM,   /* a known stream */
    STRATA_LAST_WRITE_POINT,    /* an unknown stream, or one that has ended: a point to wait for */
} strata_last_write_kind;

/* The last write of a block. */
typedef struct strata_last_write {
    strata_last_write_kind kind;
    CUstream stream; /* of STRATA_LAST_WRITE_STREAM: not unregistered before the release */
    uint64_t point;  /* private */
} strata_last_write;

/* The stream that wrote the reference's block last, whole, views and other uses included. The allocation counts as the
 * first write until it is known to be complete. Work that waits for this waits for what a launch that reads would wait
 * for, if each write came after the one before. Reads are not told: work that writes after other streams' reads needs a
 * launch. While a write is held, its
 * stream cannot be unregistered (BUSY), nor its runtime be destroyed. Errors: STALE, STREAM_MISUSE (foreign memory:
 * dlpack.h). */
STRATA_API strata_status strata_ref_last_write_stream(const strata_ref *ref, strata_last_write *out);

/* Later work on `stream` waits for the write. Errors: STREAM_CAPTURE, OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_last_write_wait(strata_runtime *runtime, const strata_last_write *write,
                                                CUstream stream);

/* Lets go of the stream, and zeroes *write. Needed for each success, of any kind. NULL is ignored. */
STRATA_API void strata_last_write_release(strata_last_write *write);

/* ---- ends ---- */

/* Destroys a private runtime that may have live references: its state is dropped, so that they are stale, and its
 * streams end at once; the memory goes with each last reference, the stack and the rest with the very last one. Other
 * threads may use and release references meanwhile. Afterwards the runtime is not used any more, except by a launch
 * that names references and has begun. It waits for all work of a device where strata_runtime_reap_pending does.
 * Without live references: strata_runtime_destroy. Errors without effect: BUSY (blocks that no reference holds,
 * acquired streams), INVALID_VALUE (from strata_runtime_get). After any other, and BUSY for a stream that is held as
 * last writer, the runtime exists, and the next call continues. NULL is ignored. */
STRATA_API strata_status strata_runtime_abandon(strata_runtime *runtime);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_ref_allocate(runtime, type, length, zeroed, stream, out) \
    strata_ref_allocate(runtime, type, length, zeroed, strata_stream_as_meant(stream), out)
#define strata_ref_record_write(ref, stream) strata_ref_record_write(ref, strata_stream_as_meant(stream))
#define strata_last_write_wait(runtime, write, stream) \
    strata_last_write_wait(runtime, write, strata_stream_as_meant(stream))
#endif

#ifdef __cplusplus
}
#endif

#endif
