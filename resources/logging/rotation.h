/* The path of a log file: name, lock, rotation.
 *
 *     NAME.new -> NAME -> NAME.1 -> ... -> NAME.keep
 *
 * A log locks its file (flock) until the process ends; locked files are never taken. NAME.new has its header before any
 * rename: a failure moves nothing, and NAME is always a whole file. */
#ifndef STRATA_RESOURCES_LOGGING_ROTATION_H
#define STRATA_RESOURCES_LOGGING_ROTATION_H

#include <strata/logging.h>

#include <limits.h>
#include <sys/types.h>

typedef struct log_path {
    char text[PATH_MAX]; /* absolute, since the program may go to another folder before a rotation */
    uint64_t keep;
    mode_t mode; /* of new files; 0: the default */
} log_path;

/* Expands the option `file`. Errors: INVALID_VALUE. */
strata_status log_path_expand(log_path *path, const char *given, int device);

/* Creates a locked file; -1 with errno: EEXIST; EBUSY if another log was first. */
int log_path_create(const log_path *path);

/* Opens an existing file to write, without waiting for a pipe's reader; a regular file is locked, and still has the
 * name. -1 with errno: EBUSY if another log has it; those of strata_output_open. */
int log_path_open(const log_path *path, bool *regular);

/* Creates NAME.new, locked; -1 with errno and nothing left. */
int log_path_create_next(const log_path *path, const void *header, size_t bytes);

/* Moves NAME to NAME.1 and so on, and NAME.new to NAME. False with errno: EEXIST if the file at NAME is not
 * `descriptor`'s. After a failure NAME stays, or is at NAME.1 if the name was taken meanwhile. NAME.keep is lost only
 * if all numbers are in use. */
bool log_path_install_next(const log_path *path, int descriptor);

/* Remove NAME if it is `descriptor`'s; NAME.new. */
void log_path_remove(const log_path *path, int descriptor);
void log_path_remove_next(const log_path *path);

#endif
