/* Lost output. */
#include "tools/command.h"

#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>

int command_lose_output(const char *program, const char *what, int reason)
{
    fprintf(stderr, "%s: %s could not be written: %s\n", program, what, reason ? strerror(reason) : "a write failed");
    __fpurge(stdout);
    clearerr(stdout);
    return COMMAND_FOUND;
}
