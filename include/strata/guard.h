/* `guard`: a debugging layer that finds writes before and behind a block, writes to a freed block, and invalid frees,
 * without synchronizing a stream. Text:
 *
 * - guard(zone=SIZE, poison=on|off, quarantine_bytes=SIZE, quarantine_blocks=N, quarantine=on|off, stacks=on|off,
 *   kernel=on|off, debuggers=on|off, on_finding=report|fail|exit)
 *
 * Each block lies between two red zones. A fresh block is filled with 0xcd, a red zone with 0xbd, a freed block with
 * 0xdd, in the order of the allocating or freeing stream. A freed block stays in quarantine until the quarantine's
 * bytes or blocks exceed their limit; then it goes to the layer below. Zones are checked when a block is freed and when
 * it leaves the quarantine, freed blocks when they leave it, and all of them by strata_guard_check: by a kernel on a
 * stream of the guard, in batches, or by copies where the kernel cannot be loaded.
 *
 * Findings come later than their cause. A finding goes to options.on_finding_call, or else to the log callback as
 * STRATA_ERROR_CORRUPTED, on the thread whose call found it: an allocation, free, reap, trim, or strata_guard_check. It
 * is reported once, and kept for strata_guard_take_finding. While a layer suppresses errors, the log callback is called
 * afterwards.
 *
 * A guard of a stack that was made from a text and not ended checks once more at process exit, in an exit handler, for
 * two seconds at most. See docs/layers/guard.md.
 *
 * The layer below must track uses (STRATA_CAPABILITY_USE_TRACKING).
 *
 * The sampling mode is for production:
 *
 * - guard(sample=N, sample_blocks=N, sample_bytes=SIZE, sample_range=SIZE, sample_alignment=SIZE, sample_seed=N,
 *   stacks=on|off, on_finding=report|fail|exit)
 *
 * One allocation in N, chosen at random, gets a mapping of its own. The mapping ends where the block ends, and is
 * unmapped after the free when no work can touch it. An access behind the end or after the free then stops the device:
 * the driver answers CUDA_ERROR_ILLEGAL_ADDRESS from then on, and Strata's error names the sampled blocks that may be
 * the cause. All other allocations pass through unchanged. Layers above see a sampled block like any other; layers
 * below do not see it. An allocation that cannot be sampled, for want of memory or addresses or because of a limit, is
 * served normally and counted. */
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
    STRATA_GUARD_DOUBLE_FREE,      /* a freed block was freed again; refused */
    STRATA_GUARD_FOREIGN_FREE,     /* the freed address or block is not of this stack; refused */
    STRATA_GUARD_ILLEGAL_ACCESS,   /* the device was stopped; this sampled block is a candidate for the cause */
} strata_guard_kind;

#define STRATA_GUARD_BYTES_SHOWN 32

typedef struct strata_guard_finding {
    uint32_t size; /* of this struct; members may be added at the end */
    strata_guard_kind kind;
    strata_block block; /* as its user knew it; of a foreign free, the argument */
    bool freed;         /* freed before the finding */
    int64_t offset;     /* of the first changed byte from block.address; negative before the block */
    uint64_t changed;   /* changed bytes found, at least; 0 for a refused free */
    uint8_t expected;   /* value before the change */
    uint8_t shown;      /* number of bytes in `found` */
    uint8_t found[STRATA_GUARD_BYTES_SHOWN]; /* from the first changed byte on */
    uint32_t allocated_at;                   /* call stacks, for strata_guard_finding_print; 0: unknown */
    uint32_t freed_at;
    uint32_t found_at; /* of a refused free */
} strata_guard_finding;

/* Receives a finding on the thread that found it. Strata holds no lock and no thread waits for the callback, so it may
 * take locks of the program. It may call Strata, except the stack of the finding; such calls do not change the thread's
 * last error. */
typedef void (*strata_guard_callback)(const strata_guard_finding *finding, void *data);

typedef enum strata_guard_action {
    STRATA_GUARD_REPORT = 0, /* call the callback, or the log callback */
    STRATA_GUARD_FAIL, /* also fail the next allocation with STRATA_ERROR_CORRUPTED, once for all findings so far */
    STRATA_GUARD_EXIT, /* also report on standard error and end the process with status 86, without exit handlers or
                          flushing its output. A finding at process exit gives the same status, after exit handlers and
                          output. */
} strata_guard_action;

