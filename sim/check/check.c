/* Access records: their order, which are pending, when they are judged. */
#include "check/check.h"
#include <stdlib.h>

sim_check_state sim_check;

enum { LEAST_RECORDS = 4096 }; /* fewer are not settled */

typedef struct sim_late_read {
    struct sim_late_read *next;
    uint64_t address;
    uint64_t bytes;
} sim_late_read;

static bool mode(uint32_t one)
{
    return (sim_check.modes & one) != 0;
}

/* ---- records ---- */

sim_access_record *sim_access_record_hold(sim_access_record *record)
{
    record->references++;
    return record;
}

static void free_late_reads(sim_access_record *record)
{
    while (record->late_reads) {
        sim_late_read *next = record->late_reads->next;
        free(record->late_reads);
        record->late_reads = next;
    }
}

void sim_access_record_drop(sim_access_record *record)
{
    if (!record || --record->references > 0)
        return;
    free_late_reads(record);
    sim_clock_drop(record->at.knows);
    sim_clock_drop(record->host_knew);
    sim_component_drop(record->component);
    free(record);
    sim_check.records--;
}

void sim_access_record_strip(sim_access_record *record)
{
    if (record->references > 1)
        return;
    sim_clock_drop(record->at.knows);
    sim_clock_drop(record->host_knew);
    record->at.knows = NULL;
    record->host_knew = NULL;
}

static uint32_t stack_now(void)
{
    return mode(STRATA_SIM_CHECK_NO_STACKS) ? 0 : sim_stack_capture();
}

sim_made sim_check_made(void)
{
    if (!sim.checking)
        return (sim_made){0};
    return (sim_made){.entry = sim_entry(), .stack = stack_now()};
}

static sim_access_record *make_record(sim_access_record_kind kind)
{
    sim_access_record *record = calloc(1, sizeof *record);
    if (!record) {
        sim_check_give_up();
        return NULL;
    }
    record->references = 1;
    record->kind = kind;
    record->order = ++sim_check.order;
    record->host_knew = sim_clock_hold(sim_order.host_knows);
    record->stack = stack_now();
    sim_check.records++;
    return record;
}

sim_access_record *sim_access_record_of_host(sim_access_record_kind kind)
{
    sim_access_record *record = make_record(kind);
    bool call = kind == SIM_RECORD_HOST_ALLOCATE || kind == SIM_RECORD_HOST_FREE;
    if (record && call)
        record->entry = sim_entry();
    return record;
}

sim_access_record *sim_check_free_asked(void)
{
    return sim.checking && mode(STRATA_SIM_CHECK_FREES) ? sim_access_record_of_host(SIM_RECORD_HOST_FREE) : NULL;
}

/* Gives a part's record what the launch of its graph, which submitted it, has. */
static void submit_with(sim_access_record *record, const sim_access_record *whole)
{
    sim_clock_drop(record->host_knew);
    record->host_knew = sim_clock_hold(whole->host_knew);
    record->order = whole->order;
    record->stack = whole->stack;
    record->entry = whole->entry;
}

static sim_access_record *record_of(sim_op *op)
{
    sim_access_record *record = make_record(SIM_RECORD_OPERATION);
    if (!record)
        return NULL;
    record->operation = op->kind;
    record->entry = sim_entry();
    record->kernel = op->kind == SIM_OP_KERNEL ? sim_kernel_name(op) : NULL;
    record->at = op->at;
    sim_clock_hold(record->at.knows);
    record->component = sim_component_hold(op->queue ? op->queue->component : op->chain);
    record->op = op;
    record->launched = op->launched;
    if (op->queue) {
        record->in_stream = true;
        record->queue = op->queue->kind;
    }
    if (op->part_of)
        submit_with(record, op->part_of->record);
    return record;
}

/* ---- order ---- */

/* By what was known when they were submitted, without waits for values. */
bool sim_access_record_surely_after(const sim_access_record *later, const sim_access_record *earlier)
{
    if (!earlier->component)
        return later->order >= earlier->order;
    if (later->component == earlier->component)
        return later->at.position >= earlier->at.position;
    const sim_point *at = &earlier->at;
    return at->position <= sim_clock_position(later->at.knows, at->slot, at->component) ||
           at->position <= sim_clock_position(later->host_knew, at->slot, at->component);
}

