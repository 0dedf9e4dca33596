/* The place of a log file: its name, who has it, and how another file comes to stand there.
 *
 * Whoever writes a file holds a lock on it (flock), which the kernel releases with the process; a file that somebody
 * holds is never taken. A file that is to take a name that is in use is made under NAME.new first, with its header in
 * it, so that where no file can be made nothing was moved, and the name always has a whole one. */
#ifndef STRATA_RESOURCES_LOGGING_ROTATION_H
#define STRATA_RESOURCES_LOGGING_ROTATION_H

#include <strata/logging.h>

enum { LOG_NAME_ROOM = 512 };

typedef struct log_path {
    char text[LOG_NAME_ROOM];
    uint64_t keep; /* NAME.1 to NAME.keep are kept */
} log_path;

/* Fills in the path, as the option `file` says it. Errors: INVALID_VALUE. */
strata_status log_path_expand(log_path *path, const char *given, int device);

/* The descriptor of the process's own that the path means, as "/dev/stdout"; -1 for others. */
int log_path_standard(const log_path *path);

/* Makes a file under the name, locked; -1 with errno: EEXIST, EBUSY if another log took it at once. */
int log_path_create(const log_path *path);

/* Opens what has the name already, for writing and without waiting for the reader of a pipe; a plain file is locked and
 * surely has the name. -1 with errno, EBUSY if another log writes to it. */
int log_path_open(const log_path *path, bool *regular);

/* Makes NAME.new, locked and with `header` in it; -1 with errno, and nothing is left. */
int log_path_create_next(const log_path *path, const void *header, size_t bytes);

/* Moves NAME to NAME.1 and so on, and NAME.new to NAME. `descriptor` is the file that stands at NAME, or stood there
 * until somebody else moved it; if another one does, EEXIST. False with errno: NAME stays where it is, or at NAME.1
 * if somebody took the name at that moment. No file is lost but NAME.keep, and that only if all the numbers are in use.
 */
bool log_path_install_next(const log_path *path, int descriptor);

/* Removes NAME, if it is still that file; and NAME.new. */
void log_path_remove(const log_path *path, int descriptor);
void log_path_remove_next(const log_path *path);

#endif
