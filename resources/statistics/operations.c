/* statistics: counts what passes it, and keeps in each block's entry what its free and a report need to know. How it
 * counts is in resources/statistics/tally.h, reports are in resources/statistics/report.c. */
#include "resources/statistics/internal.h"

#include "core/base/call_stack.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/stack/stack.h"
#include "resources/builtin.h"

static inline strata_statistics_note *note_in(const strata_resource *resource, strata_entry *entry)
{
    return (strata_statistics_note *)(void *)((char *)entry + resource->block_offset);
}

static inline strata_statistics_note *note_of(const strata_resource *resource, strata_block_id id)
{
    strata_entry *entry = strata_table_lookup(strata_resource_table(resource), id);
    return entry ? note_in(resource, entry) : NULL;
}

/* ---- allocating and freeing ---- */

static __attribute__((cold, noinline)) strata_status count_failure(strata_statistics *self, strata_status status)
{
    unsigned which = (unsigned)status < STRATA_STATISTICS_STATUSES ? (unsigned)status : 0;
    atomic_fetch_add_explicit(&self->failures[which], 1, memory_order_relaxed);
    return status;
}

static inline void write_note(const strata_statistics *self, strata_statistics_note *note, const strata_block *block,
                              strata_tag tag, uint32_t call_stack)
{
    if (__builtin_expect(self->keeps, 0)) {
        atomic_store_explicit(&note->bytes, block->bytes, memory_order_relaxed);
        atomic_store_explicit(&note->requested, block->requested, memory_order_relaxed);
        atomic_store_explicit(&note->address, block->address, memory_order_relaxed);
    }
    atomic_store_explicit(&note->mark, strata_statistics_mark(tag, call_stack), memory_order_release);
}

/* On a thread without an account. What it takes to count a free later is made before the memory. */
static __attribute__((noinline)) strata_status allocate_shared(strata_statistics *self, const strata_request *request,
                                                               uint32_t call_stack, strata_block *out)
{
    strata_resource *resource = &self->resource;
    strata_tag_counters_record *record = strata_tag_counters_record_of(&self->tally, request->tag);
    if (!record) {
        *out = (strata_block){0};
        return count_failure(self, strata_fail_host_memory("the counters of a tag"));
    }
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    strata_statistics_note *note = status == STRATA_SUCCESS ? note_of(resource, out->id) : NULL;
    if (!note)
        return status == STRATA_SUCCESS ? status : count_failure(self, status);
    write_note(self, note, out, request->tag, call_stack);
    strata_tag_counters_add_shared(&self->tally, record, out->bytes, out->requested);
    return STRATA_SUCCESS;
}

/* A block that came from below, perhaps an empty one. */
static inline __attribute__((always_inline)) void count_made(strata_statistics *self, strata_tag_counters_thread *cell,
                                                             strata_tag_counters_account *account,
                                                             const strata_block *made, uint32_t call_stack)
{
    if (__builtin_expect(!made->id.generation, 0))
        return;
    const strata_table *table = strata_resource_table(&self->resource);
    write_note(self, note_in(&self->resource, strata_table_entry(table, made->id.slot)), made, account->tag,
               call_stack);
    strata_tag_counters_add(&self->tally, cell, account, made->bytes, made->requested);
}

/* With call stacks, or by a thread whose account has to be looked for. */
static __attribute__((noinline)) strata_status allocate_otherwise(strata_statistics *self,
                                                                  const strata_request *request, strata_block *out)
{
    strata_resource *upstream = self->resource.upstream;
    uint32_t call_stack = 0;
    if (atomic_load_explicit(&self->stacks, memory_order_relaxed))
        call_stack = strata_call_stack_capture(0);
    strata_tag_counters_thread *cell = strata_tag_counters_self(&self->tally, strata_thread_self());
    strata_tag_counters_account *account = strata_tag_counters_account_of(&self->tally, cell, request->tag);
    if (__builtin_expect(!account, 0))
        return allocate_shared(self, request, call_stack, out);
    strata_status status = upstream->ops->allocate(upstream, request, out);
    if (status != STRATA_SUCCESS)
        return count_failure(self, status);
    count_made(self, cell, account, out, call_stack);
    return STRATA_SUCCESS;
}

