/* Sizes, durations, percentages and such from text[length]. False if it is none, or does not fit; raises no error. */
#ifndef STRATA_CORE_BASE_SIZE_TEXT_H
#define STRATA_CORE_BASE_SIZE_TEXT_H

#include <strata/resource.h>

/* Bytes: "1.5GiB", "512 MB", "4096". Of a fraction of a unit above a byte, whole bytes; a nonzero size that would
 * become zero is refused, and so is 1.5 without a unit or in bytes. */
bool strata_read_size(const char *text, size_t length, uint64_t *bytes);

/* Nanoseconds, from ns, us, ms or s; without a unit, ns. */
bool strata_read_duration(const char *text, size_t length, uint64_t *nanoseconds);

/* Digits, an optional fraction, '%'; above 0, at most 100. */
bool strata_read_percent(const char *text, size_t length, double *percent);

/* Decimal digits alone. */
bool strata_read_count(const char *text, size_t length, uint64_t *count);

/* A word for on or off. */
bool strata_read_switch(const char *text, size_t length, bool *on);

typedef struct strata_size_words {
    char text[48];
} strata_size_words;

/* A size for people, with the exact figure behind: "100 GiB (107374182400 bytes)", "1 byte". */
strata_size_words strata_size_text(uint64_t bytes);

/* Without the exact figure: "8.54 GiB". */
strata_size_words strata_size_short(uint64_t bytes);

/* Writes a number of at least 0 with so many decimals, behind a point in every locale. */
void strata_put_decimals(char *text, size_t room, double value, unsigned decimals);

/* An amount in bytes; a percentage is of total_bytes, which is a device's memory. */
uint64_t strata_amount_bytes(const strata_amount *amount, uint64_t total_bytes);

#endif
