/* The checker of the simulated driver: finds uses of the same memory without an order; strata/sim.h includes this.
 * docs/testing-your-code.md has the variables of the environment, read once by cuInit; STRATA_SIM_CHECK_EXIT is 1 to
 * 255.
 *
 * The checker follows the order that the program requested: stream order, events, the implicit order of the legacy
 * stream, graphs, waits for values in memory, and waits of the host. Two operations that touch the same bytes, at least
 * one of them writing, must be ordered by it, whatever the order in which they ran. One run, under any policy, shows
 * every missing edge on its path, once all its work has run: synchronize before reading the reports. Memory mapped at
 * several addresses (cuMemMap) is the same bytes.
 *
 * A wait for a value (cuStreamWaitValue32 and its siblings), or a poll by the host, comes after the writes whose bytes
 * it found and what comes before these. All that it may have found at any moment counts, in whichever order work ran:
 * values, copies, fills, kernels, the host, submitted before or after it, if their bytes together satisfy it and no
 * write that surely came between replaced them. What is common to all of these comes before the wait, and nothing else.
 * docs/testing-your-code.md lists what cannot be known, and what is assumed instead. The bytes of a value are in no
 * race with the wait, nor with the host. A free counts from its call even if it waits for a value.
 *
 * The driver does not see how the host's threads are ordered, so they count as one: what any thread waited for (a
 * synchronization, a blocking copy, or a query that answered CUDA_SUCCESS) precedes whatever any thread submits
 * afterwards. A host function may signal a thread, and a thread may release a host function: when one begins, its
 * predecessors count as known to the host, and a host access is never reported against work that waits for one that has
 * not returned. The mode host-functions drops these two allowances. */
#ifndef STRATA_SIM_CHECK_H_PUBLIC
#define STRATA_SIM_CHECK_H_PUBLIC

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bits. */
typedef enum strata_sim_check_mode {
    STRATA_SIM_CHECK_OFF = 0,
    STRATA_SIM_CHECK_ON = 0x01, /* implied by the other bits */

    /* Also reports reads of device memory never written. */
    STRATA_SIM_CHECK_UNWRITTEN = 0x02,

    /* Watches pinned memory allocated from now on: the host's first access to a page after work on that memory was
     * submitted is caught (SIGSEGV, passed on otherwise) and checked like a declared one, for the allocation's part of
     * the page. Accesses by the operating system's kernel (read, write) to a protected page fail with EFAULT; one by a
     * thread that blocks SIGSEGV ends the process. Only before memory is allocated. */
    STRATA_SIM_CHECK_PAGES = 0x04,

    /* A host function signals other threads only through strata_sim_host_signals, and is released by none. */
    STRATA_SIM_CHECK_HOST_FUNCTIONS = 0x08,

    STRATA_SIM_CHECK_NO_STACKS = 0x10, /* faster */

    /* cuMemFree of memory that is not stream-ordered, cuMemFreeHost and cuMemHostUnregister wait for all work of their
     * context. In this mode that wait orders nothing: what the program did not wait for itself is reported, at that
     * free and later. */
    STRATA_SIM_CHECK_FREES = 0x20,

    /* Memory that was allocated since the checker was turned on, and is not freed when its context or the process ends,
     * is reported then: one report for each place of the program. */
    STRATA_SIM_CHECK_LEAKS = 0x40
} strata_sim_check_mode;

/* Turns the checker on with these modes, or off (0), at any time, overriding the environment. Off discards all but the
 * reports. Memory that exists when it is turned on counts as written and complete. */
CUresult strata_sim_set_check(uint32_t modes);

/* Declares a read or write of pinned or simulated device memory by the host, or by a host function inside it: call it
 * beside the access. No effect while the checker is off. CUDA_ERROR_NOT_INITIALIZED before cuInit. */
CUresult strata_sim_host_read(const void *address, size_t bytes);
CUresult strata_sim_host_write(const void *address, size_t bytes);

/* In a host function, with STRATA_SIM_CHECK_HOST_FUNCTIONS: the function is about to signal a thread; its predecessors
 * and accesses so far are known to the host from now on. Elsewhere CUDA_ERROR_NOT_PERMITTED. */
CUresult strata_sim_host_signals(void);

/* Reads 4 or 8 bytes, aligned to their size, and compares them with `value` as cuStreamWaitValue32 does with these
 * `flags`. CUDA_SUCCESS: the host found what it polls for, and comes after the writes that could have brought it, as a
 * stream does after such a wait. CUDA_ERROR_NOT_READY: not yet; like an unsuccessful cuStreamQuery, it lets work run
 * sooner or later. Works without the checker, too. CUDA_ERROR_INVALID_VALUE: no memory that streams could wait for, or
 * wrong arguments. CUDA_ERROR_NOT_PERMITTED: in a host function. */
