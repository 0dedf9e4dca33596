/* `guard`: finds writes before and behind a block, writes to a freed block, and invalid frees, without synchronizing a
 * stream (docs/layers/guard.md).
 *
 * Each block lies between two red zones. A fresh block is filled with 0xcd, a red zone with 0xbd, a freed block with
 * 0xdd, in the order of the allocating or freeing stream. Zones are checked when a block is freed and when it leaves
 * the quarantine, freed blocks when they leave it, and all by strata_guard_check. The layer below must track uses
 * (STRATA_CAPABILITY_USE_TRACKING).
 *
 * Findings come later than their cause, once each, on the thread whose call found them: an allocation, free, reap,
 * trim, or strata_guard_check. They go to options.on_finding_call, else to the log callback as STRATA_ERROR_CORRUPTED
 * (afterwards, while a layer suppresses errors), and are kept for strata_guard_take_finding. A guard of a stack made
 * from a text and not ended checks once more in an exit handler, for two seconds at most.
 *
 * Sampling, for production: one allocation in N, at random, gets a mapping of its own that ends where the block ends,
 * and is unmapped after the free when no work can touch it. An access behind the end or after the free stops the
 * device: the driver answers CUDA_ERROR_ILLEGAL_ADDRESS from then on, and Strata's error names the sampled blocks that
 * may be the cause. Layers below do not see a sampled block. What cannot be sampled is served normally and counted. */
#ifndef STRATA_GUARD_H
#define STRATA_GUARD_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_guard_kind {
    STRATA_GUARD_OVERRUN = 0,      /* bytes behind the block changed */
    STRATA_GUARD_UNDERRUN,         /* bytes before the block changed */
    STRATA_GUARD_WRITE_AFTER_FREE, /* bytes of a freed block changed */
    STRATA_GUARD_DOUBLE_FREE,      /* a freed block was freed again, or its address; refused */
    STRATA_GUARD_FOREIGN_FREE,     /* the freed address or block is not of this stack; refused */
    STRATA_GUARD_ILLEGAL_ACCESS,   /* the device was stopped; this sampled block is a candidate for the cause */
} strata_guard_kind;

#define STRATA_GUARD_BYTES_SHOWN 32

typedef struct strata_guard_finding {
    uint32_t size; /* of this struct; members may be added at the end */
    strata_guard_kind kind;
    strata_block block; /* as its user knew it; FOREIGN_FREE: the argument */
    bool freed;
    int64_t offset;   /* of the first changed byte from block.address */
    uint64_t changed; /* bytes found, at least; 0 for a refused free */
    uint8_t expected;
    uint8_t shown;                           /* in `found` */
    uint8_t found[STRATA_GUARD_BYTES_SHOWN]; /* from the first changed byte */
    uint32_t allocated_at;                   /* call stacks, for printing; 0: unknown */
    uint32_t freed_at;
    uint32_t found_at; /* of a refused free */
} strata_guard_finding;

/* Receives a finding on the thread that found it. No lock is held and no thread waits for the callback, so it may take
 * the program's locks. It may call Strata, except this stack; the thread's last error is kept. */
typedef void (*strata_guard_callback)(const strata_guard_finding *finding, void *data);

typedef enum strata_guard_action {
    STRATA_GUARD_REPORT = 0, /* call the callback, or the log callback; without either, write to standard error, unless
                                STRATA_REPORT says otherwise (docs/install.md) */
    STRATA_GUARD_FAIL, /* also fail the next allocation with STRATA_ERROR_CORRUPTED, once for all findings so far */
    STRATA_GUARD_EXIT, /* also report on standard error and end the process with status 86, without exit handlers or
                          flushing its output; a finding at process exit gives that status after both */
} strata_guard_action;

#define STRATA_GUARD_EXIT_STATUS 86

typedef struct strata_guard_options {
    uint32_t size;
    uint64_t zone;              /* bytes of each, rounded up to 256, at most 64 KiB; 0: 256 */
    uint64_t quarantine_bytes;  /* most; 0: 256 MiB */
    uint64_t quarantine_blocks; /* most; 0: 4096 */
    int no_quarantine;          /* 1: blocks leave it once checked */
    int no_poison;              /* 1: red zones only */
    int no_stacks;              /* 1: no call stacks */
    int no_kernel;              /* 1: check by copies */
    int no_debuggers;           /* 1: Valgrind is not told of zones and freed blocks */
    strata_guard_action on_finding;
    strata_guard_callback on_finding_call; /* NULL: the log callback; not in texts, like on_finding_data */
    void *on_finding_data;
    uint64_t sample; /* N: sample one allocation in N, at most 2^31; of the above only no_stacks and on_finding then
                        apply; 0: no sampling */
    uint64_t sample_blocks;    /* most, freed and still mapped ones included; 0: 64, at most 4096 */
    uint64_t sample_bytes;     /* most, of their mappings; 0: 256 MiB */
    uint64_t sample_range;     /* bytes of addresses, of which a freed block's are reused last; 0: 64 GiB */
    uint64_t sample_alignment; /* where a request asks for less: a power of two, at most 256; 0: 256 */
    uint64_t sample_seed;      /* not 0: the same allocations in each run */
} strata_guard_options;

/* Makes the layer. It takes two streams and pinned memory at once; in sampling mode one of each with the first sampled
 * block. Errors: INVALID_VALUE, OUT_OF_MEMORY (pinned memory). Building it into a stack over `null` answers
 * UNSUPPORTED, unless it samples. */
STRATA_API strata_status strata_guard_create(int ordinal, const strata_guard_options *options, strata_resource **out);

/* Checks every red zone and quarantined block after its recorded uses, and waits on the host for the result; concurrent
 * allocations and frees may be left out. A sampling guard waits for freed blocks and asks whether the device was
 * stopped. Takes the first guard from `resource` downwards. *findings, which may be NULL: how many since the last call.
 * Errors: CORRUPTED if there were findings; INVALID_VALUE (no guard); the driver's answer where a check failed. */
STRATA_API strata_status strata_guard_check(strata_resource *resource, size_t *findings);

/* Takes the oldest kept finding from the guard that strata_guard_check would check; false: none. The first 64 untaken
 * are kept. */
STRATA_API bool strata_guard_take_finding(strata_resource *resource, strata_guard_finding *out);

/* Writes the sampled blocks that may be the cause of an illegal access, for a program whose own call met it: newest
 * first, freed and live alternating, all live ones and at least the last 256 freed ones, as strata_guard_finding_print.
 * Nothing without a sampling guard at or below `resource`. Makes no driver call. */
STRATA_API void strata_guard_fault_candidates_print(strata_resource *resource, strata_write_callback write, void *data);

/* Deprecated. */
#define strata_guard_suspects_print strata_guard_fault_candidates_print

/* Writes a finding as text of several lines: block, tag, generation, changed bytes in hexadecimal, and where it was
 * allocated and freed. At any time. */
STRATA_API void strata_guard_finding_print(const strata_guard_finding *finding, strata_write_callback write,
                                           void *data);

#ifdef __cplusplus
}
#endif

#endif
