/* The bytes of an input, in order; zeroes after the last one. */
#ifndef STRATA_FUZZ_INPUT_H
#define STRATA_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_input {
    const uint8_t *at, *end;
} fuzz_input;

static inline bool fuzz_has_more(const fuzz_input *input)
{
    return input->at < input->end;
}

static inline unsigned fuzz_byte(fuzz_input *input)
{
    return fuzz_has_more(input) ? *input->at++ : 0;
}

/* A number below `limit`, which is at most 256; 0 if `limit` is 0. */
static inline unsigned fuzz_below(fuzz_input *input, size_t limit)
{
    return limit ? (unsigned)(fuzz_byte(input) % limit) : 0;
}

#endif