bool sim_access_record_after(const sim_access_record *later, const sim_access_record *earlier)
{
    return sim_access_record_surely_after(later, earlier) ||
           (sim_values_released() && sim_values_after(later, earlier));
}

/* ---- pending records ----
 *
 * A component has a ring of its pending records, in order. The components that have any are in a list. */

static sim_access_record *pending_at(const sim_pending *pending, size_t index)
{
    return pending->at[(pending->first + index) & (pending->capacity - 1)];
}

static bool pending_grow(sim_pending *pending)
{
    size_t capacity = pending->capacity ? 2 * pending->capacity : 8;
    sim_access_record **at = malloc(capacity * sizeof(*at));
    if (!at)
        return false;
    for (size_t i = 0; i < pending->count; i++)
        at[i] = pending_at(pending, i);
    free(pending->at);
    pending->at = at;
    pending->first = 0;
    pending->capacity = capacity;
    return true;
}

static sim_component *first_with_pending; /* guarded by sim.lock */

static void link_component(sim_component *component)
{
    component->pending.next = first_with_pending;
    component->pending.previous = NULL;
    if (first_with_pending)
        first_with_pending->pending.previous = component;
    first_with_pending = component;
}

static void unlink_component(sim_component *component)
{
    if (component->pending.previous)
        component->pending.previous->pending.next = component->pending.next;
    else
        first_with_pending = component->pending.next;
    if (component->pending.next)
        component->pending.next->pending.previous = component->pending.previous;
}

static void pend(sim_access_record *record)
{
    sim_pending *pending = &record->component->pending;
    if (record->pending)
        return;
    if (pending->count == pending->capacity && !pending_grow(pending)) {
        sim_check_give_up();
        return;
    }
    if (pending->count == 0)
        link_component(record->component);
    pending->at[(pending->first + pending->count++) & (pending->capacity - 1)] = record;
    record->pending = true;
    sim_check.pending_changes++;
}

/* Records of a component end in order, but for those abandoned with their context. */
static void unpend(sim_access_record *record)
{
    sim_pending *pending = &record->component->pending;
    if (!record->pending)
        return;
    record->pending = false;
    sim_check.pending_changes++;
    while (pending->count > 0 && !pending_at(pending, 0)->pending) {
        pending->first = (pending->first + 1) & (pending->capacity - 1);
        pending->count--;
    }
    if (pending->count == 0)
        unlink_component(record->component);
}

uint64_t sim_access_record_asked(const sim_access_record *record, const sim_component *component)
{
    if (record->component == component)
        return record->at.position;
    uint64_t asked = sim_clock_position(record->at.knows, component->slot, component->uid);
    uint64_t seen = sim_clock_position(record->host_knew, component->slot, component->uid);
    return asked > seen ? asked : seen;
}

uint64_t sim_access_record_knows(const sim_access_record *record, const sim_component *component)
{
    uint64_t asked = sim_access_record_asked(record, component);
    uint64_t released = sim_values_released() ? sim_values_known(record, component) : 0;
    return asked > released ? asked : released;
}

