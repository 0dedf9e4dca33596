/* The text is read completely before anything is created:
 *
 *     stack  = layer { "," layer }
 *     layer  = word [ "(" [ option { "," option } ] ")" ]
 *            | word "(" stack "|" stack { "|" stack } ")"    with branches
 *     option = word "=" value
 *     value  = word | '"' any text '"' */
#include "core/stack/stack_text.h"

#include "core/base/cancel.h"
#include "core/base/characters.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/stack/build.h"
#include "core/stack/layers.h"

#include <strata/types.h>

#include <ctype.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TEXT_LAYERS = 32, STRING_OPTION = 256, SHOWN = 24 /* characters of a message */ };

typedef struct layer_text {
    const strata_layer *layer;
    void *options;
    uint64_t given;       /* options so far, one bit each: STRATA_LAYER_OPTIONS */
    size_t position, end; /* of its own text, without branches */
    size_t after;         /* index behind the layers of its branches: the next layer of its chain, unless `last` */
    bool last;            /* of its chain */
    bool is_left_out, is_replaced; /* in sanitizer mode */
} layer_text;

typedef struct reader {
    const char *text;
    size_t at;
    layer_text layers[TEXT_LAYERS]; /* as in the text: branches behind their layer */
    size_t count;
} reader;

typedef struct word {
    const char *text;
    size_t length;
    size_t position;
} word;

static strata_status refuse(const reader *in, size_t position, const char *format, ...) STRATA_PRINTF(3, 4);

