/* `guard`, the debugging layer: finds writes before and behind a block, writes to a freed block, and frees that should
 * not be, without stopping a stream. Text:
 *
 * - guard(zone=SIZE, poison=on|off, quarantine_bytes=SIZE, quarantine_blocks=N, quarantine=on|off, stacks=on|off,
 *   kernel=on|off, debuggers=on|off, on_finding=report|fail|exit)
 *
 * Each block lies between two red zones. A fresh block is filled with 0xcd, a red zone with 0xbd, a freed block with
 * 0xdd, all in the order of the stream that allocates or frees. A freed block stays in quarantine until there are more
 * bytes or blocks in it than allowed; only then is it given to the layer below. Zones are looked at when a block was
 * freed and when it leaves the quarantine, freed blocks when they leave it, all of them by strata_guard_check: by a
 * kernel on a stream of the guard's own, many at a time, or by plain copies where that cannot be loaded.
 *
 * What is found comes later than its cause. It goes to options.on_finding_call, or else to the log callback, as
 * STRATA_ERROR_CORRUPTED, on the thread whose call found it: any allocation, free, reap or trim, or
 * strata_guard_check. It is kept, too, for strata_guard_take_finding. Each is told once. Where a layer only tries
 * something whose errors it keeps to itself, the log callback hears of what was found when the try is over.
 *
 * A guard that was made from a stack text and whose stack was not ended looks once more when the process exits, in an
 * exit handler, for two seconds at most; the exiting thread tells what it found. docs/layers/guard.md has the rest.
 *
 * The layer below must track uses (STRATA_CAPABILITY_USE_TRACKING).
 *
 * For production there is the sampling mode:
 *
 * - guard(sample=N, sample_blocks=N, sample_bytes=SIZE, sample_range=SIZE, sample_alignment=SIZE, sample_seed=N,
 *   stacks=on|off, on_finding=report|fail|exit)
 *
 * One allocation in N, chosen at random, gets a mapping of its own which ends where the block ends, and which is
 * unmapped once it was freed and nothing can touch it any more. The device itself then stops at an access past the end,
 * or after the free: the driver answers CUDA_ERROR_ILLEGAL_ADDRESS to whatever it is asked next, for good, and the
 * error that Strata makes of it names the sampled blocks that could be meant. All other allocations pass through: no
 * zones, no poison, no quarantine. A sampled block is a block like any other to the layers above; those below do not
 * see it. What cannot be sampled, for want of memory or addresses or beyond the limits, is allocated as ever, and
 * counted. */
#ifndef STRATA_GUARD_H
#define STRATA_GUARD_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_guard_kind {
    STRATA_GUARD_OVERRUN = 0,      /* bytes behind the block changed; the first past the requested ones counts */
    STRATA_GUARD_UNDERRUN,         /* bytes before the block changed */
    STRATA_GUARD_WRITE_AFTER_FREE, /* bytes of a freed block changed */
    STRATA_GUARD_DOUBLE_FREE,      /* a freed block was freed again; the free was refused */
    STRATA_GUARD_FOREIGN_FREE,     /* something was freed that is no block of this stack; refused, too */
    STRATA_GUARD_ILLEGAL_ACCESS,   /* the device was stopped, and this sampled block could be why: one of several */
} strata_guard_kind;

#define STRATA_GUARD_BYTES_SHOWN 32

typedef struct strata_guard_finding {
    uint32_t size; /* of this struct; members may be added at the end */
    strata_guard_kind kind;
    strata_block block; /* as its user had it, identity included; of a foreign free, what was given */
    bool freed;         /* it had been freed when this was found */
    int64_t offset;     /* of the first changed byte, from block.address: negative before the block */
    uint64_t changed;   /* bytes that were found changed there, at least: a large block is checked in parts. 0 of a
                           refused free */
    uint8_t expected;   /* what they were */
    uint8_t shown;      /* how many bytes `found` has */
    uint8_t found[STRATA_GUARD_BYTES_SHOWN]; /* from the first changed byte on */
    uint32_t allocated_at;                   /* call stacks, for strata_guard_finding_print; 0: not known */
    uint32_t freed_at;
    uint32_t found_at; /* of a free that was refused */
} strata_guard_finding;

/* Receives a finding on the thread that found it, with no lock of Strata's held, and nobody waits for it: it may take
 * locks of the program's. It may call Strata, but not the stack that the finding comes from. Errors of such calls are
 * its own: when it returns, the thread's last error is what it was before. */
typedef void (*strata_guard_callback)(const strata_guard_finding *finding, void *data);

