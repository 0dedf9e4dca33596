/* The operations, one byte of the input each, and the bytes that they draw. */
#ifndef STRATA_FUZZ_OPERATIONS_H
#define STRATA_FUZZ_OPERATIONS_H

#include "fuzz/model.h"

typedef struct operation {
    const char *name;
    unsigned weight;   /* how many of the 64 values of an operation's byte select it */
    void (*act)(void); /* NULL: done by the dealer */
    void (*deal)(void);
} operation;

extern const operation operations[];
extern const size_t operation_count;

/* Frees the block on the stream. Returns whether it is freed. */
bool operation_free_block(model_block *block, const model_stream *stream);

/* Frees some block, so that the program can end. */
void operation_free(void);

/* Prepares, and finishes, a use of the block; after a failed finish the program waits for the work. With
 * STRATA_ACCESS_NONE nothing was submitted. */
bool operation_prepare(const model_block *block, const model_stream *stream, strata_access access);
void operation_finish_block(model_block *block, const model_stream *stream, strata_access access);

/* For the dealer, which is player 0: finishes use number `which` on the thread that prepared it. */
void operation_finish(size_t which);

#endif
