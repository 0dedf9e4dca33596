/* Files that Strata writes. Another user may have prepared what stands under their names, in a folder such as /tmp. */
#ifndef STRATA_CORE_BASE_OUTPUT_FILE_H
#define STRATA_CORE_BASE_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The open descriptor that a path names: of /dev/stdout, /dev/stderr, /dev/fd/N and /proc/self/fd/N; -1: none. It is
 * written to as it is: to open the name again fails for a socket, and starts a file from its beginning. */
int strata_output_descriptor(const char *path);

/* Copies a file's name with the process's number in place of %p and a % in place of %%; another % stays. False if it is
 * too long. */
bool strata_output_expand(const char *name, char *path, size_t room);

/* Whether each process has its own file by a name: %p is in it, and not behind another %, which makes it "%p". */
bool strata_output_names_process(const char *name);

/* open(2) for writing. No link at the end of the path is followed. A file that it makes can be read and written by this
 * user alone, or has `mode`, whatever the umask, if that is not 0. In a folder that all users write to, an existing
 * file must have one name and belong to this user or to the folder's owner. -1 with errno: ELOOP, a link; EMLINK,
 * several names; EPERM, another user's. */
int strata_output_open(const char *path, int flags, mode_t mode);

/* Opens a file or pipe to append to, made if there is none, or copies the descriptor that the path names. */
int strata_output_append(const char *path, int flags, mode_t mode);

/* Words for an errno of these functions. */
const char *strata_output_error(int error, char *room, size_t size);

#endif
