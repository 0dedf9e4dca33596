/* Call stacks by hash, in chains that grow at their heads: a lookup takes no lock, an insertion does. libunwind walks a
 * stack several times as fast as the C library, and is opened at run time if present. A walk takes a lock of the loader
 * (dl_iterate_phdr) that glibc does not free in a forked child, which would wait for ever in dlopen: no child is forked
 * in the middle of one. */
#include "core/base/call_stack.h"

#include "core/base/call_stack_names.h"
#include "core/base/cancel.h"
#include "core/base/fork_wait.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum {
    OWN_FRAMES = 16,     /* most frames that are skipped or the library's */
    CHAINS = 1 << 14,    /* a power of two */
    NUMBER_CHUNK = 1024, /* stacks */
    NUMBER_CHUNKS = 1024,
};

/* Constant after it is published. */
typedef struct call_stack {
    uint64_t hash;
    struct call_stack *next;
    uint32_t number;
    uint32_t depth;
    void *frames[];
} call_stack;

static _Atomic(call_stack *) chains[CHAINS]; /* heads change under depot_lock */

/* By number. Chunks and entries are set once, under depot_lock. */
static _Atomic(_Atomic(const call_stack *) *) chunks[NUMBER_CHUNKS];

static strata_lock depot_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_CALL_STACKS);
static uint32_t last_number; /* guarded by depot_lock */

/* ---- walking ---- */

/* Written once, by prepare(). */
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static int (*walk)(void **frames, int most);
static uintptr_t own_begin, own_end; /* the shared library's code; equal with static linking */

static bool contains(const struct dl_phdr_info *info, uintptr_t address, uintptr_t *begin, uintptr_t *end)
{
    *begin = UINTPTR_MAX;
    *end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        *begin = at < *begin ? at : *begin;
        *end = at + info->dlpi_phdr[i].p_memsz > *end ? at + info->dlpi_phdr[i].p_memsz : *end;
    }
    return address >= *begin && address < *end;
}

/* With static linking the library's frames cannot be told from the program's. */
static int find_own(struct dl_phdr_info *info, size_t bytes, void *data)
{
    (void)bytes, (void)data;
    uintptr_t begin, end;
    if (!contains(info, (uintptr_t)(void *)&last_number, &begin, &end))
        return 0;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    if (strncmp(name, "libstrata.", 10) == 0 || strncmp(name, "libstrata-exec.", 15) == 0) {
        own_begin = begin;
        own_end = end;
    }
    return 1;
}

/* At a thread's end, libunwind frees its data after the thread sanitizer has left the thread. */
static bool libunwind_is_safe(void)
{
#if defined(__SANITIZE_THREAD__)
    return false;
#elif defined(__has_feature)
    return !__has_feature(thread_sanitizer);
#else
    return true;
#endif
}

static void prepare(void)
{
    void *library = libunwind_is_safe() ? dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL) : NULL;
    void *found = library ? dlsym(library, "unw_backtrace") : NULL;
    walk = backtrace;
    if (found)
        memcpy(&walk, &found, sizeof found);
    dl_iterate_phdr(find_own, NULL);
}

static bool is_own(const void *frame)
{
    return (uintptr_t)frame >= own_begin && (uintptr_t)frame < own_end;
}

/* ---- the depot ---- */

