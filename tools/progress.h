/* A progress bar on stderr, if that is a terminal. */
#ifndef STRATA_TOOLS_PROGRESS_H
#define STRATA_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool visible;
    int drawn; /* percent; -1: none */
} progress;

/* Visible if `wanted` and stderr is a terminal. */
void progress_open(progress *progress, bool wanted);

/* Shows `done` of `total`, if that changes what is drawn. */
void progress_show(progress *progress, uint64_t done, uint64_t total, const char *what);

void progress_close(progress *progress);

#endif
