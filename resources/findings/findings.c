/* What the guard tells: to its callback or the log, to who asks for it later, and as text. */
#include "resources/guard/internal.h"

#include "core/base/call_stack.h"
#include "core/base/error.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- as text ---- */

static const char *kind_name(strata_guard_kind kind)
{
    switch (kind) {
    case STRATA_GUARD_OVERRUN:
        return "overrun";
    case STRATA_GUARD_UNDERRUN:
        return "underrun";
    case STRATA_GUARD_WRITE_AFTER_FREE:
        return "write after free";
    case STRATA_GUARD_DOUBLE_FREE:
        return "double free";
    case STRATA_GUARD_FOREIGN_FREE:
        return "foreign free";
    case STRATA_GUARD_ILLEGAL_ACCESS:
        return "illegal access";
    }
    return "finding";
}

static bool has_bytes(const strata_guard_finding *finding)
{
    return finding->kind <= STRATA_GUARD_WRITE_AFTER_FREE;
}

/* Where the first changed byte is. */
static void describe_place(const strata_guard_finding *finding, char *text, size_t room)
{
    long long past = (long long)(finding->offset - (int64_t)finding->block.requested);
    if (finding->kind == STRATA_GUARD_OVERRUN)
        snprintf(text, room, "offset %lld, %lld past the end", (long long)finding->offset, past);
    else if (finding->kind == STRATA_GUARD_UNDERRUN)
        snprintf(text, room, "offset %lld, before the block", (long long)finding->offset);
    else
        snprintf(text, room, "offset %lld", (long long)finding->offset);
}

typedef struct printer {
    strata_write_callback write;
    void *data;
} printer;

static void print(const printer *to, const char *format, ...) STRATA_PRINTF(2, 3);

static void print(const printer *to, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    to->write(text, strlen(text), to->data);
}

static void print_bytes(const printer *to, const char *what, const unsigned char *bytes, unsigned count)
{
    print(to, "  %-8s", what);
    for (unsigned i = 0; i < count; i++)
        print(to, " %02x", bytes[i]);
    print(to, "\n");
}

/* The changed bytes, 16 in a line. */
static void print_change(const printer *to, const strata_guard_finding *finding)
{
    unsigned char expected[16];
    char place[96];
    describe_place(finding, place, sizeof place);
    memset(expected, finding->expected, sizeof expected);
    print(to, "  %llu byte%s changed, the first at %s; from there on\n", (unsigned long long)finding->changed,
          finding->changed == 1 ? "" : "s", place);
    for (unsigned i = 0; i < finding->shown && i < STRATA_GUARD_BYTES_SHOWN; i += 16) {
        unsigned count = finding->shown - i < 16u ? finding->shown - i : 16u;
        print_bytes(to, "found", finding->found + i, count);
        print_bytes(to, "expected", expected, count);
    }
}

static void print_frame(const char *text, void *data)
{
    const printer *to = data;
    print(to, "    ");
    to->write(text, strlen(text), to->data); /* longer than print has room for, perhaps */
    print(to, "\n");
}

static void print_stack(printer *to, const char *what, uint32_t stack)
{
    if (!stack)
        return;
    print(to, "  %s\n", what);
    strata_call_stack_print(stack, print_frame, to);
}

/* What was given to a free and is no block has no state. */
static const char *state_name(const strata_guard_finding *finding)
{
    if (finding->kind == STRATA_GUARD_FOREIGN_FREE)
        return "no block of this stack";
    return finding->freed ? "freed" : "live";
}

static const char *reason_of(const strata_guard_finding *finding, bool suspected)
{
    if (suspected)
        return finding->freed ? "if the device was stopped, it could be by an access after this free"
                              : "if the device was stopped, it could be by an access past its end";
    return finding->freed ? "the device was stopped by an access that could be one after this free"
                          : "the device was stopped by an access that could be one past its end";
}

