/* The objects and operations of Strata's side. The same functions are timed and counted. */
#ifndef STRATA_BENCH_SCENE_H
#define STRATA_BENCH_SCENE_H

#include <strata/strata.h>

enum { SCENE_STREAMS = 9, SCENE_BLOCKS = 64, SCENE_BLOCK_BYTES = 4096 };

typedef struct scene {
    strata_runtime *runtime;
    CUstream streams[SCENE_STREAMS]; /* known, from the runtime's pool */
    CUstream unknown;
    strata_block blocks[SCENE_BLOCKS]; /* allocated on streams[0] */
    strata_block unknown_block;        /* allocated on `unknown` */
    size_t rotation;                   /* the next stream or block, where they alternate */
} scene;

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

void scene_write_on_own_stream(void *self, size_t operations);
void scene_read_on_own_stream(void *self, size_t operations);
void scene_write_on_unknown_stream(void *self, size_t operations);
void scene_read_on_unknown_stream(void *self, size_t operations);

/* Two known streams write a block alternately. */
void scene_hand_over(void *self, size_t operations);

void scene_launch_1(void *self, size_t operations);
void scene_launch_8(void *self, size_t operations);
void scene_launch_64(void *self, size_t operations);

/* Two known streams write 64 blocks alternately. */
void scene_launch_64_hand_over(void *self, size_t operations);

/* One stream writes two buffers alternately, another reads them. An operation is a write and a read. */
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
