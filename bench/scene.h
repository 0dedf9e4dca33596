/* The objects of Strata's side, and the operations that are measured. The same functions are timed and counted, so the
 * counts are of the code that was timed. */
#ifndef STRATA_BENCH_SCENE_H
#define STRATA_BENCH_SCENE_H

#include <strata/strata.h>

enum { SCENE_STREAMS = 9, SCENE_BLOCKS = 64, SCENE_BLOCK_BYTES = 4096 };

typedef struct scene {
    strata_runtime *runtime;
    CUstream streams[SCENE_STREAMS];   /* known, from the runtime's pool */
    CUstream unknown;                  /* an unknown stream */
    strata_block blocks[SCENE_BLOCKS]; /* allocated on streams[0] */
    strata_block unknown_block;        /* allocated on `unknown` */
    size_t turn;                       /* the next stream or block, where they alternate */
} scene;

/* Prints the thread's last error, and exits. */
_Noreturn void scene_failed(const char *call);

/* Exits if the call failed: its time would mean nothing. */
static inline void scene_check(strata_status status, const char *call)
{
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        scene_failed(call);
}

void scene_make(scene *self, strata_runtime *runtime);
void scene_destroy(scene *self);

/* `self` is a scene here and below. */
void scene_drain(void *self);

/* One prepare and finish an operation. */
void scene_write_on_own_stream(void *self, size_t operations);
void scene_read_on_own_stream(void *self, size_t operations);
void scene_write_on_unknown_stream(void *self, size_t operations);
void scene_read_on_unknown_stream(void *self, size_t operations);

/* Two known streams write a block alternately: each operation is a hand-over. */
void scene_hand_over(void *self, size_t operations);

/* Launches that write 1, 8 or 64 blocks, begin to end. */
void scene_launch_1(void *self, size_t operations);
void scene_launch_8(void *self, size_t operations);
void scene_launch_64(void *self, size_t operations);

/* Launches that write 64 blocks on two known streams alternately: each takes over all blocks. */
void scene_launch_64_hand_over(void *self, size_t operations);

/* One stream writes two buffers alternately, another reads them. An operation is one write and one read. */
void scene_pipeline(void *self, size_t operations);

/* One stream writes a block, eight others read it. An operation is the nine launches. */
void scene_fan_out(void *self, size_t operations);

/* An allocation of SCENE_BLOCK_BYTES and its free. */
void scene_pair_on_known_stream(void *self, size_t operations);
void scene_pair_on_unknown_stream(void *self, size_t operations);

/* A launch that touches `count` blocks. `work` may be NULL. */
void scene_launch(const scene *self, CUstream stream, const strata_block *blocks, size_t count, strata_access access,
                  void (*work)(CUstream stream, void *data), void *data);

#endif
