/* Blocks of the model, and their contents. */
#include "driver/kernels/kernels.h"
#include "fuzz/captures.h"
#include "fuzz/judge.h"
#include "fuzz/model.h"

#include <string.h>

enum { CHECKS = 256, ARENA = 512 << 10, SUBMISSION_CHECKS = PIECES, SUBMISSION_BYTES = 2 * PIECES * EDGE };

typedef struct model_check {
    strata_block_id id;
    size_t bytes;
    uint64_t seed;
    const unsigned char *seen; /* where the bytes were copied to; NULL: a kernel compares them */
} model_check;

static struct {
    model_check checks[CHECKS];
    size_t count;
    unsigned char *arena; /* pinned */
    size_t arena_used;
    CUdeviceptr results;         /* one strata_pattern_result for each check */
    strata_pattern_result *read; /* pinned */
} memory;

/* ---- blocks ---- */

static bool same_id(strata_block_id a, strata_block_id b)
{
    return a.table == b.table && a.slot == b.slot && a.generation == b.generation;
}

model_block *model_block_of(strata_block_id id)
{
    for (size_t i = 0; i < model.block_count; i++)
        if (same_id(model.blocks[i].block.id, id))
            return &model.blocks[i];
    return NULL;
}

static void check_apart(const strata_block *block)
{
    for (size_t i = 0; i < model.block_count; i++) {
        const strata_block *other = &model.blocks[i].block;
        assert_true(block->address + block->bytes <= other->address || other->address + other->bytes <= block->address);
        assert_false(same_id(block->id, other->id));
    }
    for (size_t i = 0; i < model.stale_count; i++)
        assert_false(same_id(block->id, model.stale[i].block.id));
}

model_block *model_enter(const strata_block *block, unsigned runtime, const model_stream *stream)
{
    check_apart(block);
    assert_true(model.block_count < BLOCKS);
    model_block *entered = &model.blocks[model.block_count++];
    *entered = (model_block){
        .block = *block,
        .runtime = runtime,
        .alloc_stream = stream->number,
        .alloc_stream_known = model_is_known(stream),
        .only = stream->number,
        .saw_legacy = model_is_legacy(stream),
    };
    model.runtimes[runtime].live_bytes += block->bytes;
    model.runtimes[runtime].live_blocks++;
    assert_int_equal(strata_runtime_block_state(model.runtimes[runtime].handle, block->id), STRATA_BLOCK_LIVE);
    return entered;
}

void model_leave(model_block *block)
{
    model_runtime *runtime = &model.runtimes[block->runtime];
    assert_int_not_equal(strata_runtime_block_state(runtime->handle, block->block.id), STRATA_BLOCK_LIVE);
    runtime->live_bytes -= block->block.bytes;
    runtime->live_blocks--;
    size_t where = model.stale_count < STALE ? model.stale_count++ : model.last_seed % STALE;
    model.stale[where] = (model_stale){.block = block->block, .runtime = block->runtime};
    *block = model.blocks[--model.block_count];
}

bool model_is_pinned(const strata_block *block)
{
    for (size_t i = 0; i < model.use_count; i++)
        if (same_id(model.uses[i].block.id, block->id))
            return true;
    return false;
}

bool model_races(const strata_block *block, uint64_t stream, strata_access access)
{
    for (size_t i = 0; i < model.use_count; i++) {
        const model_use *use = &model.uses[i];
        if (same_id(use->block.id, block->id) && use->work != WORK_NONE && use->stream != stream &&
            (use->access | access) & STRATA_ACCESS_WRITE)
            return true;
    }
    return false;
}

void model_record_use(model_block *block, uint64_t stream, bool noted)
{
    const model_stream *user = model_stream_of(stream);
    if (block->only != stream)
        block->only = 0;
    if (user && model_is_legacy(user))
        block->saw_legacy = true;
    if (noted)
        block->touch = TOUCHED;
    else if (block->touch == UNTOUCHED)
        block->touch = PERHAPS_TOUCHED;
}

/* ---- contents ---- */

void model_open_memory(void)
{
    void *arena, *read;
    check_cu(strata_cu.MemHostAlloc(&arena, ARENA, 0));
    check_cu(strata_cu.MemHostAlloc(&read, CHECKS * sizeof *memory.read, 0));
    check_cu(strata_cu.MemAlloc(&memory.results, CHECKS * sizeof *memory.read));
    check_cu(strata_kernels_load());
    memory.arena = arena;
    memory.read = read;
    model_verify();
}

