/* The operations of a program. Each function makes one step, with its arguments drawn from the input, and compares
 * every answer with the model. Acting operations run on the player's thread; dealt ones run on the main thread and hand
 * over to the players that they need. */
#include "fuzz/operations.h"

#include "fuzz/captures.h"
#include "fuzz/players.h"

#include <string.h>

static unsigned byte(void)
{
    return fuzz_byte(&model.input);
}

static strata_runtime *handle_of(unsigned runtime)
{
    return model.runtimes[runtime].handle;
}

/* After a failed finish the state of the use is unknown, so the program waits for the work itself. */
static void recover(const model_stream *stream)
{
    if (captures_may_submit(stream))
        captures_synchronize(stream->handle);
}

/* ---- allocating ---- */

static strata_tag pick_tag(void)
{
    return (strata_tag)(byte() % 3);
}

static void allocate(void)
{
    if (model.block_count == BLOCKS)
        return;
    const model_stream *stream = model_pick_stream();
    model_runtime *runtime = model_pick_runtime();
    unsigned how = byte();
    strata_request request = {
        .bytes = model_pick_size(),
        .alignment = how & 4 ? (size_t)1 << (how >> 3) % 9 : 0,
        .stream = stream->handle,
        .tag = pick_tag(),
    };
    strata_block block = {.address = 1};
    fuzz_tell("  %zu bytes on stream %llu", request.bytes, (unsigned long long)stream->number);
    trouble_begin();
    strata_status status = trouble_end(strata_runtime_allocate_request(runtime->handle, &request, &block));
    bool full = runtime->limited && status == STRATA_ERROR_OUT_OF_MEMORY && !stream->capture;
    if (!model_did_beside(status, full ? STRATA_ERROR_OUT_OF_MEMORY : STRATA_SUCCESS, stream, NULL, "allocate",
                          __FILE__, __LINE__)) {
        assert_true(block.address == 0 && block.bytes == 0 && block.id.generation == 0);
        return;
    }
    assert_true(block.requested == request.bytes && block.bytes >= request.bytes && block.tag == request.tag);
    assert_true(block.address % 256 == 0 && block.device == 0);
    assert_ptr_equal(block.stream, stream->handle);
    model_block *entered = model_enter(&block, (unsigned)(runtime - model.runtimes), stream);
    if (!(how & 3) || !captures_may_submit(stream))
        return;
    /* Work on the block's own stream may use fresh memory at once. */
    model_make_room(1);
    model_submit(entered, stream->handle, STRATA_ACCESS_WRITE);
    bool noted = did(strata_runtime_record_block_use(runtime->handle, &block, stream->handle, STRATA_ACCESS_WRITE),
                     STRATA_SUCCESS);
    model_record_use(entered, stream->number, noted);
    if (!noted)
        recover(stream);
}

/* Submitted work is done then, and each later use compares what the library takes for complete with the model. */
static void wait_for_stream(void)
{
    const model_stream *stream = model_pick_stream();
    const model_runtime *runtime = model_pick_runtime();
    did_beside(strata_runtime_stream_synchronize(runtime->handle, stream->handle), STRATA_SUCCESS, stream, NULL);
}

