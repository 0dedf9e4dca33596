/* The default hooks: a checker that is off. */
#include "order/order.h"

static void no_host_function(const sim_op *op)
{
    (void)op;
}

static sim_made no_made(void)
{
    return (sim_made){0};
}

static void no_access(sim_op *op, uint64_t address, uint64_t bytes, sim_access_kind kind)
{
    (void)op;
    (void)address;
    (void)bytes;
    (void)kind;
}

static void no_block(sim_block *block)
{
    (void)block;
}

static sim_access_record *no_record(void)
{
    return NULL;
}

static void no_free(sim_block *block, sim_access_record *asked)
{
    (void)block;
    (void)asked;
}

static void no_failed_free(sim_access_record *asked)
{
    (void)asked;
}

static bool no_pages(void)
{
    return false;
}

static bool no_watch(sim_block *block, uint64_t bytes)
{
    (void)block;
    (void)bytes;
    return false;
}

static const sim_check_hooks off = {
    .host_function = no_host_function,
    .made = no_made,
    .access = no_access,
    .allocated = no_block,
    .freed_now = no_block,
    .forget = no_block,
    .hidden = no_block,
    .written = no_block,
    .free_asked = no_record,
    .freed_after = no_free,
    .free_failed = no_failed_free,
    .watches_pages = no_pages,
    .watch = no_watch,
    .unwatch = no_block,
};

sim_hook_tables sim_hooks = {.check = &off};
