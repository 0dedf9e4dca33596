/* Counting the captures, graphs and registrations that keep a block. */
#include "runtime/kept_blocks.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

typedef struct strata_kept_block {
    uint32_t slot;
    uint32_t count, refusing; /* captures, graphs and registrations that keep it; graphs that refuse its free */
    uint32_t registered;      /* of `count`: registrations */
    const char *library;      /* of the last registration; static */
    bool freed;               /* by the program */
    bool marked;              /* kept before it came here: a pool's block, whose mark stays */
    uint64_t round;           /* in which its free was tried last */
    struct strata_kept_block *next_due;
    strata_block block;
    UT_hash_handle hh;
} kept_block;

static kept_block *find(const strata_kept_blocks *kept, strata_block_id id)
{
    kept_block *one;
    HASH_FIND(hh, kept->by_slot, &id.slot, sizeof id.slot, one);
    return one && one->block.id.generation == id.generation && one->block.id.table == id.table ? one : NULL;
}

static kept_block *find_due(const strata_kept_blocks *kept, strata_block_id id)
{
    kept_block *one = kept->due;
    while (one && (one->block.id.slot != id.slot || one->block.id.generation != id.generation ||
                   one->block.id.table != id.table))
        one = one->next_due;
    return one;
}

static kept_block *add(strata_kept_blocks *kept, const strata_block *block)
{
    kept_block *one = strata_host_zalloc(sizeof *one);
    if (!one)
        return NULL;
    one->slot = block->id.slot;
    one->block = *block;
    HASH_ADD(hh, kept->by_slot, slot, sizeof one->slot, one);
    if (one->hh.tbl)
        return one;
    strata_host_free(one);
    return NULL;
}

static void erase(strata_kept_blocks *kept, kept_block *one)
{
    HASH_DEL(kept->by_slot, one);
    strata_host_free(one);
}

strata_status strata_kept_add(strata_kept_blocks *kept, const strata_table *table, const strata_block *block)
{
    kept_block *one = find(kept, block->id);
    if (strata_kept_is_freed(kept, block->id))
        return strata_block_refuse(table, block, STRATA_ERROR_USE_AFTER_FREE);
    if (!one) {
        one = add(kept, block);
        if (!one)
            return strata_fail_host_memory("a block of a graph");
        strata_entry *entry = strata_table_lookup(table, block->id);
        one->marked = strata_block_is_kept(table, block);
        if (!entry || !strata_entry_keep(entry, block->id.generation)) {
            erase(kept, one);
            return strata_block_refuse(table, block, STRATA_ERROR_USE_AFTER_FREE);
        }
    }
    one->count++;
    return STRATA_SUCCESS;
}

void strata_kept_add_again(strata_kept_blocks *kept, const strata_block *block)
{
    find(kept, block->id)->count++;
}

static void unmark(const kept_block *one, const strata_table *table)
{
    strata_entry *entry = strata_table_lookup(table, one->block.id);
    if (entry && !one->marked)
        strata_entry_unkeep(entry, one->block.id.generation);
}

kept_block *strata_kept_drop(strata_kept_blocks *kept, const strata_table *table, const strata_block *block)
{
    kept_block *one = find(kept, block->id);
    if (!one || --one->count)
        return NULL;
    unmark(one, table);
    if (!one->freed) {
        erase(kept, one);
        return NULL;
    }
    HASH_DEL(kept->by_slot, one);
    return one;
}

const strata_block *strata_kept_block_of(const kept_block *dropped)
{
    return &dropped->block;
}

void strata_kept_settle(strata_kept_blocks *kept, const strata_table *table, kept_block *dropped, bool freed)
{
    if (freed) {
        strata_host_free(dropped);
        return;
    }
    strata_entry *entry = strata_table_lookup(table, dropped->block.id);
    if (entry && !dropped->marked)
        strata_entry_keep(entry, dropped->block.id.generation);
    dropped->round = kept->rounds;
    dropped->next_due = kept->due;
    kept->due = dropped;
}

bool strata_kept_add_due(strata_kept_blocks *kept, const strata_table *table, const strata_block *block)
{
    kept_block *one = strata_host_zalloc(sizeof *one);
    if (!one)
        return false;
    one->block = *block;
    one->freed = true;
    one->marked = strata_block_is_kept(table, block);
    strata_kept_settle(kept, table, one, false);
    return true;
}

kept_block *strata_kept_next_due(strata_kept_blocks *kept, const strata_table *table, uint64_t round)
{
    kept_block **link = &kept->due;
    while (*link && (*link)->round >= round)
        link = &(*link)->next_due;
    kept_block *one = *link;
    if (!one)
        return NULL;
    *link = one->next_due;
    unmark(one, table);
    return one;
}

void strata_kept_refuse(strata_kept_blocks *kept, const strata_block *block, bool refuse)
{
    kept_block *one = find(kept, block->id);
    if (one)
        one->refusing = refuse ? one->refusing + 1 : one->refusing - 1;
}

void strata_kept_register(strata_kept_blocks *kept, const strata_block *block, const char *library)
{
    kept_block *one = find(kept, block->id);
    one->registered++;
    one->library = library;
}

void strata_kept_unregister(strata_kept_blocks *kept, const strata_block *block)
{
    find(kept, block->id)->registered--;
}

bool strata_kept_has(const strata_kept_blocks *kept, strata_block_id id)
{
    return find(kept, id) || find_due(kept, id);
}

bool strata_kept_is_freed(const strata_kept_blocks *kept, strata_block_id id)
{
    const kept_block *one = find(kept, id);
    return one ? one->freed : find_due(kept, id) != NULL;
}

static __attribute__((cold)) strata_status refuse_registered(const kept_block *one)
{
    const strata_block *block = &one->block;
    strata_error *error = strata_block_error(STRATA_ERROR_BLOCK_IN_USE, block);
    return strata_error_raise(error,
                              "block 0x%llx (tag \"%s\", generation %llu) is registered with %s; deregister it before "
                              "the free",
                              (unsigned long long)block->address, strata_tag_name(block->tag),
                              (unsigned long long)block->id.generation, one->library);
}

strata_status strata_kept_free(strata_kept_blocks *kept, const strata_table *table, const strata_block *block,
                               bool *found)
{
    kept_block *one = find(kept, block->id);
    *found = strata_kept_has(kept, block->id);
    if (!*found)
        return STRATA_SUCCESS;
    if (!one || one->freed)
        return strata_block_refuse(table, block, STRATA_ERROR_DOUBLE_FREE);
    strata_status status = strata_check_block_facts(&one->block, block);
    if (status == STRATA_SUCCESS && one->registered)
        return refuse_registered(one);
    if (status == STRATA_SUCCESS && one->refusing) {
        strata_error *error = strata_block_error(STRATA_ERROR_BLOCK_IN_USE, block);
        status = strata_error_raise(error,
                                    "block 0x%llx (tag \"%s\", generation %llu) is used by a graph that refuses frees; "
                                    "destroy the graph before the free",
                                    (unsigned long long)block->address, strata_tag_name(block->tag),
                                    (unsigned long long)block->id.generation);
    }
    one->freed = status == STRATA_SUCCESS;
    return status;
}
