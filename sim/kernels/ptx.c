/* Reads kernels, their parameters and global variables from PTX. Code is skipped: registered C functions stand for it.
 */
#include "kernels/kernels.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ALIGNMENT = 1 << 20 };

typedef struct ptx_reader {
    const char *at;
    const char *token; /* the word, number or single mark read last */
    size_t length;
} ptx_reader;

static const char *skip_comment(const char *at)
{
    const char *end;
    if (at[1] == '/') {
        end = strchr(at, '\n');
        return end ? end : at + strlen(at);
    }
    end = strstr(at + 2, "*/");
    return end ? end + 2 : at + strlen(at);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

/* False at the end of the text. */
static bool next(ptx_reader *reader)
{
    const char *at = reader->at;
    while (isspace((unsigned char)*at) || (*at == '/' && (at[1] == '/' || at[1] == '*')))
        at = *at == '/' ? skip_comment(at) : at + 1;
    reader->token = at;
    if (*at == '\0') {
        reader->at = at;
        reader->length = 0;
        return false;
    }
    size_t length = 1;
    if (is_word(*at))
        while (is_word(at[length]))
            length++;
    reader->length = length;
    reader->at = at + length;
    return true;
}

static bool is(const ptx_reader *reader, const char *word)
{
    return reader->length == strlen(word) && memcmp(reader->token, word, reader->length) == 0;
}

static char *copy_token(const ptx_reader *reader)
{
    char *text = malloc(reader->length + 1);
    if (text) {
        memcpy(text, reader->token, reader->length);
        text[reader->length] = '\0';
    }
    return text;
}

static bool number(const ptx_reader *reader, size_t *value)
{
    if (!isdigit((unsigned char)reader->token[0]))
        return false;
    *value = (size_t)strtoull(reader->token, NULL, 0);
    return true;
}

/* Bytes of a type such as .u64; 0: no type. */
static size_t type_bytes(const ptx_reader *reader)
{
    if (reader->length < 3 || reader->token[0] != '.' || !strchr("busf", reader->token[1]))
        return is(reader, ".pred") ? 1 : 0;
    size_t bits = (size_t)strtoull(reader->token + 2, NULL, 10);
    return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 ? bits / 8 : 0;
}

/* PTX has powers of two; the bound keeps sums far from the end of the address space. */
static bool is_alignment(size_t alignment)
{
    return alignment > 0 && alignment <= MOST_ALIGNMENT && (alignment & (alignment - 1)) == 0;
}

typedef struct ptx_variable {
    char *name;
    size_t bytes;
    size_t alignment;
} ptx_variable;

/* Reads a declaration such as `.align 8 .b8 name[24]`, and the token behind it. False if malformed; the caller owns the
 * name. */
static bool read_variable(ptx_reader *reader, ptx_variable *variable)
{
    size_t element = 0;
    *variable = (ptx_variable){0};
    while (next(reader) && reader->token[0] == '.') {
        if (is(reader, ".align")) {
            if (!next(reader) || !number(reader, &variable->alignment) || !is_alignment(variable->alignment))
                return false;
        } else if (type_bytes(reader) > 0) {
            element = type_bytes(reader);
        }
    }
    if (element == 0 || reader->length == 0 || !is_word(reader->token[0]))
        return false;
    variable->name = copy_token(reader);
    variable->bytes = element;
    variable->alignment = variable->alignment > element ? variable->alignment : element;
    if (!variable->name || !next(reader))
        return false;
    while (is(reader, "[")) {
        size_t count;
        if (!next(reader) || !number(reader, &count) || count == 0 || count > SIM_MOST_MEMORY / variable->bytes)
            return false;
        variable->bytes *= count;
        if (!next(reader) || !is(reader, "]") || !next(reader))
            return false;
    }
    return true;
}

static bool add_parameter(sim_ptx_entry *entry, const ptx_variable *variable)
{
    size_t count = entry->count + 1;
    size_t *offsets = realloc(entry->offsets, count * sizeof *offsets);
    if (!offsets)
        return false;
    entry->offsets = offsets;
    size_t *sizes = realloc(entry->sizes, count * sizeof *sizes);
    if (!sizes)
        return false;
    entry->sizes = sizes;
    entry->offsets[entry->count] = (size_t)sim_round_up(entry->buffer_bytes, variable->alignment);
    entry->sizes[entry->count] = variable->bytes;
    entry->buffer_bytes = entry->offsets[entry->count] + variable->bytes;
    entry->count = count;
    return count <= SIM_MAX_PARAMETERS;
}

/* Reads the parameters in parentheses, if there are any. */
static bool read_parameters(ptx_reader *reader, sim_ptx_entry *entry)
{
    ptx_reader before = *reader;
    if (!next(reader))
        return false;
    if (!is(reader, "(")) {
        *reader = before;
        return true;
    }
    if (!next(reader))
        return false;
    while (is(reader, ".param")) {
        ptx_variable variable;
        bool good = read_variable(reader, &variable) && add_parameter(entry, &variable);
        free(variable.name);
        if (!good)
            return false;
        if (is(reader, ",") && !next(reader))
            return false;
    }
    return is(reader, ")");
}

static CUresult read_entry(ptx_reader *reader, sim_ptx_entry **entries)
{
    if (!next(reader) || !is_word(reader->token[0]))
        return CUDA_ERROR_INVALID_PTX;
    sim_ptx_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return CUDA_ERROR_OUT_OF_MEMORY;
    entry->next = *entries;
    *entries = entry;
    entry->name = copy_token(reader);
    if (!entry->name)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return read_parameters(reader, entry) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

/* A global variable is zeroed; an initial value is refused, since it would be lost. */
static CUresult read_global(ptx_reader *reader, sim_ptx_global **globals)
{
    ptx_variable variable;
    if (!read_variable(reader, &variable)) {
        free(variable.name);
        return CUDA_ERROR_INVALID_PTX;
    }
    sim_ptx_global *global = calloc(1, sizeof *global);
    if (!global) {
        free(variable.name);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *global = (sim_ptx_global){.next = *globals, .name = variable.name, .bytes = variable.bytes};
    *globals = global;
    if (is(reader, ";"))
        return CUDA_SUCCESS;
    return is(reader, "=") ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_PTX;
}

/* Skips a body, from its first brace, on which the reader stands, to its last; nothing else in it matters. */
static bool skip_body(ptx_reader *reader)
{
    size_t depth = 1;
    while (depth > 0) {
        if (!next(reader))
            return false;
        depth += is(reader, "{") ? 1 : 0;
        depth -= is(reader, "}") ? 1 : 0;
    }
    return true;
}

static bool is_header(const ptx_reader *reader)
{
    return is(reader, ".version") || is(reader, ".target") || is(reader, ".address_size");
}

/* Skips what follows a header directive, which no mark ends: words with commas between. */
static bool skip_header(ptx_reader *reader)
{
    ptx_reader ahead;
    do {
        if (!next(reader) || !is_word(reader->token[0]))
            return false;
        ahead = *reader;
        if (next(&ahead) && is(&ahead, ","))
            *reader = ahead;
    } while (is(reader, ","));
    return true;
}

/* Reads one directive with its operands, or one mark. */
static CUresult read_statement(ptx_reader *reader, sim_ptx_entry **entries, sim_ptx_global **globals, bool *inside)
{
    if (!*inside && reader->token[0] != '.' && !is(reader, ";"))
        return CUDA_ERROR_INVALID_PTX;
    *inside = !is(reader, ";");
    if (is_header(reader)) {
        *inside = false;
        return skip_header(reader) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
    }
    if (is(reader, ".entry"))
        return read_entry(reader, entries);
    if (is(reader, ".global")) {
        *inside = false;
        return read_global(reader, globals);
    }
    if (is(reader, "{")) {
        *inside = false;
        return skip_body(reader) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
    }
    return CUDA_SUCCESS;
}

CUresult sim_ptx_parse(const char *text, sim_ptx_entry **entries, sim_ptx_global **globals)
{
    ptx_reader reader = {.at = text};
    bool versioned = false;
    bool inside = false; /* of a statement that began with a directive */
    CUresult result = CUDA_SUCCESS;
    *entries = NULL;
    *globals = NULL;
    while (result == CUDA_SUCCESS && next(&reader)) {
        versioned = versioned || is(&reader, ".version");
        result = versioned ? read_statement(&reader, entries, globals, &inside) : CUDA_ERROR_INVALID_IMAGE;
    }
    if (result == CUDA_SUCCESS && !versioned)
        result = CUDA_ERROR_INVALID_IMAGE;
    if (result != CUDA_SUCCESS) {
        sim_ptx_free(*entries, *globals);
        *entries = NULL;
        *globals = NULL;
    }
    return result;
}

void sim_ptx_free(sim_ptx_entry *entries, sim_ptx_global *globals)
{
    while (entries) {
        sim_ptx_entry *entry = entries->next;
        free(entries->name);
        free(entries->offsets);
        free(entries->sizes);
        free(entries);
        entries = entry;
    }
    while (globals) {
        sim_ptx_global *global = globals->next;
        free(globals->name);
        free(globals);
        globals = global;
    }
}
