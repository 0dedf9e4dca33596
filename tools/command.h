/* What the subcommands of `strata` share. */
#ifndef STRATA_TOOLS_COMMAND_H
#define STRATA_TOOLS_COMMAND_H

#include <strata/info.h>

/* Exit statuses. */
enum {
    COMMAND_FINE = 0,
    COMMAND_FOUND = 1, /* it ran, and found something wrong or could not write its output */
    COMMAND_USAGE = 2, /* it did not run: bad usage, bad input, or nothing to run on */
};

/* The subcommands. argv[0] is what to call the program in messages, such as "strata replay". */
int command_budget(int argc, char **argv);
int command_info(int argc, char **argv);
int command_log(int argc, char **argv);
int command_replay(int argc, char **argv);

/* Opens the driver that --driver (NULL if it was not given), else STRATA_DRIVER, else "auto" chooses, and describes it.
 * False, with the reason on stderr. */
bool command_open_driver(const char *program, const char *choice, strata_driver_info *info);

/* Says that stdout did not take `what`, `reason` being the errno of that moment or 0, and throws away what it has not
 * taken, so that it is said once. Returns COMMAND_FOUND. */
int command_lose_output(const char *program, const char *what, int reason);

/* The driver in a word: "sim", "cuda", or the path that was given for it. */
const char *command_driver_word(const strata_driver_info *info);

#endif
