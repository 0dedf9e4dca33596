/* Bytes by tag, for display. */
#include "resources/budget/shared_internal.h"

#include "core/base/escape.h"

#include <string.h>

/* Finds or enters a tag's name in the slot. Names are written once, under shared->lock. */
static uint32_t find_tag_index(budget_shared *shared, strata_tag tag)
{
    shared_tag *tags = shared_slot_of(shared)->tags;
    char name[SHARED_TAG_NAME] = "";
    memcpy(name, strata_tag_name(tag), strata_text_cut(strata_tag_name(tag), SHARED_TAG_NAME - 1));
    uint32_t at = 1;
    strata_lock_take(&shared->lock);
    while (at < SHARED_TAGS - 1 && tags[at].name[0] && strcmp(tags[at].name, name) != 0)
        at++;
    if (!tags[at].name[0])
        strcpy(tags[at].name, at < SHARED_TAGS - 1 ? name : "others");
    strata_lock_release(&shared->lock);
    if (tag < TAG_INDEXES)
        atomic_store_explicit(&shared->tag_indexes[tag], (unsigned char)at, memory_order_relaxed);
    return at;
}

uint32_t shared_tag_index(budget_shared *shared, strata_tag tag)
{
    if (!tag)
        return 0;
    uint32_t index = tag < TAG_INDEXES ? atomic_load_explicit(&shared->tag_indexes[tag], memory_order_relaxed) : 0;
    return index ? index : find_tag_index(shared, tag);
}

void shared_count_tag(budget_shared *shared, uint32_t index, int64_t bytes)
{
    atomic_fetch_add_explicit(&shared_slot_of(shared)->tags[index].in_use, (uint64_t)bytes, memory_order_relaxed);
}
