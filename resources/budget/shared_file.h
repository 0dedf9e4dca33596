/* The file of a shared budget. */
#ifndef STRATA_RESOURCES_BUDGET_SHARED_FILE_H
#define STRATA_RESOURCES_BUDGET_SHARED_FILE_H

#include "resources/budget/shared.h"

#include <sys/stat.h>
#include <sys/types.h>

enum { SHARED_PATH = 256 };

/* Where the files are: STRATA_SHARED_DIR, else /dev/shm. */
const char *shared_directory(void);

bool shared_name_is_good(const char *name);

/* The number of a group by its name or digits. */
bool shared_find_group(const char *name, gid_t *group);

/* The path of what is asked for; a file of the user, or of a group. */
strata_status shared_file_path(const shared_terms *terms, bool grouped, gid_t group, char path[SHARED_PATH]);

/* Opens the file, never through a link, and checks whose it is and who else may write to it; the first makes it if
 * there is none. *about is what the system says about it. On failure the descriptor, if it is not -1, is still the
 * caller's to close. Errors: IO. */
strata_status shared_file_open(const char *path, bool grouped, gid_t group, int *descriptor, struct stat *about);
strata_status shared_file_open_existing(const char *path, bool grouped, gid_t group, int *descriptor,
                                        struct stat *about);

/* Maps the file and checks its head. With `terms`, what an open asks for, a new file is made whole first, with the
 * file's lock; without, it is taken as it is. Errors: IO. */
strata_status shared_file_map(int descriptor, const char *path, const shared_terms *terms, shared_file **out);

/* IO: the file cannot be `what`, for the reason in errno. */
strata_status shared_file_refuse(const char *path, const char *what);

/* IO: the file is not what it has to be: "is damaged". */
strata_status shared_file_refuse_for(const char *path, const char *what);

#endif
