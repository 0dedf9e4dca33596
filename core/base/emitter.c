/* Text and JSON from the same calls. In text an object is a line with its name, its members are indented below it, and
 * an object in a list begins with '-'. */
#include "core/base/emitter.h"

#include "core/base/escape.h"
#include "core/base/size_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void put(const strata_emitter *emitter, const char *text, size_t length)
{
    if (length)
        emitter->write(text, length, emitter->data);
}

static void put_word(const strata_emitter *emitter, const char *word)
{
    put(emitter, word, strlen(word));
}

/* Bytes that are neither control characters nor outside UTF-8. */
static size_t plain_bytes(const char *text)
{
    size_t plain = 0, length;
    while (text[plain] && !strata_control_length(text + plain) && (length = strata_utf8_length(text + plain)))
        plain += length;
    return plain;
}

static void put_quoted(const strata_emitter *emitter, const char *text)
{
    put(emitter, "\"", 1);
    for (size_t plain, special; *text; text += special) {
        plain = plain_bytes(text);
        plain = strcspn(text, "\"\\") < plain ? strcspn(text, "\"\\") : plain;
        put(emitter, text, plain);
        text += plain;
        if (!*text)
            break;
        special = strata_control_length(text);
        char escape[8] = {'\\', *text};
        if (special)
            snprintf(escape, sizeof escape, "\\u%04x", strata_control_code(text));
        put_word(emitter, special || strata_utf8_length(text) ? escape : STRATA_UTF8_REPLACEMENT);
        special += !special;
    }
    put(emitter, "\"", 1);
}

/* Control characters become spaces. */
static void put_line(const strata_emitter *emitter, const char *text)
{
    for (size_t special; *text; text += special) {
        size_t plain = plain_bytes(text);
        put(emitter, text, plain);
        text += plain;
        if (!*text)
            return;
        special = strata_control_length(text);
        put_word(emitter, special ? " " : STRATA_UTF8_REPLACEMENT);
        special += !special;
    }
}

static void indent(const strata_emitter *emitter, unsigned levels)
{
    while (levels--)
        put(emitter, "  ", 2);
}

/* A value here is left out. */
static bool too_deep(const strata_emitter *emitter)
{
    return emitter->depth > STRATA_EMITTER_DEPTH;
}

/* Writes a comma and the name. */
static void begin_value(strata_emitter *emitter, const char *name)
{
    unsigned inside = emitter->depth - 1;
    bool first = !emitter->open[inside].any;
    emitter->open[inside].any = true;
    if (emitter->format == STRATA_FORMAT_TEXT) {
        indent(emitter, inside);
        if (emitter->open[inside].list)
            put_word(emitter, name ? "- " : "-");
        if (name) {
            put_line(emitter, name);
            put(emitter, ":", 1);
        }
        return;
    }
    put_word(emitter, first ? "\n" : ",\n");
    indent(emitter, emitter->depth);
    if (emitter->open[inside].list)
        return;
    put_quoted(emitter, name ? name : "");
    put(emitter, ": ", 2);
}

static void open_one(strata_emitter *emitter, const char *name, bool list)
{
    if (emitter->depth < STRATA_EMITTER_DEPTH) {
        begin_value(emitter, name);
        put_word(emitter, emitter->format == STRATA_FORMAT_TEXT ? "\n" : list ? "[" : "{");
        emitter->open[emitter->depth].list = list;
        emitter->open[emitter->depth].any = false;
    }
    emitter->depth++;
}

static void close_one(strata_emitter *emitter)
{
    if (emitter->depth <= emitter->floor || emitter->depth-- > STRATA_EMITTER_DEPTH ||
        emitter->format == STRATA_FORMAT_TEXT)
        return;
    if (emitter->open[emitter->depth].any) {
        put(emitter, "\n", 1);
        indent(emitter, emitter->depth);
    }
    put_word(emitter, emitter->open[emitter->depth].list ? "]" : "}");
}

static void close_to_floor(strata_emitter *emitter)
{
    while (emitter->depth > emitter->floor)
        close_one(emitter);
}

unsigned strata_emitter_enclose(strata_emitter *emitter)
{
    const unsigned before = emitter->floor;
    emitter->floor = emitter->depth;
    return before;
}

