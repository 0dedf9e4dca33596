/* `strata exec`: what was asked for, and its steps. */
#ifndef STRATA_TOOLS_EXEC_EXEC_H
#define STRATA_TOOLS_EXEC_EXEC_H

#include <stdbool.h>
#include <stddef.h>

typedef struct exec_request {
    const char *program; /* name in messages */
    const char *driver, *stack, *budget, *set_aside, *shared, *log, *mode, *output;
    unsigned stacks; /* how many call stacks the report lists; 0: none are taken */
    bool guard, ipc, report, json, fail_closed, children;
    char **command; /* ends with NULL */
} exec_request;

/* ---- the stack (stack.c) ---- */

/* Writes the text of the stack that the options ask for; numbered: the log's name gets a number. False, with the reason
 * on stderr: they contradict each other, or the text cannot be read. */
bool exec_compose_stack(const exec_request *request, bool numbered, char *text, size_t room);

/* Whether the log and the report have files of their own. False, with the reason on stderr: they would write over each
 * other. */
bool exec_check_files(const exec_request *request);

/* Whether there is a budget of which --set-aside leaves something, as far as that is known without the device. False,
 * with the reason on stderr: there is none. */
bool exec_check_set_aside(const exec_request *request);

/* ---- the program (inspect.c) ---- */

typedef enum exec_sight {
    EXEC_SIGHT_CLEAR = 0,
    EXEC_SIGHT_STATIC,     /* linked statically: no loader loads anything before it */
    EXEC_SIGHT_PRIVILEGED, /* the loader ignores LD_PRELOAD */
    EXEC_SIGHT_FOREIGN,    /* of another processor or word size */
} exec_sight;

/* Looks for the program as execvp does, and into it; a script is its interpreter. A program that is not found or cannot
 * be read is clear: execvp says why. */
exec_sight exec_inspect(const char *command);

/* The program that execvp would find, or its interpreter if it is a script. False: none. */
bool exec_find_program(const char *command, char *path, size_t room);

/* ---- sanitizers (sanitizer.c) ---- */

/* The name of the address sanitizer's library that an ELF file is linked to. False: none. */
bool exec_find_sanitizer(const char *path, char *name, size_t room);

/* Whether a file is the loader, which can be a command: it loads the program that follows. */
bool exec_is_loader(const char *path);

/* ---- the environment (environment.c) ---- */

/* Sets the variables that the library in front of the program reads, and by which it is loaded. False, with the reason
 * on stderr. */
bool exec_prepare_environment(const exec_request *request, const char *stack, const char *again);

#endif
