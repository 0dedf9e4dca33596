/* Reading one line of a recording. Fields are separated by one space each. */
#include "service/recording_line.h"

#include "runtime/references.h"
#include "service/graph.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* A part of the line. */
typedef struct span {
    const char *at;
    size_t length;
} span;

typedef struct line_cursor {
    span rest;
    bool over; /* the last field was taken */
    recording_problem *problem;
} line_cursor;

/* ---- fields ---- */

static bool refuse(const line_cursor *cursor, const char *field, span text, const char *needs)
{
    const int shown = text.length < 40 ? (int)text.length : 40;
    snprintf(cursor->problem->text, sizeof cursor->problem->text, "%s is \"%.*s%s\"; it must be %s", field, shown,
             text.at, text.length > 40 ? "..." : "", needs);
    return false;
}

/* Cuts off what stands before `separator`, or all of it. False: there is nothing more. */
static bool cut(span *rest, bool *over, char separator, span *part)
{
    if (*over)
        return false;
    const char *end = memchr(rest->at, separator, rest->length);
    part->at = rest->at;
    part->length = end ? (size_t)(end - rest->at) : rest->length;
    *over = !end;
    if (end)
        *rest = (span){end + 1, rest->length - part->length - 1};
    return true;
}

static bool take(line_cursor *cursor, const char *field, span *out)
{
    if (cut(&cursor->rest, &cursor->over, ' ', out))
        return true;
    snprintf(cursor->problem->text, sizeof cursor->problem->text, "the line ends before its %s; it is incomplete",
             field);
    return false;
}

