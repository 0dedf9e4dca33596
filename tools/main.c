/* The `strata` command. */
#include "tools/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Index of the subcommand: the command's own options take no values. */
static int position_of_subcommand(char **argv)
{
    int position = 1;
    while (argv[position] && argv[position][0] == '-')
        position++;
    return position;
}

/* Occupies closed standard streams: a file opened later would get their numbers, and the report would go into a log or
 * the simulated driver's memory. The placeholders are as unusable. */
static void hold_standard_streams(void)
{
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++)
        if (fcntl(number, F_GETFD) < 0 && open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            return;
}

/* The last step, for --help too: lost output is an error. */
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
    const command *chosen = NULL;
    char name[] = "strata";

    hold_standard_streams();
    if (atexit(close_output) != 0) {
        fprintf(stderr, "strata: out of host memory\n");
        return COMMAND_USAGE;
    }
    command_use(command_table);
    int position = position_of_subcommand(argv);
    if (argc > 0)
        argv[0] = name;
    if (!command_parse(&command_strata_argp, argc, argv, ARGP_IN_ORDER, &chosen))
        return COMMAND_USAGE;
    argv[position] = strdup(chosen->program);
    if (!argv[position])
        return COMMAND_USAGE;
    int status = chosen->run(argc - position, argv + position);
    free(argv[position]);
    return status;
}
