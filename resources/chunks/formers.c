/* Former places: an array in which those of a chunk are linked, so that a chunk's latest is found in one step, and a
 * treap of all. There can be very many: each move of each chunk leaves one while the device is behind. */
#include "resources/chunks/formers.h"

#include "core/base/host_memory.h"

#include <string.h>

/* ---- numbers ---- */

/* Takes an unused number; 0 without host memory. */
static uint32_t take_number(pool_chunk_store *store)
{
    const uint32_t recycled = store->former_free;
    if (recycled) {
        store->former_free = pool_former_at(store, recycled)->links.left;
        return recycled;
    }
    if (store->former_end == store->former_capacity) {
        const uint32_t capacity = store->former_capacity ? 2 * store->former_capacity : 64;
        pool_former *larger = strata_host_zalloc(capacity * sizeof *larger);
        if (!larger)
            return 0;
        if (store->formers)
            memcpy(larger, store->formers, store->former_end * sizeof *larger);
        strata_host_free(store->formers);
        store->formers = larger;
        store->former_capacity = capacity;
    }
    return ++store->former_end;
}

/* ---- the order of points ---- */

typedef struct pool_former_key {
    strata_point point;
    CUdeviceptr address;
} pool_former_key;

static inline strata_treap_node *node_of(const void *store, uint32_t number)
{
    return &pool_former_at(store, number)->links;
}

static inline bool is_before(const void *store, uint32_t number, const void *than, strata_treap_node **node)
{
    pool_former *former = pool_former_at(store, number);
    const pool_former_key *key = than;
    *node = &former->links;
    return former->point != key->point ? former->point < key->point : former->address < key->address;
}

static const strata_treap_order by_point = {node_of, is_before};

static void enter(pool_chunk_store *store, uint32_t number)
{
    pool_former *former = pool_former_at(store, number);
    const pool_former_key key = {former->point, former->address};
    strata_treap_enter(&store->former_root, number, &former->links, &key, by_point, store);
}

static void leave(pool_chunk_store *store, uint32_t number)
{
    const pool_former *former = pool_former_at(store, number);
    const pool_former_key key = {former->point, former->address};
    strata_treap_leave(&store->former_root, number, &former->links, &key, by_point, store);
}

/* The first former place at or behind a point and an address; 0: none. */
static uint32_t find_from(const pool_chunk_store *store, strata_point point, CUdeviceptr address)
{
    return strata_treap_from(store->former_root, &(pool_former_key){point, address}, by_point, store);
}

void pool_formers_look(pool_chunk_store *store, bool (*is_complete)(strata_point point),
                       strata_point (*next)(void *data, uint32_t extent), void *data)
{
    strata_point from = 1;
    for (uint32_t number; (number = find_from(store, from, 0)) != 0;) {
        pool_former *former = pool_former_at(store, number);
        from = former->point;
        if (is_complete(from)) {
            leave(store, number);
            former->point = next(data, former->extent) & ~STRATA_POINT_WRITE;
            enter(store, number);
        } else {
            from = strata_point_make((uint16_t)(strata_point_timeline(from) + 1), 0);
        }
    }
}

uint32_t pool_formers_over(const pool_chunk_store *store, CUdeviceptr address)
{
    uint32_t number = find_from(store, 0, address);
    while (number && !pool_former_at(store, number)->point &&
           store->chunks[pool_former_at(store, number)->chunk].awaited)
        number = find_from(store, 0, pool_former_at(store, number)->address + 1);
    return number && !pool_former_at(store, number)->point ? number : 0;
}

/* ---- places ---- */

bool pool_formers_leave(pool_chunk_store *store, uint32_t chunk, uint32_t extent, strata_point point)
{
    pool_chunk *left = &store->chunks[chunk];
    const uint32_t number = take_number(store), earlier = left->former;
    if (!number)
        return false;
    *pool_former_at(store, number) = (pool_former){.address = left->address,
                                                   .point = point & ~STRATA_POINT_WRITE,
                                                   .chunk = chunk,
                                                   .extent = extent,
                                                   .earlier = earlier};
    enter(store, number);
    store->former_count++;
    if (earlier)
        pool_former_at(store, earlier)->later = number;
    left->former = number & POOL_CHUNK_FORMER;
    left->address = 0;
    left->in_hand = true;
    return true;
}

void pool_formers_forget(pool_chunk_store *store, uint32_t number)
{
    pool_former *former = pool_former_at(store, number);
    leave(store, number);
    if (former->later)
        pool_former_at(store, former->later)->earlier = former->earlier;
    else
        store->chunks[former->chunk].former = former->earlier & POOL_CHUNK_FORMER;
    if (former->earlier)
        pool_former_at(store, former->earlier)->later = former->later;
    *former = (pool_former){.links.left = store->former_free};
    store->former_free = number;
    store->former_count--;
}

uint32_t pool_formers_go_back(pool_chunk_store *store, uint32_t chunk)
{
    const uint32_t number = store->chunks[chunk].former;
    const pool_former latest = *pool_former_at(store, number);
    store->chunks[chunk].address = latest.address;
    store->chunks[chunk].in_hand = false;
    pool_formers_forget(store, number);
    return latest.extent;
}

CUresult pool_formers_unmap(pool_chunk_store *store, uint32_t number)
{
    const pool_former *former = pool_former_at(store, number);
    const CUresult result =
        store->source->unmap(store, former->address, pool_chunk_bytes(&store->chunks[former->chunk]));
    if (result == CUDA_SUCCESS)
        pool_formers_forget(store, number);
    return result;
}
