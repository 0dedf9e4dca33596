/* Live blocks in groups, reported on request, if the stack cannot be destroyed, and at exit. A walk over the stack's
 * table merges live blocks with equal call stack and tag (without call stacks: tag and size class). */
#include "resources/statistics/internal.h"

#include "core/base/call_stack.h"
#include "core/base/emitter.h"
#include "core/base/error.h"
#include "core/base/file_name.h"
#include "core/base/host_memory.h"
#include "core/base/output_file.h"
#include "core/base/report.h"
#include "core/base/size_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_ROOM = 256, MOST_LOGGED = 16 };

/* ---- walking ---- */

/* Finds the next live block from *slot on, in this layer's view. False: no more. */
static bool next_live(const strata_statistics *self, uint32_t *slot, uint32_t end, strata_block *block,
                      uint32_t *call_stack)
{
    const strata_table *table = strata_resource_table(&self->resource);
    strata_entry *entry;
    while ((entry = strata_table_lock_next(table, slot, end))) {
        const strata_statistics_facts *facts = strata_statistics_facts_in(&self->resource, entry);
        strata_entry_describe(table, *slot - 1, block);
        const uint64_t origin = atomic_load_explicit(&facts->origin, memory_order_acquire);
        if (self->stores_facts) {
            block->bytes = (size_t)atomic_load_explicit(&facts->bytes, memory_order_relaxed);
            block->requested = (size_t)atomic_load_explicit(&facts->requested, memory_order_relaxed);
            block->address = atomic_load_explicit(&facts->address, memory_order_relaxed);
        }
        block->tag = strata_statistics_origin_tag(origin);
        *call_stack = strata_statistics_origin_stack(origin);
        strata_entry_unlock(entry);
        if (origin)
            return true;
    }
    return false;
}

static strata_status begin(strata_resource *resource, strata_statistics **self)
{
    strata_status status = strata_statistics_enter(resource, self);
    if (status == STRATA_SUCCESS && !resource->stack)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: the layer belongs to no stack and has no blocks");
    return status;
}

strata_status strata_statistics_visit(strata_resource *statistics,
                                      void (*visit)(const strata_block *block, uint32_t call_stack, void *data),
                                      void *data)
{
    strata_statistics *self;
    if (!visit)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_statistics_visit: visit is NULL");
    strata_status status = begin(statistics, &self);
    if (status != STRATA_SUCCESS)
        return status;
    const uint32_t end = strata_table_slot_limit(strata_resource_table(statistics));
    strata_block block;
    uint32_t call_stack, slot = 1;
    while (next_live(self, &slot, end, &block, &call_stack))
        visit(&block, call_stack, data);
    return STRATA_SUCCESS;
}

strata_status strata_statistics_visit_stacks(strata_resource *statistics,
                                             void (*visit)(uint32_t call_stack, strata_tag tag,
                                                           const strata_statistics_counters *counters, void *data),
                                             void *data)
{
    strata_statistics *self;
    if (!visit)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_statistics_visit_stacks: visit is NULL");
    strata_status status = strata_statistics_enter(statistics, &self);
    if (status == STRATA_SUCCESS)
        strata_statistics_each_stack(self, visit, data);
    return status;
}

void strata_statistics_call_stack(uint32_t call_stack, void (*line)(const char *text, void *data), void *data)
{
    if (line)
        strata_call_stack_print(call_stack, line, data);
}

/* ---- groups ---- */

typedef struct leak_group {
    uint32_t call_stack;
    strata_tag tag;
    uint32_t size_class; /* 0 if there is a call stack */
    uint64_t blocks, bytes;
} leak_group;

typedef struct leak_list {
    leak_group *groups; /* freed by the caller of collect */
    size_t count, room;
    uint64_t blocks, bytes;
} leak_list;

