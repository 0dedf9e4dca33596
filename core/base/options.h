/* Option structs of callers compiled with any version of the library.
 *
 * A public option struct starts with `size`: sizeof as the caller was compiled, or 0 for the current version. Members
 * missing in an older struct are zero, their default; members that only a later version knows must be zero. */
#ifndef STRATA_CORE_BASE_OPTIONS_H
#define STRATA_CORE_BASE_OPTIONS_H

#include <strata/resource.h>

/* Copies `given` (NULL: all zero) into `known` bytes. `name` is for messages. INVALID_VALUE: an impossible size, or an
 * unknown member that is not zero. */
strata_status strata_options_read(void *into, size_t known, const void *given, const char *name);

/* The head of each strata_<layer>_create: checks and clears `out`, reads strata_<layer>_options. */
strata_status strata_options_begin(const char *layer, strata_resource **out, void *into, size_t known,
                                   const void *given);

#endif
