/* Numbers for people. */
#ifndef STRATA_TOOLS_SIZE_WORDS_H
#define STRATA_TOOLS_SIZE_WORDS_H

#include <stdint.h>

typedef struct words {
    char text[32];
} words;

/* "8.54 GiB": a unit of 1024. */
words words_of_bytes(uint64_t bytes);

/* "740 ns", "1.90 us", "12.3 s". */
words words_of_duration(uint64_t nanoseconds);

/* "34,427". */
words words_of_count(uint64_t count);

#endif