/* As in the kernels. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static unsigned char pattern_byte(uint64_t seed, size_t offset)
{
    return (unsigned char)(mix(seed + offset / 8) >> offset % 8 * 8);
}

static unsigned char *take_arena(size_t bytes)
{
    assert_true(bytes <= ARENA - memory.arena_used);
    unsigned char *taken = memory.arena + memory.arena_used;
    memory.arena_used += bytes;
    return taken;
}

bool model_has_room(size_t uses)
{
    return memory.count + uses * SUBMISSION_CHECKS <= CHECKS && memory.arena_used + uses * SUBMISSION_BYTES <= ARENA;
}

void model_make_room(size_t uses)
{
    if (!model_has_room(uses))
        model_verify();
}

static void submit_read(const model_block *block, CUstream stream)
{
    for (size_t i = 0; i < block->piece_count; i++) {
        const model_piece *piece = &block->pieces[i];
        CUdeviceptr address = block->block.address + piece->offset;
        assert_true(memory.count < CHECKS);
        model_check *check = &memory.checks[memory.count];
        CUdeviceptr result = memory.results + memory.count++ * sizeof *memory.read;
        *check = (model_check){.id = block->block.id, .bytes = piece->bytes, .seed = piece->seed};
        if (fuzz_byte(&model.input) & 1) {
            check->bytes = piece->bytes < EDGE ? piece->bytes : EDGE;
            unsigned char *seen = take_arena(check->bytes);
            check->seen = seen;
            check_cu(strata_cu.MemcpyDtoHAsync(seen, address, check->bytes, stream));
        } else {
            check_cu(strata_kernel_pattern_check(address, check->bytes, check->seed, result, stream));
        }
    }
}

uint64_t model_next_seed(void)
{
    return ++model.last_seed << 32;
}

static void submit_write(model_block *block, CUstream stream)
{
    size_t bytes = block->block.bytes;
    block->pieces[0] = (model_piece){.bytes = bytes <= WHOLE ? bytes : EDGE, .seed = model_next_seed()};
    block->piece_count = 1;
    if (bytes > WHOLE) {
        block->pieces[1] = (model_piece){.offset = bytes - EDGE, .bytes = EDGE, .seed = model_next_seed()};
        block->piece_count = 2;
    }
    bool by_copy = fuzz_byte(&model.input) & 1 && block->pieces[0].bytes <= EDGE;
    for (size_t i = 0; i < block->piece_count; i++) {
        const model_piece *piece = &block->pieces[i];
        CUdeviceptr address = block->block.address + piece->offset;
        if (!by_copy) {
            check_cu(strata_kernel_pattern_fill(address, piece->bytes, piece->seed, stream));
            continue;
        }
        unsigned char *from = take_arena(piece->bytes);
        judge_write(from, piece->bytes);
        for (size_t j = 0; j < piece->bytes; j++)
            from[j] = pattern_byte(piece->seed, j);
        check_cu(strata_cu.MemcpyHtoDAsync(address, from, piece->bytes, stream));
    }
}

void model_submit(model_block *block, CUstream stream, strata_access access)
{
    if (access & STRATA_ACCESS_READ)
        submit_read(block, stream);
    if (access & STRATA_ACCESS_WRITE)
        submit_write(block, stream);
}

void model_submit_copy(model_block *to, const model_block *from, CUstream stream)
{
    if (!from->piece_count || from->pieces[0].offset)
        return;
    model_piece piece = from->pieces[0];
    piece.bytes = piece.bytes < to->block.bytes ? piece.bytes : to->block.bytes;
    check_cu(strata_cu.MemcpyDtoDAsync(to->block.address, from->block.address, piece.bytes, stream));
    to->pieces[0] = piece;
    to->piece_count = 1;
}

/* ---- judging ---- */

static void print_wrong(const model_check *check, size_t offset)
{
    fail_msg("block in slot %u, generation %llu: wrong bytes at %zu of %zu", check->id.slot,
             (unsigned long long)check->id.generation, offset, check->bytes);
}

static void judge(const model_check *check, const strata_pattern_result *result)
{
    if (!check->seen && result->wrong)
        print_wrong(check, (size_t)result->first);
    if (check->seen)
        judge_read(check->seen, check->bytes);
    for (size_t i = 0; check->seen && i < check->bytes; i++)
        if (check->seen[i] != pattern_byte(check->seed, i))
            print_wrong(check, i);
}

void model_verify(void)
{
    size_t bytes = CHECKS * sizeof *memory.read;
    check_cu(strata_cu.CtxSynchronize());
    check_cu(strata_cu.MemcpyDtoHAsync(memory.read, memory.results, bytes, NULL));
    check_cu(strata_cu.StreamSynchronize(NULL));
    judge_read(memory.read, bytes);
    for (size_t i = 0; i < memory.count; i++)
        judge(&memory.checks[i], &memory.read[i]);
    memory.count = 0;
    memory.arena_used = 0;
    judge_write(memory.read, bytes);
    for (size_t i = 0; i < CHECKS; i++)
        memory.read[i] = (strata_pattern_result){.first = STRATA_PATTERN_NONE};
    check_cu(strata_cu.MemcpyHtoDAsync(memory.results, memory.read, bytes, NULL));
    check_cu(strata_cu.StreamSynchronize(NULL));
}

void model_check_usage(const model_runtime *runtime)
{
    strata_usage usage;
    check_ok(strata_runtime_usage(runtime->handle, &usage));
    assert_true(usage.live_bytes == runtime->live_bytes);
    assert_true(usage.live_blocks == runtime->live_blocks);
    assert_true(usage.bytes_outstanding == usage.live_bytes + usage.retired_bytes);
    assert_true(runtime->ordered || usage.retired_bytes == 0 ||
                captures_perhaps_hold((unsigned)(runtime - model.runtimes)));
    assert_true(usage.reserved_bytes >= usage.live_bytes);
}
