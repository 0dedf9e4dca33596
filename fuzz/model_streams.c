/* Runtimes and streams of the model. */
#include "fuzz/model.h"
#include "fuzz/players.h"

#include <stdio.h>

/* ---- runtimes ---- */

static const char *pick_switch(void)
{
    static const char *const words[] = {"default", "on", "off"};
    return words[fuzz_below(&model.input, 3)];
}

/* Draws a stack of Strata's pool, with any options, or of fixed-size blocks. */
static void pick_pool(model_runtime *runtime, char *text, size_t size)
{
    static const char *const limits[] = {"0", "2MiB", "8MiB", "32MiB"}, *const chunks[] = {"0", "2MiB"},
                             *const overheads[] = {"0", "1", "50", "1000"}, *const caches[] = {"0", "1", "64KiB"},
                             *const others[] = {"", ", release_all=on", ", release_threshold=2MiB",
                                                ", deterministic=on", ", decay=1ms"},
                             *const below[] = {"", ", direct", ", async"};
    unsigned kind = fuzz_below(&model.input, 6), limit = fuzz_below(&model.input, 4);
    runtime->ordered = true;
    runtime->limited = false;
    if (kind < 2) {
        static const char *const cut[] = {"fixed(bytes=4KiB, chunk=16KiB)",
                                          "binning(min=256, max=64KiB, chunk=128KiB)"};
        snprintf(text, size, "%s, async", cut[kind]);
        return;
    }
    runtime->aligns = true;
    runtime->limited = limit > 0;
    const char *chunk = chunks[fuzz_below(&model.input, 2)], *overhead = overheads[fuzz_below(&model.input, 4)],
               *cache = caches[fuzz_below(&model.input, 3)], *follow = pick_switch(), *internal = pick_switch();
    unsigned other = fuzz_below(&model.input, 5), source = kind == 5 ? 1 + fuzz_below(&model.input, 2) : 0;
    if (source && other == 4) /* decay is for memory that the pool maps */
        other = 0;
    snprintf(text, size,
             "pool(max_size=%s, chunk=%s, overhead=%s, cache=%s, follow_event_dependencies=%s, "
             "internal_dependencies=%s%s)%s",
             limits[limit], chunk, overhead, cache, follow, internal, others[other], below[source]);
}

/* Draws a stack: direct, a view of the driver's default pool, a pool of the driver's or of Strata's with any options,
 * or fixed-size blocks. */
static void pick_stack(model_runtime *runtime, char *text, size_t size)
{
    static const char *const sizes[] = {"0", "1B", "64KiB", "2MiB", "8MiB", "32MiB"};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    unsigned kind = fuzz_below(&model.input, 12);
    if (kind >= 6) {
        pick_pool(runtime, text, size);
        return;
    }
    runtime->ordered = kind > 0;
    runtime->limited = false;
    if (kind < 3) {
        static const char *const plain[] = {"direct", "async(pool=default)", "async"};
        snprintf(text, size, "%s", plain[kind]);
        return;
    }
    const char *threshold = sizes[fuzz_below(&model.input, SIZES)];
    unsigned initial = fuzz_below(&model.input, SIZES), most = fuzz_below(&model.input, SIZES);
    most = kind == 5 && most > 3 && most >= initial ? most : 0;
    runtime->limited = most > 0;
    const char *follow = pick_switch(), *opportunistic = pick_switch(), *internal = pick_switch();
    char kept[64] = "release_all=on";
    if (kind != 4)
        snprintf(kept, sizeof kept, "release_threshold=%s", threshold);
    snprintf(text, size,
             "async(%s, initial_size=%s, max_size=%s, follow_event_dependencies=%s, opportunistic=%s, "
             "internal_dependencies=%s)",
             kept, sizes[initial], sizes[most], follow, opportunistic, internal);
}

/* Makes the stack the first branch, or one within it: what it refuses the others serve. */
static void add_fallback(model_runtime *runtime, unsigned form, char *text, size_t size)
{
    static const char *const before[] = {"", "budget(limit=1MiB, wait=none), ", "fault(every=3), ", ""},
                             *const after[] = {"direct", "async", "direct",
                                               "fallback(budget(limit=64KiB), direct | async)"};
    char branch[256];
    snprintf(branch, sizeof branch, "%.255s", text);
    snprintf(text, size, "fallback(%s%s | %s)", before[form], branch, after[form]);
    runtime->ordered = true; /* frees of the stack may be pending */
    runtime->limited = false;
}