static void print_finding(const strata_guard_finding *finding, bool suspected, strata_write_callback write, void *data)
{
    printer to = {.write = write, .data = data};
    const strata_block *block = &finding->block;
    print(&to, "guard: %s: block 0x%llx, %zu bytes, tag \"%s\", generation %llu, device %d, %s\n",
          suspected ? "suspect" : kind_name(finding->kind), (unsigned long long)block->address, block->requested,
          strata_tag_name(block->tag), (unsigned long long)block->id.generation, block->device, state_name(finding));
    if (has_bytes(finding))
        print_change(&to, finding);
    if (finding->kind == STRATA_GUARD_ILLEGAL_ACCESS)
        print(&to, "  %s\n", reason_of(finding, suspected));
    print_stack(&to, "allocated at", finding->allocated_at);
    print_stack(&to, "freed at", finding->freed_at);
    print_stack(&to, finding->kind == STRATA_GUARD_DOUBLE_FREE ? "freed again at" : "given to a free at",
                finding->found_at);
}

void strata_guard_finding_print(const strata_guard_finding *finding, strata_write_callback write, void *data)
{
    if (finding && write)
        print_finding(finding, false, write, data);
}

void guard_print_suspect(const strata_guard_finding *suspect, strata_write_callback write, void *data)
{
    print_finding(suspect, true, write, data);
}

/* ---- telling ---- */

/* Of what was no write the log callback has heard: a call that was refused, or that met a stopped device. */
void guard_raise(const strata_guard_finding *finding)
{
    if (!has_bytes(finding))
        return;
    const strata_block *block = &finding->block;
    strata_error *error = strata_error_begin_finding(STRATA_ERROR_CORRUPTED);
    error->requested = block->requested;
    error->tag = block->tag;
    error->generation = block->id.generation;
    char place[96], found[3 * 8 + 1] = "";
    describe_place(finding, place, sizeof place);
    for (unsigned i = 0; i < finding->shown && i < 8; i++)
        snprintf(found + 3 * i, 4, " %02x", finding->found[i]);
    strata_error_raise(
        error, "%s: %llu byte%s changed at %s: block 0x%llx of %zu bytes (tag \"%s\", generation %llu, %s): found%s%s",
        kind_name(finding->kind), (unsigned long long)finding->changed, finding->changed == 1 ? "" : "s", place,
        (unsigned long long)block->address, block->requested, strata_tag_name(block->tag),
        (unsigned long long)block->id.generation, finding->freed ? "freed" : "live", found,
        finding->changed > 8 ? " ..." : "");
}

void guard_report_begin(guard_report *self, const strata_guard_options *options)
{
    self->options = options;
    strata_lock_init(&self->lock, STRATA_RANK_GUARD);
}

void guard_report_end(guard_report *self)
{
    guard_report_leave_exit(self);
    strata_lock_destroy(&self->lock);
}

static void keep(guard_report *self, const strata_guard_finding *finding)
{
    strata_lock_take(&self->lock);
    if (self->kept_end - self->kept_first < GUARD_KEPT)
        self->kept[self->kept_end++ % GUARD_KEPT] = *finding;
    else
        atomic_fetch_add_explicit(&self->lost, 1, memory_order_relaxed);
    strata_lock_release(&self->lock);
}

bool guard_take_kept(guard_report *self, strata_guard_finding *out)
{
    strata_lock_take(&self->lock);
    bool any = self->kept_first != self->kept_end;
    if (any)
        *out = self->kept[self->kept_first++ % GUARD_KEPT];
    strata_lock_release(&self->lock);
    return any;
}

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* A descriptor that is full for now is waited for, but not for ever, however many signals come. */
static bool wait_for_room(void)
{
    enum { PATIENCE_MS = 2000 };
    struct pollfd one = {.fd = STDERR_FILENO, .events = POLLOUT};
    int64_t left = PATIENCE_MS, until = now_ms() + PATIENCE_MS;
    int ready = -1;
    for (errno = EINTR; ready < 0 && errno == EINTR && left > 0; left = until - now_ms())
        ready = poll(&one, 1, (int)left);
    return ready > 0;
}

static void write_out(guard_words *words)
{
    for (size_t done = 0; done < words->used && !words->unheard;) {
        ssize_t written = write(STDERR_FILENO, words->text + done, words->used - done);
        if (written >= 0)
            done += (size_t)written;
        else if (errno != EINTR)
            words->unheard = errno != EAGAIN || !wait_for_room();
    }
    words->used = 0;
}

void guard_words_begin(guard_words *words)
{
    words->used = 0;
    words->unheard = false;
}

void guard_words_add(const char *text, size_t length, void *data)
{
    guard_words *words = data;
    for (size_t done = 0, part; done < length; done += part) {
        if (words->used == sizeof words->text)
            write_out(words);
        part = sizeof words->text - words->used;
        part = part < length - done ? part : length - done;
        memcpy(words->text + words->used, text + done, part);
        words->used += part;
    }
}

