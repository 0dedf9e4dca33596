/* Blocks: ranges of memory with an identity that outlives them. */
#ifndef STRATA_BLOCK_H
#define STRATA_BLOCK_H

#include <strata/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A name for the purpose of memory, interned for the life of the process; 0: no tag. */
typedef uint32_t strata_tag;

/* Interns `name` (at most 255 bytes). Equal names give equal tags. Errors: OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_tag_intern(const char *name, strata_tag *tag);

/* "" for 0 and an unknown tag. Lives as long as the process. */
STRATA_API const char *strata_tag_name(strata_tag tag);

/* The calling thread's tag, 0 at first, is for code that allocates on behalf of a program and is given no tag by it:
 * the Python module, allocators of other libraries. Such code puts strata_tag_current() into its requests; a request
 * itself that names no tag has none. *previous, if not NULL: the tag before. Never fails. */
STRATA_API strata_status strata_tag_enter(strata_tag tag, strata_tag *previous);
STRATA_API strata_tag strata_tag_current(void);

/* The identity of a block: its entry in the stack's table of blocks, and its generation there. No generation is used
 * twice, so a stale identity is always recognised. */
typedef struct strata_block_id {
    uint32_t table;
    uint32_t slot;
    uint64_t generation; /* 0 names no block */
} strata_block_id;

/* A block's facts, fixed at its allocation; copies are valid as long as the identity. An allocation of zero bytes gives
 * an empty block: all zero; freeing it does nothing. */
typedef struct strata_block {
    CUdeviceptr address;
    size_t bytes; /* usable, at least `requested` */
    size_t requested;
    size_t alignment; /* of the address, a power of two */
    int device;       /* ordinal */
    strata_tag tag;
    CUstream stream; /* the allocation stream; the handle may be dead */
    strata_block_id id;
} strata_block;

typedef enum strata_block_state {
    STRATA_BLOCK_FREED = 0,   /* the memory is free, or the identity is stale */
    STRATA_BLOCK_LIVE,        /* allocated */
    STRATA_BLOCK_RETIRED,     /* freed in stream order, not known to be complete, not reused */
    STRATA_BLOCK_QUARANTINED, /* freed by its user and held by a layer */
} strata_block_state;

typedef enum strata_access {
    STRATA_ACCESS_NONE = 0, /* finish only: not submitted */
    STRATA_ACCESS_READ = 1,
    STRATA_ACCESS_WRITE = 2,
    STRATA_ACCESS_READ_WRITE = 3,
} strata_access;

#ifdef __cplusplus
}
#endif

#endif
