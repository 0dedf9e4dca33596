/* The `strata` command: runs the subcommand. */
#include "tools/command.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct subcommand {
    const char *name;
    const char *program; /* name in messages */
    int (*run)(int argc, char **argv);
} subcommand;

static const subcommand subcommands[] = {
    {"budget", "strata budget", command_budget},
    {"info", "strata info", command_info},
    {"log", "strata log", command_log},
    {"replay", "strata replay", command_replay},
};

static const subcommand *find(const char *name)
{
    for (size_t i = 0; i < sizeof subcommands / sizeof subcommands[0]; i++)
        if (strcmp(subcommands[i].name, name) == 0)
            return &subcommands[i];
    return NULL;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "strata %s\n", strata_version_string());
}

/* Stops at the first word that is no option. */
static error_t parse(int key, char *word, struct argp_state *state)
{
    const subcommand **chosen = state->input;
    if (key == ARGP_KEY_NO_ARGS)
        argp_error(state, "which command?");
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    *chosen = find(word);
    if (!*chosen)
        argp_error(state, "there is no command \"%s\"", word);
    state->next = state->argc;
    return 0;
}

/* Index of the subcommand: the command's own options take no values. */
static int position_of_subcommand(char **argv)
{
    int position = 1;
    while (argv[position] && argv[position][0] == '-')
        position++;
    return position;
}

/* Occupies closed standard streams: a file opened later would get their numbers, and the report would go into a log or
 * into the simulated driver's memory. The placeholders are as unusable as closed streams. */
static void hold_standard_streams(void)
{
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++)
        if (fcntl(number, F_GETFD) < 0 && open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            return;
}

/* The last step, for --help too: lost output is an error with its reason. */
static void close_output(void)
{
    bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) == 0 && !failed)
        return;
    fprintf(stderr, "strata: the output could not be written: %s\n", errno ? strerror(errno) : "a write failed");
    _exit(COMMAND_FOUND);
}

int main(int argc, char **argv)
{
    static const char documentation[] =
        "Stream-ordered CUDA memory from a stack of layers."
        "\vCommands:\n"
        "  budget    the limits that processes share: list them, set them\n"
        "  info      the driver, its devices, and the stack that the environment asks for\n"
        "  log       print, filter and convert what the layer \"logging\" has recorded\n"
        "  replay    replay recorded allocations through a stack\n\n"
        "`strata COMMAND --help` says more about one. STRATA_DRIVER (auto, cuda, sim or a library's path) chooses the "
        "driver, STRATA_STACK the stack.";
    static const struct argp argp = {.parser = parse, .args_doc = "COMMAND [ARGUMENT...]", .doc = documentation};
    const subcommand *chosen = NULL;
    char name[] = "strata";

    hold_standard_streams();
    if (atexit(close_output) != 0) {
        fprintf(stderr, "strata: no host memory\n");
        return COMMAND_USAGE;
    }
    argp_program_version_hook = print_version;
    argp_err_exit_status = COMMAND_USAGE;
    int position = position_of_subcommand(argv);
    if (argc > 0)
        argv[0] = name;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &chosen);
    argv[position] = strdup(chosen->program);
    if (!argv[position])
        return COMMAND_USAGE;
    int status = chosen->run(argc - position, argv + position);
    free(argv[position]);
    return status;
}