static strata_status statistics_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    strata_statistics *self = (strata_statistics *)resource;
    strata_tag_counters_thread *cell;
    strata_tag_counters_account *account = strata_tag_counters_account_if_present(&self->tally, request->tag, &cell);
    if (__builtin_expect(!account || atomic_load_explicit(&self->stacks, memory_order_relaxed), 0))
        return allocate_otherwise(self, request, out);
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return count_failure(self, status);
    count_made(self, cell, account, out, 0);
    return STRATA_SUCCESS;
}

/* The record of a tag that an allocation had; of none, where a free came with a tag of its own making. */
static strata_tag_counters_record *record_of(strata_statistics *self, strata_tag tag)
{
    strata_tag_counters_record *record = strata_tag_counters_find(&self->tally, tag);
    return record ? record : strata_tag_counters_find(&self->tally, 0);
}

static __attribute__((noinline)) strata_status count_free_otherwise(strata_statistics *self, strata_tag tag,
                                                                    size_t bytes)
{
    strata_tag_counters_thread *cell = strata_tag_counters_self(&self->tally, strata_thread_self());
    strata_tag_counters_account *account = strata_tag_counters_account_of(&self->tally, cell, tag);
    if (account)
        strata_tag_counters_sub(&self->tally, cell, account, bytes);
    else
        strata_tag_counters_sub_shared(&self->tally, record_of(self, tag), bytes);
    return STRATA_SUCCESS;
}

static inline strata_status count_free(strata_statistics *self, strata_tag tag, size_t bytes)
{
    strata_tag_counters_thread *cell;
    strata_tag_counters_account *account = strata_tag_counters_account_if_present(&self->tally, tag, &cell);
    if (__builtin_expect(!account, 0))
        return count_free_otherwise(self, tag, bytes);
    strata_tag_counters_sub(&self->tally, cell, account, bytes);
    return STRATA_SUCCESS;
}

static __attribute__((cold, noinline)) strata_status count_free_failure(strata_statistics *self, strata_status status)
{
    atomic_fetch_add_explicit(&self->free_failures, 1, memory_order_relaxed);
    return status;
}

static strata_status statistics_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    strata_statistics *self = (strata_statistics *)resource;
    const strata_statistics_note *note = note_of(resource, block->id);
    const uint64_t mark = note ? atomic_load_explicit(&note->mark, memory_order_acquire) : 0;
    strata_tag tag = block->tag;
    size_t bytes = block->bytes; /* if these are not the block's, the free fails */
    if (__builtin_expect(mark != 0,
                         1)) { /* else: found by its address before the call that allocates it came back here */
        tag = strata_statistics_mark_tag(mark);
        if (__builtin_expect(self->keeps, 0))
            bytes = (size_t)atomic_load_explicit(&note->bytes, memory_order_relaxed);
    }
    strata_status status = resource->upstream->ops->deallocate(resource->upstream, block, stream);
    return __builtin_expect(status == STRATA_SUCCESS, 1) ? count_free(self, tag, bytes)
                                                         : count_free_failure(self, status);
}

/* ---- values ---- */

enum {
    BYTES_CURRENT,
    BYTES_PEAK,
    BYTES_TOTAL,
    BLOCKS_CURRENT,
    BLOCKS_PEAK,
    BLOCKS_TOTAL,
    REQUESTED_TOTAL,
    RETIRED_BYTES,
    FAILURES,
    FREE_FAILURES,
    SCOPES,
    STACKS,
    RESET_PEAKS,
};

