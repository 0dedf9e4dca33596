/* Stacks from texts. The text is read completely before anything is created:
 *
 *     stack  = layer { "," layer }
 *     layer  = word [ "(" [ option { "," option } ] ")" ]
 *     option = word "=" value
 *     value  = word | '"' any text '"' */
#include "core/stack/stack_text.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/stack/build.h"
#include "core/stack/layers.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TEXT_LAYERS = 32, STRING_OPTION = 256 };

typedef struct layer_text {
    const strata_layer *layer;
    void *options;
    uint64_t given; /* options set so far, one bit each: STRATA_LAYER_OPTIONS */
    size_t position;
} layer_text;

typedef struct reader {
    const char *text;
    size_t at;
    layer_text layers[TEXT_LAYERS];
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
    return strata_fail(STRATA_ERROR_SYNTAX, "stack text, character %zu (\"%.24s\"): %s", position + 1,
                       in->text + position, what);
}

/* `more`: further characters of such words */
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
        return refuse(in, start - 1, "the quoted text has no end; expected '\"'");
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

/* The index of a word among choices; -1: none. */
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
        return refuse(in, value->position, "expected at most %d characters", STRING_OPTION - 1);
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
                      "expected a size such as 8GiB or 4096, or a share of the device's memory such as 50%%");
    memcpy(field, &amount, sizeof amount);
    return STRATA_SUCCESS;
}

/* `none`: zero is accepted. For most options 0 means not set. */
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
    memcpy(field, &nanoseconds, sizeof nanoseconds);
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
    case STRATA_OPTION_AMOUNT:
        return store_amount(in, value, field);
    case STRATA_OPTION_SIZE:
        if (strata_read_size(value->text, value->length, field))
            return STRATA_SUCCESS;
        return refuse(in, value->position,
                      "expected a size such as 8GiB, 512MB or 4096; from one byte to below 2^64, or 0");
    case STRATA_OPTION_DURATION:
        return store_duration(in, value, false, field);
    case STRATA_OPTION_INTERVAL:
        return store_duration(in, value, true, field);
    }
    return refuse(in, value->position, "the layer describes this option wrongly");
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
        return refuse(in, name.position, "%s has no option \"%.*s\"; expected %s", kind->name, (int)name.length,
                      name.text, names);
    if (layer->given >> which & 1)
        return refuse(in, name.position, "the option %s is given twice", kind->options[which].name);
    layer->given |= UINT64_C(1) << which;
    if (skip_space(in) != '=')
        return refuse(in, in->at, "expected '=' and a value for %s", kind->options[which].name);
    in->at++;
    if ((status = read_value(in, &value)) != STRATA_SUCCESS)
        return status;
    return store_value(in, &kind->options[which], &value, (char *)layer->options + kind->options[which].offset);
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
        char next = skip_space(in);
        if (next != ',' && next != ')')
            return refuse(in, in->at, "expected ',' or ')'");
        in->at++;
        if (next == ')')
            return STRATA_SUCCESS;
    }
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
        return refuse(in, name.position, "there is no layer \"%.*s\"; expected %s", (int)name.length, name.text, known);
    if (in->count == TEXT_LAYERS)
        return refuse(in, name.position, "expected at most %d layers", TEXT_LAYERS);
    layer_text *layer = &in->layers[in->count++];
    *layer = (layer_text){.layer = kind, .position = name.position};
    layer->options = strata_host_zalloc(kind->options_size ? kind->options_size : 1);
    if (!layer->options)
        return strata_fail_host_memory("a layer's options");
    return read_options(in, layer);
}

/* Whether an owner can also stand over another layer. */
static bool stands_over(const strata_layer *layer)
{
    return layer->size >= offsetof(strata_layer, over) + sizeof layer->over && layer->over;
}

static strata_status check_order(const reader *in)
{
    for (size_t i = 0; i < in->count; i++) {
        bool last = i + 1 == in->count;
        const strata_layer *kind = in->layers[i].layer;
        if (last && !kind->owner)
            return refuse(in, in->layers[i].position,
                          "%s owns no memory, so it cannot stand last; expected ', ' and a layer that does after it",
                          kind->name);
        if (!last && kind->owner && !stands_over(kind))
            return refuse(in, in->layers[i].position,
                          "%s owns its memory, so it must stand last; nothing can come after it", kind->name);
    }
    return STRATA_SUCCESS;
}

