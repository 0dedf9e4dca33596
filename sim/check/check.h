/* The happens-before checker. It judges the order that the program asked for, not the order in which work ran.
 *
 * Operations are totally ordered by submission. Each then gets a point (clock.c): its place, and all that comes before
 * it. Two operations race if they touch the same bytes, one writes, and neither's point covers the other. An edge that
 * the program asked for is made with sim_op_depend, which joins the point: a new kind of edge needs nothing here.
 * sim_op_await only blocks: for edges of the driver's own, and where the caller joins the point by itself.
 *
 * An *access record* is what stays of an operation, or of an access or a call of the host. Host records are ordered
 * among each other, since the driver cannot see how threads order themselves. A stream's record comes after all host
 * records before its submission, and after all that the host then knew to be done, whichever thread had waited; it
 * carries the host's clock of that moment. A host record comes only after what the host knows.
 *
 * An allocation has a *shadow*: the records of its allocation and free, and a map of byte ranges (*cells*), each with
 * its last write and the reads and atomic updates since that no later one comes after. For records in the order of
 * submission that is enough: what does not come after an older record does not come after the newer one either, because
 * the newer one comes after the older, or was reported. Memory mapped at several addresses has a shadow for each, its
 * *views*. An access is recorded in its own view and judged against all; an unmapping is judged against its own, since
 * the others stay.
 *
 * Copies and fills are judged at submission. A kernel declares its accesses when it runs, a host function while it
 * runs. Such a record is *pending* until it is done, and judged late:
 * - by both points: it may come after a stored record, before it, or neither, which is a race;
 * - it becomes the last write only if none was submitted after it;
 * - a displaced record that some pending record is neither known to come before nor after stays in the
 *   history (history.c): its race with a kernel is found although a later write, which comes after both,
 *   displaced it before the kernel ran;
 * - a freed shadow keeps its cells while a record is pending that was submitted before the free.
 * Hence of each pair of records the second to declare its accesses meets the first, in whichever order they ran.
 *
 * Memory is proportional to what is live: equal neighbouring cells coalesce, few freed shadows are kept, and from time
 * to time all records go that the host knows to be done and that every pending record comes after, as all later ones
 * do.
 *
 * Reads of unwritten bytes are judged when the reading operation runs: all before it has declared its accesses then.
 *
 * A use is judged against the allocation at its address when the use was submitted, found by order numbers. Memory that
 * a pool reuses begins a new shadow: earlier uses were judged against the free, and the driver keeps the new user after
 * it.
 *
 * What an operation behind an unfinished wait for a value comes after is known only when it runs (value_waits.c): until
 * then it is pending, and may come after what was submitted later. A free is then judged late, but counts from its
 * submission; allocations are judged like any. Nothing is reported against work behind a wait whose value has not come.
 *
 * Guarded by sim.lock. */
#ifndef STRATA_SIM_CHECK_CHECK_H
#define STRATA_SIM_CHECK_CHECK_H

#include "kernels/kernels.h"
#include <stdio.h>

typedef struct sim_value_release sim_value_release;
typedef struct sim_shadow_cell sim_shadow_cell;
typedef struct sim_component_history sim_component_history;

/* ---- hooks; see sim_check_hooks in order.h ---- */

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

/* ---- host_access.c ---- */

void sim_check_host_access(uint64_t address, uint64_t bytes, sim_access_kind touch);
CUresult sim_host_access_declare(const void *address, size_t bytes, sim_access_kind touch);
void sim_host_pages_close(const sim_op *op); /* at submission: protects the pages again */

/* ---- check.c ---- */

CUresult sim_check_turn_on(uint32_t modes); /* hooks.c */
CUresult sim_check_begin(uint32_t modes);   /* after the hooks are set */
void sim_check_end(void);
void sim_check_give_up(void); /* out of memory: stops the checker */

/* ---- records ---- */

typedef enum sim_access_record_kind {
    SIM_RECORD_OPERATION,
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
    sim_queue_kind queue; /* if in_stream */
    bool in_stream;
    bool pending;
    bool late;                /* judged when it runs: behind a wait for a value */
    uint64_t told;            /* its op's, when it runs */
    uint64_t order;           /* of submission, host records included; from 1 */
    sim_point at;             /* its clock is held */
    sim_component *component; /* held; NULL: the host's */
    sim_clock *host_knew;
    sim_op *op;                /* until it is done */
    sim_late_read *late_reads; /* reads to judge when it runs */
    uint64_t open_when;        /* sim_check.pending_changes when `open` was computed */
    bool open;
    sim_launched launched;
    const char *entry;  /* the driver's function, static; NULL: an access of the host */
    const char *kernel; /* interned, or NULL */
} sim_access_record;

