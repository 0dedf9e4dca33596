/* Begins and ends captures, and updates the model. */
#include "fuzz/captures.h"

#include "fuzz/graphs.h"
#include "fuzz/players.h"

enum { VALUES = 64 };

static const CUstreamCaptureMode all_modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};

static PFN_cuStreamBeginCapture_v10010 begin_capture;
static PFN_cuStreamEndCapture_v10000 end_capture;
static CUcontext context;                  /* of every thread, always */
static CUstreamCaptureMode modes[PLAYERS]; /* of the players' threads */
static model_stream *subject;              /* the stream to be captured, given by the dealer to the player */
static CUevent joint;                      /* the event by which streams join a capture */

void captures_open(void)
{
    fuzz_find("cuStreamBeginCapture_v2", &begin_capture);
    fuzz_find("cuStreamEndCapture", &end_capture);
    graphs_open();
    check_cu(strata_cu.CtxGetCurrent(&context));
    check_cu(strata_cu.EventCreate(&joint, CU_EVENT_DISABLE_TIMING));
}

/* ---- what there is ---- */

bool captures_any(void)
{
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].capture)
            return true;
    return false;
}

bool captures_beside_legacy(void)
{
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].capture && model.streams[i].blocking)
            return true;
    return false;
}

bool captures_may_submit(const model_stream *stream)
{
    return !stream->capture && !(model_is_legacy(stream) && captures_beside_legacy());
}

bool captures_may_refuse(const model_stream *stream, const model_block *block)
{
    return captures_beside_legacy() && ((stream && model_is_legacy(stream)) || (block && block->saw_legacy));
}

/* ---- frees that wait ---- */

void captures_record_free(const model_block *block, const model_stream *stream)
{
    if (!stream->capture && !captures_beside_legacy())
        return;
    if (stream->capture)
        assert_int_equal(strata_runtime_block_state(model.runtimes[block->runtime].handle, block->block.id),
                         STRATA_BLOCK_RETIRED);
    assert_true(model.held_count < HELD);
    model.held[model.held_count++] = (model_held){
        .block = block->block, .runtime = block->runtime, .stream = stream->number, .surely = stream->capture};
}

bool captures_surely_hold(unsigned runtime)
{
    for (size_t i = 0; i < model.held_count; i++)
        if (model.held[i].runtime == runtime && model.held[i].surely)
            return true;
    return false;
}

bool captures_perhaps_hold(unsigned runtime)
{
    for (size_t i = 0; i < model.held_count; i++)
        if (model.held[i].runtime == runtime)
            return true;
    return captures_beside_legacy();
}

static void forget_held(unsigned runtime, uint64_t stream)
{
    size_t kept = 0;
    for (size_t i = 0; i < model.held_count; i++)
        if (model.held[i].runtime != runtime || model.held[i].stream != stream)
            model.held[kept++] = model.held[i];
    model.held_count = kept;
}

static bool holds_on(const model_stream *stream)
{
    for (size_t i = 0; i < model.held_count; i++)
        if (model.held[i].stream == stream->number)
            return true;
    return false;
}

/* ---- edges ---- */

static model_stream *edge_from, *edge_to; /* given by the dealer to the players */

static void record_edge(void)
{
    check_cu(strata_cu.EventRecord(joint, edge_from->handle));
}

static void wait_edge(void)
{
    check_cu(strata_cu.StreamWaitEvent(edge_to->handle, joint, 0));
}

/* Only a thread itself can name its per-thread stream. */
static unsigned who_may_name(const model_stream *stream, unsigned player)
{
    if (stream->kind == PER_THREAD)
        return stream->owner;
    return players_has(player) ? player : 0;
}

/* The next captured work of `to` comes after that of `from`. `to` joins the capture if it is not captured yet. */
static void lead(model_stream *from, model_stream *to, unsigned player)
{
    fuzz_tell("  stream %llu %s stream %llu", (unsigned long long)from->number, to->capture ? "leads to" : "forks to",
              (unsigned long long)to->number);
    edge_from = from;
    edge_to = to;
    players_do(who_may_name(from, player), record_edge);
    players_do(who_may_name(to, player), wait_edge);
    to->behind = to->capture ? to->behind | from->behind : from->behind;
    to->capture = CAPTURE_ALIVE;
    to->origin = from->origin;
    to->capturer = from->capturer;
    to->mode = from->mode;
}

