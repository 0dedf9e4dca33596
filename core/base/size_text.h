/* Numbers with units, as people write them. */
#ifndef STRATA_CORE_BASE_SIZE_TEXT_H
#define STRATA_CORE_BASE_SIZE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads all of `text` (length bytes) as a size in bytes: digits, perhaps a fraction, perhaps a unit. Parts of
 * a byte are dropped, but what is not zero does not become zero. Nothing is said about what is wrong: false. "1.5GiB",
 * "512 MB", "4096". */
bool strata_read_size(const char *text, size_t length, uint64_t *bytes);

/* The same for a duration in nanoseconds: ns, us, ms, s; without a unit, nanoseconds. */
bool strata_read_duration(const char *text, size_t length, uint64_t *nanoseconds);

/* The same for a share: digits, perhaps a fraction, '%'; above 0, at most 100. */
bool strata_read_percent(const char *text, size_t length, double *percent);

#endif
