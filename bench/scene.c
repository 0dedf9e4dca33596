#include "scene.h"

#include "bare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void scene_failed(const char *call)
{
    const strata_error *error = strata_last_error();
    fprintf(stderr, "%s: %s: %s: %s\n", program_invocation_short_name, call, strata_status_name(error->status),
            error->message);
    exit(EXIT_FAILURE);
}

void scene_make(scene *self, strata_runtime *runtime)
{
    *self = (scene){.runtime = runtime};
    for (size_t i = 0; i < SCENE_STREAMS; i++)
        scene_check(strata_runtime_stream_acquire(runtime, &self->streams[i]), "strata_runtime_stream_acquire");
    bare_check(bare.StreamCreate(&self->unknown, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (size_t i = 0; i < SCENE_BLOCKS; i++)
        scene_check(strata_runtime_allocate(runtime, SCENE_BLOCK_BYTES, self->streams[0], &self->blocks[i]),
                    "strata_runtime_allocate");
    scene_check(strata_runtime_allocate(runtime, SCENE_BLOCK_BYTES, self->unknown, &self->unknown_block),
                "strata_runtime_allocate");
}

void scene_destroy(scene *self)
{
    for (size_t i = 0; i < SCENE_BLOCKS; i++)
        scene_check(strata_runtime_deallocate(self->runtime, &self->blocks[i]), "strata_runtime_deallocate");
    scene_check(strata_runtime_deallocate_on(self->runtime, &self->unknown_block, self->unknown),
                "strata_runtime_deallocate_on");
    scene_drain(self);
    for (size_t i = 0; i < SCENE_STREAMS; i++)
        scene_check(strata_runtime_stream_release(self->runtime, self->streams[i]), "strata_runtime_stream_release");
    bare_check(bare.StreamDestroy(self->unknown), "cuStreamDestroy");
}

void scene_drain(void *state)
{
    const scene *self = state;
    for (size_t i = 0; i < SCENE_STREAMS; i++)
        bare_check(bare.StreamSynchronize(self->streams[i]), "cuStreamSynchronize");
    bare_check(bare.StreamSynchronize(self->unknown), "cuStreamSynchronize");
}

/* ---- prepare and finish ---- */

static inline void use(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access)
{
    scene_check(strata_runtime_prepare_block_use(runtime, block, stream, access), "strata_runtime_prepare_block_use");
    scene_check(strata_runtime_finish_block_use(runtime, block, stream, access), "strata_runtime_finish_block_use");
}

void scene_write_on_own_stream(void *state, size_t operations)
{
    const scene *self = state;
    for (size_t i = 0; i < operations; i++)
        use(self->runtime, &self->blocks[0], self->streams[0], STRATA_ACCESS_WRITE);
}

void scene_read_on_own_stream(void *state, size_t operations)
{
    const scene *self = state;
    for (size_t i = 0; i < operations; i++)
        use(self->runtime, &self->blocks[0], self->streams[0], STRATA_ACCESS_READ);
}

void scene_write_on_unknown_stream(void *state, size_t operations)
{
    const scene *self = state;
    for (size_t i = 0; i < operations; i++)
        use(self->runtime, &self->unknown_block, self->unknown, STRATA_ACCESS_WRITE);
}

void scene_read_on_unknown_stream(void *state, size_t operations)
{
    const scene *self = state;
    for (size_t i = 0; i < operations; i++)
        use(self->runtime, &self->unknown_block, self->unknown, STRATA_ACCESS_READ);
}

void scene_hand_over(void *state, size_t operations)
{
    scene *self = state;
    for (size_t i = 0; i < operations; i++)
        use(self->runtime, &self->blocks[0], self->streams[self->rotation++ % 2], STRATA_ACCESS_WRITE);
}

/* ---- launches ---- */

void scene_launch(const scene *self, CUstream stream, const strata_block *blocks, size_t count, strata_access access,
                  void (*work)(CUstream stream, void *data), void *data)
{
    strata_launch launch;
    scene_check(strata_launch_begin(&launch, self->runtime, stream, STRATA_LAUNCH_STRICT), "strata_launch_begin");
    for (size_t i = 0; i < count; i++)
        scene_check(strata_launch_use(&launch, &blocks[i], access), "strata_launch_use");
    scene_check(strata_launch_preflight(&launch), "strata_launch_preflight");
    if (work)
        work(stream, data);
    scene_check(strata_launch_commit(&launch), "strata_launch_commit");
    scene_check(strata_launch_end(&launch), "strata_launch_end");
}

static void launch_writes(const scene *self, size_t blocks, size_t operations)
{
    for (size_t i = 0; i < operations; i++)
        scene_launch(self, self->streams[0], self->blocks, blocks, STRATA_ACCESS_WRITE, NULL, NULL);
}

void scene_launch_1(void *state, size_t operations)
{
    launch_writes(state, 1, operations);
}

void scene_launch_8(void *state, size_t operations)
{
    launch_writes(state, 8, operations);
}

void scene_launch_64(void *state, size_t operations)
{
    launch_writes(state, 64, operations);
}

void scene_launch_64_hand_over(void *state, size_t operations)
{
    scene *self = state;
    for (size_t i = 0; i < operations; i++)
        scene_launch(self, self->streams[self->rotation++ % 2], self->blocks, SCENE_BLOCKS, STRATA_ACCESS_WRITE, NULL,
                     NULL);
}

void scene_pipeline(void *state, size_t operations)
{
    scene *self = state;
    for (size_t i = 0; i < operations; i++) {
        const strata_block *buffer = &self->blocks[self->rotation++ % 2];
        scene_launch(self, self->streams[0], buffer, 1, STRATA_ACCESS_WRITE, NULL, NULL);
        scene_launch(self, self->streams[1], buffer, 1, STRATA_ACCESS_READ, NULL, NULL);
    }
}

void scene_fan_out(void *state, size_t operations)
{
    const scene *self = state;
    for (size_t i = 0; i < operations; i++) {
        scene_launch(self, self->streams[0], self->blocks, 1, STRATA_ACCESS_WRITE, NULL, NULL);
        for (size_t reader = 1; reader < SCENE_STREAMS; reader++)
            scene_launch(self, self->streams[reader], self->blocks, 1, STRATA_ACCESS_READ, NULL, NULL);
    }
}

/* ---- memory ---- */

void scene_pair_on_known_stream(void *state, size_t operations)
{
    const scene *self = state;
    for (size_t i = 0; i < operations; i++) {
        strata_block block;
        scene_check(strata_runtime_allocate(self->runtime, SCENE_BLOCK_BYTES, self->streams[0], &block),
                    "strata_runtime_allocate");
        scene_check(strata_runtime_deallocate(self->runtime, &block), "strata_runtime_deallocate");
    }
}

void scene_pair_on_unknown_stream(void *state, size_t operations)
{
    const scene *self = state;
    for (size_t i = 0; i < operations; i++) {
        strata_block block;
        scene_check(strata_runtime_allocate(self->runtime, SCENE_BLOCK_BYTES, self->unknown, &block),
                    "strata_runtime_allocate");
        scene_check(strata_runtime_deallocate_on(self->runtime, &block, self->unknown), "strata_runtime_deallocate_on");
    }
}