static const strata_value values[] = {
    [BYTES_CURRENT] = {"bytes.current", STRATA_VALUE_BYTES, false, "usable bytes in live blocks"},
    [BYTES_PEAK] = {"bytes.peak", STRATA_VALUE_BYTES, false, "the most that was live at a time"},
    [BYTES_TOTAL] = {"bytes.total", STRATA_VALUE_BYTES, false, "ever allocated"},
    [BLOCKS_CURRENT] = {"blocks.current", STRATA_VALUE_COUNT, false, "live blocks"},
    [BLOCKS_PEAK] = {"blocks.peak", STRATA_VALUE_COUNT, false, "the most that were live at a time"},
    [BLOCKS_TOTAL] = {"blocks.total", STRATA_VALUE_COUNT, false, "ever allocated"},
    [REQUESTED_TOTAL] = {"requested.total", STRATA_VALUE_BYTES, false, "ever asked for, of what was allocated"},
    [RETIRED_BYTES] = {"retired.bytes", STRATA_VALUE_BYTES, false, "freed in stream order and not complete"},
    [FAILURES] = {"failures", STRATA_VALUE_COUNT, false, "allocations that failed"},
    [FREE_FAILURES] = {"free_failures", STRATA_VALUE_COUNT, false, "frees that failed"},
    [SCOPES] = {"scopes", STRATA_VALUE_COUNT, false, "scopes that are open"},
    [STACKS] = {"stacks", STRATA_VALUE_SWITCH, true, "take the call stack of each allocation"},
    [RESET_PEAKS] = {"reset_peaks", STRATA_VALUE_SWITCH, true, "set to 1: every peak becomes what is live"},
};

static uint64_t not_negative(int64_t number)
{
    return number > 0 ? (uint64_t)number : 0;
}

static uint64_t counter_value(size_t which, const strata_statistics_counters *counters)
{
    switch (which) {
    case BYTES_CURRENT:
        return not_negative(counters->bytes.current);
    case BYTES_PEAK:
        return not_negative(counters->bytes.peak);
    case BYTES_TOTAL:
        return not_negative(counters->bytes.total);
    case BLOCKS_CURRENT:
        return not_negative(counters->blocks.current);
    case BLOCKS_PEAK:
        return not_negative(counters->blocks.peak);
    case BLOCKS_TOTAL:
        return not_negative(counters->blocks.total);
    default:
        return not_negative(counters->requested);
    }
}

/* The owner of the memory knows, also where the driver cannot be asked for the rest of a usage. Asking it when somebody
 * looks costs the frees nothing. */
static strata_status get_retired(const strata_resource *resource, uint64_t *value)
{
    strata_resource *upstream = resource->upstream;
    strata_usage usage = {0};
    *value = 0;
    strata_status status = upstream ? strata_usable() : STRATA_SUCCESS;
    if (!upstream || status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin();
    upstream->ops->usage(upstream, &usage);
    strata_error_suppress_end(false);
    *value = usage.retired_bytes;
    return STRATA_SUCCESS;
}

static strata_status statistics_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    strata_statistics *self = (strata_statistics *)resource;
    strata_statistics_counters counters;
    switch (which) {
    case RETIRED_BYTES:
        return get_retired(resource, value);
    case FAILURES:
        *value = strata_statistics_failed(self);
        break;
    case FREE_FAILURES:
        *value = atomic_load_explicit(&self->free_failures, memory_order_relaxed);
        break;
    case SCOPES:
        *value = strata_tag_counters_scopes(&self->tally);
        break;
    case STACKS:
        *value = atomic_load_explicit(&self->stacks, memory_order_relaxed);
        break;
    case RESET_PEAKS:
        *value = 0;
        break;
    default:
        strata_statistics_counters_of(self, self->tally.all, 0, &counters);
        *value = counter_value(which, &counters);
    }
    return STRATA_SUCCESS;
}

static strata_status statistics_set_value(strata_resource *resource, size_t which, uint64_t value)
{
    strata_statistics *self = (strata_statistics *)resource;
    if (which == STACKS)
        atomic_store_explicit(&self->stacks, value != 0, memory_order_relaxed);
    else if (value)
        strata_tag_counters_reset_peaks(&self->tally);
    return STRATA_SUCCESS;
}

/* ---- the functions of statistics.h that read and set ---- */

static void statistics_destroy(strata_resource *resource);

strata_statistics *strata_statistics_of(strata_resource *resource)
{
    if (resource && resource->ops && resource->ops->destroy == statistics_destroy)
        return (strata_statistics *)resource;
    strata_fail(STRATA_ERROR_INVALID_VALUE,
                "%s is no statistics layer; strata_stack_layer(stack, \"statistics\", 0) finds a stack's",
                !resource        ? "NULL"
                : !resource->ops ? "a resource without ops"
                                 : resource->ops->name);
    return NULL;
}

