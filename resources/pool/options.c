/* Options: checks, defaults, texts; creation. */
#include "core/base/options.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "resources/builtin.h"
#include "resources/chunks/peers.h"
#include "resources/pool/operations.h"
#include "resources/pool/thread_cache.h"

enum { DEFAULT_CACHE = 4 << 20, MAX_OVERHEAD = 1000000 };

#define DEFAULT_DECAY UINT64_C(10000000000) /* ns */

static strata_status check_options(const strata_pool_options *options)
{
    const char *problem = NULL;
    if ((unsigned)options->follow_event_dependencies > STRATA_SWITCH_OFF ||
        (unsigned)options->opportunistic > STRATA_SWITCH_OFF ||
        (unsigned)options->internal_dependencies > STRATA_SWITCH_OFF)
        problem = "invalid switch: expected default, on or off";
    else if ((unsigned)options->export_type > STRATA_EXPORT_FABRIC)
        problem = "invalid export type";
    else if (options->chunk > UINT64_C(1) << 40)
        problem = "chunk: at most 1 TiB";
    else if (options->overhead > MAX_OVERHEAD)
        problem = "overhead: at most 1000000 thousandths of the highest live bytes; 500 is half as much again";
    else if ((unsigned)options->prefer > STRATA_POOL_PREFER_SPEED)
        problem = "invalid preference: expected balanced, memory or speed";
    else if (options->contiguous && options->contiguous < POOL_SMALL_BLOCK)
        problem = "contiguous: at least 1 MiB, since such a block takes whole pieces of 2 MiB";
    else if (options->contiguous && options->deterministic)
        problem = "contiguous blocks have addresses that the driver chooses, and cannot be combined with deterministic";
    else if (options->release_all && options->release_threshold)
        problem = "release_all and release_threshold cannot be combined";
    else if (options->deterministic && options->opportunistic == STRATA_SWITCH_ON)
        problem = "opportunistic=on depends on the device's progress and cannot be combined with deterministic";
    else if (options->deterministic && options->decay && options->decay != STRATA_NEVER)
        problem = "decay depends on the clock and cannot be combined with deterministic";
    if (problem)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "pool: %s", problem);
    if (options->max_size && options->initial_size > options->max_size)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "pool: initial_size (%s) exceeds max_size (%s)",
                           strata_size_text(options->initial_size).text, strata_size_text(options->max_size).text);
    return STRATA_SUCCESS;
}

static void set_options(pool *self, const strata_pool_options *options)
{
    self->limit = options->max_size;
    self->given = *options;
    self->given.peers = NULL; /* the caller's */
    self->cache_granules = (options->cache ? options->cache : DEFAULT_CACHE) / POOL_GRANULE;
    self->initial_bytes = options->initial_size;
    self->follows = options->follow_event_dependencies != STRATA_SWITCH_OFF;
    self->takes_finished = options->opportunistic != STRATA_SWITCH_OFF && !options->deterministic;
    self->waits = options->internal_dependencies != STRATA_SWITCH_OFF;
    self->deterministic = options->deterministic;
    self->threshold = options->release_all ? POOL_KEEP_NOTHING : options->release_threshold;
}

static uint64_t decay_of(const strata_pool_options *options)
{
    if (options->decay)
        return options->decay == STRATA_NEVER ? 0 : options->decay;
    return options->deterministic ? 0 : DEFAULT_DECAY;
}

