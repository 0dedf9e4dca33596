/* The happens-before checker: finds two uses of the same bytes that nothing orders.
 *
 * What is judged is the order that the program asked for, not the order in which work happened to run. Every operation
 * is totally ordered by its submission, and gets a point (clock.c) when it is submitted: its place, and everything that
 * comes before it. Two operations race if they touch the same bytes, one of them writes, and neither's point covers the
 * other. Because an edge of any origin, a stream's order, an event, the legacy stream, a graph, is made with
 * sim_op_depend, which joins the point, a new kind of edge needs nothing for the checker. An edge of
 * the driver's own is made with sim_op_await and joins nothing.
 *
 * An *access record* is an operation, or an access or a call of the host, as the checker remembers it: its order
 * number, point, entry point, and call stack. Records of accesses point to records and keep them alive; a record is a
 * few words, and goes with the last record.
 *
 * The host is one more place. Its records are ordered among each other, since the driver cannot see how threads order
 * themselves. Each record of a stream comes after all host records before its submission, and after all that the host
 * knew to be done then, whichever thread had waited; so a record carries the host's clock of that moment. A host record
 * comes only after what the host knows.
 *
 * For each allocation there is a *shadow*: the operations that allocated and freed it, and a map of byte ranges
 * (*cells*), each with its last write and the reads and atomic updates since, those that no later one comes after. What
 * the program maps at several addresses has a shadow for each of them, its *views*: an access is noted where it was
 * made and judged against all of them, since they are the same bytes; an unmapping is judged against its own view,
 * since the others stay. That one record suffices for many holds for each view by itself, and so for all. That is
 * enough for records that come in the order of submission: what does not come after an older write or read does not
 * come after the newer one either, because the newer one was found to come after the older, or was reported. Copies and
 * fills are judged when they are submitted.
 *
 * A kernel says what it touches when it runs, a host function while it runs. Such a record is *pending* from its
 * submission until it is done, and says what it touches late, out of order. Then
 *  - it is judged against what the cells hold all the same, by both points: it may come after a record, before it, or
 *    neither, which is a race;
 *  - it becomes the last write only if none was submitted after it;
 *  - a record that another displaces, and that some pending record is neither known to come before nor after, is kept
 * in the allocation's history until no such record is pending (history.c). So a race between a kernel and a write is
 * found although a later write, which comes after both, has taken the place of the first by the time the kernel runs;
 *  - a shadow that is freed stays, with its cells, while a record is pending that was submitted before the free.
 * Hence for each pair of records the second to say what it touches meets the first, in whichever order they ran.
 *
 * Memory is proportional to what is live: a cell has one write and few reads, cells that are alike
 * coalesce, displaced records are dropped when no pending record needs them, of shadows of freed memory only the last
 * few are kept, and from time to time all records are dropped that the host knows to be done and that every pending
 * record comes after: everything submitted later comes after them.
 *
 * Reads of unwritten bytes are judged when the reading operation runs, when all that comes before it has said
 * what it touches. A cell knows the order number of the first write to it.
 *
 * A use is judged against the allocation that stood at that address when the use was submitted, found by order numbers.
 * Memory that a pool hands on begins a new shadow: what used it before was judged against the free, and the driver
 * keeps the new user after the free, by whatever means.
 *
 * A wait for a value in memory comes after the writes of that value that streams were given before the wait, and after
 * the write that let it go on, which streams may be given later: value_waits.c. So what an operation comes after that
 * was submitted behind a wait that is not over shows only when it runs: it is pending until then, and then says what it
 * touches, as kernels do, and may come after what was submitted later. Frees behind such a wait are judged when they
 * run, too, but count from their submission: what is submitted later and uses the memory comes after the free, though
 * the free waits for it. Allocations behind such a wait are judged like any. Nothing is reported against work behind a
 * wait for a value that has not come.
 *
 * Reports are in report.c, call stacks in report_stack.c, accesses of the host in host_access.c. Everything here is
 * guarded by sim.lock. */