static bool add_item(leak_list *list, const leak_group *item)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : FIRST_ROOM;
        leak_group *groups = strata_host_zalloc(room * sizeof *groups);
        if (!groups)
            return false;
        if (list->groups)
            memcpy(groups, list->groups, list->count * sizeof *groups);
        strata_host_free(list->groups);
        list->groups = groups;
        list->room = room;
    }
    list->groups[list->count++] = *item;
    list->blocks += item->blocks;
    list->bytes += item->bytes;
    return true;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_key(const void *a, const void *b)
{
    const leak_group *one = a, *other = b;
    int order = compare(one->call_stack, other->call_stack);
    if (!order)
        order = compare(one->tag, other->tag);
    return order ? order : compare(one->size_class, other->size_class);
}

static int by_bytes(const void *a, const void *b)
{
    int order = compare(((const leak_group *)b)->bytes, ((const leak_group *)a)->bytes);
    return order ? order : by_key(a, b);
}

static void merge(leak_list *list)
{
    size_t count = 0;
    if (!list->count)
        return;
    qsort(list->groups, list->count, sizeof *list->groups, by_key);
    for (size_t i = 1; i < list->count; i++) {
        if (by_key(&list->groups[count], &list->groups[i]) != 0) {
            list->groups[++count] = list->groups[i];
            continue;
        }
        list->groups[count].blocks += list->groups[i].blocks;
        list->groups[count].bytes += list->groups[i].bytes;
    }
    list->count = count + 1;
    qsort(list->groups, list->count, sizeof *list->groups, by_bytes);
}

static strata_status collect(const strata_statistics *self, leak_list *list)
{
    *list = (leak_list){0};
    const uint32_t end = strata_table_slot_limit(strata_resource_table(&self->resource));
    strata_block block;
    uint32_t slot = 1;
    for (leak_group item = {0}; next_live(self, &slot, end, &block, &item.call_stack);) {
        item.tag = block.tag;
        item.size_class = item.call_stack ? 0 : strata_tag_counters_size_class(block.bytes);
        item.blocks = 1;
        item.bytes = block.bytes;
        if (add_item(list, &item))
            continue;
        strata_host_free(list->groups);
        *list = (leak_list){0};
        return strata_fail_host_memory("a report of what is live");
    }
    merge(list);
    return STRATA_SUCCESS;
}

/* ---- the report ---- */

static void emit_line(const char *text, void *data)
{
    strata_emit_text(data, NULL, text);
}

static void emit_group(strata_emitter *to, const leak_group *group)
{
    strata_emit_object_begin(to, NULL);
    strata_emit_bytes(to, "bytes", group->bytes);
    strata_emit_count(to, "blocks", group->blocks);
    strata_emit_text(to, "tag", strata_statistics_tag_text(group->tag));
    if (group->call_stack) {
        strata_emit_list_begin(to, "call_stack");
        strata_call_stack_print(group->call_stack, emit_line, to);
        strata_emit_list_end(to);
    } else {
        strata_emit_bytes(to, "largest_up_to", strata_tag_counters_most_of(group->size_class));
    }
    strata_emit_object_end(to);
}

/* Writes the report. It names the process: several may report to one file. */
static void emit_leaks(strata_emitter *to, const strata_statistics *self, const leak_list *list)
{
    strata_emit_count(to, "process", (uint64_t)getpid());
    strata_emit_text(to, "command", program_invocation_name);
    strata_emit_text(to, "stack", strata_stack_text(self->resource.stack));
    strata_emit_count(to, "live_blocks", list->blocks);
    strata_emit_bytes(to, "live_bytes", list->bytes);
    strata_emit_list_begin(to, "groups");
    for (size_t i = 0; i < list->count; i++)
        emit_group(to, &list->groups[i]);
    strata_emit_list_end(to);
}

strata_status strata_statistics_leaks(strata_resource *statistics, strata_format format, strata_write_callback write,
                                      void *data)
{
    strata_statistics *self;
    leak_list list;
    if (!write || (unsigned)format > STRATA_FORMAT_JSON)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_statistics_leaks: write is NULL, or the format is unknown");
    strata_status status = begin(statistics, &self);
    if (status == STRATA_SUCCESS)
        status = collect(self, &list);
    if (status != STRATA_SUCCESS)
        return status;
    strata_emitter to;
    strata_emitter_begin(&to, format, write, data);
    emit_leaks(&to, self, &list);
    strata_emitter_end(&to);
    strata_host_free(list.groups);
    return STRATA_SUCCESS;
}

