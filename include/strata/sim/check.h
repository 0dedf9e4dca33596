/* The checker of the simulated driver: finds uses of the same memory that nothing orders; strata/sim.h includes this.
 *
 * It follows the order that the program asked for: a stream's order, events, the legacy stream's implicit order,
 * graphs, waits for values in memory, and what the host waited for. Two operations that touch the same bytes, one of
 * them writing, must come one after the other by that order; whether they happened to run one after the other does not
 * matter. So one run, under any policy, shows every edge that is missing on the path that the program took, once all
 * its work has run: synchronize before you look. Memory that is mapped at several addresses (cuMemMap) is the same
 * bytes at each.
 *
 * Waits for values (cuStreamWaitValue32 and its like) give an order that depends on the run. A wait comes after
 * the writes to its word that streams were given before it (cuStreamWriteValue32 and its like), and after the write
 * that let it go on, submitted before or after: that is the first one, since the turn of the wait came, that satisfies
 * it. Which one that is, where several would do, may differ from run to run, and the reports with it. A value that a
 * kernel, a copy or the host wrote has no author that is known: such a wait comes after what the host knew when the
 * wait was over, and the work behind it is not held against what was submitted after that work and before that moment.
 * A free counts from the call also if it waits for a value: a use that is submitted after it is a use after the free.
 * The host that reads such a word by itself learns nothing.
 *
 * The environment, read once by cuInit:
 *   STRATA_SIM_CHECK       1: on; 0: off (default); or, separated by commas, any of: unwritten, pages, host-functions,
 *                          frees, no-stacks
 *   STRATA_SIM_CHECK_FILE  where reports are written, behind what is there; %p in the name is the process; default:
 *                          standard error
 *   STRATA_SIM_CHECK_EXIT  1 to 255: with this status the process exits if there were reports
 * If STRATA_SIM_CHECK turns the checker on, or one of the other two is set, each report is written when it is found,
 * and at exit what was found again and how many there are. A process that ends without exit (abort, a signal, _exit)
 * has written its reports, but keeps its own status.
 *
 * What counts for the host. The driver does not see how threads order themselves; so the host is taken for one: what
 * any thread waited for (cuStreamSynchronize, cuEventSynchronize, cuCtxSynchronize, a copy that waits, or a query that
 * answered CUDA_SUCCESS) counts for whatever any thread submits afterwards. Likewise a host function may tell a thread
 * that it runs, by a semaphore or a flag, and a thread may let one go on: when a host function begins, what comes
 * before it counts as known to the host, and an access of the host is never reported against work that waits behind a
 * host function that has not returned. The mode host-functions drops these two allowances. */
#ifndef STRATA_SIM_CHECK_H_PUBLIC
#define STRATA_SIM_CHECK_H_PUBLIC

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* To be or-ed. */
typedef enum strata_sim_check_mode {
    STRATA_SIM_CHECK_OFF = 0,
    STRATA_SIM_CHECK_ON = 0x01, /* implied by the others */

    /* Also reports reads of device memory that nobody wrote. */
    STRATA_SIM_CHECK_UNWRITTEN = 0x02,

    /* Pinned memory that is allocated from now on is watched: its pages are protected, and the first access of the host
     * to a page after work on that memory was submitted is caught (SIGSEGV, passed on if it is not ours) and checked
     * like a declared one, for the part of the allocation in that page. Accesses by the kernel of the operating system
     * (read, write) cannot be caught and fail with EFAULT on a protected page; nor can those of a thread that blocks
     * SIGSEGV, which end the process. Only before memory is allocated. */
    STRATA_SIM_CHECK_PAGES = 0x04,

    /* A host function tells other threads nothing, unless it says so (strata_sim_host_signals), and hears nothing. */
    STRATA_SIM_CHECK_HOST_FUNCTIONS = 0x08,

    STRATA_SIM_CHECK_NO_STACKS = 0x10, /* no call stacks: faster */

    /* cuMemFree of memory that is not stream-ordered, cuMemFreeHost and cuMemHostUnregister wait for all work of their
     * context before they free. In this mode that wait orders nothing: what the program did not wait for itself is
     * reported, at that free and later. Such frees are the ones that break when a program goes over to stream-ordered
     * memory. */
    STRATA_SIM_CHECK_FREES = 0x20
} strata_sim_check_mode;

