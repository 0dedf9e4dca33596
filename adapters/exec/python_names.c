/* "function (file:line)" of what a frame of CPython runs.
 *
 * Texts are kept once each, as long as the process: a call stack refers to them. Which text belongs to a code object
 * and an instruction is remembered, and believed while the object's fields are the same. */
#include "adapters/exec/python.h"

#include "core/base/call_stack.h"
#include "core/base/host_memory.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { CHAINS = 1 << 10, MOST_TEXTS = 1 << 16, PLACES = 1 << 11, FIELDS = 7 };

/* ---- texts, once each ---- */

typedef struct frame_text {
    struct frame_text *next;
    char text[];
} frame_text;

static _Atomic(frame_text *) chains[CHAINS]; /* grow at their heads */
static _Atomic size_t text_count;

static const char *find_text(const frame_text *from, const frame_text *end, const char *text)
{
    for (; from != end; from = from->next)
        if (strcmp(from->text, text) == 0)
            return from->text;
    return NULL;
}

static const char *keep_text(const char *text)
{
    size_t hash = 0;
    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x9e3779b97f4a7c15u;
    _Atomic(frame_text *) *chain = &chains[hash >> 32 & (CHAINS - 1)];
    frame_text *head = atomic_load_explicit(chain, memory_order_acquire);
    const char *kept = find_text(head, NULL, text);
    if (kept)
        return kept;
    frame_text *own = atomic_load(&text_count) < MOST_TEXTS ? strata_host_zalloc(sizeof *own + strlen(text) + 1) : NULL;
    if (!own)
        return "(Python: more places than are kept)";
    strcpy(own->text, text);
    own->next = head;
    while (!atomic_compare_exchange_weak(chain, &head, own)) {
        kept = find_text(head, own->next, text);
        if (kept) {
            strata_host_free(own);
            return kept;
        }
        own->next = head;
    }
    atomic_fetch_add(&text_count, 1);
    return own->text;
}

/* ---- reading ---- */

static uintptr_t word_at(const unsigned char *bytes, size_t offset)
{
    uintptr_t word;
    memcpy(&word, bytes + offset, sizeof word);
    return word;
}

static int32_t first_line_of(const exec_python_layout *layout, const unsigned char *code)
{
    int32_t first;
    memcpy(&first, code + layout->code_line, sizeof first);
    return first;
}

static void *read_name(const exec_python *python, const unsigned char *code, size_t instruction)
{
    const exec_python_layout *layout = python->layout;
    char name[128], file[EXEC_PYTHON_TEXT], text[sizeof name + sizeof file + 32];
    const size_t in_name = exec_python_read_text(python, word_at(code, layout->code_name), name, sizeof name);
    const size_t in_file = exec_python_read_text(python, word_at(code, layout->code_file), file, sizeof file);
    if (!in_name || !in_file)
        return NULL;
    const int line =
        exec_python_line(layout, word_at(code, layout->code_table), first_line_of(layout, code), instruction);
    snprintf(text, sizeof text, "%.*s (%.*s:%d)", (int)in_name, name, (int)in_file, file, line);
    return strata_call_stack_text_frame(keep_text(text));
}

/* ---- what was read before ---- */

/* A thread that writes makes `changes` odd meanwhile; a reader that finds it odd, or changed, reads the object. */
typedef struct known_place {
    _Atomic uint32_t changes;
    _Atomic uintptr_t fields[FIELDS], frame;
} known_place;

static known_place places[PLACES];

/* Fills the fields: the addresses of the object, its name, its file and its table of lines, its size and first line,
 * and the instruction. */
static void read_fields(const exec_python_layout *layout, uintptr_t address, const unsigned char *code,
                        size_t instruction, uintptr_t fields[FIELDS])
{
    enum { SIZE = 16 };
    fields[0] = address;
    fields[1] = instruction;
    fields[2] = word_at(code, SIZE);
    fields[3] = (uintptr_t)first_line_of(layout, code);
    fields[4] = word_at(code, layout->code_name);
    fields[5] = word_at(code, layout->code_file);
    fields[6] = word_at(code, layout->code_table);
}

/* Returns the frame that was remembered for these fields, or NULL. Each field is read before the last look at
 * `changes`, and written after the first change of it. */
static void *recall(known_place *place, const uintptr_t fields[FIELDS])
{
    const uint32_t before = atomic_load_explicit(&place->changes, memory_order_acquire);
    bool same = !(before & 1);
    for (size_t i = 0; i < FIELDS; i++)
        same = same && atomic_load_explicit(&place->fields[i], memory_order_acquire) == fields[i];
    const uintptr_t frame = atomic_load_explicit(&place->frame, memory_order_acquire);
    same = same && atomic_load_explicit(&place->changes, memory_order_relaxed) == before;
    return same ? (void *)frame : NULL; /* NOLINT: made by strata_call_stack_text_frame */
}

static void remember(known_place *place, const uintptr_t fields[FIELDS], void *frame)
{
    uint32_t before = atomic_load_explicit(&place->changes, memory_order_relaxed);
    if (before & 1 || !atomic_compare_exchange_strong_explicit(&place->changes, &before, before + 1,
                                                               memory_order_acquire, memory_order_relaxed))
        return;
    for (size_t i = 0; i < FIELDS; i++)
        atomic_store_explicit(&place->fields[i], fields[i], memory_order_release);
    atomic_store_explicit(&place->frame, (uintptr_t)frame, memory_order_release);
    atomic_store_explicit(&place->changes, before + 2, memory_order_release);
}

void *exec_python_name(const exec_python *python, uintptr_t address, const unsigned char *code, size_t instruction)
{
    enum { TYPE = 8 };
    uintptr_t fields[FIELDS];
    if (word_at(code, TYPE) != python->code_type)
        return NULL;
    read_fields(python->layout, address, code, instruction, fields);
    known_place *place = &places[((address >> 4) * 31 + instruction / 2) % PLACES];
    void *frame = recall(place, fields);
    if (frame)
        return frame;
    frame = read_name(python, code, instruction);
    if (frame)
        remember(place, fields, frame);
    return frame;
}
