/* The command line of `strata` itself. It knows its subcommands by a table that main() gives it: subcommands such as
 * `help` read that, too. */
#include "tools/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const command *const *commands; /* NULL-terminated; set once, at the start */

void command_use(const command *const *all)
{
    commands = all;
}

const command *command_at(size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (!commands[i])
            return NULL;
    return commands[index];
}

const command *command_find(const char *name)
{
    const command *found;
    for (size_t i = 0; (found = command_at(i)); i++)
        if (strcmp(found->name, name) == 0)
            return found;
    return NULL;
}

/* Stops at the first word that is no option. */
static error_t parse(int key, char *word, struct argp_state *state)
{
    const command **chosen = state->input;
    if (key == ARGP_KEY_NO_ARGS)
        argp_error(state, "missing command");
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    *chosen = command_find(word);
    if (!*chosen)
        argp_error(state, "unknown command \"%s\"", word);
    state->next = state->argc;
    return 0;
}

/* Adds the list of commands to --help. */
static char *add_commands(int key, const char *text, void *input)
{
    (void)input;
    const command *each;
    char *all = NULL;
    size_t length;
    FILE *to = key == ARGP_KEY_HELP_POST_DOC ? open_memstream(&all, &length) : NULL;
    if (!to)
        return (char *)(uintptr_t)text;
    fprintf(to, "Commands:\n");
    for (size_t i = 0; (each = command_at(i)); i++)
        fprintf(to, "  %-11s %s\n", each->name, each->summary);
    fprintf(to, "\n%s", text ? text : "");
    return fclose(to) == 0 ? all : (char *)(uintptr_t)text;
}

const char command_strata_summary[] = "stream-ordered CUDA memory from a stack of layers";

static const char documentation[] =
    "Inspects and measures stream-ordered CUDA memory from a stack of layers."
    "\v`strata help COMMAND` and `strata COMMAND --help` describe a command. STRATA_DRIVER (auto, cuda, sim or a "
    "library's path) chooses the driver, STRATA_STACK the stack.";

const struct argp command_strata_argp = {.parser = parse,
                                         .args_doc = "COMMAND [ARGUMENT...]",
                                         .doc = documentation,
                                         .children = command_common,
                                         .help_filter = add_commands};