static void allocate_oddly(void)
{
    static const struct {
        strata_request request;
        strata_status want;
    } odd[] = {
        {{.bytes = 0}, STRATA_SUCCESS},
        {{.bytes = 0, .alignment = 64}, STRATA_SUCCESS},
        {{.bytes = SIZE_MAX}, STRATA_ERROR_OUT_OF_MEMORY},
        {{.bytes = SIZE_MAX - 511}, STRATA_ERROR_OUT_OF_MEMORY},
        {{.bytes = SIZE_MAX / 2 + 2}, STRATA_ERROR_OUT_OF_MEMORY},
        {{.bytes = (size_t)1 << 50}, STRATA_ERROR_OUT_OF_MEMORY},
        {{.bytes = (size_t)1 << 31}, STRATA_ERROR_OUT_OF_MEMORY},
        {{.bytes = 64, .alignment = 512}, STRATA_ERROR_UNSUPPORTED},
        {{.bytes = 64, .alignment = (size_t)1 << 63}, STRATA_ERROR_UNSUPPORTED},
        {{.bytes = 64, .alignment = 3}, STRATA_ERROR_INVALID_VALUE},
    };
    unsigned which = fuzz_below(&model.input, sizeof odd / sizeof odd[0]);
    const model_stream *stream = model_pick_stream();
    const model_runtime *runtime = model_pick_runtime();
    strata_request request = odd[which].request;
    if (runtime->aligns && request.alignment == 512)
        return;
    request.stream = stream->handle;
    strata_block block = {.address = 1}, empty = {0};
    trouble_begin();
    strata_status status = trouble_end(strata_runtime_allocate_request(runtime->handle, &request, &block));
    bool captured = stream->capture || captures_may_refuse(stream, NULL); /* the stream may be queried first */
    bool refused = captured && status == STRATA_ERROR_STREAM_CAPTURE;
    bool made = model_did(status, refused ? status : odd[which].want, "allocate oddly", __FILE__, __LINE__);
    assert_memory_equal(&block, &empty, sizeof block);
    if (made) {
        check_ok(strata_runtime_deallocate(runtime->handle, &block));
        check_ok(strata_runtime_prepare_block_use(runtime->handle, &block, stream->handle, STRATA_ACCESS_READ));
        check_ok(strata_runtime_finish_block_use(runtime->handle, &block, stream->handle, STRATA_ACCESS_READ));
    }
}

/* ---- uses ---- */

bool operation_prepare(const model_block *block, const model_stream *stream, strata_access access)
{
    return did_beside(
        strata_runtime_prepare_block_use(handle_of(block->runtime), &block->block, stream->handle, access),
        STRATA_SUCCESS, stream, block);
}

void operation_finish_block(model_block *block, const model_stream *stream, strata_access access)
{
    strata_runtime *runtime = handle_of(block->runtime);
    if (access == STRATA_ACCESS_NONE) {
        did(strata_runtime_finish_block_use(runtime, &block->block, stream->handle, access), STRATA_SUCCESS);
        return;
    }
    bool finished = did_beside(strata_runtime_finish_block_use(runtime, &block->block, stream->handle, access),
                               STRATA_SUCCESS, stream, block);
    if (access != STRATA_ACCESS_NONE)
        model_record_use(block, stream->number, finished);
    if (!finished)
        recover(stream);
}

static void check_cannot_be_freed(const model_block *block, CUstream stream)
{
    check_status(strata_runtime_deallocate_on(handle_of(block->runtime), &block->block, stream),
                 STRATA_ERROR_BLOCK_IN_USE);
    assert_int_equal(strata_runtime_block_state(handle_of(block->runtime), block->block.id), STRATA_BLOCK_LIVE);
}

static void use_block(model_block *block, const model_stream *stream, strata_access access, bool submit)
{
    if (model_races(&block->block, stream->number, access))
        return;
    model_make_room(1);
    fuzz_tell("  slot %u on stream %llu, access %d", block->block.id.slot, (unsigned long long)stream->number,
              (int)access);
    if (!operation_prepare(block, stream, access))
        return;
    check_cannot_be_freed(block, stream->handle);
    submit = submit && captures_may_submit(stream);
    if (submit)
        model_submit(block, stream->handle, access);
    operation_finish_block(block, stream, submit ? access : STRATA_ACCESS_NONE);
}

static void use(void)
{
    model_block *block = model_pick_block();
    const model_stream *stream = model_pick_stream();
    unsigned how = byte();
    if (block)
        use_block(block, stream, (strata_access)(1 + how % 3), how < 240);
}