static uint64_t hash_of(void *const *frames, size_t depth)
{
    uint64_t hash = depth;
    for (size_t i = 0; i < depth; i++) {
        hash = (hash ^ (uintptr_t)frames[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

static uint32_t find(const call_stack *in, void *const *frames, size_t depth, uint64_t hash)
{
    for (; in; in = in->next)
        if (in->hash == hash && in->depth == depth && memcmp(in->frames, frames, depth * sizeof *frames) == 0)
            return in->number;
    return 0;
}

static bool enter_number(const call_stack *stack)
{
    _Atomic(_Atomic(const call_stack *) *) *chunk = &chunks[stack->number / NUMBER_CHUNK];
    _Atomic(const call_stack *) *places = atomic_load_explicit(chunk, memory_order_relaxed);
    if (!places) {
        places = strata_host_zalloc(NUMBER_CHUNK * sizeof *places);
        if (!places)
            return false;
        atomic_store_explicit(chunk, places, memory_order_release);
    }
    atomic_store_explicit(&places[stack->number % NUMBER_CHUNK], stack, memory_order_release);
    return true;
}

/* depot_lock is held. */
static uint32_t add(_Atomic(call_stack *) *chain, void *const *frames, size_t depth, uint64_t hash)
{
    if (last_number + 1 == NUMBER_CHUNK * NUMBER_CHUNKS)
        return 0;
    call_stack *stack = strata_host_zalloc(sizeof *stack + depth * sizeof *frames);
    if (!stack)
        return 0;
    stack->hash = hash;
    stack->number = last_number + 1;
    stack->depth = (uint32_t)depth;
    stack->next = atomic_load_explicit(chain, memory_order_relaxed);
    memcpy(stack->frames, frames, depth * sizeof *frames);
    if (!enter_number(stack)) {
        strata_host_free(stack);
        return 0;
    }
    atomic_store_explicit(chain, stack, memory_order_release);
    return ++last_number;
}

static uint32_t number_of(void *const *frames, size_t depth)
{
    uint64_t hash = hash_of(frames, depth);
    _Atomic(call_stack *) *chain = &chains[hash & (CHAINS - 1)];
    uint32_t number = find(atomic_load_explicit(chain, memory_order_acquire), frames, depth, hash);
    if (number)
        return number;
    strata_lock_take(&depot_lock);
    number = find(atomic_load_explicit(chain, memory_order_relaxed), frames, depth, hash);
    if (!number)
        number = add(chain, frames, depth, hash);
    strata_lock_release(&depot_lock);
    return number;
}

/* ---- capturing ---- */

static _Atomic(strata_call_stack_source *) interpreter; /* any thread */

void strata_call_stack_set_source(strata_call_stack_source *source)
{
    atomic_store_explicit(&interpreter, source, memory_order_release);
}

void *strata_call_stack_text_frame(const char *text)
{
    return (void *)((uintptr_t)text | STRATA_CALL_STACK_TEXT); /* NOLINT: no address of code */
}

/* A walker may start with frames of its own or of a sanitizer. */
static size_t frame_of(const void *caller, void *const *frames, size_t depth)
{
    for (size_t i = 0; i < depth && i < OWN_FRAMES; i++)
        if (frames[i] == caller)
            return i;
    return 0;
}

/* The frames from *first on, behind the library's own. */
static inline __attribute__((always_inline)) size_t walk_from(const void *caller, unsigned skip, void **frames,
                                                              size_t *first)
{
    int walked = walk(frames, STRATA_CALL_STACK_DEPTH + OWN_FRAMES);
    size_t depth = walked > 0 ? (size_t)walked : 0;
    *first = frame_of(caller, frames, depth) + skip;
    while (*first < depth && is_own(frames[*first]))
        ++*first;
    if (*first >= depth)
        return 0;
    depth -= *first;
    depth = depth < STRATA_CALL_STACK_DEPTH ? depth : STRATA_CALL_STACK_DEPTH;
    strata_call_stack_source *source = atomic_load_explicit(&interpreter, memory_order_acquire);
    return source ? source(frames + *first, depth, STRATA_CALL_STACK_DEPTH) : depth;
}

__attribute__((noinline)) uint32_t strata_call_stack_capture(unsigned skip)
{
    void *frames[STRATA_CALL_STACK_DEPTH + OWN_FRAMES];
    size_t first;
    const int cancel = strata_cancel_forbid(); /* a walk reads by system calls that a thread can be ended in */
    const strata_fork_hold hold = strata_fork_hold_begin();
    pthread_once(&prepared, prepare);
    const size_t depth = walk_from(__builtin_return_address(0), skip, frames, &first);
    strata_fork_hold_end(hold);
    strata_cancel_restore(cancel);
    return depth ? number_of(frames + first, depth) : 0;
}

void strata_call_stack_print(uint32_t number, void (*line)(const char *text, void *data), void *data)
{
    if (!number || number >= NUMBER_CHUNK * NUMBER_CHUNKS)
        return;
    _Atomic(const call_stack *) *places = atomic_load_explicit(&chunks[number / NUMBER_CHUNK], memory_order_acquire);
    const call_stack *stack =
        places ? atomic_load_explicit(&places[number % NUMBER_CHUNK], memory_order_acquire) : NULL;
    for (size_t i = 0; stack && i < stack->depth; i++) {
        char text[512];
        strata_call_stack_name(stack->frames[i], text, sizeof text);
        line(text, data);
    }
}