typedef enum strata_guard_action {
    STRATA_GUARD_REPORT = 0, /* tell the callback, or the log callback */
    STRATA_GUARD_FAIL, /* that, and the next allocation fails with STRATA_ERROR_CORRUPTED, once for all found until then
                        */
    STRATA_GUARD_EXIT, /* that, and a report on standard error; then the process ends with status 86, without exit
                          handlers. What it had buffered of its own output is lost. Found at the exit of the process,
                          the status is the same, and its exit handlers run and its output is written */
} strata_guard_action;

#define STRATA_GUARD_EXIT_STATUS 86

/* All zero is the default. */
typedef struct strata_guard_options {
    uint32_t size;              /* sizeof(strata_guard_options), or 0 */
    uint64_t zone;              /* bytes of each red zone, rounded up to 256, at most 64 KiB; 0: 256 */
    uint64_t quarantine_bytes;  /* most bytes in quarantine; 0: 256 MiB */
    uint64_t quarantine_blocks; /* most blocks in quarantine; 0: 4096 */
    int no_quarantine;          /* 1: blocks leave it as soon as they have been checked */
    int no_poison;              /* 1: red zones only: blocks keep their bytes, writes after a free are not found */
    int no_stacks;              /* 1: no call stacks */
    int no_kernel;              /* 1: check by plain copies */
    int no_debuggers;           /* 1: Valgrind is not told of zones and freed blocks: see docs/layers/guard.md */
    strata_guard_action on_finding;
    strata_guard_callback
        on_finding_call; /* NULL: findings go to the log callback; not for stack texts, like the next */
    void *on_finding_data;
    uint64_t sample; /* N: one allocation in N is sampled, and nothing else here but no_stacks and on_finding
                        applies; 0: none, at most 2^31 */
    uint64_t
        sample_blocks;     /* most sampled blocks at a time, freed ones that are mapped included; 0: 64, at most 4096 */
    uint64_t sample_bytes; /* most bytes of their mappings; 0: 256 MiB */
    uint64_t sample_range; /* bytes of addresses that are reserved for them; 0: 64 GiB. A freed block's are not used
                              again before as many were */
    uint64_t sample_alignment; /* what their addresses are a multiple of where a request asks for less: a power of two,
                                  at most 256; 0: 256 */
    uint64_t sample_seed;      /* chooses the same allocations in each run; 0: others in each */
} strata_guard_options;

/* Makes a guard for the device `ordinal`, to be built into a stack. NULL options are the defaults. It takes two streams
 * and some pinned memory of the device at once, with `sample` one of each when the first block is sampled. Errors:
 * INVALID_VALUE, OUT_OF_HOST_MEMORY, OUT_OF_MEMORY (pinned memory), DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_guard_create(int ordinal, const strata_guard_options *options, strata_resource **out);

/* Checks every red zone and every block in quarantine after the uses that were noted of each, and waits on the host for
 * the outcome. What other threads allocate and free meanwhile need not be looked at. A sampling guard waits for what
 * was freed, and asks whether the device was stopped. `resource` is the guard or any layer above it, such as the top of
 * the stack; where there are several guards from there on, the first one is checked alone. *findings, which may be
 * NULL, is how many it found since the last call, by whichever call. Any thread.
 *
 * Errors: CORRUPTED if there were any, and the thread's error record says how many; INVALID_VALUE (no guard at
 * or below `resource`); and where something could not be checked, what the driver answered. */
STRATA_API strata_status strata_guard_check(strata_resource *resource, size_t *findings);

/* Takes the oldest of the findings that are kept, the first 64 that were not taken yet, from the guard that
 * strata_guard_check would check. False if there is none. Any thread. */
STRATA_API bool strata_guard_take_finding(strata_resource *resource, strata_guard_finding *out);

/* Writes the blocks of each sampling guard that an illegal access could be about, the newest first, freed and live by
 * turns: all live ones, and at least the last 256 freed ones. Each as strata_guard_finding_print does, but called a
 * "suspect", as nobody asks here whether there was such an access. For a program
 * that is told CUDA_ERROR_ILLEGAL_ADDRESS by a call of its own. `resource` is the guard or any layer above it, another
 * guard included; without a sampling guard nothing is written. Any thread; it asks the driver nothing. */
STRATA_API void strata_guard_fault_candidates_print(strata_resource *resource, strata_write_callback write, void *data);

/* Writes a finding as text of several lines: block, tag, generation, the changed bytes in hexadecimal, and where the
 * block was allocated and freed. Any thread, at any time. */
STRATA_API void strata_guard_finding_print(const strata_guard_finding *finding, strata_write_callback write,
                                           void *data);

#ifdef __cplusplus
}
#endif

#endif