static strata_status refuse(const reader *in, size_t position, const char *format, ...)
{
    char what[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const char *from = in->text + position;
    return strata_fail(STRATA_ERROR_SYNTAX, "stack text, character %zu (\"%.*s\"): %s",
                       strata_character_at(in->text, position), (int)strata_characters_bytes(from, SHOWN), from, what);
}

/* `more`: characters that the word may have besides the usual ones. */
static bool is_word_character(char c, const char *more)
{
    return isalnum((unsigned char)c) || (c && (strchr("_-.%/:+", c) || strchr(more, c)));
}

static char skip_space(reader *in)
{
    while (isspace((unsigned char)in->text[in->at]))
        in->at++;
    return in->text[in->at];
}

static strata_status read_word_with(reader *in, const char *more, const char *expected, word *out)
{
    skip_space(in);
    *out = (word){.text = in->text + in->at, .position = in->at};
    while (is_word_character(in->text[in->at], more))
        in->at++;
    out->length = in->at - out->position;
    return out->length ? STRATA_SUCCESS : refuse(in, in->at, "expected %s", expected);
}

static strata_status read_word(reader *in, const char *expected, word *out)
{
    return read_word_with(in, "", expected, out);
}

static strata_status read_value(reader *in, word *out)
{
    if (skip_space(in) != '"')
        return read_word_with(in, ";", "a value", out); /* may be a list */
    size_t start = ++in->at;
    while (in->text[in->at] && in->text[in->at] != '"')
        in->at++;
    if (!in->text[in->at])
        return refuse(in, start - 1, "unterminated text; expected '\"'");
    *out = (word){.text = in->text + start, .length = in->at - start, .position = start};
    in->at++;
    return STRATA_SUCCESS;
}

/* ---- values ---- */

static bool word_is(const word *given, const char *text)
{
    return strlen(text) == given->length && strncasecmp(text, given->text, given->length) == 0;
}

static strata_status store_bool(const reader *in, const word *value, void *field)
{
    return strata_read_switch(value->text, value->length, field) ? STRATA_SUCCESS
                                                                 : refuse(in, value->position, "expected on or off");
}

/* The index of a text among choices separated by '|'; -1 if it is none of them. */
static int position_among(const char *choices, const char *text, size_t text_length)
{
    for (int position = 0;; position++) {
        const size_t length = strcspn(choices, "|");
        if (length == text_length && strncasecmp(choices, text, length) == 0)
            return position;
        if (!choices[length])
            return -1;
        choices += length + 1;
    }
}

/* If on and off are choices, their synonyms are accepted. */
static strata_status store_choice(const reader *in, const word *value, const char *choices, void *field)
{
    bool on;
    int position = position_among(choices, value->text, value->length);
    if (position < 0 && strata_read_switch(value->text, value->length, &on))
        position = on ? position_among(choices, "on", 2) : position_among(choices, "off", 3);
    if (position < 0)
        return refuse(in, value->position, "expected one of %s", choices);
    *(int *)field = position;
    return STRATA_SUCCESS;
}

static strata_status store_uint(const reader *in, const strata_option *option, const word *value, void *field)
{
    uint64_t number;
    if (!strata_read_count(value->text, value->length, &number))
        return refuse(in, value->position, "expected a whole number%s%s", option->help ? ": " : "",
                      option->help ? option->help : "");
    memcpy(field, &number, sizeof number);
    return STRATA_SUCCESS;
}

static strata_status store_string(const reader *in, const word *value, void *field)
{
    if (value->length >= STRING_OPTION)
        return refuse(in, value->position, "expected at most %d bytes", STRING_OPTION - 1);
    memcpy(field, value->text, value->length);
    ((char *)field)[value->length] = '\0';
    return STRATA_SUCCESS;
}

static strata_status store_amount(const reader *in, const word *value, void *field)
{
    strata_amount amount = {0};
    if (!strata_read_percent(value->text, value->length, &amount.percent) &&
        !strata_read_size(value->text, value->length, &amount.bytes))
        return refuse(in, value->position,
                      "expected a size such as 8GiB or 4096, in whole bytes, or a share of the device's memory such as "
                      "50%%");
    memcpy(field, &amount, sizeof amount);
    return STRATA_SUCCESS;
}

/* Refuses 0: in options 0 means not set, which for a limit is no limit. */
static strata_status store_limit(const reader *in, const word *value, void *field)
{
    strata_amount amount;
    const strata_status status = store_amount(in, value, field);
    memcpy(&amount, field, sizeof amount);
    if (status == STRATA_SUCCESS && !amount.bytes && amount.percent == 0)
        return refuse(in, value->position, "expected more than 0 bytes; leave the option out for none");
    return status;
}

/* `none`: zero is accepted, as STRATA_NEVER. In an option 0 means not set. */
static strata_status store_duration(const reader *in, const word *value, bool none, void *field)
{
    uint64_t nanoseconds;
    const bool is = strata_read_duration(value->text, value->length, &nanoseconds);
    if (!is && none)
        return refuse(in, value->position, "expected a duration such as 20ms, 5us or 1s, or 0 for never");
    if (!is || (!nanoseconds && !none))
        return refuse(in, value->position,
                      "expected a duration such as 20ms, 5us or 1s, of more than 0; leave the option out for its "
                      "default");
    nanoseconds = nanoseconds ? nanoseconds : STRATA_NEVER;
    memcpy(field, &nanoseconds, sizeof nanoseconds);
    return STRATA_SUCCESS;
}

static strata_status store_mode(const reader *in, const word *value, void *field)
{
    uint64_t bits = 0;
    bool valid = value->length <= 4;
    for (size_t i = 0; i < value->length && valid; i++) {
        valid = value->text[i] >= '0' && value->text[i] <= '7';
        bits = 8 * bits + (uint64_t)(value->text[i] - '0');
    }
    if (!valid || !bits || bits > 0777)
        return refuse(in, value->position, "expected permissions of a file in octal digits, such as 0640");
    memcpy(field, &bits, sizeof bits);
    return STRATA_SUCCESS;
}

static strata_status store_value(const reader *in, const strata_option *option, const word *value, void *field)
{
    switch (option->type) {
    case STRATA_OPTION_BOOL:
        return store_bool(in, value, field);
    case STRATA_OPTION_CHOICE:
        return store_choice(in, value, option->choices, field);
    case STRATA_OPTION_UINT:
        return store_uint(in, option, value, field);
    case STRATA_OPTION_STRING:
        return store_string(in, value, field);
    case STRATA_OPTION_NAME:
        if (!value->length)
            return refuse(in, value->position, "expected a name, not an empty text");
        return store_string(in, value, field);
    case STRATA_OPTION_AMOUNT:
        return store_amount(in, value, field);
    case STRATA_OPTION_LIMIT:
        return store_limit(in, value, field);
    case STRATA_OPTION_SIZE:
        if (strata_read_size(value->text, value->length, field))
            return STRATA_SUCCESS;
        return refuse(in, value->position, "expected a size such as 8GiB, 1.5KiB or 4096, in whole bytes below 2^64");
    case STRATA_OPTION_DURATION:
        return store_duration(in, value, false, field);
    case STRATA_OPTION_INTERVAL:
        return store_duration(in, value, true, field);
    case STRATA_OPTION_MODE:
        return store_mode(in, value, field);
    }
    return refuse(in, value->position, "invalid type in the layer's option table");
}

/* ---- layers ---- */

static void option_names(const strata_layer *layer, char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0; i < layer->option_count; i++)
        strata_append_name(text, size, layer->options[i].name);
}

