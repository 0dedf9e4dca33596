/* The options that every subcommand has, and values of options. */
#include "core/base/size_text.h"
#include "tools/command.h"

#include <string.h>

enum { OPTION_USAGE = 1000 };

static error_t parse_common(int key, char *text, struct argp_state *state)
{
    (void)text;
    switch (key) {
    case 'h':
    case '?':
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
        return 0;
    case OPTION_USAGE:
        argp_state_help(state, state->out_stream, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
        return 0;
    case 'V':
        fprintf(state->out_stream, "strata %s\n", strata_version_string());
        exit(COMMAND_FINE);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option common_options[] = {
    {"help", 'h', NULL, 0, "Print this help and exit", -1},
    {NULL, '?', NULL, OPTION_HIDDEN, NULL, -1},
    {"usage", OPTION_USAGE, NULL, 0, "Print a short usage message and exit", -1},
    {"version", 'V', NULL, 0, "Print the version and exit", -1},
    {0},
};
static const struct argp common = {.options = common_options, .parser = parse_common};

const struct argp_child command_common[] = {{&common, 0, NULL, -1}, {0}};

bool command_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *into)
{
    argp_err_exit_status = COMMAND_USAGE;
    return argp_parse(argp, argc, argv, flags | ARGP_NO_HELP, NULL, into) == 0;
}

uint64_t command_read_size(const struct argp_state *state, const char *name, const char *text)
{
    uint64_t bytes = 0;
    if (!strata_read_size(text, strlen(text), &bytes))
        argp_error(state, "--%s is \"%s\": expected a size such as 4MiB", name, text);
    return bytes;
}