static size_t first_not_before(const sim_access_record *record, const sim_component *component)
{
    uint64_t position = sim_access_record_knows(record, component);
    size_t low = 0;
    size_t high = component->pending.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pending_at(&component->pending, middle)->at.position <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether a pending record is neither before nor after this one. In each component, if the first that is not before it
 * comes after it, so do all later ones. */
static bool is_open(const sim_access_record *record)
{
    for (const sim_component *component = first_with_pending; component; component = component->pending.next) {
        size_t index = first_not_before(record, component);
        if (index < component->pending.count &&
            !sim_access_record_after(pending_at(&component->pending, index), record))
            return true;
    }
    return false;
}

bool sim_access_record_open(sim_access_record *record)
{
    if (!first_with_pending)
        return false;
    if (record->open_when != sim_check.pending_changes) {
        record->open_when = sim_check.pending_changes;
        record->open = is_open(record);
    }
    return record->open;
}

bool sim_access_record_settled(const sim_access_record *record)
{
    bool known = !record->component ||
                 record->at.position <= sim_clock_position(sim_order.host_knows, record->at.slot, record->at.component);
    if (!known)
        return false;
    for (const sim_component *component = first_with_pending; component; component = component->pending.next)
        if (!sim_access_record_after(pending_at(&component->pending, 0), record))
            return false;
    return true;
}

void sim_access_records_pending(sim_record_visit *visit, void *data)
{
    for (const sim_component *component = first_with_pending; component; component = component->pending.next)
        for (size_t i = 0; i < component->pending.count; i++)
            if (pending_at(&component->pending, i)->pending)
                visit(data, pending_at(&component->pending, i));
}

uint64_t sim_access_record_oldest_pending(void)
{
    uint64_t oldest = UINT64_MAX;
    for (const sim_component *component = first_with_pending; component; component = component->pending.next) {
        uint64_t order = pending_at(&component->pending, 0)->order;
        oldest = order < oldest ? order : oldest;
    }
    return oldest;
}

/* ---- accesses ---- */

/* Keeps a read, to be judged when its operation runs. The record is pending until then: those that it is judged against
 * must stay. */
static void record_read(sim_access_record *record, uint64_t address, uint64_t bytes)
{
    sim_late_read *late_read = malloc(sizeof *late_read);
    if (!late_read) {
        sim_check_give_up();
        return;
    }
    *late_read = (sim_late_read){.next = record->late_reads, .address = address, .bytes = bytes};
    record->late_reads = late_read;
    pend(record);
}

void sim_check_access(sim_op *op, uint64_t address, uint64_t bytes, sim_access_kind touch)
{
    sim_access_record *record = op->record;
    if (!record || !sim.checking || record->order <= sim_check.began || bytes == 0)
        return;
    sim_shadows_access(record, address, bytes, touch);
    if (op->state == SIM_OP_RUNNING && (touch == SIM_WRITES || touch == SIM_UPDATES_ATOMICALLY))
        sim_value_words_touched(address, bytes, touch == SIM_UPDATES_ATOMICALLY);
    if (touch == SIM_WRITES || !mode(STRATA_SIM_CHECK_UNWRITTEN) || !sim.checking)
        return;
    if (op->state == SIM_OP_RUNNING)
        sim_shadows_judge_unwritten(record, address, bytes);
    else
        record_read(record, address, bytes);
}

static void copy_access(sim_op *op)
{
    if (!op->work.copy.from.pageable)
        sim_check_access(op, op->work.copy.from.address, op->work.copy.bytes, SIM_READS);
    if (!op->work.copy.to.pageable)
        sim_check_access(op, op->work.copy.to.address, op->work.copy.bytes, SIM_WRITES);
}

static void fill_access(sim_op *op)
{
    uint64_t row = (uint64_t)op->work.fill.width * op->work.fill.count;
    if (op->work.fill.pitch == row) {
        sim_check_access(op, op->work.fill.address, row * op->work.fill.rows, SIM_WRITES);
        return;
    }
    for (size_t i = 0; i < op->work.fill.rows; i++)
        sim_check_access(op, op->work.fill.address + i * op->work.fill.pitch, row, SIM_WRITES);
}

static void rows_access(sim_op *op, const sim_rows *rows, sim_access_kind touch)
{
    uint64_t width = op->work.rows.width;
    if (rows->place.pageable)
        return;
    for (size_t plane = 0; plane < op->work.rows.planes; plane++)
        for (size_t row = 0; row < op->work.rows.rows; row++)
            sim_check_access(op, rows->place.address + plane * rows->plane + row * rows->pitch, width, touch);
}

/* Kernels and host functions declare their accesses themselves. */
static void judge(sim_op *op)
{
    switch (op->kind) {
    case SIM_OP_COPY:
        copy_access(op);
        break;
    case SIM_OP_FILL:
        fill_access(op);
        break;
    case SIM_OP_COPY_ROWS:
        rows_access(op, &op->work.rows.from, SIM_READS);
        rows_access(op, &op->work.rows.to, SIM_WRITES);
        break;
    case SIM_OP_WRITE_VALUE:
        sim_check_access(op, op->work.value.address, op->work.value.width, SIM_UPDATES_ATOMICALLY);
        break;
    case SIM_OP_WAIT_VALUE:
        sim_check_access(op, op->work.value.address, op->work.value.width, SIM_AWAITS);
        break;
    case SIM_OP_FREE:
        sim_shadow_judge_free(op->record);
        break;
    case SIM_OP_ALLOCATE:
    case SIM_OP_KERNEL:
    case SIM_OP_HOST:
    case SIM_OP_MARK:
    case SIM_OP_CONDITIONAL:
        break;
    }
}

/* Whether the operation may write a word that is waited for. Until it has run, a wait that the host knows to be over
 * may turn out to have found what it writes. */
static bool may_write_word(const sim_op *op)
{
    bool writes = op->kind == SIM_OP_COPY || op->kind == SIM_OP_FILL || op->kind == SIM_OP_COPY_ROWS;
    return op->kind == SIM_OP_WRITE_VALUE || op->kind == SIM_OP_WAIT_VALUE || (writes && sim_value_words_any());
}

static void judge_submission(sim_op *op)
{
    sim_access_record *record = op->record;
    bool speaks = op->kind == SIM_OP_KERNEL || op->kind == SIM_OP_HOST || op->kind == SIM_OP_CONDITIONAL;
    record->late = op->awaits_value && !speaks && op->kind != SIM_OP_ALLOCATE;
    if (speaks || record->late || may_write_word(op))
        pend(record);
    if (op->kind == SIM_OP_ALLOCATE)
        sim_shadow_allocation(op->work.block, record);
    else if (op->kind == SIM_OP_FREE)
        sim_shadow_free(op->work.block, record);
    else if (!speaks && !record->late)
        judge(op);
}

static void settle_at_times(void)
{
    if (sim_check.records < sim_check.settle_at)
        return;
    sim_shadows_settle();
    uint64_t twice = 2 * sim_check.records;
    sim_check.settle_at = twice > LEAST_RECORDS ? twice : LEAST_RECORDS;
}

void sim_check_submitted(sim_op *op)
{
    if (!sim.checking || op->kind == SIM_OP_MARK || (op->part_of && !op->part_of->record))
        return;
    if (sim_order.joins_lost) {
        sim_check_give_up();
        return;
    }
    op->record = record_of(op);
    if (op->record) {
        if (op->kind == SIM_OP_WRITE_VALUE)
            sim_value_word_at(op->work.value.address, op->work.value.width); /* as it is before the write */
        else if (op->kind == SIM_OP_WAIT_VALUE)
            sim_values_awaited(op);
        judge_submission(op);
        settle_at_times();
    }
}

void sim_check_running(sim_op *op)
{
    sim_access_record *record = op->record;
    if (record)
        record->told = op->told;
    if (sim.checking)
        sim_values_running(op);
    if (!record || !sim.checking)
        return;
    if (record->late && record->order > sim_check.began)
        judge(op);
    for (const sim_late_read *late_read = record->late_reads; late_read; late_read = late_read->next)
        sim_shadows_judge_unwritten(record, late_read->address, late_read->bytes);
    free_late_reads(record);
}

static void rows_touched(const sim_op *op)
{
    const sim_rows *rows = &op->work.rows.to;
    for (size_t plane = 0; !rows->place.pageable && plane < op->work.rows.planes; plane++)
        for (size_t row = 0; row < op->work.rows.rows; row++)
            sim_value_words_touched(rows->place.address + plane * rows->plane + row * rows->pitch, op->work.rows.width,
                                    false);
}

static void fill_touched(const sim_op *op)
{
    uint64_t row = (uint64_t)op->work.fill.width * op->work.fill.count;
    for (size_t i = 0; i < op->work.fill.rows; i++)
        sim_value_words_touched(op->work.fill.address + i * op->work.fill.pitch, row, false);
}

/* Enters what the operation wrote to words. Kernels have said so while they ran. */
static void enter_values(const sim_op *op)
{
    switch (op->kind) {
    case SIM_OP_COPY:
        if (!op->work.copy.to.pageable)
            sim_value_words_touched(op->work.copy.to.address, op->work.copy.bytes, false);
        break;
    case SIM_OP_FILL:
        fill_touched(op);
        break;
    case SIM_OP_COPY_ROWS:
        rows_touched(op);
        break;
    case SIM_OP_WRITE_VALUE:
        sim_value_words_touched(op->work.value.address, op->work.value.width, false);
        break;
    case SIM_OP_HOST:
        sim_value_words_function_ran(op->record);
        return;
    default:
        break;
    }
    sim_value_words_ran(op->record);
}

void sim_check_completed(sim_op *op)
{
    sim_access_record *record = op->record;
    bool ran = op->state == SIM_OP_DONE && op->context->device->poison == CUDA_SUCCESS;
    if (record && ran && sim.checking && sim_value_words_any())
        enter_values(op);
    if (op->kind == SIM_OP_WAIT_VALUE)
        sim_values_ended(op);
    if (!record)
        return;
    op->record = NULL;
    record->op = NULL;
    if (record->pending) {
        unpend(record);
        sim_shadows_tidy();
    }
    sim_access_record_drop(record);
}

/* ---- the host ---- */

void sim_check_host_function(const sim_op *op)
{
    if (sim.checking && !mode(STRATA_SIM_CHECK_HOST_FUNCTIONS))
        sim_host_join(&op->at);
    if (sim.checking)
        sim_value_words_function(op);
    if (op->record)
        op->record->told = op->told;
}

/* Whether this operation, or one that must end before it, is of that kind. Only asked before a report. */
static bool behind(sim_op *op, sim_op_kind kind)
{
    uint64_t visit = ++sim_check.visits;
    op->visited = visit;
    op->next_marked = NULL;
    for (sim_op *at = op; at;) {
        if (at->kind == kind)
            return true;
        sim_op *rest = at->next_marked;
        for (sim_edge *edge = at->predecessors; edge; edge = edge->next_predecessor) {
            if (edge->from->visited != visit) {
                edge->from->visited = visit;
                edge->from->next_marked = rest;
                rest = edge->from;
            }
        }
        at = rest;
    }
    return false;
}

bool sim_access_record_may_wait_for(const sim_access_record *first, const sim_access_record *second)
{
    bool access = second->kind == SIM_RECORD_HOST_READ || second->kind == SIM_RECORD_HOST_WRITE;
    bool tells = access && !mode(STRATA_SIM_CHECK_HOST_FUNCTIONS);
    if (tells && second->order <= first->told)
        return true; /* a host function before it had not returned then */
    if (!first->op)
        return false;
    return (tells && behind(first->op, SIM_OP_HOST)) || behind(first->op, SIM_OP_WAIT_VALUE);
}

/* Records an access of the host, except to values, which are there to be read and written while streams do. */
static void access_of_host(sim_access_record *record, uint64_t address, uint64_t bytes, sim_access_kind touch)
{
    uint64_t end = address + bytes;
    while (address < end) {
        uint64_t next = end;
        uint64_t until = sim_value_words_next(address, end, &next);
        if (address < until)
            sim_shadows_access(record, address, until - address, touch);
        address = next;
    }
}

void sim_check_host_access(uint64_t address, uint64_t bytes, sim_access_kind touch)
{
    sim_op *op = sim_host_function_op();
    if (!sim.checking || bytes == 0 || sim.phase == SIM_FORKED)
        return;
    sim_value_words_look();
    if (op) {
        sim_check_access(op, address, bytes, touch);
        return;
    }
    sim_access_record *record =
        sim_access_record_of_host(touch == SIM_READS ? SIM_RECORD_HOST_READ : SIM_RECORD_HOST_WRITE);
    if (record) {
        access_of_host(record, address, bytes, touch);
        sim_access_record_drop(record);
    }
}

/* ---- on and off ---- */

CUresult sim_check_begin(uint32_t modes)
{
    sim_check.modes = modes | STRATA_SIM_CHECK_ON;
    if (sim.checking)
        return CUDA_SUCCESS;
    sim_shadows_close();
    sim_values_close();
    sim_check.began = sim_check.order;
    sim_check.settle_at = LEAST_RECORDS;
    sim_check.gave_up = false;
    sim_order.joins_lost = false;
    CUresult result = sim_shadows_open();
    sim.checking = result == CUDA_SUCCESS;
    return result;
}

/* Operations under way keep their records, which are ignored from now on. */
void sim_check_end(void)
{
    sim_check.modes = 0;
    sim.checking = false;
    sim_shadows_close();
    sim_values_close();
}

/* Callable anywhere in the checker: frees nothing. */
void sim_check_give_up(void)
{
    sim_check.gave_up = sim_check.gave_up || sim.checking;
    sim.checking = false;
}