#ifndef STRATA_SIM_CHECK_CHECK_H
#define STRATA_SIM_CHECK_CHECK_H

#include "kernels/kernels.h"
#include <stdio.h>

typedef struct sim_value_word sim_value_word;
typedef struct sim_shadow_cell sim_shadow_cell;
typedef struct sim_component_history sim_component_history;

/* ---- what sim_hooks.check points to; see sim_check_hooks in order.h. Nothing happens while the checker is off. ----
 */

void sim_check_submitting(sim_op *op);
void sim_check_submitted(sim_op *op);
void sim_check_running(sim_op *op);
void sim_check_completed(sim_op *op);
void sim_check_host_function(const sim_op *op);
sim_made sim_check_made(void);
void sim_check_access(sim_op *op, uint64_t address, uint64_t bytes, sim_access_kind touch);
sim_access_record *sim_check_free_asked(void);
void sim_check_allocated(sim_block *block);
void sim_check_freed_now(sim_block *block);
void sim_check_freed_after(sim_block *block, sim_access_record *asked);
void sim_check_forget(sim_block *block);
void sim_check_hidden(sim_block *block);
void sim_check_written(sim_block *block);
bool sim_check_watches_pages(void);
bool sim_check_watch(sim_block *block, uint64_t bytes);
void sim_check_unwatch(sim_block *block);
void sim_check_pages_locked(bool held);

/* ---- host_access.c: accesses of the host ---- */

/* The calling thread, or the host function that it runs, touches these bytes. */
void sim_check_host_access(uint64_t address, uint64_t bytes, sim_access_kind touch);
CUresult sim_host_access_declare(const void *address, size_t bytes, sim_access_kind touch);
void sim_host_pages_close(const sim_op *op); /* submitted: what the host touches now must be seen again */

/* ---- check.c: turning it on and off ---- */

CUresult sim_check_turn_on(uint32_t modes); /* hooks.c */
CUresult sim_check_begin(uint32_t modes);   /* after the hooks are set */
void sim_check_end(void);
void sim_check_give_up(void); /* for want of memory: from then on nothing is known for sure */

/* ---- records ---- */

typedef enum sim_access_record_kind {
    SIM_RECORD_OPERATION, /* of the kind `operation` */
    SIM_RECORD_HOST_READ,
    SIM_RECORD_HOST_WRITE,
    SIM_RECORD_HOST_ALLOCATE, /* calls that allocate and free at once */
    SIM_RECORD_HOST_FREE,
} sim_access_record_kind;

typedef struct sim_late_read sim_late_read;

typedef struct sim_access_record {
    uint32_t references;
    uint32_t stack; /* report_stack.c; 0: none */
    sim_access_record_kind kind;
    sim_op_kind operation;
    sim_queue_kind queue; /* of one in a stream */
    bool in_stream;
    bool pending;
    bool late;                /* judged when it runs, since it waits for a value */
    uint64_t told;            /* when it runs: the order up to which the host may have been what it waited for */
    uint64_t order;           /* in the order of submission, host records included; from 1 */
    sim_point at;             /* its clock is held */
    sim_component *component; /* held; NULL: the host's */
    sim_clock *host_knew;
    sim_op *op;                /* until it is done */
    sim_late_read *late_reads; /* reads that are judged when it runs */
    uint64_t open_when;        /* the moment, by sim_check.pending_changes, of the answer in `open` */
    bool open;
    sim_launched launched;
    const char *entry;  /* the driver's function, a static string; NULL: an access of the host */
    const char *kernel; /* its name, interned; else NULL */
} sim_access_record;

sim_access_record *sim_access_record_hold(sim_access_record *record);
void sim_access_record_drop(sim_access_record *record);
sim_access_record *
sim_access_record_of_host(sim_access_record_kind kind); /* now; held for the caller; NULL without memory */

