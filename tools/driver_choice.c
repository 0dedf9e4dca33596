/* The command's driver. */
#include "tools/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool command_open_driver(const char *program, const char *choice, strata_driver_info *info)
{
    /* The option overrides the environment, which overrides a program's choice. */
    if (choice && setenv("STRATA_DRIVER", choice, 1) != 0) {
        fprintf(stderr, "%s: out of host memory\n", program);
        return false;
    }
    strata_status status = strata_driver_choose("auto");
    if (status == STRATA_SUCCESS)
        status = strata_driver_get_info(info);
    if (status != STRATA_SUCCESS)
        fprintf(stderr, "%s: no driver: %s\n", program, strata_last_error()->message);
    return status == STRATA_SUCCESS;
}

const char *command_driver_word(const strata_driver_info *info)
{
    if (info->simulated)
        return "sim";
    return strcmp(info->library, "libcuda.so.1") == 0 ? "cuda" : info->library;
}
