/* The state of the model, and objects drawn from the input. */
#include "fuzz/model.h"

#include "fuzz/captures.h"
#include "fuzz/players.h"

struct model model;

bool model_did(strata_status got, strata_status want, const char *call, const char *file, int line)
{
    if (got != STRATA_SUCCESS && !trouble_struck()) /* without memory there may be no error record */
        assert_int_equal(strata_last_error()->status, got);
    if (!trouble_explains(got))
        test_check_status(got, want, call, file, line);
    return got == STRATA_SUCCESS;
}

bool model_did_beside(strata_status got, strata_status want, const model_stream *stream, const model_block *block,
                      const char *call, const char *file, int line)
{
    if (want == STRATA_SUCCESS && stream->capture)
        want = STRATA_ERROR_STREAM_CAPTURE;
    else if (got == STRATA_ERROR_STREAM_CAPTURE && captures_may_refuse(stream, block))
        want = got;
    return model_did(got, want, call, file, line);
}

/* Mostly the first, which always exists. */
model_runtime *model_pick_runtime(void)
{
    model_runtime *second = &model.runtimes[1];
    return fuzz_below(&model.input, 4) == 3 && second->handle ? second : &model.runtimes[0];
}

model_block *model_pick_block(void)
{
    unsigned which = fuzz_below(&model.input, model.block_count);
    return model.block_count ? &model.blocks[which] : NULL;
}

model_block *model_pick_block_of(unsigned runtime)
{
    unsigned which = fuzz_below(&model.input, model.block_count);
    for (size_t i = 0; i < model.block_count; i++) {
        model_block *block = &model.blocks[(which + i) % model.block_count];
        if (block->runtime == runtime)
            return block;
    }
    return NULL;
}

strata_access model_pick_access(void)
{
    return (strata_access)(STRATA_ACCESS_READ + fuzz_below(&model.input, STRATA_ACCESS_READ_WRITE));
}

/* Small sizes, those around an allocator's rounding, and a few large ones. */
size_t model_pick_size(void)
{
    static const size_t around[] = {256, 512, 4096, WHOLE, 2 << 20};
    unsigned what = fuzz_byte(&model.input);
    if (what < 96)
        return 1 + (size_t)what * 43;
    if (what < 160)
        return around[what % 5] + what / 5 % 3 - 1;
    if (what < 240)
        return ((size_t)what - 159) << 9;
    return LARGEST - ((size_t)(what - 240) << 15);
}