/* By what the program asked for. */
bool sim_access_record_after(const sim_access_record *later, const sim_access_record *earlier);
bool sim_access_record_unordered(const sim_access_record *one, const sim_access_record *other);
uint64_t sim_access_record_knows(const sim_access_record *record,
                                 const sim_component *component); /* how far into it all comes before */
uint64_t sim_access_record_asked(const sim_access_record *record,
                                 const sim_component *component); /* the same without waits for values */

/* Whether some pending record is neither known to come before nor after this one. */
bool sim_access_record_open(sim_access_record *record);
bool sim_access_record_settled(
    const sim_access_record *record);            /* all records from now on come after it, and so do pending ones */
uint64_t sim_access_record_oldest_pending(void); /* its order; UINT64_MAX: there is none */

/* Whether the first record waits for something that may come after the second in a way that is not recorded: behind a
 * host function, which an access of the host may let go on, or behind a wait for a value that is not written yet. */
bool sim_access_record_may_wait_for(const sim_access_record *first, const sim_access_record *second);

/* What comes before something, beside a point: by order numbers, too. */
typedef struct sim_known {
    sim_clock *clock;    /* held */
    uint64_t host_order; /* records of the host up to this one */
    uint64_t until;      /* and perhaps everything up to this one */
} sim_known;

/* ---- shadow_cells.c: what wrote and read which bytes; history.c: what did before ---- */

/* Records that were displaced from cells, for pending records. */
typedef struct sim_history {
    sim_component_history *components;
    size_t count;
    size_t limit;
    struct sim_history *previous; /* among those that have any */
    struct sim_history *next;
} sim_history;

typedef struct sim_shadow_cells {
    sim_tree tree;
    sim_shadow_cell *first;
    sim_history history;
} sim_shadow_cells;

typedef struct sim_judged_access {
    const sim_shadow *shadow;
    const sim_access_record *record;
    uint64_t begin; /* where the records are that it is judged against */
    uint64_t end;
    sim_access_kind touch;
    uint64_t apart; /* so much further than the access itself: in another view of the same bytes */
} sim_judged_access;

void sim_history_add(sim_history *history, sim_access_record *record, uint64_t begin, uint64_t end,
                     sim_access_kind touch);
void sim_history_judge(const sim_history *history, const sim_judged_access *access);
void sim_history_clear(sim_history *history);
void sim_histories_clear(void); /* nothing is pending */

/* Reports the access and a record of these bytes if they race. */
void sim_judge_pair(const sim_judged_access *access, const sim_access_record *stored, sim_access_kind stored_touch,
                    uint64_t begin, uint64_t end);
void sim_shadow_cells_access(sim_shadow_cells *cells, const sim_shadow *shadow, uint64_t begin, uint64_t end,
                             sim_access_record *record, sim_access_kind touch);
void sim_shadow_cells_judge(const sim_shadow_cells *cells, const sim_judged_access *access); /* and notes nothing */
void sim_shadow_cells_judge_free(const sim_shadow_cells *cells, const sim_shadow *shadow, sim_access_record *record);
void sim_shadow_cells_judge_unwritten(const sim_shadow_cells *cells, const sim_shadow *shadow, uint64_t begin,
                                      uint64_t end, sim_access_record *record);
void sim_shadow_cells_settle(sim_shadow_cells *cells); /* forgets what is settled */
void sim_shadow_cells_clear(sim_shadow_cells *cells);

/* ---- shadow.c ---- */

/* What the checker knows of an allocation. */
typedef struct sim_shadow {
    sim_node by_address;     /* of a freed one, in the tree of those: the latest born first */
    struct sim_shadow *next; /* of a freed one, in the order of frees */
    uint64_t address;
    uint64_t bytes;
    uint64_t born;                /* the order number of the last record before it was known */
    uint64_t gone;                /* and before it was freed; UINT64_MAX: it is live */
    sim_access_record *allocated; /* held; NULL once settled */
    sim_access_record *freed;     /* held */
    sim_shadow_cells cells;
    sim_value_word *words;        /* that streams wrote values to */
    sim_block *block;             /* until it is freed */
    sim_piece *piece;             /* of mapped memory, while there are cells; held */
    struct sim_shadow *next_view; /* of the piece */
    bool host;                    /* pinned memory */
    bool mapped;                  /* by the program: goes on in what is mapped behind it */
    bool hidden;                  /* of a graph: in the tree while it is live, too */
    bool written;                 /* from the beginning, for all we know */
} sim_shadow;

