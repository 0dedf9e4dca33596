/* Reads argp's tables. */
#include "tools/help/usage_tables.h"

#include "core/stack/layers.h"
#include "resources/builtin.h"

#include <ctype.h>
#include <string.h>

static size_t add_options(const struct argp_option *from, usage_option out[USAGE_OPTIONS], size_t count)
{
    for (; from && (from->name || from->key || from->doc || from->group); from++) {
        if (from->flags & (OPTION_HIDDEN | OPTION_DOC) || !from->name || count == USAGE_OPTIONS)
            continue;
        const bool has_letter = from->key > 0 && from->key < 128 && isgraph(from->key);
        out[count++] = (usage_option){.name = from->name,
                                      .value = from->arg,
                                      .help = from->doc ? from->doc : "",
                                      .letter = has_letter ? (char)from->key : 0};
    }
    return count;
}

size_t usage_options(const struct argp *argp, usage_option out[USAGE_OPTIONS])
{
    size_t count = add_options(argp->options, out, 0);
    for (const struct argp_child *child = argp->children; child && child->argp; child++)
        count = add_options(child->argp->options, out, count);
    return count;
}

const command_values *usage_values(const command *of, const char *option)
{
    static const command_values unknown = {"", NULL, false};
    for (const command_values *each = of->values; each && each->option; each++)
        if (strcmp(each->option, option) == 0)
            return each;
    return &unknown;
}

void usage_print_words(FILE *to, const char *words)
{
    const command *each;
    const strata_layer *layer;
    if (!words)
        return;
    if (strcmp(words, COMMAND_WORDS_COMMANDS) == 0) {
        for (size_t i = 0; (each = command_at(i)); i++)
            fprintf(to, "%s%s", i ? " " : "", each->name);
    } else if (strcmp(words, COMMAND_WORDS_LAYERS) == 0 && strata_builtin_register() == STRATA_SUCCESS) {
        for (size_t i = 0; (layer = strata_layer_at(i)); i++)
            fprintf(to, "%s%s", i ? " " : "", layer->name);
    } else {
        fputs(words, to);
    }
}