static void use_begin(void)
{
    model_block *block = model_pick_block();
    const model_stream *stream = model_pick_stream();
    unsigned how = byte();
    strata_access access = (strata_access)(1 + how % 3);
    model_work work = (model_work)((how >> 2) % 3);
    if (!block || model.use_count == USES)
        return;
    if (work != WORK_NONE && model_races(&block->block, stream->number, access))
        return;
    model_make_room(1);
    fuzz_tell("  slot %u on stream %llu, access %d, work %d", block->block.id.slot, (unsigned long long)stream->number,
              (int)access, (int)work);
    if (!operation_prepare(block, stream, access))
        return;
    work = captures_may_submit(stream) ? work : WORK_NONE;
    if (work == WORK_AT_PREPARE)
        model_submit(block, stream->handle, access);
    model.uses[model.use_count++] = (model_use){
        .block = block->block,
        .runtime = block->runtime,
        .player = players_now(),
        .stream = stream->number,
        .access = access,
        .work = work,
    };
}

static model_use finishing; /* given by the dealer to the player */

static void finish_use(void)
{
    model_block *block = model_block_of(finishing.block.id);
    const model_stream *stream = model_stream_of(finishing.stream);
    assert_non_null(block);
    assert_non_null(stream);
    unsigned how = byte();
    if (finishing.work == WORK_AT_FINISH) {
        model_make_room(1);
        model_submit(block, stream->handle, finishing.access);
    }
    bool nothing = finishing.work == WORK_NONE && how & 1;
    operation_finish_block(block, stream, nothing ? STRATA_ACCESS_NONE : finishing.access);
}

void operation_finish(size_t which)
{
    finishing = model.uses[which];
    model.uses[which] = model.uses[--model.use_count];
    fuzz_tell("  player %u finishes slot %u", finishing.player, finishing.block.id.slot);
    players_do(finishing.player, finish_use);
}

static void use_end(void)
{
    if (model.use_count)
        operation_finish(fuzz_below(&model.input, model.use_count));
}

/* Without a prepare the program must know that the order is right: there is only one stream. */
static void use_and_record(void)
{
    model_block *block = model_pick_block();
    strata_access access = model_pick_access();
    const model_stream *stream = block ? model_player_stream(block->only) : NULL;
    if (!stream || model_races(&block->block, stream->number, access))
        return;
    if (captures_may_submit(stream)) {
        model_make_room(1);
        model_submit(block, stream->handle, access);
    }
    bool noted =
        did_beside(strata_runtime_record_block_use(handle_of(block->runtime), &block->block, stream->handle, access),
                   STRATA_SUCCESS, stream, block);
    model_record_use(block, stream->number, noted);
    if (!noted)
        recover(stream);
}

static void use_first(void)
{
    model_block *block = model_pick_block();
    const model_stream *stream = model_pick_stream();
    if (!block || block->touch == PERHAPS_TOUCHED || model_races(&block->block, stream->number, STRATA_ACCESS_WRITE))
        return;
    strata_runtime *runtime = handle_of(block->runtime);
    model_make_room(1);
    if (!did_beside(strata_runtime_prepare_first_use(runtime, &block->block, stream->handle, STRATA_ACCESS_WRITE),
                    block->touch == TOUCHED ? STRATA_ERROR_STREAM_MISUSE : STRATA_SUCCESS, stream, block))
        return;
    if (!captures_may_submit(stream)) {
        operation_finish_block(block, stream, STRATA_ACCESS_NONE);
        return;
    }
    model_submit(block, stream->handle, STRATA_ACCESS_WRITE);
    bool finished = did(strata_runtime_finish_first_use(runtime, &block->block, stream->handle, STRATA_ACCESS_WRITE),
                        STRATA_SUCCESS);
    model_record_use(block, stream->number, finished);
    if (!finished)
        recover(stream);
}

/* A copy from one block to another, perhaps of another runtime. */
static void copy(void)
{
    model_block *from = model_pick_block(), *to = model_pick_block();
    const model_stream *stream = model_pick_stream();
    if (!from || from == to || model_races(&from->block, stream->number, STRATA_ACCESS_READ) ||
        model_races(&to->block, stream->number, STRATA_ACCESS_WRITE))
        return;
    if (!operation_prepare(from, stream, STRATA_ACCESS_READ))
        return;
    bool both = operation_prepare(to, stream, STRATA_ACCESS_WRITE);
    bool submitted = both && captures_may_submit(stream);
    if (submitted)
        model_submit_copy(to, from, stream->handle);
    if (both)
        operation_finish_block(to, stream, submitted ? STRATA_ACCESS_WRITE : STRATA_ACCESS_NONE);
    operation_finish_block(from, stream, submitted ? STRATA_ACCESS_READ : STRATA_ACCESS_NONE);
}

