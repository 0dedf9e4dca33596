/* Structs of options, whichever version of the library their caller was compiled with.
 *
 * A public struct of options starts with `size`: sizeof as the caller was compiled, or 0 for the version at hand. A
 * smaller struct is an older one, and the members that it does not have are zero, their default. A larger one is of a
 * later version: its further members must be zero, since nobody here knows what they ask for. */
#ifndef STRATA_CORE_BASE_OPTIONS_H
#define STRATA_CORE_BASE_OPTIONS_H

#include <strata/resource.h>

/* Reads `given` (NULL: all zero) as the struct of `known` bytes at `into`. `name` is for messages. INVALID_VALUE if the
 * size is none that a version of the struct can have, or if something is asked for beyond what is known. */
strata_status strata_options_read(void *into, size_t known, const void *given, const char *name);

/* The head of each function that makes a layer: looks for the place where the layer goes, clears it, and reads
 * strata_<layer>_options. INVALID_VALUE if there is no place, and as above. */
strata_status strata_options_begin(const char *layer, strata_resource **out, void *into, size_t known,
                                   const void *given);

#endif