/* The head of those functions. */
static strata_status begin(strata_resource *resource, strata_statistics **self)
{
    strata_status status = strata_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    *self = strata_statistics_of(resource);
    return *self ? STRATA_SUCCESS : STRATA_ERROR_INVALID_VALUE;
}

static strata_statistics_counters public_counters(const strata_tag_counters_numbers *from)
{
    return (strata_statistics_counters){
        .bytes = {from->current[STRATA_TAG_COUNTERS_BYTES], from->peak[STRATA_TAG_COUNTERS_BYTES], from->total_bytes},
        .blocks = {from->current[STRATA_TAG_COUNTERS_BLOCKS], from->peak[STRATA_TAG_COUNTERS_BLOCKS],
                   from->total_blocks},
        .requested = from->total_requested,
    };
}

bool strata_statistics_counters_of(strata_statistics *self, strata_tag_counters_record *record, uint32_t scope,
                                   strata_statistics_counters *out)
{
    strata_tag_counters_numbers numbers;
    bool open = strata_tag_counters_read(&self->tally, record, scope, &numbers);
    *out = public_counters(&numbers);
    return open;
}

static strata_status read_counters(strata_resource *resource, uint32_t scope, const strata_tag *tag,
                                   strata_statistics_counters *out)
{
    strata_statistics *self;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics are read without a place for them");
    *out = (strata_statistics_counters){0};
    strata_status status = begin(resource, &self);
    if (status != STRATA_SUCCESS)
        return status;
    strata_tag_counters_record *record = tag ? strata_tag_counters_find(&self->tally, *tag) : self->tally.all;
    strata_tag_counters_numbers numbers;
    if (!strata_tag_counters_read(&self->tally, record, scope, &numbers))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: scope %u is not open, %u are", scope,
                           strata_tag_counters_scopes(&self->tally));
    *out = public_counters(&numbers);
    return STRATA_SUCCESS;
}

strata_status strata_statistics_read(strata_resource *statistics, uint32_t scope, strata_statistics_counters *out)
{
    return read_counters(statistics, scope, NULL, out);
}

strata_status strata_statistics_read_tag(strata_resource *statistics, uint32_t scope, strata_tag tag,
                                         strata_statistics_counters *out)
{
    return read_counters(statistics, scope, &tag, out);
}

strata_status strata_statistics_push(strata_resource *statistics)
{
    strata_statistics *self;
    strata_status status = begin(statistics, &self);
    if (status != STRATA_SUCCESS)
        return status;
    return strata_tag_counters_push(&self->tally) ? STRATA_SUCCESS : strata_fail_host_memory("a scope of statistics");
}

strata_status strata_statistics_pop(strata_resource *statistics, strata_statistics_counters *out)
{
    strata_statistics *self;
    strata_tag_counters_numbers numbers;
    if (out)
        *out = (strata_statistics_counters){0};
    strata_status status = begin(statistics, &self);
    if (status != STRATA_SUCCESS)
        return status;
    if (!strata_tag_counters_pop(&self->tally, &numbers))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: a scope is popped that was not pushed");
    if (out)
        *out = public_counters(&numbers);
    return STRATA_SUCCESS;
}

strata_status strata_statistics_reset_peaks(strata_resource *statistics)
{
    strata_statistics *self;
    strata_status status = begin(statistics, &self);
    if (status == STRATA_SUCCESS)
        strata_tag_counters_reset_peaks(&self->tally);
    return status;
}

strata_status strata_statistics_sizes(strata_resource *statistics, uint64_t counts[STRATA_STATISTICS_SIZES])
{
    strata_statistics *self;
    if (!counts)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "sizes are read without a place for them");
    for (size_t i = 0; i < STRATA_STATISTICS_SIZES; i++)
        counts[i] = 0;
    strata_status status = begin(statistics, &self);
    if (status == STRATA_SUCCESS)
        strata_tag_counters_sum_sizes(&self->tally, counts);
    return status;
}

uint64_t strata_statistics_failed(const strata_statistics *self)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < STRATA_STATISTICS_STATUSES; i++)
        sum += atomic_load_explicit(&self->failures[i], memory_order_relaxed);
    return sum;
}