/* ---- launches ---- */

typedef struct launch_plan {
    strata_launch recorder;
    unsigned runtime;
    const model_stream *stream;
    strata_access access[BLOCKS]; /* by the block's index in the model */
    size_t count;                 /* different blocks */
} launch_plan;

/* Names up to twelve blocks, some of them repeatedly; false after trouble. */
static bool name_blocks(launch_plan *plan)
{
    for (unsigned i = 1 + byte() % 12; i > 0; i--) {
        model_block *block = model_pick_block_of(plan->runtime);
        unsigned how = byte();
        strata_access access = (strata_access)(1 + how % 3);
        if (!block || model_races(&block->block, plan->stream->number, access))
            continue;
        CUdeviceptr inside = block->block.address + (how >> 2) * (block->block.bytes - 1) / 63;
        bool named = how & 1 ? did(strata_launch_use(&plan->recorder, &block->block, access), STRATA_SUCCESS)
                             : did(strata_launch_use_address(&plan->recorder, inside, access), STRATA_SUCCESS);
        if (!named)
            return false;
        strata_access *all = &plan->access[block - model.blocks];
        plan->count += *all == STRATA_ACCESS_NONE;
        *all = (strata_access)(*all | access);
    }
    return true;
}

static void submit_launch(const launch_plan *plan)
{
    for (size_t i = 0; i < model.block_count; i++)
        if (plan->access[i])
            model_submit(&model.blocks[i], plan->stream->handle, plan->access[i]);
}

static void record_launch(const launch_plan *plan, bool noted)
{
    for (size_t i = 0; i < model.block_count; i++)
        if (plan->access[i])
            model_record_use(&model.blocks[i], plan->stream->number, noted);
    if (!noted)
        recover(plan->stream);
}

static void end_prepared(launch_plan *plan, unsigned how)
{
    for (size_t i = 0; i < model.block_count; i++)
        if (plan->access[i])
            check_cannot_be_freed(&model.blocks[i], plan->stream->handle);
    if (how % 4 == 0 || !captures_may_submit(plan->stream)) {
        check_ok(strata_launch_cancel(&plan->recorder));
        check_ok(strata_launch_end(&plan->recorder));
        return;
    }
    submit_launch(plan);
    if (how % 4 == 1) { /* neither committed nor canceled, so taken for submitted */
        did(strata_launch_end(&plan->recorder), STRATA_ERROR_NOT_COMMITTED);
        record_launch(plan, !trouble_struck());
        return;
    }
    record_launch(plan, did(strata_launch_commit(&plan->recorder), STRATA_SUCCESS));
    check_ok(strata_launch_end(&plan->recorder));
}

/* A named block is freed: the launch is refused, and no block stays pinned. */
static void check_freed_is_refused(launch_plan *plan)
{
    size_t which = 0;
    while (which < model.block_count && (!plan->access[which] || model_is_pinned(&model.blocks[which].block)))
        which++;
    if (which == model.block_count || !operation_free_block(&model.blocks[which], plan->stream))
        return;
    check_status(strata_launch_preflight(&plan->recorder), STRATA_ERROR_USE_AFTER_FREE);
    plan->count = 0;
}

static bool preflight(launch_plan *plan)
{
    const model_block *legacy = NULL; /* a block that a capture could refuse */
    for (size_t i = 0; i < model.block_count; i++)
        if (plan->access[i] && model.blocks[i].saw_legacy)
            legacy = &model.blocks[i];
    return did_beside(strata_launch_preflight(&plan->recorder), STRATA_SUCCESS, plan->stream, legacy);
}

