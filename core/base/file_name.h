/* Names of files that a process creates: %p and other letters tell processes or layers apart. */
#ifndef STRATA_CORE_BASE_FILE_NAME_H
#define STRATA_CORE_BASE_FILE_NAME_H

#include <strata/status.h>

#include <stddef.h>

/* `what` describes the letter in the error about an unknown one. */
typedef struct strata_file_part {
    char letter;
    int number;
    const char *what;
} strata_file_part;

/* Writes the file name to to[room]: %p is the process, %% a '%', other letters are in `parts`. `layer` starts an
 * error's sentence. INVALID_VALUE: an unknown letter, or no room. */
strata_status strata_file_name(char *to, size_t room, const char *layer, const char *given,
                               const strata_file_part *parts, size_t count);

#endif
