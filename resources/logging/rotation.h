/* The path of a log file: its name, its lock, and rotation.
 *
 * A log locks its file (flock); the kernel releases the lock when the process ends. A locked file is never taken. A
 * successor is made as NAME.new, with its header, before anything is renamed: if it cannot be made, nothing has moved,
 * and NAME is always a whole file.
 *
 *     NAME.new -> NAME -> NAME.1 -> ... -> NAME.keep */
#ifndef STRATA_RESOURCES_LOGGING_ROTATION_H
#define STRATA_RESOURCES_LOGGING_ROTATION_H

#include <strata/logging.h>

enum { LOG_NAME_ROOM = 512 };

typedef struct log_path {
    char text[LOG_NAME_ROOM];
    uint64_t keep; /* NAME.1 to NAME.keep stay */
} log_path;

/* Expands the option `file`. Errors: INVALID_VALUE. */
strata_status log_path_expand(log_path *path, const char *given, int device);

/* Descriptor for "/dev/stdout" and "/dev/stderr"; -1 for other paths. */
int log_path_standard(const log_path *path);

/* Creates and locks the file; -1 with errno: EEXIST; EBUSY if another log locked it first. */
int log_path_create(const log_path *path);

/* Opens the existing file for writing, without waiting for a pipe's reader; a regular file is locked and still has the
 * name. -1 with errno; EBUSY if another log writes to it. */
int log_path_open(const log_path *path, bool *regular);

/* Creates NAME.new, locked, with the header; -1 with errno and nothing left. */
int log_path_create_next(const log_path *path, const void *header, size_t bytes);

/* Renames NAME to NAME.1 and so on, and NAME.new to NAME. `descriptor` is the file at NAME, or was there until it was
 * moved; EEXIST if another file is there. False with errno: NAME stays, or is at NAME.1 if the name was taken
 * meanwhile. No file is lost but NAME.keep, and only if all numbers are in use. */
bool log_path_install_next(const log_path *path, int descriptor);

/* Removes NAME if it is still this file; the other one removes NAME.new. */
void log_path_remove(const log_path *path, int descriptor);
void log_path_remove_next(const log_path *path);

#endif