static void launch(void)
{
    launch_plan plan = {.runtime = (unsigned)(model_pick_runtime() - model.runtimes), .stream = model_pick_stream()};
    unsigned how = byte();
    model_make_room(12);
    check_ok(strata_launch_begin(&plan.recorder, handle_of(plan.runtime), plan.stream->handle,
                                 how & 4 ? STRATA_LAUNCH_PERMISSIVE : STRATA_LAUNCH_STRICT));
    bool named = name_blocks(&plan);
    fuzz_tell("  %zu blocks on stream %llu", plan.count, (unsigned long long)plan.stream->number);
    if (!named)
        assert_int_not_equal(strata_launch_preflight(&plan.recorder), STRATA_SUCCESS);
    if (named && plan.count && (how & 0xf8) == 0)
        check_freed_is_refused(&plan);
    if (named && plan.count && preflight(&plan))
        end_prepared(&plan, how);
    else
        check_ok(strata_launch_end(&plan.recorder));
}

/* ---- freeing ---- */

bool operation_free_block(model_block *block, const model_stream *stream)
{
    bool pinned = model_is_pinned(&block->block);
    fuzz_tell("  slot %u on stream %llu%s", block->block.id.slot, (unsigned long long)stream->number,
              pinned ? ", in use" : "");
    bool freed = did(strata_runtime_deallocate_on(handle_of(block->runtime), &block->block, stream->handle),
                     pinned ? STRATA_ERROR_BLOCK_IN_USE : STRATA_SUCCESS);
    if (freed) {
        captures_record_free(block, stream);
        model_leave(block);
    }
    return freed;
}

/* Reads a block before its free, so that its bytes must last until the read. */
static void look(model_block *block, unsigned how)
{
    const model_stream *stream = model_pick_stream();
    if (how & 1)
        use_block(block, stream, STRATA_ACCESS_READ, true);
}

void operation_free(void)
{
    model_block *block = model_pick_block();
    unsigned how = byte();
    if (!block)
        return;
    look(block, how);
    const model_stream *stream = model_pick_stream();
    const model_stream *only = model_player_stream(block->only);
    if (how & 2 && only && captures_may_submit(only) && !model_races(&block->block, only->number, STRATA_ACCESS_READ)) {
        /* Work submitted to the freeing stream before the free needs no record. */
        model_make_room(1);
        model_submit(block, only->handle, STRATA_ACCESS_READ);
        if (!operation_free_block(block, only))
            recover(only);
        return;
    }
    operation_free_block(block, stream);
}

/* Whether the thread's per-thread stream is captured, so that it cannot be compared with the block's stream. */
static bool cannot_be_identified(const model_block *block)
{
    if (block->block.stream != CU_STREAM_PER_THREAD)
        return false;
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].kind == PER_THREAD && model.streams[i].owner == players_now())
            return model.streams[i].capture;
    return false;
}

static strata_status free_on_alloc_stream_wants(const model_block *block, strata_status got)
{
    const model_stream *alloc_stream = model_player_stream(block->alloc_stream);
    if (cannot_be_identified(block))
        return STRATA_ERROR_STREAM_CAPTURE;
    bool may = block->alloc_stream_known || (alloc_stream && alloc_stream->kind != UNKNOWN);
    /* A new stream may have the handle of a destroyed one, and what that left behind. */
    bool might = got != STRATA_ERROR_STREAM_MISUSE && model_is_known_handle(block->block.stream);
    if (!may && !might)
        return STRATA_ERROR_STREAM_MISUSE;
    return model_is_pinned(&block->block) ? STRATA_ERROR_BLOCK_IN_USE : STRATA_SUCCESS;
}

static void free_on_alloc_stream(void)
{
    model_block *block = model_pick_block();
    unsigned how = byte();
    if (!block)
        return;
    look(block, how);
    fuzz_tell("  slot %u of stream %llu", block->block.id.slot, (unsigned long long)block->alloc_stream);
    trouble_begin();
    strata_status status = trouble_end(strata_runtime_deallocate(handle_of(block->runtime), &block->block));
    if (model_did(status, free_on_alloc_stream_wants(block, status), "strata_runtime_deallocate", __FILE__, __LINE__)) {
        captures_record_free(block, &(model_stream){.number = block->alloc_stream});
        model_leave(block);
    } else
        assert_int_equal(strata_runtime_block_state(handle_of(block->runtime), block->block.id), STRATA_BLOCK_LIVE);
}