strata_status strata_pool_create(int ordinal, const strata_pool_options *given, strata_resource **out)
{
    strata_pool_options options;
    strata_device *device;
    strata_status status = strata_options_begin("pool", out, &options, sizeof options, given);
    if (status == STRATA_SUCCESS)
        status = check_options(&options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    uint64_t peers;
    if ((status = pool_peers_of(options.peers, options.peer_count, ordinal, &peers)) != STRATA_SUCCESS)
        return status;
    pool *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a pool");
    self->resource.ops = &pool_ops;
    self->device = device;
    set_options(self, &options);
    self->peers = peers;
    strata_barriers_open();
    strata_busy_gate_init(&self->flushing);
    strata_per_thread_init(&self->thread_caches, sizeof(pool_thread_cache));
    strata_per_thread_take_number(&self->thread_caches);
    strata_lock_init(&self->oom_lock, STRATA_RANK_POOL_OOM);
    strata_lock_init(&self->map_lock, STRATA_RANK_POOL_MAP);
    strata_spin_init(&self->lock, STRATA_RANK_INDEX);
    if ((status = pool_decay_set(self, decay_of(&options))) != STRATA_SUCCESS) {
        pool_ops.destroy(&self->resource);
        return status;
    }
    *out = &self->resource;
    return STRATA_SUCCESS;
}

typedef struct pool_text {
    strata_pool_options options; /* sizes and peers are read when the device is known */
    strata_amount initial_size, max_size, release_threshold;
    char peers[256]; /* STRATA_OPTION_STRING */
} pool_text;

#define SWITCHES "default|on|off"
#define OVERHEAD_HELP                                                                                                  \
    "reserved bytes above the peak, in thousandths of it, before free memory is moved, or given back where it cannot " \
    "be moved; default: by prefer"

static const strata_option pool_text_options[] = {
    {"initial_size", STRATA_OPTION_AMOUNT, offsetof(pool_text, initial_size), NULL,
     "bytes reserved when the stack is built"},
    {"max_size", STRATA_OPTION_AMOUNT, offsetof(pool_text, max_size), NULL, "most bytes reserved"},
    {"prefer", STRATA_OPTION_CHOICE, offsetof(pool_text, options.prefer), "balanced|memory|speed",
     "what to do first when no free memory fits; default: balanced"},
    {"overhead", STRATA_OPTION_UINT, offsetof(pool_text, options.overhead), NULL, OVERHEAD_HELP},
    {"slack", STRATA_OPTION_UINT, offsetof(pool_text, options.overhead), NULL,
     "the old name of overhead, in thousandths"},
    {"chunk", STRATA_OPTION_SIZE, offsetof(pool_text, options.chunk), NULL,
     "largest piece of memory from the device; default: 32MiB, or a quarter of what is made at once; 16MiB where it "
     "cannot be moved"},
    {"frame", STRATA_OPTION_SIZE, offsetof(pool_text, options.chunk), NULL, "the old name of chunk"},
    {"cache", STRATA_OPTION_SIZE, offsetof(pool_text, options.cache), NULL,
     "bytes that a thread caches for each stream; default: 4MiB"},
    {"release_threshold", STRATA_OPTION_AMOUNT, offsetof(pool_text, release_threshold), NULL,
     "bytes kept when all frees are waited for; default: all"},
    {"release_all", STRATA_OPTION_BOOL, offsetof(pool_text, options.release_all), NULL,
     "keep nothing when all frees are waited for"},
    {"decay", STRATA_OPTION_INTERVAL, offsetof(pool_text, options.decay), NULL,
     "memory unused for this time is given back; default: 10s"},
    {"follow_event_dependencies", STRATA_OPTION_CHOICE, offsetof(pool_text, options.follow_event_dependencies),
     SWITCHES, "reuse memory that the stream has already waited for"},
    {"opportunistic", STRATA_OPTION_CHOICE, offsetof(pool_text, options.opportunistic), SWITCHES,
     "reuse memory whose work has finished"},
    {"internal_dependencies", STRATA_OPTION_CHOICE, offsetof(pool_text, options.internal_dependencies), SWITCHES,
     "reuse memory whose work has not finished, behind a wait"},
    {"deterministic", STRATA_OPTION_BOOL, offsetof(pool_text, options.deterministic), NULL,
     "the same requests give the same addresses"},
    {"export", STRATA_OPTION_CHOICE, offsetof(pool_text, options.export_type), "none|fd|fabric",
     "export handles for other processes"},
    {"contiguous", STRATA_OPTION_SIZE, offsetof(pool_text, options.contiguous), NULL,
     "blocks of this size and more have a piece of memory each, for libraries that register it; default: none"},
    {"peers", STRATA_OPTION_STRING, offsetof(pool_text, peers), NULL, "other devices that use the memory: 1;2, or all"},
};

static strata_status make_pool(int device, const void *given, strata_resource **out)
{
    const pool_text *text = given;
    strata_device *found;
    strata_status status = strata_device_get(device, &found);
    if (status != STRATA_SUCCESS)
        return status;
    int peers[STRATA_DEVICE_LIMIT];
    strata_pool_options options = text->options;
    options.initial_size = strata_amount_bytes(&text->initial_size, found->info.total_bytes);
    options.max_size = strata_amount_bytes(&text->max_size, found->info.total_bytes);
    options.release_threshold = strata_amount_bytes(&text->release_threshold, found->info.total_bytes);
    options.peers = peers;
    if ((status = pool_peers_read(text->peers, peers, &options.peer_count, &options.all_peers)) != STRATA_SUCCESS)
        return status;
    return strata_pool_create(device, &options, out);
}

const strata_layer strata_pool_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "pool",
    .help = "memory mapped in large pieces and reused without driver calls",
    .options = pool_text_options,
    .option_count = sizeof pool_text_options / sizeof pool_text_options[0],
    .options_size = sizeof(pool_text),
    .create = make_pool,
    .in_sanitizer_mode = "direct",
    .over = true,
};
