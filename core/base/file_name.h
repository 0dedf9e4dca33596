/* Names of files that a process creates: %p and other letters stand for what differs between processes or layers. */
#ifndef STRATA_CORE_BASE_FILE_NAME_H
#define STRATA_CORE_BASE_FILE_NAME_H

#include <strata/status.h>

#include <stddef.h>

/* A letter after '%', what it stands for, and its description for the error about an unknown letter. */
typedef struct strata_file_part {
    char letter;
    int number;
    const char *what;
} strata_file_part;

/* Writes the file name to to[room]: %p is the process, %% a '%', the rest comes from `parts`. `layer` starts the
 * sentence of an error. INVALID_VALUE: an unknown letter, or no room. */
strata_status strata_file_name(char *to, size_t room, const char *layer, const char *given,
                               const strata_file_part *parts, size_t count);

#endif