/* ---- what can only be refused ---- */

static void check_refused(unsigned runtime, const strata_block *block, strata_status free_answer,
                          strata_status use_answer)
{
    CUstream stream = model_pick_stream()->handle;
    strata_access access = model_pick_access();
    strata_runtime *handle = handle_of(runtime);
    did(strata_runtime_deallocate_on(handle, block, stream), free_answer);
    check_status(strata_runtime_prepare_block_use(handle, block, stream, access), use_answer);
    check_status(strata_runtime_record_block_use(handle, block, stream, access), use_answer);
    check_status(strata_runtime_finish_block_use(handle, block, stream, access), use_answer);
    check_status(strata_runtime_prepare_first_use(handle, block, stream, STRATA_ACCESS_WRITE), use_answer);
    strata_launch recorder;
    check_ok(strata_launch_begin(&recorder, handle, stream, STRATA_LAUNCH_STRICT));
    check_status(strata_launch_use(&recorder, block, access), use_answer);
    check_status(strata_launch_preflight(&recorder), use_answer);
    check_ok(strata_launch_end(&recorder));
}

static void touch_stale(void)
{
    if (!model.stale_count)
        return;
    const model_stale *stale = &model.stale[fuzz_below(&model.input, model.stale_count)];
    assert_int_not_equal(strata_runtime_block_state(handle_of(stale->runtime), stale->block.id), STRATA_BLOCK_LIVE);
    check_refused(stale->runtime, &stale->block, STRATA_ERROR_DOUBLE_FREE, STRATA_ERROR_USE_AFTER_FREE);
}

static void touch_foreign(void)
{
    const model_block *block = model_pick_block();
    if (!block)
        return;
    strata_block forged = block->block;
    unsigned how = byte(), runtime = block->runtime;
    if (how % 4 == 0 && handle_of(!runtime))
        runtime = !runtime;
    else if (how % 4 == 1)
        forged.id.generation += 1 + how;
    else if (how % 4 == 2)
        forged.id.slot = (how << 24) + 0x00ffff00;
    else
        forged.id.table ^= 1 + how;
    check_refused(runtime, &forged, STRATA_ERROR_FOREIGN_POINTER, STRATA_ERROR_FOREIGN_POINTER);
}

static void free_with_wrong_facts(void)
{
    const model_block *block = model_pick_block();
    CUstream stream = model_pick_stream()->handle;
    unsigned how = byte();
    if (!block)
        return;
    strata_block wrong = block->block;
    strata_status want = STRATA_ERROR_SIZE_MISMATCH;
    if (how % 4 == 0) {
        wrong.device++;
        want = STRATA_ERROR_WRONG_DEVICE;
    } else if (how % 4 == 1) {
        wrong.address += 256;
        want = STRATA_ERROR_FOREIGN_POINTER;
    } else if (how % 4 == 2) {
        wrong.bytes++;
    } else {
        wrong.requested--;
    }
    if (model_is_pinned(&block->block))
        want = STRATA_ERROR_BLOCK_IN_USE;
    did(strata_runtime_deallocate_on(handle_of(block->runtime), &wrong, stream), want);
    assert_int_equal(strata_runtime_block_state(handle_of(block->runtime), block->block.id), STRATA_BLOCK_LIVE);
}

static void finish_unprepared(void)
{
    const model_block *block = model_pick_block();
    CUstream stream = model_pick_stream()->handle;
    unsigned how = byte();
    if (!block || model_is_pinned(&block->block))
        return;
    did(strata_runtime_finish_block_use(handle_of(block->runtime), &block->block, stream, (strata_access)(how % 4)),
        STRATA_ERROR_STREAM_MISUSE);
}

/* ---- looking ---- */

static void find(void)
{
    const model_block *block = model_pick_block();
    unsigned where = byte();
    strata_block found;
    if (!block)
        return;
    CUdeviceptr address = block->block.address + where * (block->block.bytes - 1) / 255;
    check_ok(strata_runtime_find(handle_of(block->runtime), address, &found));
    assert_memory_equal(&found.id, &block->block.id, sizeof found.id);
    if (handle_of(!block->runtime))
        check_status(strata_runtime_find(handle_of(!block->runtime), address, &found), STRATA_ERROR_FOREIGN_POINTER);
}

