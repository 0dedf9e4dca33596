/* `strata layers`: the layers that stack texts know, and their options, from the layers' own tables. */
#include "core/stack/layers.h"
#include "resources/builtin.h"
#include "tools/command.h"
#include "tools/json_values.h"

#include <stdio.h>

enum { OPTION_JSON = 256 };

typedef struct settings {
    const char *program;
    const char *name; /* NULL: all */
    bool json;
} settings;

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *to = state->input;
    switch (key) {
    case OPTION_JSON:
        to->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (to->name)
            argp_error(state, "unexpected \"%s\"", text);
        to->name = text;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* What the types of options are called, and what their values look like. */
typedef struct option_type {
    const char *name, *value, *legend;
} option_type;

static const option_type types[] = {
    [STRATA_OPTION_BOOL] = {"bool", "off|on", NULL},
    [STRATA_OPTION_UINT] = {"uint", "N", NULL},
    [STRATA_OPTION_SIZE] = {"size", "SIZE", "bytes, or with a unit: 4096, 512MB, 8GiB"},
    [STRATA_OPTION_DURATION] = {"duration", "TIME", "nanoseconds, or with a unit: 500us, 20ms, 1.5s"},
    [STRATA_OPTION_CHOICE] = {"choice", NULL, NULL},
    [STRATA_OPTION_STRING] = {"string", "TEXT", "a word, or in quotes"},
    [STRATA_OPTION_AMOUNT] = {"amount", "SIZE|PERCENT", "bytes with or without a unit, or a share of the device: 50%"},
    [STRATA_OPTION_LIMIT] = {"amount", "SIZE|PERCENT",
                             "more than 0 bytes, with or without a unit, or a share of the device: 50%"},
    [STRATA_OPTION_INTERVAL] = {"interval", "TIME|0", "nanoseconds, or with a unit: 20ms; 0: never"},
    [STRATA_OPTION_NAME] = {"name", "NAME", "a word, or in quotes; not empty"},
    [STRATA_OPTION_MODE] = {"mode", "OCTAL", "permissions of a file: 0640"},
};

/* ---- text ---- */

static const char *role_of(const strata_layer *layer)
{
    if (!layer->owner)
        return "decorator: stands over another layer";
    if (strata_layer_branches(layer))
        return "branches: stands last, over stacks that each end in an owner of memory";
    return layer->over ? "owner of memory: stands last, or over another layer that it takes its memory from"
                       : "owner of memory: stands last";
}

static void print_legend(const strata_layer *layer)
{
    bool any = false;
    for (size_t type = 0; type < sizeof types / sizeof types[0]; type++)
        for (size_t i = 0; i < layer->option_count && types[type].legend; i++) {
            if (layer->options[i].type != (strata_option_type)type)
                continue;
            printf("%s  %-18s %s\n", any ? "" : "\n", types[type].value, types[type].legend);
            any = true;
            break;
        }
}

enum { USAGE = 28, WIDTH = 100 };

/* Prints words up to the end of a line, and the rest below. */
static void print_wrapped(const char *text)
{
    size_t column = USAGE + 3;
    while (*text) {
        const size_t length = strcspn(text, " ");
        if (column + length > WIDTH) {
            printf("\n%*s", USAGE + 3, "");
            column = USAGE + 3;
        }
        printf("%.*s%s", (int)length, text, text[length] ? " " : "");
        column += length + 1;
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void print_option(const strata_option *option)
{
    char line[160];
    const char *value = option->choices ? option->choices : types[option->type].value;
    snprintf(line, sizeof line, "%s=%s", option->name, value);
    if (strlen(line) > USAGE)
        printf("  %s\n  %-*s ", line, USAGE, "");
    else
        printf("  %-*s ", USAGE, line);
    print_wrapped(option->help);
}

static void print_layer(const strata_layer *layer)
{
    printf("%s: %s\n%s\n", layer->name, layer->help, role_of(layer));
    if (layer->in_sanitizer_mode)
        printf("STRATA_MODE=sanitizer replaces it with: %s\n", layer->in_sanitizer_mode);
    if (strata_layer_branches(layer))
        printf("\nUp to %u stacks in place of options: %s(pool(max_size=8GiB) | managed)\n",
               strata_layer_branches(layer), layer->name);
    else
        printf(layer->option_count ? "\nOptions:\n" : "\nNo options.\n");
    for (size_t i = 0; i < layer->option_count; i++)
        print_option(&layer->options[i]);
    print_legend(layer);
    if (layer->option_count)
        printf("\nOf the words of a choice the first one is the default.\n");
}

static void print_names(bool owners, bool branches)
{
    const strata_layer *layer;
    for (size_t i = 0; (layer = strata_layer_at(i)); i++)
        if (layer->owner == owners && (strata_layer_branches(layer) > 0) == branches)
            printf("  %-18s %s\n", layer->name, layer->help);
}

static void print_all(void)
{
    printf("Owners of memory, last in a stack:\n");
    print_names(true, false);
    printf("\nDecorators, over another layer:\n");
    print_names(false, false);
    printf("\nOver several stacks, in place of an owner:\n");
    print_names(true, true);
    printf("\n`strata layers NAME` prints a layer's options.\n");
}

/* ---- JSON ---- */

static json_t *json_choices(const strata_option *option)
{
    json_t *list = json_array();
    for (const char *word = option->choices; word && *word;) {
        const size_t length = strcspn(word, "|");
        json_array_append_new(list, json_stringn(word, length));
        word += length + (word[length] == '|');
    }
    return list;
}

static json_t *json_option(const strata_option *option)
{
    json_t *object = json_pack("{s:s, s:s, s:o}", "name", option->name, "type", types[option->type].name, "help",
                               json_text(option->help));
    if (option->choices)
        json_object_set_new(object, "choices", json_choices(option));
    return object;
}

static json_t *json_layer(const strata_layer *layer)
{
    json_t *options = json_array();
    for (size_t i = 0; i < layer->option_count; i++)
        json_array_append_new(options, json_option(&layer->options[i]));
    const char *kind = strata_layer_branches(layer) ? "branches" : layer->owner ? "owner" : "decorator";
    return json_pack("{s:s, s:s, s:b, s:i, s:s?, s:o, s:o}", "name", layer->name, "kind", kind, "over", layer->over,
                     "branches", (int)strata_layer_branches(layer), "in_sanitizer_mode", layer->in_sanitizer_mode,
                     "help", json_text(layer->help), "options", options);
}

static bool print_json(const strata_layer *one)
{
    json_t *list = json_array();
    const strata_layer *layer;
    bool made = list != NULL;
    for (size_t i = 0; made && (layer = strata_layer_at(i)); i++)
        if (!one || layer == one)
            made = json_array_append_new(list, json_layer(layer)) == 0;
    const bool written = made && json_dumpf(list, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII) == 0;
    json_decref(list);
    printf("\n");
    return written;
}

/* ---- the command ---- */

static const struct argp_option options[] = {
    {"json", OPTION_JSON, NULL, 0, "Print a JSON array with each layer and its options", 0},
    {0},
};

static const char documentation[] =
    "Lists the layers of stacks, or the options of one layer.\vA stack is written from the outside in, as in "
    "STRATA_STACK=\"budget(limit=8GiB), statistics, pool\".\n\nExit status: 0 if all went well, 1 if the output could "
    "not be written, 2 if the layer does not exist or the usage is bad.";

static const struct argp usage = {options, parse, "[NAME]", documentation, command_common, NULL, NULL};

static const command_values values[] = {{"", COMMAND_WORDS_LAYERS, false}, {0}};

static int run(int argc, char **argv)
{
    settings from = {.program = argv[0]};
    if (!command_parse(&usage, argc, argv, 0, &from))
        return COMMAND_USAGE;
    if (strata_builtin_register() != STRATA_SUCCESS) {
        fprintf(stderr, "%s: %s\n", from.program, strata_last_error()->message);
        return COMMAND_USAGE;
    }
    const strata_layer *one = from.name ? strata_layer_find(from.name, strlen(from.name)) : NULL;
    if (from.name && !one) {
        char names[1024];
        strata_layer_names(names, sizeof names);
        fprintf(stderr, "%s: unknown layer \"%s\"; known: %s\n", from.program, from.name, names);
        return COMMAND_USAGE;
    }
    if (from.json)
        return print_json(one) ? COMMAND_FINE : COMMAND_FOUND;
    if (one)
        print_layer(one);
    else
        print_all();
    return COMMAND_FINE;
}

const command command_layers = {"layers", "strata layers", "layers of a stack and their options", &usage, values, run};
