/* A bar on stderr for a person who is watching; nothing for anybody else. */
#ifndef STRATA_TOOLS_PROGRESS_H
#define STRATA_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool visible;
    int drawn; /* percent on the screen, or -1 */
} progress;

/* `wanted` and a terminal on stderr make it visible. */
void progress_open(progress *progress, bool wanted);

/* `done` of `total` is finished. Draws only what changes. */
void progress_show(progress *progress, uint64_t done, uint64_t total, const char *what);

/* Takes the bar off the screen. */
void progress_close(progress *progress);

#endif
