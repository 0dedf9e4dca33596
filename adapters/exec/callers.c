/* Which library asked: memory is tagged with its name.
 *
 * The hook's return address lies in the library that called the driver. If that is the CUDA runtime's shared library,
 * and there will be a report, the stack is walked to the library that called the runtime. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <string.h>

enum { CACHE = 1024, MOST_TAGS = 256, TAG_BITS = 0x7fff, RUNTIME_BIT = 0x8000 };

/* The tags of return addresses, each in the entry that a hash of the address names: the address in the upper 48 bits,
 * then a bit for the CUDA runtime's library, then the tag in 15 bits. Any thread; an entry that another thread replaces
 * is looked up again. */
static _Atomic uint64_t cache[CACHE];
static _Atomic bool is_cached;       /* there is an entry */
static _Atomic unsigned generations; /* of what is loaded */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static strata_tag given[MOST_TAGS]; /* guarded by the lock */
static size_t given_count;          /* guarded by the lock */

static void remember(strata_tag tag)
{
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < given_count && given[i] != tag)
        i++;
    if (i == given_count && given_count < MOST_TAGS)
        given[given_count++] = tag;
    pthread_mutex_unlock(&lock);
}

/* The file name of the object that has the address. NULL: none has. */
static const char *object_name(const void *address)
{
    Dl_info where;
    if (!dladdr(address, &where) || !where.dli_fname)
        return NULL;
    const char *slash = strrchr(where.dli_fname, '/');
    return slash ? slash + 1 : where.dli_fname;
}

static bool is_runtime(const char *name)
{
    return strncmp(name, "libcudart", 9) == 0;
}

static strata_tag tag_of_object(const char *name)
{
    strata_tag tag = 0;
    if (!name || strata_tag_intern(name, &tag) != STRATA_SUCCESS)
        return 0;
    remember(tag);
    return tag;
}

typedef struct found_tag {
    strata_tag tag;
    bool of_runtime; /* the library is the CUDA runtime's */
} found_tag;

static found_tag cached(const void *address);

/* Returns the tag of the nearest frame outside of the CUDA runtime and of this library; with `seen` false, only of
 * frames behind the runtime's. 0: there is none. */
static strata_tag walk(bool seen)
{
    enum { FRAMES = 24 };
    void *frames[FRAMES];
    const int count = backtrace(frames, FRAMES);
    for (int i = 0; i < count; i++) {
        const char *name = exec_is_own_code(frames[i]) ? NULL : object_name(frames[i]);
        if (name && is_runtime(name))
            seen = true;
        else if (name && seen)
            return cached(frames[i]).tag;
    }
    return 0;
}

/* Hooked to empty the cache: another library may be loaded at the addresses of the one that is closed. */
EXEC_EXPORT int dlclose(void *handle)
{
    static _Atomic(int (*)(void *)) real; /* the loader's; set once, by any thread to the same */
    int (*close)(void *) = atomic_load_explicit(&real, memory_order_relaxed);
    if (!close) {
        void *found = exec_loader_dlsym(RTLD_NEXT, "dlclose");
        memcpy(&close, &found, sizeof close);
        atomic_store_explicit(&real, close, memory_order_relaxed);
    }
    const int result = close(handle);
    atomic_fetch_add(&generations, 1);
    if (atomic_exchange(&is_cached, false))
        for (size_t i = 0; i < CACHE; i++)
            atomic_store_explicit(&cache[i], 0, memory_order_relaxed);
    return result;
}

/* Apart from the look at the entry: each call would save the registers of this. */
static __attribute__((noinline)) found_tag look_up(const void *address, uint64_t key, _Atomic uint64_t *entry)
{
    const unsigned generation = atomic_load(&generations);
    const char *name = object_name(address);
    const found_tag found = {tag_of_object(name), name && is_runtime(name)};
    if (found.tag > TAG_BITS || generation != atomic_load(&generations))
        return found;
    atomic_store(&is_cached, true);
    atomic_store_explicit(entry, key | (found.of_runtime ? RUNTIME_BIT : 0) | found.tag, memory_order_relaxed);
    return found;
}

static inline found_tag cached(const void *address)
{
    const uint64_t key = (uint64_t)(uintptr_t)address << 16;
    _Atomic uint64_t *entry = &cache[((uintptr_t)address >> 2 ^ (uintptr_t)address >> 12) % CACHE];
    const uint64_t known = atomic_load_explicit(entry, memory_order_relaxed);
    if (__builtin_expect(known >> 16 == key >> 16 && known, 1))
        return (found_tag){(strata_tag)(known & TAG_BITS), known & RUNTIME_BIT};
    return look_up(address, key, entry);
}

strata_tag exec_caller_tag(const void *address)
{
    const found_tag nearest = cached(address);
    if (!nearest.of_runtime || exec_settings_now.report == EXEC_REPORT_NONE)
        return nearest.tag;
    const strata_tag tag = walk(false);
    return tag ? tag : nearest.tag;
}

strata_tag exec_caller_walk(void)
{
    return walk(true);
}

void exec_caller_visit(void (*visit)(strata_tag tag, void *data), void *data)
{
    strata_tag tags[MOST_TAGS];
    pthread_mutex_lock(&lock);
    const size_t count = given_count;
    memcpy(tags, given, count * sizeof tags[0]);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < count; i++)
        visit(tags[i], data);
}
