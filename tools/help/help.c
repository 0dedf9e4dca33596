/* `strata help`: what --help prints, and the same as a manual page. */
#include "tools/help/usage_tables.h"

#include <string.h>

enum { OPTION_MAN = 256 };

typedef struct settings {
    const command *of; /* NULL: the program */
    bool manual;
} settings;

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *to = state->input;
    switch (key) {
    case OPTION_MAN:
        to->manual = true;
        return 0;
    case ARGP_KEY_ARG:
        if (to->of)
            argp_error(state, "unexpected \"%s\"", text);
        to->of = command_find(text);
        if (!to->of)
            argp_error(state, "unknown command \"%s\"", text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"man", OPTION_MAN, NULL, 0, "Print the manual page, for `man -l -`", 0},
    {0},
};

static const struct argp usage = {options,        parse, "[COMMAND]", "Describes a command, or all commands in brief.",
                                  command_common, NULL,  NULL};

static const command_values values[] = {{"", COMMAND_WORDS_COMMANDS, false}, {0}};

static int run(int argc, char **argv)
{
    char name[] = "strata";
    settings from = {0};
    if (!command_parse(&usage, argc, argv, 0, &from))
        return COMMAND_USAGE;
    if (from.manual) {
        usage_print_manual(stdout, from.of);
        return COMMAND_FINE;
    }
    const unsigned flags = ARGP_HELP_STD_HELP & ~(unsigned)(ARGP_HELP_EXIT_OK | ARGP_HELP_EXIT_ERR);
    char program[64];
    snprintf(program, sizeof program, "%s", from.of ? from.of->program : name);
    argp_help(from.of ? from.of->argp : &command_strata_argp, stdout, flags, program);
    return COMMAND_FINE;
}

const command command_help = {"help", "strata help", "describe a command", &usage, values, run};
