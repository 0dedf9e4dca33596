/* The worker's process: found, started, killed, and collected, so that none stays as a zombie. */
#ifndef STRATA_SERVICE_ISOLATED_PROCESS_H
#define STRATA_SERVICE_ISOLATED_PROCESS_H

#include <strata/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ISOLATED_SOCKET = 3 }; /* the worker's descriptor of its socket */

typedef struct isolated_process {
    pid_t id;   /* 0: none */
    int handle; /* a pidfd, which names no other process later; -1: the system has none */
    bool over;  /* it has been collected, by this process or for it */
    int code;   /* si_code and si_status of its end (sigaction(2)); 0: unknown */
    int status;
} isolated_process;

/* The path of the worker's program: `option` if it is not NULL. Errors: IO, with the paths that were looked at. */
strata_status isolated_program_find(const char *option, char *path, size_t room);

/* Starts the worker with `socket` as its descriptor 3, and nothing else but 0 to 2. It is in a session of its own, so
 * that signals of a terminal do not end it, and is killed when the calling thread ends. Errors: IO. */
strata_status isolated_process_start(const char *path, int socket, isolated_process *out);

void isolated_process_kill(const isolated_process *process);

/* Waits for its end, at most so long, and collects it. False: it goes on. */
bool isolated_process_wait(isolated_process *process, uint64_t nanoseconds);

/* "was killed by signal 9", "exited with status 1", "ended". */
void isolated_process_describe(const isolated_process *process, char *text, size_t room);

/* Closes the handle, after the process's end. */
void isolated_process_close(isolated_process *process);

#endif
