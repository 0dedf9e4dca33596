/* Text and JSON from the same calls. In text, an object is a line with its name, and its members are indented below; an
 * object in a list begins with '-'. */
#include "core/base/emitter.h"

#include "core/base/escape.h"

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

static void put_format(const strata_emitter *emitter, const char *format, ...) STRATA_PRINTF(2, 3);

static void put_format(const strata_emitter *emitter, const char *format, ...)
{
    char text[96];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put(emitter, text, length < 0 ? 0 : (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

/* Writes text in quotes. */
static void put_quoted(const strata_emitter *emitter, const char *text)
{
    put(emitter, "\"", 1);
    while (*text) {
        size_t plain = 0, length;
        while (text[plain] && (unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\' &&
               (length = strata_utf8_length(text + plain)))
            plain += length;
        put(emitter, text, plain);
        text += plain;
        unsigned char odd = (unsigned char)*text;
        if (!odd)
            break;
        if (odd == '"' || odd == '\\')
            put_format(emitter, "\\%c", odd);
        else if (odd < 0x20)
            put_format(emitter, "\\u%04x", odd);
        else
            put_word(emitter, STRATA_UTF8_REPLACEMENT);
        text++;
    }
    put(emitter, "\"", 1);
}

/* Writes text on one line; characters that would break the line are dropped. */
static void put_line(const strata_emitter *emitter, const char *text)
{
    while (*text) {
        size_t plain = 0;
        while ((unsigned char)text[plain] >= 0x20)
            plain++;
        put(emitter, text, plain);
        text += plain;
        if (!*text)
            return;
        put(emitter, " ", 1);
        text++;
    }
}

static void indent(const strata_emitter *emitter)
{
    for (unsigned i = 1; i < emitter->depth; i++)
        put(emitter, "  ", 2);
}

static bool too_deep(const strata_emitter *emitter)
{
    return emitter->depth >= STRATA_EMITTER_DEPTH;
}

/* Writes what precedes a value: a comma and its name. */
static void begin_value(strata_emitter *emitter, const char *name)
{
    unsigned inside = emitter->depth - 1;
    bool first = !emitter->open[inside].any;
    emitter->open[inside].any = true;
    if (emitter->format == STRATA_FORMAT_TEXT) {
        indent(emitter);
        if (emitter->open[inside].list)
            put_word(emitter, name ? "- " : "-");
        if (name) {
            put_line(emitter, name);
            put(emitter, ":", 1);
        }
        return;
    }
    put_word(emitter, first ? "\n" : ",\n");
    for (unsigned i = 0; i < emitter->depth; i++)
        put(emitter, "  ", 2);
    if (emitter->open[inside].list)
        return;
    put_quoted(emitter, name ? name : "");
    put(emitter, ": ", 2);
}

static void open_one(strata_emitter *emitter, const char *name, bool list)
{
    if (too_deep(emitter)) {
        emitter->depth++;
        return;
    }
    begin_value(emitter, name);
    if (emitter->format == STRATA_FORMAT_TEXT)
        put(emitter, "\n", 1);
    else
        put_word(emitter, list ? "[" : "{");
    emitter->open[emitter->depth].list = list;
    emitter->open[emitter->depth].any = false;
    emitter->depth++;
}

static void close_one(strata_emitter *emitter)
{
    if (emitter->depth-- > STRATA_EMITTER_DEPTH || emitter->format == STRATA_FORMAT_TEXT)
        return;
    if (emitter->open[emitter->depth].any) {
        put(emitter, "\n", 1);
        for (unsigned i = 0; i < emitter->depth; i++)
            put(emitter, "  ", 2);
    }
    put_word(emitter, emitter->open[emitter->depth].list ? "]" : "}");
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

/* Writes one value. `plain` is its JSON; text output adds a space before and a newline after. */
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

void strata_emit_bytes(strata_emitter *emitter, const char *name, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char plain[32], behind[32] = "";
    snprintf(plain, sizeof plain, "%" PRIu64, bytes);
    double scaled = (double)bytes / 1024;
    size_t unit = 0;
    for (; scaled >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        scaled /= 1024;
    if (bytes >= 1024)
        snprintf(behind, sizeof behind, " (%.4g %s)", scaled, units[unit]);
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
    *emitter = (strata_emitter){.format = format, .write = write, .data = data, .depth = 1};
    if (format == STRATA_FORMAT_JSON)
        put(emitter, "{", 1);
}

void strata_emitter_end(strata_emitter *emitter)
{
    if (emitter->format == STRATA_FORMAT_JSON)
        put_word(emitter, emitter->open[0].any ? "\n}\n" : "}\n");
}