static strata_status read_option(reader *in, layer_text *layer, bool first)
{
    const strata_layer *kind = layer->layer;
    char names[256], expected[sizeof names + 8];
    option_names(kind, names, sizeof names);
    if (!kind->option_count)
        return refuse(in, in->at, "%s has no options; expected ')'", kind->name);
    snprintf(expected, sizeof expected, "%s%s", names, first ? " or ')'" : "");
    word name, value;
    strata_status status = read_word(in, expected, &name);
    if (status != STRATA_SUCCESS)
        return status;
    size_t which = 0;
    while (which < kind->option_count && !word_is(&name, kind->options[which].name))
        which++;
    if (which == kind->option_count)
        return refuse(in, name.position, "%s: unknown option \"%.*s\"; expected %s", kind->name, (int)name.length,
                      name.text, names);
    if (layer->given >> which & 1)
        return refuse(in, name.position, "duplicate option %s", kind->options[which].name);
    layer->given |= UINT64_C(1) << which;
    if (skip_space(in) != '=')
        return refuse(in, in->at, "expected '=' and a value for %s", kind->options[which].name);
    in->at++;
    if ((status = read_value(in, &value)) != STRATA_SUCCESS)
        return status;
    return store_value(in, &kind->options[which], &value, (char *)layer->options + kind->options[which].offset);
}

/* Refuses what stands behind an option's value, which ended at `end`. */
static strata_status refuse_continuation(const reader *in, size_t end)
{
    if (in->at > end && is_word_character(in->text[in->at], ""))
        return refuse(
            in, in->at,
            "expected ',' or ')'; a value with a blank stands in double quotes, and a size needs none: 8GiB or "
            "\"8 GiB\"");
    return refuse(in, in->at, "expected ',' or ')'");
}

static strata_status read_options(reader *in, layer_text *layer)
{
    if (skip_space(in) != '(')
        return STRATA_SUCCESS;
    in->at++;
    if (skip_space(in) == ')') {
        in->at++;
        return STRATA_SUCCESS;
    }
    for (bool first = true;; first = false) {
        strata_status status = read_option(in, layer, first);
        if (status != STRATA_SUCCESS)
            return status;
        const size_t end = in->at;
        const char next = skip_space(in);
        if (next != ',' && next != ')')
            return refuse_continuation(in, end);
        in->at++;
        if (next == ')')
            return STRATA_SUCCESS;
    }
}

static strata_status read_chain(reader *in, bool branch);

static strata_status read_branches(reader *in, const strata_layer *kind)
{
    uint32_t count = 0;
    char next = skip_space(in);
    if (next != '(')
        return refuse(in, in->at, "expected '(' and the branches of %s, as in \"%s(pool(max_size=8GiB) | managed)\"",
                      kind->name, kind->name);
    for (; next != ')'; next = in->text[in->at++]) {
        in->at += next == '(';
        if (count == strata_layer_branches(kind))
            return refuse(in, in->at, "expected at most %u branches of %s", count, kind->name);
        strata_status status = read_chain(in, true);
        if (status != STRATA_SUCCESS)
            return status;
        count++;
        if (count < 2 && in->text[in->at] == ')')
            return refuse(in, in->at, "expected '|' and another branch of %s", kind->name);
    }
    return STRATA_SUCCESS;
}

static strata_status read_layer(reader *in)
{
    char known[256];
    strata_layer_names(known, sizeof known);
    word name;
    strata_status status = read_word(in, known, &name);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_layer *kind = strata_layer_find(name.text, name.length);
    if (!kind)
        return refuse(in, name.position, "unknown layer \"%.*s\"; expected %s", (int)name.length, name.text, known);
    if (in->count == TEXT_LAYERS)
        return refuse(in, name.position, "expected at most %d layers", TEXT_LAYERS);
    layer_text *layer = &in->layers[in->count++];
    *layer = (layer_text){.layer = kind, .position = name.position};
    layer->options = strata_host_zalloc(kind->options_size ? kind->options_size : 1);
    if (!layer->options)
        return strata_fail_host_memory("a layer's options");
    layer->end = in->at;
    if (strata_layer_branches(kind)) {
        status = read_branches(in, kind);
    } else {
        status = read_options(in, layer);
        if (in->text[in->at - 1] == ')')
            layer->end = in->at;
    }
    layer->after = in->count;
    return status;
}

/* Whether an owner can also stand over another layer. */
static bool stands_over(const strata_layer *layer)
{
    return layer->size >= offsetof(strata_layer, over) + sizeof layer->over && layer->over;
}

/* Checks that the chain that begins at `first` and has just been read ends with an owner, and has no other one. Marks
 * its last layer. */