void strata_emitter_release(strata_emitter *emitter, unsigned before)
{
    close_to_floor(emitter);
    emitter->floor = before;
}

void strata_emit_object_begin(strata_emitter *emitter, const char *name)
{
    open_one(emitter, name, false);
}

void strata_emit_object_end(strata_emitter *emitter)
{
    close_one(emitter);
}

void strata_emit_list_begin(strata_emitter *emitter, const char *name)
{
    open_one(emitter, name, true);
}

void strata_emit_list_end(strata_emitter *emitter)
{
    close_one(emitter);
}

/* `plain` is the value in the report's format; text adds `behind`. */
static void emit(strata_emitter *emitter, const char *name, const char *plain, const char *behind)
{
    if (too_deep(emitter))
        return;
    begin_value(emitter, name);
    bool text = emitter->format == STRATA_FORMAT_TEXT;
    if (text)
        put(emitter, " ", 1);
    put_word(emitter, plain);
    if (text) {
        put_word(emitter, behind);
        put(emitter, "\n", 1);
    }
}

void strata_emit_count(strata_emitter *emitter, const char *name, uint64_t value)
{
    char plain[32];
    snprintf(plain, sizeof plain, "%" PRIu64, value);
    emit(emitter, name, plain, "");
}

void strata_emit_signed(strata_emitter *emitter, const char *name, int64_t value)
{
    char plain[32];
    snprintf(plain, sizeof plain, "%" PRId64, value);
    emit(emitter, name, plain, "");
}

/* Four significant digits, without zeros at the end of a fraction. */
static void put_scaled(char *text, size_t room, double scaled)
{
    strata_put_decimals(text, room, scaled, scaled < 10 ? 3 : scaled < 100 ? 2 : scaled < 1000 ? 1 : 0);
    char *point = strchr(text, '.');
    if (!point)
        return;
    char *end = point + strlen(point);
    while (end[-1] == '0')
        end--;
    *(end - 1 == point ? point : end) = '\0';
}

void strata_emit_bytes(strata_emitter *emitter, const char *name, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char plain[32], number[24], behind[32] = "";
    snprintf(plain, sizeof plain, "%" PRIu64, bytes);
    double scaled = (double)bytes / 1024;
    size_t unit = 0;
    for (; scaled >= 1023.5 && unit + 1 < sizeof units / sizeof units[0]; unit++) /* would be printed as 1024 */
        scaled /= 1024;
    put_scaled(number, sizeof number, scaled);
    if (bytes >= 1024)
        snprintf(behind, sizeof behind, " (%s %s)", number, units[unit]);
    emit(emitter, name, plain, behind);
}

void strata_emit_hex(strata_emitter *emitter, const char *name, uint64_t value)
{
    char plain[32];
    snprintf(plain, sizeof plain, emitter->format == STRATA_FORMAT_JSON ? "\"0x%" PRIx64 "\"" : "0x%" PRIx64, value);
    emit(emitter, name, plain, "");
}

void strata_emit_bool(strata_emitter *emitter, const char *name, bool value)
{
    bool json = emitter->format == STRATA_FORMAT_JSON;
    emit(emitter, name, json ? (value ? "true" : "false") : (value ? "yes" : "no"), "");
}

void strata_emit_text(strata_emitter *emitter, const char *name, const char *text)
{
    if (too_deep(emitter))
        return;
    begin_value(emitter, name);
    if (emitter->format == STRATA_FORMAT_JSON) {
        if (text)
            put_quoted(emitter, text);
        else
            put_word(emitter, "null");
        return;
    }
    put(emitter, " ", 1);
    put_line(emitter, text ? text : "none");
    put(emitter, "\n", 1);
}

void strata_emitter_begin(strata_emitter *emitter, strata_format format, strata_write_callback write, void *data)
{
    *emitter = (strata_emitter){.format = format, .write = write, .data = data, .depth = 1, .floor = 1};
    if (format == STRATA_FORMAT_JSON)
        put(emitter, "{", 1);
}

void strata_emitter_end(strata_emitter *emitter)
{
    close_to_floor(emitter);
    if (emitter->format == STRATA_FORMAT_JSON)
        put_word(emitter, emitter->open[0].any ? "\n}\n" : "}\n");
}
