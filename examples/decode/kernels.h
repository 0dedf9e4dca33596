/* The layer's kernels. kernels.cu has them for a GPU (kernels.ptx is made of it by `build`), host_kernels.c for the
 * simulated driver. All numbers are float; a vector has the length that its kernel is told. */
#ifndef STRATA_EXAMPLES_DECODE_KERNELS_H
#define STRATA_EXAMPLES_DECODE_KERNELS_H

enum { WIDTH = 128, HEADS = 8, HEAD = WIDTH / HEADS, HIDDEN = 4 * WIDTH, WORDS = 256, POSITIONS = 128 };

/* x = table[tokens[*position]]
 *   decode_embed(x, table, tokens, position)
 * y = x / sqrt(mean of squares)
 *   decode_normalize(y, x, length)
 * y = W x, with one row of W after the other; `then` 1: y += W x, 2: y = max(W x, 0)
 *   decode_multiply(y, W, x, rows, columns, then)
 * Appends key and value of qkv (query, key, value) to the caches, and attends to all positions so far
 *   decode_attend(out, qkv, keys, values, position)
 * tokens[*position + 1] = the word with the largest score
 *   decode_choose(tokens, scores, position) */
enum { STORE, ADD, RECTIFY };

#endif