void guard_words_end(guard_words *words)
{
    write_out(words);
}

_Noreturn static void end_process(const strata_guard_finding *findings, size_t count)
{
    guard_words words;
    guard_words_begin(&words);
    for (size_t i = 0; i < count; i++)
        strata_guard_finding_print(&findings[i], guard_words_add, &words);
    guard_words_end(&words);
    _exit(STRATA_GUARD_EXIT_STATUS);
}

/* The call in which a finding is met may be hushed, and may have failed already. */
static void call_back(const guard_report *self, const strata_guard_finding *finding)
{
    strata_error_aside aside;
    strata_error_set_aside(&aside);
    self->options->on_finding_call(finding, self->options->on_finding_data);
    strata_error_take_back(&aside);
}

void guard_note(guard_report *self, const strata_guard_finding *findings, size_t count)
{
    if (!count)
        return;
    for (size_t i = 0; i < count; i++)
        keep(self, &findings[i]);
    atomic_fetch_add_explicit(&self->findings, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->unseen, count, memory_order_relaxed);
    if (self->options->on_finding == STRATA_GUARD_FAIL)
        atomic_store_explicit(&self->to_be_failed, true, memory_order_relaxed);
}

void guard_tell(const guard_report *self, const strata_guard_finding *findings, size_t count)
{
    if (!count || guard_leaves_findings(self, findings, count))
        return;
    for (size_t i = 0; i < count; i++) {
        if (self->options->on_finding_call)
            call_back(self, &findings[i]);
        else
            guard_raise(&findings[i]);
    }
    if (self->options->on_finding == STRATA_GUARD_EXIT)
        end_process(findings, count);
}

strata_status guard_fail_once(guard_report *self)
{
    if (self->options->on_finding != STRATA_GUARD_FAIL ||
        !atomic_exchange_explicit(&self->to_be_failed, false, memory_order_relaxed))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_CORRUPTED,
                       "guard: memory around a block, or of a freed one, was overwritten; this allocation fails to "
                       "say so, and strata_guard_take_finding has the findings");
}

bool guard_is_refused_free(strata_status status)
{
    return status == STRATA_ERROR_DOUBLE_FREE || status == STRATA_ERROR_FOREIGN_POINTER;
}

void guard_tell_refused(guard_report *self, const strata_block *block, strata_status status, const guard_memory *first,
                        uint32_t found_at)
{
    bool twice = status == STRATA_ERROR_DOUBLE_FREE;
    strata_guard_finding finding = {
        .size = sizeof finding,
        .kind = twice ? STRATA_GUARD_DOUBLE_FREE : STRATA_GUARD_FOREIGN_FREE,
        .block = first->block.id.generation ? first->block : *block,
        .freed = twice,
        .allocated_at = first->allocated_at,
        .freed_at = first->freed_at,
        .found_at = found_at,
    };
    guard_note(self, &finding, 1);
    guard_tell(self, &finding, 1);
}

/* ---- in a report ---- */

static void describe_finding(strata_emitter *to, const strata_guard_finding *finding)
{
    strata_emit_object_begin(to, NULL);
    strata_emit_text(to, "kind", kind_name(finding->kind));
    strata_emit_hex(to, "block", finding->block.address);
    strata_emit_bytes(to, "requested", finding->block.requested);
    strata_emit_text(to, "tag", strata_tag_name(finding->block.tag));
    strata_emit_count(to, "generation", finding->block.id.generation);
    if (has_bytes(finding)) {
        strata_emit_signed(to, "offset", finding->offset);
        strata_emit_count(to, "changed", finding->changed);
    }
    strata_emit_object_end(to);
}

void guard_describe_kept(guard_report *self, strata_emitter *to)
{
    strata_emit_list_begin(to, "kept_findings");
    strata_lock_take(&self->lock);
    uint64_t next = self->kept_first;
    strata_lock_release(&self->lock);
    for (bool more = true; more; next++) {
        strata_guard_finding finding;
        strata_lock_take(&self->lock);
        next = next < self->kept_first ? self->kept_first : next;
        more = next < self->kept_end;
        finding = self->kept[next % GUARD_KEPT];
        strata_lock_release(&self->lock);
        if (more)
            describe_finding(to, &finding);
    }
    strata_emit_list_end(to);
}
