/* What the subcommands of `strata` share. */
#ifndef STRATA_TOOLS_COMMAND_H
#define STRATA_TOOLS_COMMAND_H

#include <strata/info.h>

/* Exit statuses. */
enum {
    COMMAND_FINE = 0,
    COMMAND_FOUND = 1, /* it ran, and found something wrong or lost output */
    COMMAND_USAGE = 2, /* it did not run: bad usage, bad input, or no driver */
};

/* Subcommands. argv[0] is the program's name in messages, such as "strata replay". */
int command_budget(int argc, char **argv);
int command_info(int argc, char **argv);
int command_log(int argc, char **argv);
int command_replay(int argc, char **argv);

/* Opens the driver that --driver (NULL: not given), else STRATA_DRIVER, else "auto" chooses, and describes it. False,
 * with the reason on stderr. */
bool command_open_driver(const char *program, const char *choice, strata_driver_info *info);

/* Reports that stdout lost `what`, with errno `reason` or 0, and discards its buffer, so that it is reported once.
 * Returns COMMAND_FOUND. */
int command_lose_output(const char *program, const char *what, int reason);

/* The driver in a word: "sim", "cuda", or the given path. */
const char *command_driver_word(const strata_driver_info *info);

#endif