static bool read_number(span text, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < text.length; i++) {
        const unsigned digit = (unsigned)(unsigned char)text.at[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return text.length && value <= most;
}

static bool take_number(line_cursor *cursor, const char *field, uint64_t most, uint64_t *out)
{
    span text;
    char needs[64];
    if (!take(cursor, field, &text))
        return false;
    if (read_number(text, most, out))
        return true;
    snprintf(needs, sizeof needs, "a number, at most %" PRIu64, most);
    return refuse(cursor, field, text, needs);
}

static bool take_unsigned(line_cursor *cursor, const char *field, unsigned *out)
{
    uint64_t value = 0;
    const bool taken = take_number(cursor, field, UINT_MAX, &value);
    *out = (unsigned)value;
    return taken;
}

static bool find_word(span text, const char *const *words, unsigned count, unsigned *out)
{
    for (*out = 0; *out < count; ++*out)
        if (strlen(words[*out]) == text.length && memcmp(words[*out], text.at, text.length) == 0)
            return true;
    return false;
}

static bool take_word(line_cursor *cursor, const char *field, const char *const *words, unsigned count, unsigned *out)
{
    span text;
    char needs[160] = "one of";
    if (!take(cursor, field, &text))
        return false;
    if (find_word(text, words, count, out))
        return true;
    for (unsigned i = 0; i < count; i++) {
        const size_t used = strlen(needs);
        snprintf(needs + used, sizeof needs - used, "%s %s", i ? "," : "", words[i]);
    }
    return refuse(cursor, field, text, needs);
}

/* The value of a hexadecimal digit; -1: it is none. */
static int hex_digit(char digit)
{
    return digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool is_hex(span text)
{
    for (size_t i = 0; i < text.length; i++)
        if (hex_digit(text.at[i]) < 0)
            return false;
    return text.length && text.length % 2 == 0;
}

static void read_hex(const char *digits, size_t bytes, unsigned char *into)
{
    for (size_t i = 0; i < bytes; i++)
        into[i] = (unsigned char)(hex_digit(digits[2 * i]) << 4 | hex_digit(digits[2 * i + 1]));
}

/* ---- names ---- */

static bool read_name(span text, char *into)
{
    for (size_t i = 0; i < text.length; i++) {
        unsigned char byte = (unsigned char)text.at[i];
        if (byte == '%') {
            if (text.length - i < 3 || !is_hex((span){text.at + i + 1, 2}))
                return false;
            read_hex(text.at + i + 1, 1, &byte);
            i += 2;
        }
        if (!byte)
            return false;
        *into++ = (char)byte;
    }
    *into = '\0';
    return true;
}

static bool take_name(line_cursor *cursor, const char *field, char into[RECORDING_NAME_LIMIT + 1])
{
    span text;
    if (!take(cursor, field, &text))
        return false;
    return (text.length && text.length <= RECORDING_NAME_LIMIT && read_name(text, into)) ||
           refuse(cursor, field, text, "a name of at most 4096 bytes, with %XX for what is not plain");
}

/* ---- references ---- */

static bool read_type(span text, strata_element *out)
{
    for (unsigned type = STRATA_ELEMENT_NONE + 1; type <= STRATA_ELEMENT_C128; type++) {
        const char *name = strata_element_name((strata_element)type);
        if (strlen(name) == text.length && memcmp(name, text.at, text.length) == 0) {
            *out = (strata_element)type;
            return true;
        }
    }
    return false;
}

static bool count_bytes(recorded_ref *ref)
{
    size_t end;
    return !__builtin_mul_overflow(strata_element_bytes(ref->type), ref->length, &ref->bytes) &&
           !__builtin_add_overflow(ref->offset, ref->bytes, &end);
}

/* NUMBER:OFFSET:TYPE:LENGTH */
static bool read_ref(span text, recorded_ref *out)
{
    span parts[4];
    uint64_t offset, length;
    bool over = false;
    for (size_t i = 0; i < 4; i++)
        if (!cut(&text, &over, ':', &parts[i]))
            return false;
    if (!over || !read_number(parts[0], UINT64_MAX, &out->number) || !read_number(parts[1], SIZE_MAX, &offset) ||
        !read_type(parts[2], &out->type) || !read_number(parts[3], SIZE_MAX, &length))
        return false;
    out->offset = (size_t)offset;
    out->length = (size_t)length;
    return count_bytes(out);
}

static bool add_ref(const line_cursor *cursor, const char *field, span text, recorded_request *out)
{
    return read_ref(text, &out->refs[out->ref_count++]) ||
           refuse(cursor, field, text, "a reference: NUMBER:OFFSET:TYPE:LENGTH");
}

/* ---- kinds ---- */

static bool read_allocate(line_cursor *cursor, recorded_request *out)
{
    static const char *const words[] = {"zeroed", "raw"};
    span type;
    uint64_t length;
    unsigned raw;
    if (!take_number(cursor, "number", UINT64_MAX, &out->number) || !take(cursor, "type", &type))
        return false;
    if (!read_type(type, &out->made.type))
        return refuse(cursor, "type", type, "an element type such as f32");
    if (!take_number(cursor, "length", SIZE_MAX / strata_element_bytes(out->made.type), &length) ||
        !take_word(cursor, "memory", words, 2, &raw))
        return false;
    out->made.length = (size_t)length;
    out->raw = raw;
    return count_bytes(&out->made);
}

static bool read_copy(line_cursor *cursor, recorded_request *out)
{
    span text;
    if (!take(cursor, "reference", &text) || !add_ref(cursor, "reference", text, out))
        return false;
    return out->refs[0].bytes > 0 || refuse(cursor, "reference", text, "one with elements");
}

static bool read_device_copy(line_cursor *cursor, recorded_request *out)
{
    span text;
    if (!read_copy(cursor, out) || !take(cursor, "second reference", &text) ||
        !add_ref(cursor, "second reference", text, out))
        return false;
    return out->refs[1].bytes == out->refs[0].bytes ||
           refuse(cursor, "second reference", text, "one with as many bytes as the first");
}

/* value: and digits, of which `out` has room for 8 bytes. */
static bool read_value(span text, unsigned char *out, uint32_t *bytes)
{
    *bytes = (uint32_t)(text.length / 2);
    if (!is_hex(text) || (*bytes != 1 && *bytes != 2 && *bytes != 4 && *bytes != 8))
        return false;
    read_hex(text.at, *bytes, out);
    return true;
}

static bool read_fill(line_cursor *cursor, recorded_request *out)
{
    static const char word[] = "value:";
    const size_t skip = sizeof word - 1;
    unsigned char bytes[8] = {0};
    span text;
    if (!read_copy(cursor, out) || !take(cursor, "value", &text))
        return false;
    const bool named = text.length > skip && memcmp(text.at, word, skip) == 0;
    if (!named || !read_value((span){text.at + skip, text.length - skip}, bytes, &out->fill_width) ||
        (out->fill_width != 1 && out->fill_width != 4))
        return refuse(cursor, "value", text, "value: and 2 or 8 hexadecimal digits");
    memcpy(&out->fill_value, bytes, sizeof out->fill_value);
    if (out->fill_width == 1)
        out->fill_value = bytes[0];
    return true;
}

static bool read_load(line_cursor *cursor, recorded_request *out)
{
    span image;
    if (!take_number(cursor, "number", UINT64_MAX, &out->number) || !take(cursor, "image", &image))
        return false;
    out->image = image.at;
    out->image_bytes = image.length / 2;
    return (is_hex(image) && out->image_bytes <= RECORDING_IMAGE_LIMIT) ||
           refuse(cursor, "image", image, "two hexadecimal digits for each of at most 33554432 bytes");
}

static bool read_argument(line_cursor *cursor, recorded_request *out)
{
    span text, word, rest;
    bool over = false;
    unsigned kind;
    if (!take(cursor, "argument", &text))
        return false;
    if (out->argument_count == STRATA_ARGUMENT_LIMIT)
        return refuse(cursor, "argument 65", text, "left out: 64 are the most");
    rest = text;
    if (!cut(&rest, &over, ':', &word) || over ||
        !find_word(word, service_recording_arguments, RECORDING_ARGUMENT_KINDS, &kind))
        return refuse(cursor, "argument", text, "value:, read:, write: or both:, and what it is");
    strata_argument *argument = &out->arguments[out->argument_count++];
    argument->kind = (strata_argument_kind)kind;
    if (argument->kind != STRATA_ARGUMENT_VALUE)
        return add_ref(cursor, "argument", rest, out);
    return read_value(rest, argument->value, &argument->bytes) ||
           refuse(cursor, "argument", text, "value: and 2, 4, 8 or 16 hexadecimal digits");
}

static bool read_launch(line_cursor *cursor, recorded_request *out)
{
    bool fine = take_number(cursor, "module", UINT64_MAX, &out->number) && take_name(cursor, "entry", out->entry);
    for (size_t i = 0; i < 3; i++)
        fine = fine && take_unsigned(cursor, "grid", &out->grid[i]);
    for (size_t i = 0; i < 3; i++)
        fine = fine && take_unsigned(cursor, "block", &out->block[i]);
    fine = fine && take_unsigned(cursor, "shared bytes", &out->shared_bytes);
    while (fine && !cursor->over)
        fine = read_argument(cursor, out);
    return fine;
}

/* ---- cuBLAS ---- */

/* REFERENCE/OFFSET/LEADING/STRIDE/STEP */
static bool read_operand(line_cursor *cursor, const char *field, recorded_request *out, strata_blas_operand *operand)
{
    span text, rest, ref, part;
    uint64_t values[4] = {0};
    bool over = false;
    if (!take(cursor, field, &text))
        return false;
    rest = text;
    bool fine = cut(&rest, &over, '/', &ref);
    for (size_t i = 0; i < 4; i++)
        fine = fine && cut(&rest, &over, '/', &part) && read_number(part, SIZE_MAX, &values[i]);
    if (!fine || !over)
        return refuse(cursor, field, text, "an operand: REFERENCE/OFFSET/LEADING/STRIDE/STEP");
    operand->offset = (size_t)values[0];
    operand->leading = (size_t)values[1];
    operand->stride = (size_t)values[2];
    operand->step = (size_t)values[3];
    return add_ref(cursor, field, ref, out);
}

static bool take_double(line_cursor *cursor, const char *field, double *out)
{
    span text;
    unsigned char bytes[8];
    uint64_t bits = 0;
    if (!take(cursor, field, &text))
        return false;
    if (text.length != 16 || !is_hex(text))
        return refuse(cursor, field, text, "16 hexadecimal digits");
    read_hex(text.at, sizeof bytes, bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        bits = bits << 8 | bytes[i];
    memcpy(out, &bits, sizeof *out);
    return true;
}

static bool read_field(line_cursor *cursor, const recording_field *field, recorded_request *out, void *value)
{
    uint64_t number = 0;
    unsigned word = 0;
    switch (field->kind) {
    case RECORDING_ORDER:
        if (!take_word(cursor, field->name, service_recording_orders, STRATA_BLAS_COLUMNS + 1, &word))
            return false;
        *(strata_blas_order *)value = (strata_blas_order)word;
        return true;
    case RECORDING_BOOL:
        if (!take_number(cursor, field->name, 1, &number))
            return false;
        *(bool *)value = number != 0;
        return true;
    case RECORDING_SIZE:
        if (!take_number(cursor, field->name, SIZE_MAX, &number))
            return false;
        *(size_t *)value = (size_t)number;
        return true;
    case RECORDING_DOUBLE:
        return take_double(cursor, field->name, value);
    case RECORDING_OPERAND:
        return read_operand(cursor, field->name, out, value);
    }
    return false;
}

static bool read_blas(line_cursor *cursor, recorded_request *out)
{
    const char *names[RECORDING_ROUTINES];
    unsigned number;
    for (size_t i = 0; i < RECORDING_ROUTINES; i++)
        names[i] = service_recording_routines[i].name;
    if (!take_word(cursor, "routine", names, RECORDING_ROUTINES, &number))
        return false;
    const recording_routine *routine = &service_recording_routines[number];
    out->blas.routine = (strata_blas_routine)number;
    bool fine = true;
    for (size_t i = 0; i < routine->count && fine; i++)
        fine = read_field(cursor, &routine->fields[i], out, (char *)&out->blas + routine->fields[i].at);
    return fine;
}

/* ---- lines ---- */

static bool read_head(line_cursor *cursor, recorded_request *out)
{
    unsigned priority, hint;
    if (!take_number(cursor, "time", UINT64_MAX, &out->time) ||
        !take_number(cursor, "sender", UINT64_MAX, &out->sender) ||
        !take_word(cursor, "priority", service_recording_priorities, STRATA_PRIORITY_HIGH + 1, &priority) ||
        !take_word(cursor, "hint", service_recording_hints, STRATA_HINT_LONG + 1, &hint) ||
        !take_number(cursor, "time limit", UINT64_MAX, &out->timeout))
        return false;
    out->priority = (strata_priority)priority;
    out->hint = (strata_service_hint)hint;
    return true;
}

static bool take_kind(line_cursor *cursor, unsigned *kind)
{
    return take_word(cursor, "kind", service_recording_kinds, RECORDING_KINDS, kind);
}

/* Reads the graph and the kind of a request that is recorded in it; cursor->problem is set if it cannot be one. */
static bool take_recorded_kind(line_cursor *cursor, recorded_request *out)
{
    const span before = cursor->rest;
    if (!take_number(cursor, "graph", UINT64_MAX, &out->into) || !take_kind(cursor, &out->kind))
        return false;
    const bool fits =
        out->into && (out->kind == RECORDING_UNKNOWN ||
                      (out->kind < SERVICE_KINDS && service_graph_takes((service_request_kind)out->kind)));
    return fits || refuse(cursor, "what is recorded", before, "the number of a graph, and a request that it can have");
}

static bool read_kind_word(line_cursor *cursor, recorded_request *out)
{
    return take_kind(cursor, &out->kind) && (out->kind != RECORDING_INTO || take_recorded_kind(cursor, out));
}

static bool read_kind(line_cursor *cursor, recorded_request *out)
{
    switch (out->kind) {
    case SERVICE_ALLOCATE:
        return read_allocate(cursor, out);
    case SERVICE_COPY_TO_HOST:
    case SERVICE_COPY_FROM_HOST:
        return read_copy(cursor, out);
    case SERVICE_LOAD:
        return read_load(cursor, out);
    case SERVICE_LAUNCH:
        return read_launch(cursor, out);
    case SERVICE_BLAS:
        return read_blas(cursor, out);
    case SERVICE_COPY:
        return read_device_copy(cursor, out);
    case SERVICE_FILL:
        return read_fill(cursor, out);
    case SERVICE_MAKE_GRAPH:
        return take_number(cursor, "number", UINT64_MAX, &out->number) && take_name(cursor, "name", out->entry);
    case SERVICE_PLAY_GRAPH:
        return take_number(cursor, "graph", UINT64_MAX, &out->number);
    case SERVICE_RUN:
    case SERVICE_RECORD_GRAPH:
        return take_name(cursor, "name", out->entry);
    default:
        return true;
    }
}

static bool check_characters(const char *line, size_t length, recording_problem *problem)
{
    for (size_t i = 0; i < length; i++)
        if (line[i] < ' ' || line[i] > '~') {
            snprintf(problem->text, sizeof problem->text, "byte %zu is %#04x; this is no text of a recording", i + 1,
                     (unsigned)(unsigned char)line[i]);
            return false;
        }
    return true;
}

bool recording_line_read(const char *line, size_t length, recorded_request *out, recording_problem *problem)
{
    line_cursor cursor = {.rest = {line, length}, .problem = problem};
    *out = (recorded_request){0};
    if (!check_characters(line, length, problem) || !read_head(&cursor, out) || !read_kind_word(&cursor, out) ||
        !read_kind(&cursor, out))
        return false;
    return cursor.over || refuse(&cursor, "the end of the line", cursor.rest, "empty");
}

void recording_image_read(const recorded_request *request, unsigned char *into)
{
    read_hex(request->image, request->image_bytes, into);
}