/* At a freed block's address there is nothing, or a live block. */
static void find_stale(void)
{
    if (!model.stale_count)
        return;
    const model_stale *stale = &model.stale[fuzz_below(&model.input, model.stale_count)];
    strata_block found;
    strata_status status = strata_runtime_find(handle_of(stale->runtime), stale->block.address, &found);
    const model_block *there = status == STRATA_SUCCESS ? model_block_of(found.id) : NULL;
    if (status != STRATA_SUCCESS)
        check_status(status, STRATA_ERROR_FOREIGN_POINTER);
    else
        assert_true(there && stale->block.address - there->block.address < there->block.bytes);
    for (size_t i = 0; i < model.block_count; i++) {
        const strata_block *live = &model.blocks[i].block;
        if (model.blocks[i].runtime == stale->runtime && stale->block.address - live->address < live->bytes)
            assert_ptr_equal(there, &model.blocks[i]);
    }
}

static void check_usage(void)
{
    for (unsigned i = 0; i < RUNTIMES; i++)
        if (handle_of(i))
            model_check_usage(&model.runtimes[i]);
}

static void reap(void)
{
    const model_runtime *runtime = model_pick_runtime();
    unsigned which = (unsigned)(runtime - model.runtimes);
    trouble_begin();
    strata_status status = trouble_end(strata_runtime_reap_pending(runtime->handle));
    bool held = captures_surely_hold(which) || (captures_perhaps_hold(which) && status == STRATA_ERROR_STREAM_CAPTURE);
    if (model_did(status, held ? STRATA_ERROR_STREAM_CAPTURE : STRATA_SUCCESS, "reap", __FILE__, __LINE__))
        assert_true(strata_runtime_bytes_outstanding(runtime->handle) == runtime->live_bytes);
}

static void trim(void)
{
    const model_runtime *runtime = model_pick_runtime();
    size_t released = 1, keep = (size_t)byte() << 16;
    if (!did(strata_runtime_trim(runtime->handle, keep, &released), STRATA_SUCCESS))
        assert_true(released == 0);
    model_check_usage(runtime);
}

/* ---- streams ---- */

static void stream_open(void)
{
    unsigned kind = fuzz_below(&model.input, UNKNOWN + 1);
    unsigned owner = (unsigned)(model_pick_runtime() - model.runtimes);
    model_open_stream((stream_kind)kind, owner);
}

static void stream_register(void)
{
    model_runtime *runtime = model_pick_runtime();
    model_stream *stream = &model.streams[fuzz_below(&model.input, model.stream_count)];
    if (stream->kind == PER_THREAD && stream->owner != players_now())
        return;
    bool may = stream->kind == UNKNOWN;
    if (!did_beside(strata_runtime_register_stream(runtime->handle, stream->handle),
                    may ? STRATA_SUCCESS : STRATA_ERROR_INVALID_VALUE, stream, NULL))
        return;
    stream->kind = REGISTERED;
    stream->owner = (unsigned)(runtime - model.runtimes);
}

static void stream_unregister(void)
{
    model_runtime *runtime = model_pick_runtime();
    model_stream *stream = &model.streams[fuzz_below(&model.input, model.stream_count)];
    bool may = stream->kind == REGISTERED && &model.runtimes[stream->owner] == runtime;
    if (did(strata_runtime_unregister_stream(runtime->handle, stream->handle),
            may ? STRATA_SUCCESS : STRATA_ERROR_INVALID_VALUE))
        stream->kind = UNKNOWN;
}

static void finish_all_on(uint64_t stream)
{
    for (size_t i = model.use_count; i > 0; i--)
        if (model.uses[i - 1].stream == stream)
            operation_finish(i - 1);
}

static void stream_close(void)
{
    size_t which = fuzz_below(&model.input, model.stream_count);
    if (model.streams[which].kind >= ZERO)
        return;
    captures_end(&model.streams[which]);
    finish_all_on(model.streams[which].number);
    captures_leave_stream(&model.streams[which]);
    model_close_stream(which);
}

