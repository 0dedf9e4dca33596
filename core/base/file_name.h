/* Names of files that a process makes: what differs from one process, or one layer, to another stands as %p and the
 * like. */
#ifndef STRATA_CORE_BASE_FILE_NAME_H
#define STRATA_CORE_BASE_FILE_NAME_H

#include <strata/status.h>

#include <stddef.h>

/* What stands for a letter behind a '%', and what that is called where another letter is refused. */
typedef struct strata_file_part {
    char letter;
    int number;
    const char *what;
} strata_file_part;

/* Writes the name to to[room]. %p is the process, %% is a '%', the rest is in `parts`. `who` begins the sentence of an
 * error: INVALID_VALUE, another letter or no room. */
strata_status strata_file_name(char *to, size_t room, const char *who, const char *given, const strata_file_part *parts,
                               size_t count);

#endif
