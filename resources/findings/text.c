/* A finding as text. */
#include "core/base/call_stack.h"
#include "core/base/escape.h"
#include "core/base/size_text.h"
#include "resources/findings/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *finding_kind_name(strata_guard_kind kind)
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

bool finding_has_bytes(const strata_guard_finding *finding)
{
    return finding->kind <= STRATA_GUARD_WRITE_AFTER_FREE;
}

void finding_describe_offset(const strata_guard_finding *finding, char *text, size_t room)
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
    finding_describe_offset(finding, place, sizeof place);
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
    to->write(text, strlen(text), to->data); /* may exceed print's buffer */
    print(to, "\n");
}

static void print_stack(printer *to, const char *what, uint32_t stack)
{
    if (!stack)
        return;
    print(to, "  %s\n", what);
    strata_call_stack_print(stack, print_frame, to);
}

/* The state of a finding's block. A foreign free's argument is no block, and has none. */
static const char *state_name(const strata_guard_finding *finding)
{
    if (finding->kind == STRATA_GUARD_FOREIGN_FREE)
        return "no block of this stack";
    return finding->freed ? "freed" : "live";
}

static const char *reason_of(const strata_guard_finding *finding, bool is_candidate)
{
    if (is_candidate)
        return finding->freed ? "if the device was stopped, it could be by an access after this free"
                              : "if the device was stopped, it could be by an access past its end";
    return finding->freed ? "the device was stopped by an access that could be one after this free"
                          : "the device was stopped by an access that could be one past its end";
}

static void print_finding(const strata_guard_finding *finding, bool is_candidate, strata_write_callback write,
                          void *data)
{
    printer to = {.write = write, .data = data};
    const strata_block *block = &finding->block;
    char tag[256];
    strata_escape(tag, sizeof tag, strata_tag_name(block->tag));
    print(&to, "guard: %s: block 0x%llx, %s, tag \"%s\", generation %llu, device %d, %s\n",
          is_candidate ? "fault candidate" : finding_kind_name(finding->kind), (unsigned long long)block->address,
          strata_size_text(block->requested).text, tag, (unsigned long long)block->id.generation, block->device,
          state_name(finding));
    if (finding_has_bytes(finding))
        print_change(&to, finding);
    if (finding->kind == STRATA_GUARD_ILLEGAL_ACCESS)
        print(&to, "  %s\n", reason_of(finding, is_candidate));
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

void findings_print_candidate(const strata_guard_finding *candidate, strata_write_callback write, void *data)
{
    print_finding(candidate, true, write, data);
}
