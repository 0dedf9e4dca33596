/* Options of a pool: checks, defaults, texts, and creation. */
#include "core/base/options.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "resources/builtin.h"
#include "resources/pool/operations.h"
#include "resources/pool/peers.h"
#include "resources/pool/thread_cache.h"

enum { DEFAULT_CACHE = 4 << 20, MAX_OVERHEAD = 1000000 };

static strata_status check_options(const strata_pool_options *options)
{
    const char *problem = NULL;
    if ((unsigned)options->follow_event_dependencies > STRATA_SWITCH_OFF ||
        (unsigned)options->opportunistic > STRATA_SWITCH_OFF ||
        (unsigned)options->internal_dependencies > STRATA_SWITCH_OFF)
        problem = "a switch is neither default nor on nor off";
    else if ((unsigned)options->export_type > STRATA_EXPORT_FABRIC)
        problem = "the export type is none of those that there are";
    else if (options->frame > UINT64_C(1) << 40)
        problem = "a frame is larger than 1 TiB";
    else if (options->slack > MAX_OVERHEAD)
        problem =
            "slack is in thousandths of the highest live bytes, at most 1000000 of them: 500 is half as much again";
    else if (options->release_all && options->release_threshold)
        problem = "release_all is a release_threshold of zero: only one of the two can be set";
    else if (options->deterministic && options->opportunistic == STRATA_SWITCH_ON)
        problem = "opportunistic goes by how far the device is, so that a deterministic pool cannot have it on";
    else if (options->deterministic && options->decay)
        problem = "decay goes by the clock, so that a deterministic pool can have none";
    if (problem)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "pool: %s", problem);
    if (options->max_size && options->initial_size > options->max_size)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "pool: initial_size is %llu bytes and max_size only %llu",
                           (unsigned long long)options->initial_size, (unsigned long long)options->max_size);
    return STRATA_SUCCESS;
}

static void set_options(pool *self, const strata_pool_options *options)
{
    self->limit = options->max_size;
    self->given.overhead = options->slack;
    self->given.chunk = options->frame;
    self->given.sharing.export_type = options->export_type;
    self->cache_granules = (options->cache ? options->cache : DEFAULT_CACHE) / POOL_GRANULE;
    self->initial_bytes = options->initial_size;
    self->follows = options->follow_event_dependencies != STRATA_SWITCH_OFF;
    self->takes_finished = options->opportunistic != STRATA_SWITCH_OFF && !options->deterministic;
    self->waits = options->internal_dependencies != STRATA_SWITCH_OFF;
    self->deterministic = options->deterministic;
    self->threshold = options->release_all ? POOL_KEEP_NOTHING : options->release_threshold;
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
    self->given.sharing.peers = peers;
    self->given.sharing.all_peers = options.all_peers;
    strata_barriers_open();
    strata_per_thread_init(&self->thread_caches, sizeof(pool_thread_cache));
    strata_per_thread_take_number(&self->thread_caches);
    strata_lock_init(&self->oom_lock, STRATA_RANK_POOL_OOM);
    strata_lock_init(&self->map_lock, STRATA_RANK_POOL_MAP);
    strata_spin_init(&self->lock, STRATA_RANK_INDEX);
    if ((status = pool_decay_set(self, options.decay)) != STRATA_SUCCESS) {
        pool_ops.destroy(&self->resource);
        return status;
    }
    *out = &self->resource;
    return STRATA_SUCCESS;
}

typedef struct pool_text {
    strata_amount initial_size, max_size, release_threshold;
    uint64_t slack, frame, cache, decay;
    int follow_event_dependencies, opportunistic, internal_dependencies;
    int export_type;
    bool release_all, deterministic;
    char peers[256]; /* STRATA_OPTION_STRING */
} pool_text;

#define SWITCHES "default|on|off"