CUresult strata_sim_host_poll(const void *address, size_t bytes, uint64_t value, unsigned flags);

typedef enum strata_sim_report_kind {
    STRATA_SIM_REPORT_WRITE_READ = 0, /* a read not ordered after a write */
    STRATA_SIM_REPORT_READ_WRITE = 1, /* a write not ordered after a read */
    STRATA_SIM_REPORT_WRITE_WRITE = 2,
    STRATA_SIM_REPORT_USE_BEFORE_ALLOCATION = 3,
    STRATA_SIM_REPORT_USE_AFTER_FREE = 4,
    STRATA_SIM_REPORT_FREE_IN_USE = 5, /* a free or unmapping not ordered after a use */
    STRATA_SIM_REPORT_OUTSIDE = 6,     /* bytes of no allocation */
    STRATA_SIM_REPORT_UNWRITTEN = 7,
    STRATA_SIM_REPORT_LEAK = 8 /* memory that was never freed */
} strata_sim_report_kind;

typedef struct strata_sim_party {
    const char *entry; /* the submitting driver function, or the host's access; NULL: none */
    uint64_t order;    /* of submission */
    uint64_t stream;   /* as cuStreamGetId; 0: the host or a graph */
} strata_sim_party;

typedef struct strata_sim_report {
    uint32_t size; /* of this struct; members may be added at the end */
    strata_sim_report_kind kind;
    uint64_t address;       /* in question */
    uint64_t bytes;         /* of a leak: of all allocations from that place */
    strata_sim_party first; /* by order of submission; of a leak: the allocation */
    strata_sim_party second;
    uint64_t times;   /* how often, with the same call stacks; of a leak: allocations */
    const char *text; /* with both call stacks */
} strata_sim_report;

/* Reports, one for each kind and pair of origins; the first thousand are kept, further ones counted. Strings are valid
 * until the reports are cleared. CUDA_ERROR_INVALID_VALUE: no such report. */
CUresult strata_sim_get_report_count(uint64_t *count);
CUresult strata_sim_get_report(uint64_t index, strata_sim_report *report);
CUresult strata_sim_clear_reports(void);

/* Called for each new report with the simulated driver locked: it must not call CUDA or strata_sim_ functions. */
typedef void (*strata_sim_report_callback)(const strata_sim_report *report, void *data);
CUresult strata_sim_set_report_callback(strata_sim_report_callback callback, void *data);

/* Resources of the checker. */
typedef struct strata_sim_check_accounts {
    uint64_t bytes;       /* of all below, and of clocks */
    uint64_t operations;  /* remembered, host accesses included */
    uint64_t ranges;      /* of bytes with one history */
    uint64_t allocations; /* live, and freed ones that are remembered */
    uint64_t seen;        /* operations and host accesses since the checker was turned on */

    /* Event records, and waits of streams or the host (cuStreamWaitEvent, synchronizations, queries that answered
     * CUDA_SUCCESS); idle: those that ordered nothing new. Since cuInit, outside captures; also without the checker,
     * but then a host function that begins signals nothing to the host. */
    uint64_t edges;
    uint64_t idle_edges;
} strata_sim_check_accounts;
CUresult strata_sim_get_check_accounts(strata_sim_check_accounts *accounts);

typedef CUresult (*PFN_strata_sim_set_check)(uint32_t modes);
typedef CUresult (*PFN_strata_sim_host_read)(const void *address, size_t bytes);
typedef CUresult (*PFN_strata_sim_host_write)(const void *address, size_t bytes);
typedef CUresult (*PFN_strata_sim_host_signals)(void);
typedef CUresult (*PFN_strata_sim_host_poll)(const void *address, size_t bytes, uint64_t value, unsigned flags);
typedef CUresult (*PFN_strata_sim_get_report_count)(uint64_t *count);
typedef CUresult (*PFN_strata_sim_get_report)(uint64_t index, strata_sim_report *report);
typedef CUresult (*PFN_strata_sim_clear_reports)(void);
typedef CUresult (*PFN_strata_sim_set_report_callback)(strata_sim_report_callback callback, void *data);
typedef CUresult (*PFN_strata_sim_get_check_accounts)(strata_sim_check_accounts *accounts);

#ifdef __cplusplus
}
#endif

#endif