/* Whether the end of the capture comes after all work of its streams. */
static bool joined(const model_stream *origin)
{
    for (size_t i = 0; i < model.stream_count; i++) {
        const model_stream *stream = &model.streams[i];
        if (stream->capture && stream->origin == origin->number && stream->behind & ~origin->behind)
            return false;
    }
    return true;
}

static void join_all(model_stream *origin, unsigned player)
{
    for (size_t i = 0; i < model.stream_count; i++) {
        model_stream *stream = &model.streams[i];
        if (stream != origin && stream->capture == CAPTURE_ALIVE && stream->origin == origin->number)
            lead(stream, origin, player);
    }
}

static model_stream *origin_of(const model_stream *stream)
{
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].number == stream->origin)
            return &model.streams[i];
    fail_msg("a capture has lost the stream that began it");
    return NULL;
}

/* ---- ending ---- */

static CUresult end_wants(void)
{
    if (subject->capture == CAPTURE_DEAD)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return joined(subject) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

static void release_streams(uint64_t origin)
{
    for (size_t i = 0; i < model.stream_count; i++) {
        model_stream *stream = &model.streams[i];
        if (!stream->capture || stream->origin != origin)
            continue;
        stream->capture = CAPTURE_NONE;
        for (size_t j = 0; j < model.held_count; j++)
            if (model.held[j].stream == stream->number)
                model.held[j].surely = false;
    }
}

static void end_subject(void)
{
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    bool alive = subject->capture == CAPTURE_ALIVE;
    CUresult wanted = end_wants();
    check_cu(strata_cu.StreamIsCapturing(subject->handle, &status));
    assert_int_equal(status, alive ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CUresult ended = end_capture(subject->handle, &graph);
    assert_int_equal(ended, wanted);
    assert_true((graph != NULL) == (ended == CUDA_SUCCESS));
    fuzz_tell("  it ends %s", ended == CUDA_SUCCESS ? "well" : alive ? "with a stream that was not joined" : "dead");
    graphs_end_capture(subject, graph);
    release_streams(subject->number);
}

static void end_as(unsigned player, model_stream *stream)
{
    fuzz_tell("  player %u ends the capture of stream %llu", player, (unsigned long long)stream->number);
    subject = stream;
    players_do(player, end_subject);
}

void captures_end(model_stream *stream)
{
    if (stream->capture)
        end_as(stream->capturer, origin_of(stream));
}

void captures_end_of(unsigned player)
{
    for (size_t i = 0; i < model.stream_count; i++) {
        model_stream *stream = &model.streams[i];
        if (stream->capturer == player || (stream->kind == PER_THREAD && stream->owner == player))
            captures_end(stream);
    }
}

void captures_end_all(void)
{
    for (size_t i = 0; i < model.stream_count; i++)
        captures_end(&model.streams[i]);
    model_verify();
    for (unsigned i = 0; i < RUNTIMES; i++)
        if (model.runtimes[i].handle)
            check_ok(strata_stack_captures_ended(strata_runtime_stack(model.runtimes[i].handle), STRATA_STREAM_GONE));
    model.held_count = 0;
}

void captures_leave_stream(const model_stream *stream)
{
    if (!holds_on(stream))
        return;
    if (captures_beside_legacy() || stream->kind == PER_THREAD) {
        captures_end_all();
        return;
    }
    for (unsigned i = 0; i < RUNTIMES; i++) {
        if (model.runtimes[i].handle)
            check_ok(strata_stack_captures_ended(strata_runtime_stack(model.runtimes[i].handle), stream->handle));
        forget_held(i, stream->number);
    }
}

CUstreamCaptureMode captures_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    check_cu(strata_cu.ThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

void captures_restore(CUstreamCaptureMode mode)
{
    check_cu(strata_cu.ThreadExchangeStreamCaptureMode(&mode));
}

void captures_synchronize(CUstream stream)
{
    CUstreamCaptureMode mode = captures_relax();
    check_cu(strata_cu.StreamSynchronize(stream));
    captures_restore(mode);
}

/* ---- what must hold ---- */

void captures_check_alive(void)
{
    for (size_t i = 0; i < model.stream_count; i++) {
        const model_stream *stream = &model.streams[i];
        CUstreamCaptureStatus status;
        if (stream->capture != CAPTURE_ALIVE || stream->kind == PER_THREAD)
            continue;
        check_cu(strata_cu.StreamIsCapturing(stream->handle, &status));
        assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    }
}

/* The driver's refusal to restore the exchanged mode is no fault of the library. */
void captures_check_thread(void)
{
    unsigned player = players_now();
    CUstreamCaptureMode mode = modes[player];
    CUcontext current;
    check_cu(strata_cu.ThreadExchangeStreamCaptureMode(&mode));
    check_cu(strata_cu.CtxGetCurrent(&current));
    bool met = trouble_met(player);
    assert_true(met || (mode == modes[player] && current == context));
    if (current != context)
        check_cu(strata_cu.CtxSetCurrent(context));
}

void captures_forget_player(unsigned player)
{
    if (player == 0) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        check_cu(strata_cu.ThreadExchangeStreamCaptureMode(&mode));
    }
    modes[player] = CU_STREAM_CAPTURE_MODE_GLOBAL;
    trouble_met(player);
}

/* ---- operations ---- */

static unsigned byte(void)
{
    return fuzz_byte(&model.input);
}

static void finish_work_on(uint64_t stream)
{
    for (size_t i = model.use_count; i > 0; i--)
        if (model.uses[i - 1].stream == stream && model.uses[i - 1].work != WORK_NONE)
            operation_finish(i - 1);
}

/* Before a capture the program finishes the uses that it could not finish during it. */
static void finish_what_a_capture_forbids(const model_stream *stream)
{
    finish_work_on(stream->number);
    for (size_t i = 0; i < model.stream_count && stream->blocking; i++)
        if (model_is_legacy(&model.streams[i]))
            finish_work_on(model.streams[i].number);
}

/* A block that no other stream has used. */
static model_block *pick_block_of(const model_stream *stream)
{
    unsigned first = fuzz_below(&model.input, model.block_count);
    for (size_t i = 0; i < model.block_count; i++) {
        model_block *block = &model.blocks[(first + i) % model.block_count];
        if (block->only == stream->number && !model_is_pinned(&block->block))
            return block;
    }
    return NULL;
}

static struct {
    CUstreamCaptureMode mode;
    bool frees; /* frees a block in the capture, read before on the stream without a record */
} beginning;

static void begin_subject(void)
{
    model_block *block = beginning.frees ? pick_block_of(subject) : NULL;
    if (block) {
        model_make_room(1);
        model_submit(block, subject->handle, STRATA_ACCESS_READ);
    }
    check_cu(begin_capture(subject->handle, beginning.mode));
    subject->capture = CAPTURE_ALIVE;
    subject->capturer = players_now();
    subject->mode = beginning.mode;
    subject->origin = subject->number;
    subject->behind = 0;
    graphs_begin(subject);
    if (block && !operation_free_block(block, subject)) {
        end_subject();
        captures_synchronize(subject->handle); /* only work submitted before a free needs no record */
    }
}

/* The library requires that a known stream, or the legacy one, is not captured. */
static bool may_be_captured(const model_stream *stream)
{
    return (stream->kind == UNKNOWN || stream->kind == PER_THREAD) && !stream->capture;
}

static void capture_begin(void)
{
    model_stream *stream = &model.streams[fuzz_below(&model.input, model.stream_count)];
    unsigned how = byte(), player = who_may_name(stream, how / 3 % PLAYERS);
    if (!may_be_captured(stream))
        return;
    finish_what_a_capture_forbids(stream);
    subject = stream;
    beginning.mode = all_modes[how % 3];
    beginning.frees = how & 0x80;
    fuzz_tell("  player %u captures stream %llu%s, mode %d", player, (unsigned long long)stream->number,
              stream->blocking ? ", which is blocking" : "", (int)beginning.mode);
    players_do(player, begin_subject);
}

static model_stream *pick_captured(void)
{
    unsigned first = fuzz_below(&model.input, model.stream_count);
    for (size_t i = 0; i < model.stream_count; i++) {
        model_stream *stream = &model.streams[(first + i) % model.stream_count];
        if (stream->capture)
            return stream;
    }
    return NULL;
}

/* A stream waits for a captured one: it joins the capture, or comes after more of it. Two captures cannot be joined. */
static void capture_edge(void)
{
    model_stream *from = pick_captured();
    model_stream *to = &model.streams[fuzz_below(&model.input, model.stream_count)];
    unsigned player = fuzz_below(&model.input, PLAYERS);
    if (!from || from == to || from->capture != CAPTURE_ALIVE)
        return;
    if (to->capture ? to->origin != from->origin : !may_be_captured(to))
        return;
    if (!to->capture)
        finish_what_a_capture_forbids(to);
    lead(from, to, player);
}

/* On the thread that began it, or on any if its mode is relaxed. Mostly after all forked streams were joined. */
static void capture_end(void)
{
    model_stream *stream = pick_captured();
    unsigned how = byte(), player = how % PLAYERS;
    if (!stream)
        return;
    model_stream *origin = origin_of(stream);
    if (how / PLAYERS % 4)
        join_all(origin, player);
    bool any = origin->mode == CU_STREAM_CAPTURE_MODE_RELAXED && origin->kind != PER_THREAD && players_has(player);
    end_as(any ? player : origin->capturer, origin);
}

static void capture_work(void)
{
    model_stream *stream = pick_captured();
    if (stream && stream->capture == CAPTURE_ALIVE && model_player_stream(stream->number))
        graphs_capture(stream);
}

static void capture_say_ended(void)
{
    const model_runtime *runtime = model_pick_runtime();
    const model_stream *stream = model_pick_stream();
    unsigned which = (unsigned)(runtime - model.runtimes);
    fuzz_tell("  runtime %u, stream %llu", which, (unsigned long long)stream->number);
    trouble_begin();
    strata_status status =
        trouble_end(strata_stack_captures_ended(strata_runtime_stack(runtime->handle), stream->handle));
    /* If the driver did not report the capture before, it does at the free; then the stream stays as it is. */
    bool hidden = trouble_struck() && stream->capture;
    bool refused = status == STRATA_ERROR_STREAM_CAPTURE && (captures_beside_legacy() || hidden);
    bool settled = model_did(status, refused ? status : STRATA_SUCCESS, "captures ended", __FILE__, __LINE__);
    if (settled && !stream->capture && !captures_beside_legacy())
        forget_held(which, stream->number);
}

/* By a call of the program that invalidates every capture of the context. */
static void capture_kill(void)
{
    if (!captures_any())
        return;
    assert_int_equal(strata_cu.CtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].capture)
            model.streams[i].capture = CAPTURE_DEAD;
}

static void capture_mode(void)
{
    CUstreamCaptureMode mode = all_modes[byte() % 3];
    modes[players_now()] = mode;
    check_cu(strata_cu.ThreadExchangeStreamCaptureMode(&mode));
}

static const operation table[] = {
    {"begin a capture", 12, NULL, capture_begin},
    {"let a stream wait for a capture", 8, NULL, capture_edge},
    {"end a capture", 8, NULL, capture_end},
    {"launch a graph", 4, graphs_launch, NULL},
    {"capture work", 6, capture_work, NULL},
    {"say that captures ended", 8, capture_say_ended, NULL},
    {"launch a graph", 4, graphs_launch, NULL},
    {"end and settle all captures", 4, NULL, captures_end_all},
    {"kill all captures", 2, NULL, capture_kill},
    {"end a graph", 1, graphs_drop, NULL},
    {"change the thread's capture mode", 3, capture_mode, NULL},
    {"capture work", 4, capture_work, NULL},
};

const operation *captures_operation(unsigned value)
{
    size_t which = 0;
    for (unsigned left = value % VALUES; left >= table[which].weight; which++)
        left -= table[which].weight;
    return &table[which];
}