uint64_t strata_statistics_failures(strata_resource *statistics, strata_status status)
{
    strata_statistics *self;
    if (begin(statistics, &self) != STRATA_SUCCESS || (unsigned)status >= STRATA_STATISTICS_STATUSES)
        return 0;
    if (status == STRATA_SUCCESS)
        return strata_statistics_failed(self);
    return atomic_load_explicit(&self->failures[status], memory_order_relaxed);
}

/* ---- making and ending ---- */

static strata_status statistics_begin(strata_resource *resource)
{
    ((strata_statistics *)resource)->keeps = !strata_resource_sees_table(resource);
    return STRATA_SUCCESS;
}

static void statistics_destroy(strata_resource *resource)
{
    strata_statistics *self = (strata_statistics *)resource;
    strata_statistics_end_reports(self);
    strata_tag_counters_destroy(&self->tally);
    strata_host_free(self);
}

static const strata_resource_ops statistics_ops = {
    .size = sizeof(strata_resource_ops),
    .passes_facts = true,
    .block_bytes = sizeof(strata_statistics_note),
    .spared_bytes = STRATA_STATISTICS_SPARED,
    .begin = statistics_begin,
    .name = "statistics",
    .allocate = statistics_allocate,
    .deallocate = statistics_deallocate,
    .destroy = statistics_destroy,
    .values = values,
    .value_count = sizeof values / sizeof values[0],
    .get_value = statistics_get_value,
    .set_value = statistics_set_value,
    .describe = strata_statistics_describe,
    .end_refused = strata_statistics_end_refused,
};

static strata_status check_options(const strata_statistics_options *options)
{
    bool named = options->file[0] != 0;
    if ((unsigned)options->leaks > STRATA_STATISTICS_LEAKS_FILE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: there is no mode %d of leaks", options->leaks);
    if (options->leaks == STRATA_STATISTICS_LEAKS_FILE && !named)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "statistics: leaks=file needs a file to write to, such as file=leaks.txt");
    if (options->leaks != STRATA_STATISTICS_LEAKS_FILE && named)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: file is for leaks=file, and leaks is another");
    return STRATA_SUCCESS;
}

strata_status strata_statistics_create(const strata_statistics_options *options, strata_resource **out)
{
    strata_statistics_options read;
    strata_status status = strata_options_begin("statistics", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = strata_not_forked();
    if (status == STRATA_SUCCESS)
        status = check_options(&read);
    if (status != STRATA_SUCCESS)
        return status;
    read.file[sizeof read.file - 1] = 0;
    strata_statistics *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a statistics layer");
    self->resource.ops = &statistics_ops;
    self->stacks = read.stacks;
    self->leaks = read.leaks;
    self->file = -1;
    status = strata_tag_counters_init(&self->tally) ? strata_statistics_begin_reports(self, read.file)
                                                    : strata_fail_host_memory("the counters of a statistics layer");
    if (status != STRATA_SUCCESS) {
        if (self->tally.all)
            strata_tag_counters_destroy(&self->tally);
        strata_host_free(self);
        return status;
    }
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static strata_status make_statistics(int device, const void *options, strata_resource **out)
{
    (void)device;
    return strata_statistics_create(options, out);
}

static const strata_option texts[] = {
    {"stacks", STRATA_OPTION_BOOL, offsetof(strata_statistics_options, stacks), NULL,
     "take the call stack of each allocation"},
    {"leaks", STRATA_OPTION_CHOICE, offsetof(strata_statistics_options, leaks), "off|log|file",
     "where what is live is reported when the stack cannot end, and at exit"},
    {"file", STRATA_OPTION_STRING, offsetof(strata_statistics_options, file), NULL,
     "for leaks=file: its path; %p: the process"},
};

const strata_layer strata_statistics_layer = {
    .size = sizeof(strata_layer),
    .name = "statistics",
    .help = "counts by tag, and knows what is live",
    .options = texts,
    .option_count = sizeof texts / sizeof texts[0],
    .options_size = sizeof(strata_statistics_options),
    .create = make_statistics,
};