sim_access_record *sim_access_record_hold(sim_access_record *record);
void sim_access_record_drop(sim_access_record *record);
void sim_access_record_strip(sim_access_record *record); /* gives back its clocks, if it has one holder */
sim_access_record *
sim_access_record_of_host(sim_access_record_kind kind); /* held for the caller; NULL without memory */

bool sim_access_record_after(const sim_access_record *later, const sim_access_record *earlier);
bool sim_access_record_surely_after(const sim_access_record *later,
                                    const sim_access_record *earlier); /* without waits for values */
uint64_t sim_access_record_knows(const sim_access_record *record,
                                 const sim_component *component); /* position up to which it comes before the record */
uint64_t sim_access_record_asked(const sim_access_record *record,
                                 const sim_component *component); /* as above, without waits for values */

/* Whether a pending record is neither known to come before nor after it. */
bool sim_access_record_open(sim_access_record *record);
bool sim_access_record_settled(const sim_access_record *record); /* later and pending records all come after it */
typedef void sim_record_visit(void *data, const sim_access_record *record);
void sim_access_records_pending(sim_record_visit *visit, void *data);
uint64_t sim_access_record_oldest_pending(void); /* UINT64_MAX: none */

/* Whether the first record may wait for something after the second, by an order that no record shows: behind a host
 * function, which a host access may release, or behind a wait whose value is not written yet. */
bool sim_access_record_may_wait_for(const sim_access_record *first, const sim_access_record *second);

typedef struct sim_known {
    sim_clock *clock;    /* held */
    uint64_t host_order; /* host records up to this one */
} sim_known;

/* ---- shadow_cells.c, history.c ---- */

typedef struct sim_history {
    sim_component_history *components;
    size_t count;
    size_t limit;
    struct sim_history *previous; /* among those with entries */
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
    uint64_t begin; /* in the view that it is judged against */
    uint64_t end;
    sim_access_kind touch;
    uint64_t apart; /* distance of that view from the access's own */
} sim_judged_access;

void sim_history_add(sim_history *history, sim_access_record *record, uint64_t begin, uint64_t end,
                     sim_access_kind touch);
void sim_history_judge(const sim_history *history, const sim_judged_access *access);
void sim_history_clear(sim_history *history);
void sim_histories_clear(void); /* nothing is pending */

/* Reports the two if they race. */
void sim_judge_pair(const sim_judged_access *access, const sim_access_record *stored, sim_access_kind stored_touch,
                    uint64_t begin, uint64_t end);
void sim_shadow_cells_access(sim_shadow_cells *cells, const sim_shadow *shadow, uint64_t begin, uint64_t end,
                             sim_access_record *record, sim_access_kind touch);
void sim_shadow_cells_judge(const sim_shadow_cells *cells, const sim_judged_access *access); /* records nothing */
void sim_shadow_cells_judge_free(const sim_shadow_cells *cells, const sim_shadow *shadow, sim_access_record *record);
void sim_shadow_cells_judge_unwritten(const sim_shadow_cells *cells, const sim_shadow *shadow, uint64_t begin,
                                      uint64_t end, sim_access_record *record);
/* The last write of bytes and the atomic updates since, each with the bytes. */
typedef void sim_author_visit(void *data, const sim_access_record *record, uint64_t begin, uint64_t end, bool atomic);
void sim_shadow_cells_authors(const sim_shadow_cells *cells, uint64_t begin, uint64_t end, uint64_t apart,
                              sim_author_visit *visit, void *data);
void sim_shadow_cells_settle(sim_shadow_cells *cells);
void sim_shadow_cells_clear(sim_shadow_cells *cells);

/* ---- shadow.c ---- */