static strata_status check_order(reader *in, size_t first)
{
    for (size_t i = first; i < in->count; i = in->layers[i].after) {
        const bool last = in->layers[i].last = in->layers[i].after == in->count;
        const strata_layer *kind = in->layers[i].layer;
        if (last && !kind->owner)
            return refuse(
                in, in->layers[i].position,
                "%s owns no memory and cannot be the last layer; expected ', ' and a layer that does, such as pool",
                kind->name);
        if (!last && kind->owner && !stands_over(kind))
            return refuse(in, in->layers[i].position, "%s owns memory and must be the last layer", kind->name);
    }
    return STRATA_SUCCESS;
}

/* Reads layers up to the end of the text, or of a branch to '|' or ')'. TEXT_LAYERS bounds the recursion. */
static strata_status read_chain(reader *in, bool branch)
{
    const size_t first = in->count;
    for (;;) {
        strata_status status = read_layer(in);
        if (status != STRATA_SUCCESS)
            return status;
        char next = skip_space(in);
        if (branch ? next == '|' || next == ')' : !next)
            return check_order(in, first);
        if (next != ',')
            return refuse(in, in->at, "expected ',' and another layer, or %s", branch ? "'|' or ')'" : "the end");
        in->at++;
    }
}

static strata_status read_stack(reader *in)
{
    return read_chain(in, false);
}

/* ---- making ---- */

/* The resources of some layers. */
typedef struct made_layers {
    strata_resource *resources[TEXT_LAYERS];
    size_t count;
} made_layers;

static void destroy_layers(const made_layers *made)
{
    for (size_t i = 0; i < made->count; i++)
        made->resources[i]->ops->destroy(made->resources[i]);
}

static strata_status make_chain(const reader *in, size_t first, int ordinal, made_layers *made, size_t *behind);

static strata_status make_branches(const reader *in, size_t which, int ordinal, strata_resource **out)
{
    const layer_text *layer = &in->layers[which];
    made_layers made = {.count = 0};
    strata_branch branches[TEXT_LAYERS];
    size_t count = 0;
    strata_status status = STRATA_SUCCESS;
    for (size_t at = which + 1; at < layer->after && status == STRATA_SUCCESS; count++) {
        const size_t first = made.count;
        status = make_chain(in, at, ordinal, &made, &at);
        branches[count] = (strata_branch){&made.resources[first], made.count - first};
    }
    if (status == STRATA_SUCCESS)
        status = layer->layer->create_over(ordinal, branches, count, out);
    if (status != STRATA_SUCCESS)
        destroy_layers(&made);
    return status;
}

/* Creates the layers of the chain that begins at `first`, and appends them to `made`. *behind: the index behind the
 * chain. */
static strata_status make_chain(const reader *in, size_t first, int ordinal, made_layers *made, size_t *behind)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = first; status == STRATA_SUCCESS; i = in->layers[i].after) {
        const layer_text *layer = &in->layers[i];
        strata_resource **out = &made->resources[made->count];
        if (layer->after > i + 1)
            status = make_branches(in, i, ordinal, out);
        else if (!layer->is_left_out)
            status = layer->layer->create(ordinal, layer->options, out);
        made->count += status == STRATA_SUCCESS && !layer->is_left_out;
        *behind = layer->after;
        if (layer->last)
            return status;
    }
    return status;
}

static strata_status make_layers(const reader *in, int ordinal, const char *text, strata_stack **out)
{
    made_layers made = {.count = 0};
    size_t behind;
    strata_status status = make_chain(in, 0, ordinal, &made, &behind);
    if (status == STRATA_SUCCESS)
        status = strata_stack_build_named(made.resources, made.count, ordinal, text, out);
    if (status != STRATA_SUCCESS)
        destroy_layers(&made);
    return status;
}

/* ---- the mode: normal or sanitizer ---- */

static _Atomic int chosen = -1; /* strata_mode; -1: the environment says */

strata_status strata_set_mode(strata_mode mode)
{
    if ((unsigned)mode > STRATA_MODE_SANITIZER)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "invalid mode %d", (int)mode);
    atomic_store(&chosen, (int)mode);
    return STRATA_SUCCESS;
}

strata_status strata_mode_now(strata_mode *mode)
{
    int now = atomic_load(&chosen);
    const char *environment = secure_getenv("STRATA_MODE");
    *mode = now < 0 ? STRATA_MODE_NORMAL : (strata_mode)now;
    if (now >= 0 || !environment || !*environment || strcmp(environment, "normal") == 0)
        return STRATA_SUCCESS;
    if (strcmp(environment, "sanitizer") != 0)
        return strata_fail(STRATA_ERROR_SYNTAX, "STRATA_MODE is \"%.60s\": expected sanitizer or normal", environment);
    *mode = STRATA_MODE_SANITIZER;
    return STRATA_SUCCESS;
}

