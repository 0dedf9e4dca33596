/* The subcommands of `strata`, in alphabetical order. */
#include "tools/command.h"

const command *const command_table[] = {
    &command_budget, &command_completion, &command_demo,   &command_exec,    &command_help, &command_info,
    &command_layers, &command_log,        &command_replay, &command_service, &command_top,  NULL,
};