typedef struct sim_shadow {
    sim_node by_address;     /* if freed or hidden; the latest born first */
    struct sim_shadow *next; /* if freed: in the order of frees */
    uint64_t address;
    uint64_t bytes;
    uint64_t born;                /* order of the last record before it */
    uint64_t gone;                /* order of the free; UINT64_MAX: live */
    sim_access_record *allocated; /* held; NULL: before the checker was on */
    sim_access_record *freed;     /* held */
    sim_shadow_cells cells;
    sim_block *block;             /* until it is freed */
    sim_piece *piece;             /* held; of mapped memory, while there are cells */
    struct sim_shadow *next_view; /* of the piece */
    bool host;                    /* pinned or registered */
    bool mapped;                  /* by the program: a use may go on in the next map */
    bool hidden;                  /* of a graph: in the tree while live, too */
    bool written;                 /* counts as written from the beginning */
    bool settled;                 /* what comes from now on comes after the allocation */
} sim_shadow;

void sim_shadows_access(sim_access_record *record, uint64_t address, uint64_t bytes, sim_access_kind touch);
void sim_shadows_judge_unwritten(sim_access_record *record, uint64_t address, uint64_t bytes);
void sim_shadow_allocation(sim_block *block, sim_access_record *record);
void sim_shadow_free(sim_block *block, sim_access_record *record);
void sim_shadow_judge_free(sim_access_record *record); /* a late one */
void sim_shadows_tidy(void);                           /* some record ceased to be pending */
void sim_shadows_settle(void);
CUresult sim_shadows_open(void);
void sim_shadows_close(void);

void sim_shadows_authors(uint64_t address, uint64_t bytes, sim_author_visit *visit, void *data);

/* Equal for all addresses of the same bytes. */
typedef struct sim_value_place {
    const sim_block *block; /* NULL: no memory that the checker follows */
    uint64_t key;
    uint64_t tie;
} sim_value_place;
sim_value_place sim_shadows_place(uint64_t address);

/* ---- regions.c: parts of allocations that a pool of the program hands out ---- */

typedef struct sim_region {
    sim_node by_address;
    uint64_t bytes;
    uint64_t id;    /* the pool's */
    uint64_t born;  /* the order number of the last record before */
    uint32_t stack; /* of the call that handed it out */
    bool ended;     /* it has come back */
} sim_region;

bool sim_region_begin(uint64_t address, const sim_region *facts); /* all but the node; false without memory */
void sim_region_end(uint64_t address, uint64_t id);
void sim_regions_forget(const sim_shadow *shadow); /* those that the allocation held */
void sim_regions_close(void);
uint64_t sim_regions_bytes(void);

/* The region that held the address before the record of that order number; NULL: none. */
const sim_region *sim_region_around(const sim_shadow *shadow, uint64_t address, uint64_t order);
const sim_region *sim_region_from(uint64_t address); /* the first that begins there or behind; NULL: none */

/* ---- leaks.c ---- */

void sim_leaks_report(const sim_context *context); /* whose memory goes; NULL: of all, the process ends */
void sim_leaks_print_objects(FILE *out);           /* a line of handles that are left, if there are any */

/* ---- value_words.c ---- */

typedef struct sim_word_write {
    uint32_t references;
    struct sim_word_write *next; /* among all */
    struct sim_word_write **link;
    sim_component *component; /* held; NULL: the host's */
    uint64_t position;
    uint64_t order;
    unsigned mask;          /* the word's bytes that it wrote */
    unsigned char bytes[8]; /* the word after it */
    sim_known asked;        /* it, and what comes before it by edges */
    sim_known known;        /* and by waits for values */
} sim_word_write;

typedef struct sim_value_word {
    sim_node by_place;
    uint32_t references;
    uint64_t address; /* in one view */
    bool linked;      /* its memory is there */
    bool host;
    unsigned used;           /* bytes that are part of a value */
    unsigned char bytes[8];  /* as last seen */
    sim_word_write **writes; /* in the order in which they ran */
    size_t count;
    size_t capacity;
    size_t waits;                /* unfinished */
    sim_value_release *releases; /* that a write may change, the latest first */
    size_t release_count;
    struct sim_value_word *next_of_host;
    struct sim_value_word *next_touched;
    unsigned touched; /* bytes that the running operation writes */
    bool atomically;
} sim_value_word;

sim_known sim_known_asked(const sim_access_record *record); /* the record, and what comes before it by edges */
void sim_known_join(sim_known *known, const sim_known *more);
void sim_known_drop(sim_known *known);
bool sim_known_has(const sim_known *known, const sim_word_write *write);