bool model_make_runtime(unsigned which)
{
    model_runtime *runtime = &model.runtimes[which];
    char text[384];
    *runtime = (model_runtime){0};
    pick_stack(runtime, text, 256);
    unsigned how = fuzz_byte(&model.input);
    if (how >> 4 >= 13 && how >> 4 < 15)
        add_fallback(runtime, (how >> 2) % 4, text, sizeof text);
    strata_runtime_config config = {
        .events = (strata_event_mode)(how % 3),
        .stream_capacity = 1 + (how >> 2) % 4,
    };
    bool by_hand = how >> 4 == 15; /* the stack is created first and then given to the runtime */
    fuzz_tell("runtime %u: %s%s, event mode %d, %u streams", which, text, by_hand ? " by hand" : "", (int)config.events,
              config.stream_capacity);
    runtime->stream_capacity = config.stream_capacity;
    if (by_hand && !did(strata_stack_create(text, 0, &config.stack), STRATA_SUCCESS))
        return false;
    config.stack_text = by_hand ? NULL : text;
    bool made = did(strata_runtime_create(&config, &runtime->handle), STRATA_SUCCESS);
    if (!made && by_hand)
        check_ok(strata_stack_destroy(config.stack));
    assert_true(made == (runtime->handle != NULL));
    return made;
}

/* Streams registered with it become unknown. */
void model_end_runtime(unsigned which)
{
    model_runtime *runtime = &model.runtimes[which];
    fuzz_tell("runtime %u ends", which);
    if (!did(strata_runtime_destroy(runtime->handle), STRATA_SUCCESS))
        check_ok(strata_runtime_destroy(runtime->handle));
    *runtime = (model_runtime){0};
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].kind == REGISTERED && model.streams[i].owner == which)
            model.streams[i].kind = UNKNOWN;
    size_t kept = 0;
    for (size_t i = 0; i < model.stale_count; i++)
        if (model.stale[i].runtime != which)
            model.stale[kept++] = model.stale[i];
    model.stale_count = kept;
}

/* ---- streams ---- */

bool model_is_legacy(const model_stream *stream)
{
    return stream->kind == ZERO || stream->kind == LEGACY;
}

bool model_is_known(const model_stream *stream)
{
    return stream->kind != UNKNOWN && stream->kind != PER_THREAD;
}

bool model_is_known_handle(CUstream handle)
{
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].handle == handle && model_is_known(&model.streams[i]))
            return true;
    return false;
}

const model_stream *model_stream_of(uint64_t number)
{
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].number == number)
            return &model.streams[i];
    return NULL;
}

static bool may_name(const model_stream *stream)
{
    return stream->kind != PER_THREAD || stream->owner == players_now();
}

const model_stream *model_player_stream(uint64_t number)
{
    const model_stream *stream = model_stream_of(number);
    return stream && may_name(stream) ? stream : NULL;
}

/* The first stream is a default one, which every player may name. */
const model_stream *model_pick_stream(void)
{
    size_t which = fuzz_below(&model.input, model.stream_count);
    while (!may_name(&model.streams[which]))
        which--;
    return &model.streams[which];
}

static bool acquire(model_runtime *runtime, CUstream *handle)
{
    bool full = runtime->streams_taken == runtime->stream_capacity;
    bool acquired = did(strata_runtime_stream_acquire(runtime->handle, handle),
                        full ? STRATA_ERROR_STREAMS_EXHAUSTED : STRATA_SUCCESS);
    assert_true(acquired == (*handle != NULL));
    runtime->streams_taken += acquired;
    return acquired;
}

void model_open_stream(stream_kind kind, unsigned owner)
{
    static const CUstream fixed[] = {[ZERO] = NULL, [LEGACY] = CU_STREAM_LEGACY, [PER_THREAD] = CU_STREAM_PER_THREAD};
    if (model.stream_count == STREAMS)
        return;
    model_stream stream = {.kind = kind, .owner = owner, .number = ++model.last_number, .blocking = kind == PER_THREAD};
    if (kind >= ZERO)
        stream.handle = fixed[kind];
    if (kind == POOL && !acquire(&model.runtimes[owner], &stream.handle))
        return;
    if (kind == REGISTERED || kind == UNKNOWN) {
        stream.blocking = fuzz_byte(&model.input) & 1;
        check_cu(strata_cu.StreamCreate(&stream.handle, stream.blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
    if (kind == REGISTERED &&
        !did(strata_runtime_register_stream(model.runtimes[owner].handle, stream.handle), STRATA_SUCCESS))
        stream.kind = UNKNOWN;
    model.streams[model.stream_count++] = stream;
}

void model_close_stream(size_t which)
{
    model_stream *stream = &model.streams[which];
    strata_runtime *runtime = stream->kind <= REGISTERED ? model.runtimes[stream->owner].handle : NULL;
    if (stream->kind == POOL) {
        check_ok(strata_runtime_stream_release(runtime, stream->handle));
        model.runtimes[stream->owner].streams_taken--;
    } else if (stream->kind == REGISTERED) {
        if (!did(strata_runtime_unregister_stream(runtime, stream->handle), STRATA_SUCCESS))
            check_ok(strata_runtime_unregister_stream(runtime, stream->handle));
    }
    if (stream->kind == REGISTERED || stream->kind == UNKNOWN)
        check_cu(strata_cu.StreamDestroy(stream->handle));
    *stream = model.streams[--model.stream_count];
}