/* ---- threads and runtimes ---- */

static void leave(void)
{
    unsigned player = 1 + fuzz_below(&model.input, PLAYERS - 1);
    if (!players_has(player))
        return;
    captures_end_of(player);
    for (size_t i = model.use_count; i > 0; i--)
        if (model.uses[i - 1].player == player)
            operation_finish(i - 1);
    players_leave(player);
    captures_forget_player(player);
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].kind == PER_THREAD && model.streams[i].owner == player)
            model.streams[i] = model.streams[--model.stream_count];
}

static void clear_runtime(unsigned which)
{
    for (size_t i = model.use_count; i > 0; i--)
        if (model.uses[i - 1].runtime == which)
            operation_finish(i - 1);
    for (model_block *block; (block = model_pick_block_of(which));)
        while (!operation_free_block(block, model_pick_stream()))
            continue;
    for (size_t i = model.stream_count; i > 0; i--) {
        if (model.streams[i - 1].kind != POOL || model.streams[i - 1].owner != which)
            continue;
        finish_all_on(model.streams[i - 1].number);
        model_close_stream(i - 1);
    }
    if (captures_surely_hold(which))
        check_status(strata_runtime_destroy(handle_of(which)), STRATA_ERROR_BUSY);
    if (captures_perhaps_hold(which))
        captures_end_all();
}

static void runtime_change(void)
{
    unsigned how = byte(), which = how & 1;
    model_runtime *runtime = &model.runtimes[which];
    if (runtime->handle && how & 2 && (runtime->live_blocks || runtime->streams_taken)) {
        check_status(strata_runtime_destroy(runtime->handle), STRATA_ERROR_BUSY);
        model_check_usage(runtime);
        return;
    }
    if (runtime->handle) {
        clear_runtime(which);
        model_end_runtime(which);
    }
    if (which == 0 || !(how & 4))
        while (!model_make_runtime(which) && which == 0)
            continue;
}

static void plan_trouble(void)
{
    trouble_plan(&model.input);
}

static void change_policy(void)
{
    check_cu(test_sim_control()->set_policy((strata_sim_policy)fuzz_below(&model.input, STRATA_SIM_LATE + 1)));
}

static void verify(void)
{
    if (!captures_any())
        model_verify();
}

const operation operations[] = {
    {"allocate", 9, allocate, NULL},
    {"wait for a stream", 1, wait_for_stream, NULL},
    {"allocate oddly", 1, allocate_oddly, NULL},
    {"use", 8, use, NULL},
    {"begin a use", 4, use_begin, NULL},
    {"end a use", 3, NULL, use_end},
    {"use and record", 3, use_and_record, NULL},
    {"first use", 1, use_first, NULL},
    {"copy", 2, copy, NULL},
    {"launch", 4, launch, NULL},
    {"free", 5, operation_free, NULL},
    {"free at home", 4, free_on_alloc_stream, NULL},
    {"touch a freed block", 1, touch_stale, NULL},
    {"touch a foreign block", 1, touch_foreign, NULL},
    {"free with wrong facts", 1, free_with_wrong_facts, NULL},
    {"finish what was not prepared", 1, finish_unprepared, NULL},
    {"find", 1, find, NULL},
    {"find where a block was", 1, find_stale, NULL},
    {"check the account", 1, check_usage, NULL},
    {"reap", 1, reap, NULL},
    {"trim", 1, trim, NULL},
    {"open a stream", 2, stream_open, NULL},
    {"register a stream", 1, stream_register, NULL},
    {"unregister a stream", 1, stream_unregister, NULL},
    {"close a stream", 1, NULL, stream_close},
    {"end a thread", 1, NULL, leave},
    {"change a runtime", 1, NULL, runtime_change},
    {"plan trouble", 1, plan_trouble, NULL},
    {"change the policy", 1, change_policy, NULL},
    {"verify", 1, verify, NULL},
};
const size_t operation_count = sizeof operations / sizeof operations[0];
