/* The staging area: slots of two sizes, so that many small copies are under way at once, and large ones go in chunks
 * that are filled while others are on their way. */
#include "service/isolated/isolated.h"

enum { LARGE_BEGIN = STAGING_SMALL_COUNT * STAGING_SMALL };

strata_status isolated_staging_open(isolated_staging *staging)
{
    const strata_status status =
        isolated_memory_make(LARGE_BEGIN + (size_t)STAGING_LARGE_COUNT * STAGING_LARGE, &staging->memory);
    if (status != STRATA_SUCCESS)
        return status;
    for (uint16_t i = 0; i < STAGING_SMALL_COUNT; i++)
        staging->free_small[i] = i;
    for (uint16_t i = 0; i < STAGING_LARGE_COUNT; i++)
        staging->free_large[i] = (uint16_t)(STAGING_SMALL_COUNT + i);
    staging->small_count = STAGING_SMALL_COUNT;
    staging->large_count = STAGING_LARGE_COUNT;
    return STRATA_SUCCESS;
}

void isolated_staging_close(isolated_staging *staging)
{
    if (staging->memory.bytes)
        isolated_memory_close(&staging->memory);
    *staging = (isolated_staging){.memory.fd = -1};
}

int isolated_staging_take(isolated_staging *staging, size_t bytes, size_t *taken)
{
    if (bytes <= STAGING_SMALL && staging->small_count) {
        *taken = bytes;
        return staging->free_small[--staging->small_count];
    }
    if (!staging->large_count)
        return NO_SLOT;
    *taken = bytes < STAGING_LARGE ? bytes : STAGING_LARGE;
    return staging->free_large[--staging->large_count];
}

void isolated_staging_give(isolated_staging *staging, int slot)
{
    if (slot < STAGING_SMALL_COUNT)
        staging->free_small[staging->small_count++] = (uint16_t)slot;
    else
        staging->free_large[staging->large_count++] = (uint16_t)slot;
}

size_t isolated_staging_offset(int slot)
{
    return slot < STAGING_SMALL_COUNT ? (size_t)slot * STAGING_SMALL
                                      : LARGE_BEGIN + (size_t)(slot - STAGING_SMALL_COUNT) * STAGING_LARGE;
}