/* ---- reports without a call ---- */

static strata_lock reporting_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_LEAK_REPORTS);
static strata_statistics *reporting; /* guarded by reporting_lock, like the next one */
static bool exiting;                 /* layers made from now on do not report at exit */

typedef struct file_writer {
    int file;
    int error; /* the first one */
} file_writer;

static void write_file(const char *text, size_t length, void *data)
{
    file_writer *writer = data;
    while (length && !writer->error) {
        ssize_t written = strata_write_without_signals(writer->file, text, length);
        if (written < 0 && errno != EINTR)
            writer->error = errno;
        if (written <= 0)
            continue;
        text += written;
        length -= (size_t)written;
    }
}

/* Joins the emitter's pieces into larger writes. */
typedef struct gathered {
    char text[4096];
    size_t used;
    file_writer writer;
} gathered;

static void gather(const char *text, size_t length, void *data)
{
    gathered *to = data;
    if (length > sizeof to->text - to->used) {
        write_file(to->text, to->used, &to->writer);
        to->used = 0;
    }
    if (length > sizeof to->text) {
        write_file(text, length, &to->writer);
        return;
    }
    memcpy(to->text + to->used, text, length);
    to->used += length;
}

static strata_status report_to_file(const strata_statistics *self, const leak_list *list)
{
    gathered to = {.writer = {.file = self->file}};
    if (!strata_descriptor_is_marked(self->file, &self->file_mark))
        to.writer.error = EBADF; /* the program has closed it */
    strata_emitter emitter;
    strata_emitter_begin(&emitter, STRATA_FORMAT_TEXT, gather, &to);
    emit_leaks(&emitter, self, list);
    strata_emitter_end(&emitter);
    gather("\n", 1, &to);
    write_file(to.text, to.used, &to.writer);
    if (!to.writer.error)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_IO, "statistics: the report of leaks could not be written: %s",
                       strerror(to.writer.error));
}

typedef struct joined_frames {
    char text[320];
    size_t used;
} joined_frames;

/* Appends a frame, without the folders of source files: a message must reach the frames of the program, which come
 * after the library's own where it is linked in. */
static void join(const char *text, void *data)
{
    joined_frames *to = data;
    if (to->used >= sizeof to->text)
        return;
    const char *file = strrchr(text, '('), *slash = file ? strrchr(file, '/') : NULL;
    const size_t kept = slash ? (size_t)(file + 1 - text) : 0;
    int length = snprintf(to->text + to->used, sizeof to->text - to->used, "%s%.*s%s", to->used ? ", " : "", (int)kept,
                          text, slash ? slash + 1 : text);
    to->used += length > 0 ? (size_t)length : 0;
}

static void log_group(const leak_group *group)
{
    joined_frames frames = {0};
    strata_call_stack_print(group->call_stack, join, &frames);
    strata_error *error = strata_error_begin(STRATA_ERROR_BUSY);
    error->in_use = (size_t)group->bytes;
    error->tag = group->tag;
    strata_error_raise_finding(error, "statistics: %llu live block%s, %s in all, tag \"%s\"%s%s",
                               (unsigned long long)group->blocks, group->blocks == 1 ? "" : "s",
                               strata_size_text(group->bytes).text, strata_tag_name(group->tag),
                               group->call_stack ? ", allocated by " : "", frames.text);
}

static void report_to_log(const leak_list *list)
{
    size_t logged = list->count < MOST_LOGGED ? list->count : MOST_LOGGED;
    for (size_t i = 0; i < logged; i++)
        log_group(&list->groups[i]);
    if (list->count > logged)
        strata_error_raise_finding(strata_error_begin(STRATA_ERROR_BUSY),
                                   "statistics: %zu more groups of live blocks; strata_statistics_leaks lists all",
                                   list->count - logged);
}

