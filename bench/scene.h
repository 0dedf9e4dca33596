/* What Strata's side of a measurement works with, and what it is made to do. The same functions are timed beside the
 * bare driver and counted with it, so that a count is a count of exactly what was timed. */
#ifndef STRATA_BENCH_SCENE_H
#define STRATA_BENCH_SCENE_H

#include <strata/strata.h>

enum { SCENE_STREAMS = 9, SCENE_BLOCKS = 64, SCENE_BLOCK_BYTES = 4096 };

typedef struct scene {
    strata_runtime *runtime;
    CUstream streams[SCENE_STREAMS];   /* known: of the runtime's pool */
    CUstream unknown;                  /* one that Strata was never told about */
    strata_block blocks[SCENE_BLOCKS]; /* allocated on streams[0] */
    strata_block unknown_block;        /* allocated on `unknown` */
    size_t turn;                       /* whose turn it is, where streams or blocks alternate */
} scene;

/* Ends the program, with what the library says about its last failure. */
_Noreturn void scene_failed(const char *call);

/* A failed call ends the program: a figure of calls that did not work is worth nothing. */
static inline void scene_check(strata_status status, const char *call)
{
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        scene_failed(call);
}

void scene_make(scene *self, strata_runtime *runtime);
void scene_destroy(scene *self);

/* Waits until all streams are idle. `self` is a scene here and below. */
void scene_drain(void *self);

/* One prepare and finish for each operation. */
void scene_write_on_own_stream(void *self, size_t operations);
void scene_read_on_own_stream(void *self, size_t operations);
void scene_write_on_unknown_stream(void *self, size_t operations);
void scene_read_on_unknown_stream(void *self, size_t operations);

/* A block written on two known streams in turn: each operation is a hand-over. */
void scene_hand_over(void *self, size_t operations);

/* Launches of the recorder, begin to end, that write 1, 8 or 64 blocks. */
void scene_launch_1(void *self, size_t operations);
void scene_launch_8(void *self, size_t operations);
void scene_launch_64(void *self, size_t operations);

/* Launches that write 64 blocks on two known streams in turn: each takes all of them over from the other stream. */
void scene_launch_64_hand_over(void *self, size_t operations);

/* One stream writes two buffers in turn, another reads them. An operation is one write and one read. */
void scene_pipeline(void *self, size_t operations);

/* One stream writes a block and eight others read it. An operation is the nine launches. */
void scene_fan_out(void *self, size_t operations);

/* An allocation of SCENE_BLOCK_BYTES and its free. */
void scene_pair_on_known_stream(void *self, size_t operations);
void scene_pair_on_unknown_stream(void *self, size_t operations);

/* A launch of the recorder that touches `count` blocks, with `work`, if there is any, in its middle. */
void scene_launch(const scene *self, CUstream stream, const strata_block *blocks, size_t count, strata_access access,
                  void (*work)(CUstream stream, void *data), void *data);

#endif
