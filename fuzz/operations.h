/* The operations that an input's bytes are taken for, one byte each, and the bytes that it draws after that. */
#ifndef STRATA_FUZZ_OPERATIONS_H
#define STRATA_FUZZ_OPERATIONS_H

#include "fuzz/model.h"

typedef struct operation {
    const char *name;
    unsigned weight;   /* how many of the 64 values of an operation's byte mean it */
    void (*act)(void); /* NULL: done by the dealer */
    void (*deal)(void);
} operation;

extern const operation operations[];
extern const size_t operation_count;

/* Frees the block on the stream. Whether it is freed. */
bool operation_free_block(model_block *block, const model_stream *stream);

/* Frees some block, so that a program can be brought to its end. */
void operation_free(void);

/* Prepares, and finishes, a use of the block; a finish that fails leaves the program to wait for the work itself. With
 * STRATA_ACCESS_NONE nothing was submitted. */
bool operation_prepare(const model_block *block, const model_stream *stream, strata_access access);
void operation_finish_block(model_block *block, const model_stream *stream, strata_access access);

/* Finishes the use number `which` on the thread that prepared it. For the dealer, player 0. */
void operation_finish(size_t which);

#endif
