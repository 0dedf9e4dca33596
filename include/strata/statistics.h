/* `statistics`: a decorator that counts, and that knows what is live.
 *
 * For bytes and blocks it counts what is live now, the most that was live at a time, and all that was ever allocated:
 * together, by tag, and within scopes that are pushed and popped. Bytes are usable bytes, strata_block.bytes, as usage
 * has them; what was asked for is totalled beside them. Every live block is known with its tag, its stream and, if
 * asked, the call stack that allocated it; a report of what is live groups blocks by that.
 *
 * Text: `statistics(stacks=on, leaks=file, file=leaks-%p.txt), async`. What the layer counts stands in
 * strata_stats_print and, value by value, in strata_control. The functions here take the layer itself:
 * strata_stack_layer(stack, "statistics", 0) finds it.
 *
 * When things count. A block is live from the moment at which its allocation succeeded here until its free did. What
 * is freed in stream order and not complete, by whichever way through the stack, is in retired.bytes. A block has the
 * tag, the size and the call stack of its allocation, whatever the copy says that is passed to the free.
 *
 * Peaks. A peak is exact where one thread alone has used the layer since it was made, since the scope began, or since
 * the peaks were reset. With several threads it is never too low, and too high by at most twice a width for each other
 * one. A width is the largest block among the last 2048 allocations of that thread, or a 64th of what it has live,
 * whichever is more; of blocks, 16 or a 64th. Where a thread met others at the layer's lock lately it is twice as much
 * for each time, up to 64 times.
 *
 * Values that are read while other threads work are of some recent moment, each by itself. */
#ifndef STRATA_STATISTICS_H
#define STRATA_STATISTICS_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of a report of leaks by itself: when the stack, or its runtime, is asked to end while blocks are live,
 * and when the process exits with blocks live. The latter comes after all exit handlers, which may still free blocks;
 * a log callback that cannot be called so late is taken away before with strata_set_log_callback(NULL, NULL), and
 * strata_statistics_leaks reports at any earlier moment. */
typedef enum strata_statistics_leaks_mode {
    STRATA_STATISTICS_LEAKS_OFF = 0, /* nothing */
    STRATA_STATISTICS_LEAKS_LOG,     /* the log callback gets one BUSY for each group, the largest 16 */
    STRATA_STATISTICS_LEAKS_FILE,    /* the report is added to a file, as text */
} strata_statistics_leaks_mode;

typedef struct strata_statistics_options {
    uint32_t size;  /* sizeof(strata_statistics_options), or 0 */
    bool stacks;    /* take the call stack of each allocation */
    int leaks;      /* a strata_statistics_leaks_mode */
    char file[256]; /* for LEAKS_FILE: its path; %p is the process, %% is a %. It is made with the layer and stays
                       empty if nothing leaks. */
} strata_statistics_options;

/* Makes a statistics layer, to be built into a stack. NULL options are the defaults. Any thread. Errors: INVALID_VALUE
 * (a mode that there is not, a file without its mode or the other way round, a % in its name that means nothing), IO
 * (the file cannot be made), OUT_OF_HOST_MEMORY, FORKED. */
STRATA_API strata_status strata_statistics_create(const strata_statistics_options *options, strata_resource **out);

/* Of a scope these are changes since it began, and current can be negative: more was freed than allocated. */
typedef struct strata_statistics_counter {
    int64_t current; /* live */
    int64_t peak;    /* the most that was live at a time */
    int64_t total;   /* ever allocated */
} strata_statistics_counter;

typedef struct strata_statistics_counters {
    strata_statistics_counter bytes;
    strata_statistics_counter blocks;
    int64_t requested; /* total of what was asked for, in bytes: bytes.total less this went to rounding */
} strata_statistics_counters;

/* A scope: 0 is the time since the layer was made, n the n-th of those that are open, and this one the innermost. */
#define STRATA_STATISTICS_INNERMOST UINT32_MAX

/* Reads the counters of all blocks, or of those with one tag, within a scope. *out is zeroed on failure, and zero for
 * a tag that no block ever had. Any thread. Errors: INVALID_VALUE (not a statistics layer, no place, or a scope that is
 * not open), FORKED. */
STRATA_API strata_status strata_statistics_read(strata_resource *statistics, uint32_t scope,
                                                strata_statistics_counters *out);
STRATA_API strata_status strata_statistics_read_tag(strata_resource *statistics, uint32_t scope, strata_tag tag,
                                                    strata_statistics_counters *out);

/* Begins a scope inside of those that are open: all of its counters begin at 0, for all threads and tags. The peaks of
 * the scopes outside go on and have what happens inside, too. Any thread. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY,
 * FORKED. */
STRATA_API strata_status strata_statistics_push(strata_resource *statistics);

/* Ends the innermost scope and writes what it came to, of all blocks, to *out, which may be NULL. Read the tags before.
 * Any thread. Errors: INVALID_VALUE (not a statistics layer, or no scope is open), FORKED. */
STRATA_API strata_status strata_statistics_pop(strata_resource *statistics, strata_statistics_counters *out);

/* Makes every peak, of every tag and scope, what is live now. Any thread. Errors: INVALID_VALUE, FORKED. */
STRATA_API strata_status strata_statistics_reset_peaks(strata_resource *statistics);

/* Allocations by size, since the layer was made: counts[n] had more than 2^(n-1) and at most 2^n usable bytes. Any
 * thread. Errors: INVALID_VALUE, FORKED. */
enum { STRATA_STATISTICS_SIZES = 65 };
STRATA_API strata_status strata_statistics_sizes(strata_resource *statistics, uint64_t counts[STRATA_STATISTICS_SIZES]);

/* How many allocations have failed with `status` since the layer was made, or any of them for SUCCESS. Any thread; 0
 * where there is nothing to read. */
STRATA_API uint64_t strata_statistics_failures(strata_resource *statistics, strata_status status);

/* Calls visit(block, call_stack, data) for each block that is live here, as who allocated it through this layer knows
 * it. `call_stack` is a number, 0 for none. As strata_stack_visit_blocks in everything else, and a block that is being
 * allocated or freed meanwhile may be among them or not. Errors: INVALID_VALUE (also: not part of a stack), FORKED. */
STRATA_API strata_status strata_statistics_visit(
    strata_resource *statistics, void (*visit)(const strata_block *block, uint32_t call_stack, void *data), void *data);

/* Calls line(text, data) for each frame of a call stack, innermost first: "function (file:line)" where libdw is on the
 * machine and the program has debug information, else "function (module)" or "module+0x1234". Call stacks are kept as
 * long as the process. Any thread. */
STRATA_API void strata_statistics_call_stack(uint32_t call_stack, void (*line)(const char *text, void *data),
                                             void *data);

/* Writes a report of what is live: blocks that have call stack and tag in common, or tag and size class where there are
 * no call stacks, in groups, the one with the most bytes first. Any thread. Errors: INVALID_VALUE (also: not part of a
 * stack), OUT_OF_HOST_MEMORY (nothing is written then), FORKED. */
STRATA_API strata_status strata_statistics_leaks(strata_resource *statistics, strata_format format,
                                                 strata_write_callback write, void *data);

#ifdef __cplusplus
}
#endif

#endif