#define STRATA_GUARD_EXIT_STATUS 86

/* All zero is the default. */
typedef struct strata_guard_options {
    uint32_t size;              /* sizeof(strata_guard_options), or 0 */
    uint64_t zone;              /* bytes of a red zone, rounded up to 256, at most 64 KiB; 0: 256 */
    uint64_t quarantine_bytes;  /* most bytes in quarantine; 0: 256 MiB */
    uint64_t quarantine_blocks; /* most blocks in quarantine; 0: 4096 */
    int no_quarantine;          /* 1: blocks leave it as soon as they were checked */
    int no_poison;              /* 1: red zones only; writes after a free are not found */
    int no_stacks;              /* 1: no call stacks */
    int no_kernel;              /* 1: check by copies */
    int no_debuggers;           /* 1: Valgrind is not told of zones and freed blocks; see docs/layers/guard.md */
    strata_guard_action on_finding;
    strata_guard_callback on_finding_call; /* NULL: the log callback; not settable in texts, like on_finding_data */
    void *on_finding_data;
    uint64_t sample; /* N: sample one allocation in N, at most 2^31; then only no_stacks and on_finding apply of the
                        above; 0: no sampling */
    uint64_t sample_blocks;    /* most sampled blocks, freed ones still mapped included; 0: 64, at most 4096 */
    uint64_t sample_bytes;     /* most bytes of their mappings; 0: 256 MiB */
    uint64_t sample_range;     /* reserved bytes of addresses; 0: 64 GiB. A freed block's addresses are reused after all
                                  others */
    uint64_t sample_alignment; /* alignment where a request asks for less: a power of two, at most 256; 0: 256 */
    uint64_t sample_seed;      /* fixed: the same allocations in each run; 0: random */
} strata_guard_options;

/* Makes a guard for the device with this ordinal, to be built into a stack. NULL options: the defaults. It takes two
 * streams and pinned memory at once; in sampling mode one of each with the first sampled block. Errors: INVALID_VALUE,
 * OUT_OF_HOST_MEMORY, OUT_OF_MEMORY (pinned memory), DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_guard_create(int ordinal, const strata_guard_options *options, strata_resource **out);

/* Checks every red zone and every quarantined block after its recorded uses, and waits on the host for the result.
 * Concurrent allocations and frees may be left out. A sampling guard waits for freed blocks and asks whether the device
 * was stopped. `resource` is the guard or a layer above it; the first guard from there is checked. *findings, which may
 * be NULL, receives the number of findings since the last call. Any thread.
 *
 * Errors: CORRUPTED if there were findings; INVALID_VALUE (no guard at or below `resource`); and the driver's answer
 * where a check failed. */
STRATA_API strata_status strata_guard_check(strata_resource *resource, size_t *findings);

/* Takes the oldest kept finding from the guard that strata_guard_check would check. The first 64 untaken findings are
 * kept. False if there is none. Any thread. */
STRATA_API bool strata_guard_take_finding(strata_resource *resource, strata_guard_finding *out);

/* Writes the sampled blocks that may be the cause of an illegal access, for a program whose own call answered
 * CUDA_ERROR_ILLEGAL_ADDRESS: newest first, freed and live alternating, all live ones and at least the last 256 freed
 * ones, in the form of strata_guard_finding_print. `resource` is the guard or a layer above it; nothing is written
 * without a sampling guard. Any thread; makes no driver call. */
STRATA_API void strata_guard_fault_candidates_print(strata_resource *resource, strata_write_callback write, void *data);

/* Deprecated name, for one version. */
#define strata_guard_suspects_print strata_guard_fault_candidates_print

/* Writes a finding as text of several lines: block, tag, generation, the changed bytes in hexadecimal, and where the
 * block was allocated and freed. Any thread, at any time. */
STRATA_API void strata_guard_finding_print(const strata_guard_finding *finding, strata_write_callback write,
                                           void *data);

#ifdef __cplusplus
}
#endif

#endif
