/* Names of tags: interned once, numbered from 1, kept for the life of the process. */
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"

#include <string.h>

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

enum { TAG_CHUNK = 256, TAG_CHUNKS = 4096, TAG_NAME_LIMIT = 255 };

typedef struct tag_name {
    strata_tag tag;
    UT_hash_handle hh;
    char name[];
} tag_name;

static strata_lock tags_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_TAGS);
static tag_name *by_name;   /* guarded by tags_lock */
static strata_tag last_tag; /* guarded by tags_lock */

/* By number; read without a lock, chunks and names are set once. */
static _Atomic(_Atomic(const tag_name *) *) chunks[TAG_CHUNKS];

static _Thread_local strata_tag entered; /* the thread's tag */

static strata_status refuse_name(const char *name)
{
    if (!name)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_tag_intern: name is NULL");
    if (strlen(name) > TAG_NAME_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "a tag's name has at most %d bytes; this one starts with \"%.32s\"", TAG_NAME_LIMIT, name);
    return STRATA_SUCCESS;
}

/* tags_lock is held. 0 without memory. */
static strata_tag add_tag(const char *name, size_t length)
{
    strata_tag tag = last_tag + 1;
    if (tag >= TAG_CHUNK * TAG_CHUNKS)
        return 0;
    _Atomic(const tag_name *) *chunk = atomic_load_explicit(&chunks[tag / TAG_CHUNK], memory_order_relaxed);
    if (!chunk) {
        chunk = strata_host_zalloc(TAG_CHUNK * sizeof *chunk);
        if (!chunk)
            return 0;
        atomic_store_explicit(&chunks[tag / TAG_CHUNK], chunk, memory_order_release);
    }
    tag_name *entry = strata_host_zalloc(sizeof *entry + length + 1);
    if (!entry)
        return 0;
    entry->tag = tag;
    memcpy(entry->name, name, length);
    HASH_ADD_KEYPTR(hh, by_name, entry->name, length, entry);
    if (!entry->hh.tbl) {
        strata_host_free(entry);
        return 0;
    }
    atomic_store_explicit(&chunk[tag % TAG_CHUNK], entry, memory_order_release);
    last_tag = tag;
    return tag;
}

strata_status strata_tag_intern(const char *name, strata_tag *tag)
{
    if (!tag)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_tag_intern: tag is NULL");
    *tag = 0;
    strata_status status = refuse_name(name);
    if (status == STRATA_SUCCESS)
        status = strata_check_not_forked();
    if (status != STRATA_SUCCESS || !*name)
        return status;
    size_t length = strlen(name);
    tag_name *entry = NULL;
    strata_lock_take(&tags_lock);
    HASH_FIND(hh, by_name, name, length, entry);
    *tag = entry ? entry->tag : add_tag(name, length);
    strata_lock_release(&tags_lock);
    return *tag ? STRATA_SUCCESS : strata_fail_host_memory("a tag's name");
}

const char *strata_tag_name(strata_tag tag)
{
    if (tag == 0 || tag >= TAG_CHUNK * TAG_CHUNKS)
        return "";
    _Atomic(const tag_name *) *chunk = atomic_load_explicit(&chunks[tag / TAG_CHUNK], memory_order_acquire);
    const tag_name *entry = chunk ? atomic_load_explicit(&chunk[tag % TAG_CHUNK], memory_order_acquire) : NULL;
    return entry ? entry->name : "";
}

strata_status strata_tag_enter(strata_tag tag, strata_tag *previous)
{
    if (previous)
        *previous = entered;
    entered = tag;
    return STRATA_SUCCESS;
}

strata_tag strata_tag_current(void)
{
    return entered;
}