static const char *name_in_sanitizer_mode(const strata_layer *layer)
{
    size_t needed = offsetof(strata_layer, in_sanitizer_mode) + sizeof layer->in_sanitizer_mode;
    return layer->size >= needed ? layer->in_sanitizer_mode : NULL;
}

/* Whether sanitizer mode leaves the layer out: it takes memory for many blocks at once from the layer below. */
static bool is_left_out(const layer_text *layer)
{
    return !layer->last && stands_over(layer->layer) && name_in_sanitizer_mode(layer->layer);
}

static strata_status replace_owner(layer_text *owner, const char *name)
{
    const strata_layer *other = strata_layer_find(name, strlen(name));
    if (!other || !other->owner || strata_layer_branches(other))
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "sanitizer mode: unknown layer \"%s\" in place of \"%s\"", name,
                           owner->layer->name);
    void *options = strata_host_zalloc(other->options_size ? other->options_size : 1);
    if (!options)
        return strata_fail_host_memory("a stack");
    strata_host_free(owner->options);
    owner->layer = other;
    owner->options = options;
    owner->is_replaced = true;
    return STRATA_SUCCESS;
}

/* Appends the chain's text in sanitizer mode. Returns the index behind the chain. */
static size_t append_chain(char *text, const reader *in, size_t first)
{
    for (size_t i = first;; i = in->layers[i].after) {
        const layer_text *layer = &in->layers[i];
        if (layer->is_replaced)
            strcat(text, layer->layer->name);
        else if (!layer->is_left_out)
            strncat(text, in->text + layer->position,
                    (layer->last ? layer->end : in->layers[layer->after].position) - layer->position);
        for (size_t branch = i + 1; branch < layer->after;) {
            strcat(text, branch == i + 1 ? "(" : " | ");
            branch = append_chain(text, in, branch);
        }
        strcat(text, layer->after > i + 1 ? ")" : "");
        if (layer->last)
            return layer->after;
    }
}

/* In sanitizer mode every block is an allocation of its own: layers that take memory for many blocks at once are left
 * out, or replaced if they own it. *text is the resulting text, to be freed; NULL if unchanged. */
static strata_status follow_mode(reader *in, char **text)
{
    strata_mode mode;
    strata_status status = strata_mode_now(&mode);
    *text = NULL;
    if (status != STRATA_SUCCESS || mode != STRATA_MODE_SANITIZER)
        return status;
    size_t size = strlen(in->text) + 1;
    for (size_t i = 0; i < in->count && status == STRATA_SUCCESS; i++) {
        layer_text *layer = &in->layers[i];
        const char *name = layer->last ? name_in_sanitizer_mode(layer->layer) : NULL;
        layer->is_left_out = is_left_out(layer);
        if (name)
            status = replace_owner(layer, name);
        size += (name ? strlen(name) : 0) + strlen(" | )");
    }
    if (status != STRATA_SUCCESS)
        return status;
    char *made = strata_host_zalloc(size);
    if (!made)
        return strata_fail_host_memory("a stack");
    append_chain(made, in, 0);
    *text = made;
    return STRATA_SUCCESS;
}

static strata_status make_stack(reader *in, int ordinal, strata_stack **out)
{
    char *text;
    strata_status status = follow_mode(in, &text);
    if (status == STRATA_SUCCESS)
        status = make_layers(in, ordinal, text ? text : in->text, out);
    strata_host_free(text);
    return status;
}

static reader *open_reader(const char *text)
{
    reader *in = strata_host_zalloc(sizeof *in);
    if (in)
        in->text = text;
    return in;
}

static void close_reader(reader *in)
{
    for (size_t i = 0; i < in->count; i++)
        strata_host_free(in->layers[i].options);
    strata_host_free(in);
}

strata_status strata_check_stack_text(const char *text)
{
    reader *in = open_reader(text);
    if (!in)
        return strata_fail_host_memory("reading a stack text");
    strata_status status = read_stack(in);
    close_reader(in);
    return status;
}

strata_status strata_stack_create_from_text(const char *text, int ordinal, strata_stack **out)
{
    if (!text || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_create: text or out is NULL");
    *out = NULL;
    reader *in = open_reader(text);
    if (!in)
        return strata_fail_host_memory("reading a stack text");
    const int cancel = strata_cancel_forbid(); /* layers open files and begin threads */
    strata_status status = read_stack(in);
    if (status == STRATA_SUCCESS)
        status = make_stack(in, ordinal, out);
    close_reader(in);
    strata_cancel_restore(cancel);
    return status;
}