sim_word_write *sim_word_write_hold(sim_word_write *write);
void sim_word_write_drop(sim_word_write *write);
sim_word_write *sim_word_writes_first(void);

unsigned sim_value_mask(uint64_t address, unsigned width);           /* bytes of a value in its word */
sim_value_word *sim_value_word_at(uint64_t address, unsigned width); /* made if needed; NULL: cannot be followed */
sim_value_word *sim_value_word_hold(sim_value_word *word);
void sim_value_word_drop(sim_value_word *word);
void sim_value_word_look(sim_value_word *word); /* for changes by the host */
bool sim_value_words_any(void);
uint64_t sim_value_words_next(uint64_t begin, uint64_t end, uint64_t *until); /* first bytes of values; or `end` */
void sim_value_words_look(void);
void sim_value_words_gone(const sim_block *block);
void sim_value_words_function(const sim_op *op); /* a host function begins */
void sim_value_words_function_ran(const sim_access_record *record);
void sim_value_words_touched(uint64_t address, uint64_t bytes, bool atomically); /* by the running operation */
void sim_value_words_ran(const sim_access_record *record);
void sim_value_words_close(void);

/* ---- value_waits.c ---- */

void sim_values_awaited(sim_op *op); /* a wait was submitted */
void sim_values_running(sim_op *op); /* a wait is over, or anything else runs */
void sim_values_ended(const sim_op *op);
void sim_values_polled(const sim_value_request *value);                     /* the host found the value */
void sim_values_written(sim_value_word *word, const sim_word_write *write); /* the word's last one */
void sim_values_word_gone(sim_value_word *word);
sim_known sim_values_fold(const sim_known *asked); /* adds what comes before by waits for values */
void sim_values_close(void);

/* The order that waits for values add to the clocks'. */
bool sim_values_released(void); /* whether there is any */
bool sim_values_after(const sim_access_record *later, const sim_access_record *earlier);
uint64_t sim_values_known(const sim_access_record *record, const sim_component *component); /* how far into it */
uint64_t sim_values_until(const sim_access_record *record); /* order up to which records may come before it */

typedef struct sim_finding {
    strata_sim_report_kind kind;
    uint64_t address;
    uint64_t bytes;
    const sim_access_record *first; /* in the order of submission; may be NULL */
    const sim_access_record *second;
    const sim_shadow *shadow;           /* may be NULL */
    const sim_access_record *elsewhere; /* the one at another address, or NULL */
    uint64_t there;
    bool directed;            /* the second must come after the first, not before it */
    const sim_region *region; /* of a leak: the block of a pool, or NULL */
    uint64_t count;           /* of a leak: allocations from the place of the first one */
    uint64_t first_bytes;     /* of a leak: of the first one */
} sim_finding;

/* ---- value_doubts.c ---- */

void sim_judge_order(const sim_finding *finding); /* reports it if its records are unordered */
void sim_doubts_judge(void);                      /* called when less is ordered than before */
void sim_doubts_settle(void);                     /* called when some order is for sure now */
void sim_doubts_forget_shadow(const sim_shadow *shadow);
void sim_doubts_close(void);

/* ---- report.c ---- */

void sim_report(const sim_finding *finding);

/* At exit: writes what is known only then, and what `add` prints. */
void sim_reports_flush(void (*add)(FILE *out));
bool sim_reports_any(void);
void sim_report_clear(void);
uint64_t sim_reports_count(void);
const strata_sim_report *sim_report_at(uint64_t index); /* or NULL */
void sim_reports_call(strata_sim_report_callback callback, void *data);
void sim_reports_close(void);

uint32_t sim_stack_capture(void);
void sim_stack_print(uint32_t stack, FILE *out);
void sim_stacks_close(void);

/* Guarded by sim.lock. */
typedef struct sim_check_state {
    uint32_t modes;
    bool gave_up;
    uint64_t order; /* of the last record */
    uint64_t began; /* order when it was turned on */
    uint64_t records;
    uint64_t cells;
    uint64_t shadows;
    uint64_t other_bytes;
    uint64_t settle_at; /* number of records at which to settle */
    uint64_t visits;
    uint64_t pending_changes; /* changes of what is pending or released */
} sim_check_state;
extern sim_check_state sim_check;

#endif
