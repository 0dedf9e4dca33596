/* The checker of the simulated driver: finds uses of the same memory without an order; strata/sim.h includes this.
 *
 * The checker follows the order that the program requested: stream order, events, the implicit order of the legacy
 * stream, graphs, waits for values in memory, and waits of the host. Two operations that touch the same bytes, at least
 * one of them writing, must be ordered by it; the order in which they happened to run does not matter. One run, under
 * any policy, therefore shows every missing edge on the path that the program took, once all its work has run:
 * synchronize before reading the reports. Memory mapped at several addresses (cuMemMap) is the same bytes at each.
 *
 * Waits for values (cuStreamWaitValue32 and its siblings) give an order that depends on the run. A wait follows the
 * writes to its word that were submitted before it (cuStreamWriteValue32 and its siblings), and the write that released
 * it, submitted before or after: the first write, since the wait became current, that satisfies it. Which write that is
 * may differ between runs, and the reports with it. The author of a value that a kernel, a copy or the host wrote is
 * unknown: such a wait follows what the host knew when the wait ended, and the work after it is not reported against
 * what was submitted after that work and before that moment. A free counts from its call even if it waits for a value:
 * a use submitted later is a use after free. The host learns nothing by reading such a word.
 *
 * The environment, read once by cuInit:
 *
 * - STRATA_SIM_CHECK: 1: on; 0: off (default); or a comma-separated list of unwritten, pages, host-functions, frees,
 * no-stacks
 * - STRATA_SIM_CHECK_FILE: file to which reports are appended; %p: process; default: standard error
 * - STRATA_SIM_CHECK_EXIT: 1 to 255: exit status of the process if there were reports
 *
 * If STRATA_SIM_CHECK turns the checker on, or another of these is set, each report is written when it is found, and
 * repetitions and the number of reports at exit. A process that ends without exit (abort, a signal, _exit) has written
 * its reports, but keeps its own status.
 *
 * The host. The driver does not see how threads are ordered, so the checker treats them as one: what any thread waited
 * for (cuStreamSynchronize, cuEventSynchronize, cuCtxSynchronize, a blocking copy, or a query that answered
 * CUDA_SUCCESS) precedes whatever any thread submits afterwards. A host function may signal a thread, and a thread may
 * release a host function: when a host function begins, its predecessors count as known to the host, and a host access
 * is never reported against work that waits for a host function that has not returned. The mode host-functions drops
 * these two allowances. */
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

    /* Also reports reads of device memory that was never written. */
    STRATA_SIM_CHECK_UNWRITTEN = 0x02,

    /* Watches pinned memory allocated from now on: its pages are protected, and the host's first access to a page after
     * work on that memory was submitted is caught (SIGSEGV, passed on otherwise) and checked like a declared one, for
     * the allocation's part of the page. Accesses by the operating system's kernel (read, write) fail with EFAULT on a
     * protected page; an access by a thread that blocks SIGSEGV ends the process. Only before memory is allocated. */
    STRATA_SIM_CHECK_PAGES = 0x04,

    /* A host function signals other threads only through strata_sim_host_signals, and is released by none. */
    STRATA_SIM_CHECK_HOST_FUNCTIONS = 0x08,

    STRATA_SIM_CHECK_NO_STACKS = 0x10, /* no call stacks: faster */

    /* cuMemFree of memory that is not stream-ordered, cuMemFreeHost and cuMemHostUnregister wait for all work of their
     * context before they free. In this mode that wait orders nothing: what the program did not wait for itself is
     * reported, at that free and later. Such frees break when a program moves to stream-ordered memory. */
    STRATA_SIM_CHECK_FREES = 0x20
} strata_sim_check_mode;

/* Turns the checker on with these modes, or off (0), at any time, overriding the environment. Turning it off discards
 * everything but the reports. Memory that exists when it is turned on counts as written and complete. */
CUresult strata_sim_set_check(uint32_t modes);

/* Declares a read or write of pinned or simulated device memory by the host: call it beside the access. In a host
 * function it is the function's access. No effect while the checker is off. CUDA_ERROR_NOT_INITIALIZED before cuInit.
 */
CUresult strata_sim_host_read(const void *address, size_t bytes);
CUresult strata_sim_host_write(const void *address, size_t bytes);

/* In a host function, with STRATA_SIM_CHECK_HOST_FUNCTIONS: the function is about to signal a thread, so its
 * predecessors and its own accesses so far are known to the host from now on. Elsewhere CUDA_ERROR_NOT_PERMITTED. */
CUresult strata_sim_host_signals(void);

typedef enum strata_sim_report_kind {
    STRATA_SIM_REPORT_WRITE_READ = 0, /* a read that is not ordered after a write */
    STRATA_SIM_REPORT_READ_WRITE = 1, /* a write that is not ordered after a read */
    STRATA_SIM_REPORT_WRITE_WRITE = 2,
    STRATA_SIM_REPORT_USE_BEFORE_ALLOCATION = 3,
    STRATA_SIM_REPORT_USE_AFTER_FREE = 4,
    STRATA_SIM_REPORT_FREE_IN_USE = 5, /* a free or unmapping that is not ordered after a use */
    STRATA_SIM_REPORT_OUTSIDE = 6,     /* bytes of no allocation */
    STRATA_SIM_REPORT_UNWRITTEN = 7
} strata_sim_report_kind;

/* An operation in a report. */
typedef struct strata_sim_party {
    const char *entry; /* the driver function that submitted it, or the host's access; NULL: none */
    uint64_t order;    /* position in the order of submission */
    uint64_t stream;   /* as of cuStreamGetId; 0: the host or a graph */
} strata_sim_party;

typedef struct strata_sim_report {
    uint32_t size; /* of this struct; members may be added at the end */
    strata_sim_report_kind kind;
    uint64_t address; /* the bytes in question */
    uint64_t bytes;
    strata_sim_party first; /* in the order of submission */
    strata_sim_party second;
    uint64_t times;   /* how often it was found with the same call stacks */
    const char *text; /* several lines, with both call stacks */
} strata_sim_report;

/* Reports that differ in kind or in the origin of the two operations. The first thousand are kept, further ones
 * counted. Strings are valid until the reports are cleared. CUDA_ERROR_INVALID_VALUE: no such report. */
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
     * CUDA_SUCCESS); and those of them that ordered nothing new: a wait for what the legacy stream's order, another
     * wait or the host's knowledge had ordered, or a record without work since the event's last one. Since cuInit,
     * outside captures. Counted without the checker too; a host function that begins then signals nothing to the host.
     */
    uint64_t edges;
    uint64_t idle_edges;
} strata_sim_check_accounts;
CUresult strata_sim_get_check_accounts(strata_sim_check_accounts *accounts);

typedef CUresult (*PFN_strata_sim_set_check)(uint32_t modes);
typedef CUresult (*PFN_strata_sim_host_read)(const void *address, size_t bytes);
typedef CUresult (*PFN_strata_sim_host_write)(const void *address, size_t bytes);
typedef CUresult (*PFN_strata_sim_host_signals)(void);
typedef CUresult (*PFN_strata_sim_get_report_count)(uint64_t *count);
typedef CUresult (*PFN_strata_sim_get_report)(uint64_t index, strata_sim_report *report);
typedef CUresult (*PFN_strata_sim_clear_reports)(void);
typedef CUresult (*PFN_strata_sim_set_report_callback)(strata_sim_report_callback callback, void *data);
typedef CUresult (*PFN_strata_sim_get_check_accounts)(strata_sim_check_accounts *accounts);

#ifdef __cplusplus
}
#endif

#endif