/* Writes the report to STRATA_REPORT, or to standard error if leaks=log has no callback to call. */
static void report_in_words(const strata_statistics *self, const leak_list *list)
{
    static const char title[] = "statistics: blocks that are still live\n";
    if (!strata_report_is_wanted(self->leaks != STRATA_STATISTICS_LEAKS_LOG || strata_error_has_log_callback(), false))
        return;
    strata_report_text text;
    strata_emitter to;
    strata_report_text_begin(&text, false);
    strata_report_text_add(title, sizeof title - 1, &text);
    strata_emitter_begin(&to, STRATA_FORMAT_TEXT, strata_report_text_add, &text);
    emit_leaks(&to, self, list);
    strata_emitter_end(&to);
    strata_report_text_add("\n", 1, &text);
    strata_report_text_end(&text);
}

/* Collects what is live and writes it to where no callback is called. The caller frees the list. */
static strata_status write_report(const strata_statistics *self, leak_list *list)
{
    *list = (leak_list){0};
    strata_status status = self->resource.stack ? collect(self, list) : STRATA_SUCCESS;
    if (list->count)
        report_in_words(self, list);
    if (list->count && self->leaks == STRATA_STATISTICS_LEAKS_FILE)
        status = report_to_file(self, list);
    return status;
}

void strata_statistics_end_refused(strata_resource *resource)
{
    const strata_statistics *self = (const strata_statistics *)resource;
    leak_list list;
    if (!self->reports)
        return;
    write_report(self, &list);
    if (self->leaks == STRATA_STATISTICS_LEAKS_LOG)
        report_to_log(&list);
    strata_host_free(list.groups);
}

/* Reports one more layer; false: none is left. The log callback is called without the lock, since it may end this layer
 * or make others. */
static bool report_next(void)
{
    leak_list list = {0};
    strata_status status = STRATA_SUCCESS;
    bool logs = false;
    strata_error_suppress_begin();
    strata_lock_take(&reporting_lock);
    exiting = true;
    strata_statistics *self = reporting;
    while (self && self->reported)
        self = self->next;
    if (self) {
        self->reported = true;
        logs = self->leaks == STRATA_STATISTICS_LEAKS_LOG;
        status = write_report(self, &list);
    }
    strata_lock_release(&reporting_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (logs)
        report_to_log(&list);
    strata_host_free(list.groups);
    return self != NULL;
}

/* Reports after all exit handlers: memory freed there is no leak. The driver, gone by then, is not called. A forked
 * child has no blocks, and the lock may have been held at the fork. */
static __attribute__((destructor)) void report_at_exit(void)
{
    if (strata_driver_state_now() == STRATA_DRIVER_FORKED)
        return;
    while (report_next())
        continue;
}

static strata_status open_file(strata_statistics *self, const strata_statistics_options *options)
{
    char file[2048], text[128];
    strata_status status = strata_file_name(file, sizeof file, "statistics", options->file, NULL, 0);
    if (status != STRATA_SUCCESS)
        return status;
    self->file = strata_output_append(file, 0, (mode_t)options->mode);
    self->file_mark = strata_descriptor_mark_of(self->file);
    if (self->file >= 0)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_IO, "statistics: cannot create or write file \"%.200s\": %s", file,
                       strata_output_error(errno, text, sizeof text));
}

strata_status strata_statistics_begin_reports(strata_statistics *self, const strata_statistics_options *options)
{
    self->reports = self->leaks != STRATA_STATISTICS_LEAKS_OFF || strata_report_has_place();
    if (!self->reports)
        return STRATA_SUCCESS;
    strata_status status = self->leaks == STRATA_STATISTICS_LEAKS_FILE ? open_file(self, options) : STRATA_SUCCESS;
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&reporting_lock);
    self->reported = exiting;
    self->next = reporting;
    if (reporting)
        reporting->previous = self;
    reporting = self;
    strata_lock_release(&reporting_lock);
    return STRATA_SUCCESS;
}

void strata_statistics_end_reports(strata_statistics *self)
{
    if (!self->reports)
        return;
    strata_lock_take(&reporting_lock);
    if (self->next)
        self->next->previous = self->previous;
    if (self->previous)
        self->previous->next = self->next;
    else
        reporting = self->next;
    strata_lock_release(&reporting_lock);
    if (strata_descriptor_is_marked(self->file, &self->file_mark))
        close(self->file);
}