void sim_shadows_access(sim_access_record *record, uint64_t address, uint64_t bytes, sim_access_kind touch);
void sim_shadows_judge_unwritten(sim_access_record *record, uint64_t address, uint64_t bytes);
void sim_shadow_allocation(sim_block *block, sim_access_record *record);
void sim_shadow_free(sim_block *block, sim_access_record *record);
/* Streams wait for values that streams write: a wait comes after all writes of that word that were submitted before. */
void sim_shadows_value_written(const sim_op *op);
void sim_shadows_value_awaited(sim_op *op);
/* Such a write runs: takes over what comes before it. What that was, if the last write is what the wait finds. */
void sim_shadows_value_runs(const sim_op *op, sim_known *known);
const sim_known *sim_shadows_value_last(const sim_op *wait, uint64_t after); /* so many had run */
void sim_shadow_judge_free(sim_access_record *record); /* that was not judged when it was submitted */
void sim_shadows_tidy(void);                           /* some record is no longer pending */
void sim_shadows_settle(void);                         /* forgets what is settled, everywhere */
CUresult sim_shadows_open(void);
void sim_shadows_close(void);

/* ---- value_waits.c: waits for values, and what comes before their end ---- */

void sim_known_drop(sim_known *known);
void sim_values_awaited(sim_op *op); /* a wait was submitted */
void sim_values_running(sim_op *op); /* a wait is over, or a write runs */
void sim_values_ended(const sim_op *op);
void sim_values_close(void);

/* What records come after because of that, besides what their clocks say. */
bool sim_values_released(void); /* there is any */
bool sim_values_after(const sim_access_record *later, const sim_access_record *earlier);
uint64_t sim_values_known(const sim_access_record *record, const sim_component *component); /* how far into it */
uint64_t sim_values_until(const sim_access_record *record); /* an order up to which records may come before this one */

typedef struct sim_finding {
    strata_sim_report_kind kind;
    uint64_t address;
    uint64_t bytes;
    const sim_access_record *first; /* in the order of submission; may be NULL */
    const sim_access_record *second;
    const sim_shadow *shadow;           /* may be NULL */
    const sim_access_record *elsewhere; /* of the two, the one that touched the bytes at another address, or NULL */
    uint64_t there;                     /* that address */
} sim_finding;

void sim_report(const sim_finding *finding);
void sim_reports_flush(void); /* of the process: writes what was not yet, as the environment asked */
bool sim_reports_any(void);
void sim_report_clear(void);
uint64_t sim_reports_count(void);
const strata_sim_report *sim_report_at(uint64_t index); /* or NULL */
void sim_reports_call(strata_sim_report_callback callback, void *data);
void sim_reports_close(void);

uint32_t sim_stack_capture(void);
void sim_stack_print(uint32_t stack, FILE *out);
void sim_stacks_close(void);

/* What the checker holds; guarded by sim.lock. */
typedef struct sim_check_state {
    uint32_t modes;
    bool gave_up;
    uint64_t order; /* of the last record */
    uint64_t began; /* the order when it was turned on */
    uint64_t records;
    uint64_t cells;
    uint64_t shadows;
    uint64_t other_bytes;
    uint64_t settle_at; /* records, at which it is time to forget */
    uint64_t visits;
    uint64_t values_written;  /* by streams: writes that ran */
    uint64_t pending_changes; /* counts what became pending, or ceased to be */
} sim_check_state;
extern sim_check_state sim_check;

#endif