static strata_status read_stack(reader *in)
{
    for (;;) {
        strata_status status = read_layer(in);
        if (status != STRATA_SUCCESS)
            return status;
        char next = skip_space(in);
        if (!next)
            return check_order(in);
        if (next != ',')
            return refuse(in, in->at, "expected ',' and another layer, or the end");
        in->at++;
    }
}

static strata_status make_layers(const reader *in, int ordinal, const char *text, strata_stack **out)
{
    strata_resource *resources[TEXT_LAYERS];
    size_t made = 0;
    strata_status status = STRATA_SUCCESS;
    while (made < in->count && status == STRATA_SUCCESS) {
        const layer_text *layer = &in->layers[made];
        status = layer->layer->create(ordinal, layer->options, &resources[made]);
        if (status == STRATA_SUCCESS)
            made++;
    }
    if (status == STRATA_SUCCESS)
        status = strata_stack_build_named(resources, made, ordinal, text, out);
    for (size_t i = 0; i < made && status != STRATA_SUCCESS; i++)
        resources[i]->ops->destroy(resources[i]);
    return status;
}

/* ---- the mode: normal or sanitizer ---- */

static _Atomic int chosen = -1; /* strata_mode; -1: the environment says */

strata_status strata_set_mode(strata_mode mode)
{
    if ((unsigned)mode > STRATA_MODE_SANITIZER)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "there is no mode %d", (int)mode);
    atomic_store(&chosen, (int)mode);
    return STRATA_SUCCESS;
}

strata_status strata_mode_now(strata_mode *mode)
{
    int now = atomic_load(&chosen);
    const char *environment = getenv("STRATA_MODE");
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

/* Whether a layer takes memory for many blocks at once from the layer below. */
static bool is_left_out(const reader *in, size_t which)
{
    const strata_layer *layer = in->layers[which].layer;
    return which + 1 < in->count && stands_over(layer) && name_in_sanitizer_mode(layer);
}

/* Appends a layer's text. */
static void append_layer(char *text, const reader *in, size_t which)
{
    const size_t from = in->layers[which].position;
    const size_t end = which + 1 < in->count ? in->layers[which + 1].position : strlen(in->text);
    strncat(text, in->text + from, end - from);
}

static strata_status replace_owner(reader *in, const char *name)
{
    layer_text *owner = &in->layers[in->count - 1];
    const strata_layer *other = strata_layer_find(name, strlen(name));
    if (!other || !other->owner)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "in sanitizer mode \"%s\" would take the place of \"%s\", and is not known", name,
                           owner->layer->name);
    void *options = strata_host_zalloc(other->options_size ? other->options_size : 1);
    if (!options)
        return strata_fail_host_memory("a stack");
    strata_host_free(owner->options);
    owner->layer = other;
    owner->options = options;
    return STRATA_SUCCESS;
}

/* In sanitizer mode every block is an allocation of its own: layers that take memory for many blocks at once are left
 * out, or replaced if they own it. *text is the resulting text, to be freed; NULL if unchanged. */
static strata_status follow_mode(reader *in, char **text)
{
    strata_mode mode;
    strata_status status = strata_mode_now(&mode);
    const char *name = name_in_sanitizer_mode(in->layers[in->count - 1].layer);
    size_t kept = 0;
    *text = NULL;
    if (status != STRATA_SUCCESS || mode != STRATA_MODE_SANITIZER)
        return status;
    char *made = strata_host_zalloc(strlen(in->text) + (name ? strlen(name) : 0) + 1);
    if (!made)
        return strata_fail_host_memory("a stack");
    if (name)
        status = replace_owner(in, name);
    for (size_t i = 0; i < in->count; i++)
        if (!is_left_out(in, i) && (i + 1 < in->count || !name))
            append_layer(made, in, i);
    strcat(made, name ? name : "");
    for (size_t i = 0; i < in->count; i++) {
        if (is_left_out(in, i))
            strata_host_free(in->layers[i].options);
        else
            in->layers[kept++] = in->layers[i];
    }
    in->count = kept;
    *text = made;
    return status;
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

strata_status strata_stack_check_text(const char *text)
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
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a stack is built without a text or a place to put it");
    *out = NULL;
    reader *in = open_reader(text);
    if (!in)
        return strata_fail_host_memory("reading a stack text");
    strata_status status = read_stack(in);
    if (status == STRATA_SUCCESS)
        status = make_stack(in, ordinal, out);
    close_reader(in);
    return status;
}
