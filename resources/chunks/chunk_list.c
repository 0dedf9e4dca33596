/* Lists of chunks. */
#include "resources/chunks/chunk_list.h"

#include "core/base/host_memory.h"

#include <string.h>

bool pool_chunk_list_add(pool_chunk_list *chunks, const pool_chunk_store *store, uint32_t number)
{
    if (chunks->count == chunks->capacity) {
        const size_t capacity = chunks->capacity ? 2 * chunks->capacity : 16;
        uint32_t *larger = strata_host_zalloc(capacity * sizeof *larger);
        if (!larger)
            return false;
        if (chunks->count)
            memcpy(larger, chunks->numbers, chunks->count * sizeof *larger);
        strata_host_free(chunks->numbers);
        chunks->numbers = larger;
        chunks->capacity = capacity;
    }
    chunks->numbers[chunks->count++] = number;
    chunks->bytes += pool_chunk_bytes(&store->chunks[number]);
    return true;
}

void pool_chunks_sort(const pool_chunk_store *store, uint32_t *numbers, size_t count)
{
    const pool_chunk *chunks = store->chunks;
    for (size_t i = 1; i < count; i++) {
        const uint32_t number = numbers[i];
        size_t at = i;
        for (; at && chunks[numbers[at - 1]].address < chunks[number].address; at--)
            numbers[at] = numbers[at - 1];
        numbers[at] = number;
    }
}

size_t pool_chunks_run(const pool_chunk_store *store, const uint32_t *numbers, size_t count, uint64_t *bytes)
{
    const pool_chunk *chunks = store->chunks;
    size_t length = 1;
    *bytes = pool_chunk_bytes(&chunks[numbers[0]]);
    for (; length < count && pool_behind_chunk(&chunks[numbers[length]]) == chunks[numbers[length - 1]].address;
         length++)
        *bytes += pool_chunk_bytes(&chunks[numbers[length]]);
    return length;
}
