/* Sizes, durations and percentages as people write them. */
#ifndef STRATA_CORE_BASE_SIZE_TEXT_H
#define STRATA_CORE_BASE_SIZE_TEXT_H

#include <strata/resource.h>

/* Reads text[length] as a size in bytes: "1.5GiB", "512 MB", "4096". Fractions of a byte are dropped, but a nonzero
 * size that would become zero is refused. False if it is no size; raises no error. */
bool strata_read_size(const char *text, size_t length, uint64_t *bytes);

/* Likewise a duration in nanoseconds: ns, us, ms, s; nanoseconds without a unit. */
bool strata_read_duration(const char *text, size_t length, uint64_t *nanoseconds);

/* Likewise a percentage: digits, an optional fraction, '%'; above 0, at most 100. */
bool strata_read_percent(const char *text, size_t length, double *percent);

/* Reads text[length] as decimal digits alone. False if it is no number, or does not fit. */
bool strata_read_count(const char *text, size_t length, uint64_t *count);

/* Reads text[length] as a word for on or off. False if it is none. */
bool strata_read_switch(const char *text, size_t length, bool *on);

/* An amount in bytes; a percentage is of total_bytes, which is a device's memory. */
uint64_t strata_amount_bytes(const strata_amount *amount, uint64_t total_bytes);

#endif