/* Turns the checker on, with these modes, or off (0), at any time; it wins over the environment. Turning it off forgets
 * all but the reports. Turning it on while there is memory takes that memory as written and done with. */
CUresult strata_sim_set_check(uint32_t modes);

/* The host reads, or writes, these bytes of pinned or simulated device memory: call it beside the access. In a host
 * function it is the function's access. Nothing happens while the checker is off. CUDA_ERROR_NOT_INITIALIZED before
 * cuInit. */
CUresult strata_sim_host_read(const void *address, size_t bytes);
CUresult strata_sim_host_write(const void *address, size_t bytes);

/* In a host function, with STRATA_SIM_CHECK_HOST_FUNCTIONS: what comes before the function, and what it did so far, is
 * known to the host from now on, because the function is about to tell a thread. Elsewhere CUDA_ERROR_NOT_PERMITTED. */
CUresult strata_sim_host_signals(void);

typedef enum strata_sim_report_kind {
    STRATA_SIM_REPORT_WRITE_READ = 0, /* a read that does not come after a write */
    STRATA_SIM_REPORT_READ_WRITE = 1, /* a write that does not come after a read */
    STRATA_SIM_REPORT_WRITE_WRITE = 2,
    STRATA_SIM_REPORT_USE_BEFORE_ALLOCATION = 3,
    STRATA_SIM_REPORT_USE_AFTER_FREE = 4,
    STRATA_SIM_REPORT_FREE_IN_USE = 5, /* a free, or an unmapping, that does not come after a use */
    STRATA_SIM_REPORT_OUTSIDE = 6,     /* bytes of no allocation */
    STRATA_SIM_REPORT_UNWRITTEN = 7
} strata_sim_report_kind;

/* An operation of a report. */
typedef struct strata_sim_party {
    const char *entry; /* the driver's function that it was submitted with, or the host's access; NULL: there is none */
    uint64_t order;    /* counts what the checker saw, in the order of submission */
    uint64_t stream;   /* its id, as of cuStreamGetId; 0: the host, or a graph's */
} strata_sim_party;

typedef struct strata_sim_report {
    uint32_t size; /* of this struct; members may be added at the end */
    strata_sim_report_kind kind;
    uint64_t address; /* the bytes in question */
    uint64_t bytes;
    strata_sim_party first; /* in the order of submission */
    strata_sim_party second;
    uint64_t times;   /* how often it was found, with the same call stacks */
    const char *text; /* several lines, with both call stacks */
} strata_sim_report;

/* Reports that differ in their kind or in where the two operations come from. The first thousand are kept, the rest is
 * counted. Strings are good until the reports are cleared. CUDA_ERROR_INVALID_VALUE if there is no such report. */
CUresult strata_sim_get_report_count(uint64_t *count);
CUresult strata_sim_get_report(uint64_t index, strata_sim_report *report);
CUresult strata_sim_clear_reports(void);

/* Called for each new report, with the simulated driver locked: it must not call CUDA or a strata_sim_ function. */
typedef void (*strata_sim_report_callback)(const strata_sim_report *report, void *data);
CUresult strata_sim_set_report_callback(strata_sim_report_callback callback, void *data);

/* What the checker holds. */
typedef struct strata_sim_check_accounts {
    uint64_t bytes;       /* of all that follows, and of clocks */
    uint64_t operations;  /* remembered, host accesses included */
    uint64_t ranges;      /* of bytes with one history */
    uint64_t allocations; /* live, and freed ones that are remembered */
    uint64_t seen;        /* operations and host accesses since the checker was turned on */

    /* Records of events, and waits that streams or the host made (cuStreamWaitEvent, synchronizations, queries that
     * answered CUDA_SUCCESS); and those of them that ordered nothing that was not ordered already: a wait for what the
     * legacy stream's order, another wait or the host's knowledge has ordered, a record with no work since the event's
     * last one. Since cuInit, outside captures; counted without the checker, too, but then a host function that begins
     * tells the host nothing. */
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
