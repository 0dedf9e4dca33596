/* Options of the layer. */
#include "resources/budget/internal.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "resources/budget/shared.h"
#include "resources/builtin.h"

#include <string.h>

static strata_status check_options(const strata_budget_options *options)
{
    if ((unsigned)options->wait > STRATA_BUDGET_WAIT_LIVE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: invalid wait %d", (int)options->wait);
    if (options->shared_group && !options->shared)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: shared_group needs shared=NAME");
    if (options->timeout && options->wait != STRATA_BUDGET_WAIT_LIVE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: timeout needs wait=live");
    return STRATA_SUCCESS;
}

static const char *name_of(const strata_budget_options *options)
{
    return options->name ? options->name : options->shared ? options->shared : "budget";
}

/* Processes number devices differently: the file is named for the device's uuid. */
static strata_status open_shared(const strata_device *device, const strata_budget_options *options, budget_terms *terms)
{
    static const unsigned char unknown[sizeof device->info.uuid];
    const shared_terms shared = {options->shared, options->shared_group, device->info.uuid, terms->limit};
    if (memcmp(device->info.uuid, unknown, sizeof unknown) == 0)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "budget: shared=%s needs the uuid of device %d, which the driver does not give",
                           options->shared, device->ordinal);
    return shared_open(&shared, &terms->shared);
}

static strata_status make(int ordinal, const strata_budget_options *options, strata_resource **out)
{
    budget_terms terms = {0};
    strata_device *device;
    const strata_amount amounts[] = {options->limit, options->soft, options->soft_low};
    strata_status status = check_options(options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status == STRATA_SUCCESS)
        status = budget_read_terms(device, name_of(options), amounts, &terms);
    if (status != STRATA_SUCCESS)
        return status;
    budget *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a budget");
    if (options->shared && (status = open_shared(device, options, &terms)) != STRATA_SUCCESS) {
        strata_host_free(self);
        return status;
    }
    terms.soft_callback = options->soft_callback;
    terms.soft_data = options->soft_data;
    self->finds_deadlocks = options->wait == STRATA_BUDGET_WAIT_LIVE && !options->timeout && !options->shared;
    self->resource.ops = options->shared ? &budget_shared_ops : self->finds_deadlocks ? &budget_live_ops : &budget_ops;
    self->device = device;
    self->wait = options->wait;
    self->timeout = options->timeout;
    atomic_init(&self->special, (unsigned char)((terms.shared ? BUDGET_SHARED : 0) | (terms.soft ? BUDGET_MARKS : 0)));
    strata_per_thread_init(&self->thread_accounts, sizeof(budget_thread_account));
    strata_per_thread_take_number(&self->thread_accounts);
    strata_lock_init(&self->lock, STRATA_RANK_ACCOUNTS);
    strata_lock_init(&self->waiters_lock, STRATA_RANK_BUDGET_WAITERS);
    budget_account_init(&self->base, self, NULL, &terms);
    *out = &self->resource;
    return STRATA_SUCCESS;
}

strata_status strata_budget_create(int ordinal, const strata_budget_options *options, strata_resource **out)
{
    strata_budget_options read;
    strata_status status = strata_options_begin("budget", out, &read, sizeof read, options);
    return status == STRATA_SUCCESS ? make(ordinal, &read, out) : status;
}

/* Options with storage for the strings. */
typedef struct budget_text {
    strata_budget_options options;
    char name[256], shared[256], shared_group[256];
} budget_text;

static strata_status create_from_text(int ordinal, const void *text, strata_resource **out)
{
    const budget_text *from = text;
    strata_budget_options options = from->options;
    options.name = from->name[0] ? from->name : NULL;
    options.shared = from->shared[0] ? from->shared : NULL;
    options.shared_group = from->shared_group[0] ? from->shared_group : NULL;
    return strata_budget_create(ordinal, &options, out);
}

static const strata_option option_texts[] = {
    {"limit", STRATA_OPTION_LIMIT, offsetof(budget_text, options.limit), NULL, "hard limit"},
    {"soft", STRATA_OPTION_LIMIT, offsetof(budget_text, options.soft), NULL,
     "soft mark: above it a callback is called"},
    {"soft_low", STRATA_OPTION_LIMIT, offsetof(budget_text, options.soft_low), NULL,
     "below this the soft mark is armed again"},
    {"wait", STRATA_OPTION_CHOICE, offsetof(budget_text, options.wait), "retired|none|live",
     "what a request over the limit waits for"},
    {"timeout", STRATA_OPTION_DURATION, offsetof(budget_text, options.timeout), NULL, "longest wait, with wait=live"},
    {"name", STRATA_OPTION_NAME, offsetof(budget_text, name), NULL, "name in messages"},
    {"shared", STRATA_OPTION_NAME, offsetof(budget_text, shared), NULL, "one limit for all processes that name it"},
    {"shared_group", STRATA_OPTION_NAME, offsetof(budget_text, shared_group), NULL, "group whose users may share it"},
};

const strata_layer strata_budget_layer = {
    .size = sizeof(strata_layer),
    .name = "budget",
    .help = "a hard limit in bytes",
    .options = option_texts,
    .option_count = sizeof option_texts / sizeof option_texts[0],
    .options_size = sizeof(budget_text),
    .create = create_from_text,
};
