/* A recording that was read and checked as a whole. */
#ifndef STRATA_SERVICE_REPLAY_FILE_H
#define STRATA_SERVICE_REPLAY_FILE_H

#include "service/recording_line.h"

typedef struct replay_allocation {
    size_t bytes;
    uint64_t last_line; /* the last line that names it; 0: none */
    /* The rest is the replay's: zero at first. */
    strata_ref *ref;          /* until its last line */
    uint64_t made_by;         /* requests asked up to the one that made it; 0: not asked */
    uint64_t named_by;        /* requests asked up to the last one that named it */
    strata_priority priority; /* of that last one */
} replay_allocation;

typedef struct replay_module {
    uint64_t number, made_by; /* the replay's; zero at first */
} replay_module;

typedef struct replay_graph {
    struct strata_service_graph *handle; /* the replay's, as is the next; zero at first */
    bool incomplete;                     /* one of its requests could not be asked */
    uint64_t last_line;                  /* the last line that launches it; 0: none */
} replay_graph;

typedef struct replay_file {
    char *text;
    size_t bytes;   /* of whole lines */
    bool truncated; /* an incomplete one follows */
    uint64_t lines;
    uint64_t allocation_count, module_count, graph_count;
    replay_allocation *allocations; /* number 1 first, as are modules and graphs */
    replay_module *modules;
    replay_graph *graphs; /* those that only have requests included, which are one at most */
} replay_file;

/* Reads and checks a recording. Errors: IO, SYNTAX (the message names the line), OUT_OF_HOST_MEMORY; then nothing is
 * held. */
strata_status replay_file_open(replay_file *file, const char *path);
void replay_file_close(replay_file *file);

/* Where a pass over the lines is. */
typedef struct replay_position {
    size_t at;
    uint64_t line; /* the last one that was given, from 1 */
} replay_position;

/* The next line without its line feed; false: there is none. The first is the head. */
bool replay_file_next(const replay_file *file, replay_position *position, const char **line, size_t *length);

#endif