static const strata_option pool_text_options[] = {
    {"initial_size", STRATA_OPTION_AMOUNT, offsetof(pool_text, initial_size), NULL,
     "bytes reserved with the first request"},
    {"max_size", STRATA_OPTION_AMOUNT, offsetof(pool_text, max_size), NULL, "most bytes reserved"},
    {"slack", STRATA_OPTION_UINT, offsetof(pool_text, slack), NULL,
     "thousandths of the peak that may be reserved beyond it before memory is moved; 44 by default, 500 where it "
     "cannot be moved: then it is given back"},
    {"frame", STRATA_OPTION_SIZE, offsetof(pool_text, frame), NULL,
     "largest piece of memory that is had for several blocks; 16MiB by default, 64MiB where it cannot be moved"},
    {"cache", STRATA_OPTION_SIZE, offsetof(pool_text, cache), NULL,
     "bytes that a thread keeps of a stream; 4MiB by default"},
    {"release_threshold", STRATA_OPTION_AMOUNT, offsetof(pool_text, release_threshold), NULL,
     "bytes kept when all frees are waited for; everything by default"},
    {"release_all", STRATA_OPTION_BOOL, offsetof(pool_text, release_all), NULL, "keep nothing then"},
    {"decay", STRATA_OPTION_INTERVAL, offsetof(pool_text, decay), NULL,
     "of what was of no use for so long half is given back, and so on; never by default"},
    {"follow_event_dependencies", STRATA_OPTION_CHOICE, offsetof(pool_text, follow_event_dependencies), SWITCHES,
     "reuse what a stream has waited for already"},
    {"opportunistic", STRATA_OPTION_CHOICE, offsetof(pool_text, opportunistic), SWITCHES, "reuse what has finished"},
    {"internal_dependencies", STRATA_OPTION_CHOICE, offsetof(pool_text, internal_dependencies), SWITCHES,
     "reuse what has not, behind a wait"},
    {"deterministic", STRATA_OPTION_BOOL, offsetof(pool_text, deterministic), NULL,
     "the same requests make the same addresses"},
    {"export", STRATA_OPTION_CHOICE, offsetof(pool_text, export_type), "none|fd|fabric",
     "handles for sharing between processes"},
    {"peers", STRATA_OPTION_STRING, offsetof(pool_text, peers), NULL,
     "other devices that use the memory: 1;2, or all that can"},
};

static strata_status make_pool(int device, const void *given, strata_resource **out)
{
    const pool_text *text = given;
    strata_device *found;
    strata_status status = strata_device_get(device, &found);
    if (status != STRATA_SUCCESS)
        return status;
    int peers[STRATA_DEVICE_LIMIT];
    size_t count;
    bool all;
    if ((status = pool_peers_read(text->peers, peers, &count, &all)) != STRATA_SUCCESS)
        return status;
    const strata_pool_options options = {
        .initial_size = strata_amount_bytes(&text->initial_size, found->info.total_bytes),
        .max_size = strata_amount_bytes(&text->max_size, found->info.total_bytes),
        .slack = text->slack,
        .frame = text->frame,
        .cache = text->cache,
        .release_threshold = strata_amount_bytes(&text->release_threshold, found->info.total_bytes),
        .release_all = text->release_all,
        .decay = text->decay,
        .follow_event_dependencies = (strata_switch)text->follow_event_dependencies,
        .opportunistic = (strata_switch)text->opportunistic,
        .internal_dependencies = (strata_switch)text->internal_dependencies,
        .deterministic = text->deterministic,
        .export_type = (strata_export_type)text->export_type,
        .peers = peers,
        .peer_count = count,
        .all_peers = all,
    };
    return strata_pool_create(device, &options, out);
}

const strata_layer strata_pool_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "pool",
    .help = "memory in large pieces, handed out without a driver call",
    .options = pool_text_options,
    .option_count = sizeof pool_text_options / sizeof pool_text_options[0],
    .options_size = sizeof(pool_text),
    .create = make_pool,
    .in_sanitizer_mode = "direct",
    .over = true,
};
