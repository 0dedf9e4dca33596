/* dlsym and dlvsym, in front of the loader's.
 *
 * A name that is not hooked, and every RTLD_NEXT, goes to the loader by a tail call, so that the loader sees the
 * program's own return address: RTLD_NEXT means "behind the caller". A hooked name is looked up first, with the
 * program's handle; the hook is handed out only if that found something. No lock and no host memory of this library.
 *
 * The loader's own dlsym cannot be asked for with dlsym, which is hooked: it is read from the C library's table of
 * symbols. Since glibc 2.34 there are two versions of it, of which the default one is taken. */
#define _GNU_SOURCE
#include "adapters/exec/hooks.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

static _Atomic(dlsym_function *) loader_dlsym; /* set once, by whichever thread comes first, to the same */
static _Atomic(dlvsym_function *) loader_dlvsym;

/* ---- the C library's table of symbols ---- */

typedef struct symbol_tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Versym) * versions;
    const uint32_t *gnu_hash;
} symbol_tables;

static symbol_tables read_dynamic(const struct link_map *object)
{
    symbol_tables tables = {0};
    for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++) {
        ElfW(Addr) address = entry->d_un.d_ptr; /* glibc has relocated it, other loaders may not */
        if (address < object->l_addr)
            address += object->l_addr;
        if (entry->d_tag == DT_SYMTAB)
            tables.symbols = (const void *)address;
        else if (entry->d_tag == DT_STRTAB)
            tables.strings = (const void *)address;
        else if (entry->d_tag == DT_VERSYM)
            tables.versions = (const void *)address;
        else if (entry->d_tag == DT_GNU_HASH)
            tables.gnu_hash = (const void *)address;
    }
    return tables;
}

/* Without strcmp, which a sanitizer replaces. */
static bool is_same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

static bool is_default(const symbol_tables *tables, uint32_t symbol)
{
    return !tables->versions || !(tables->versions[symbol] & 0x8000); /* the bit: hidden, an old version */
}

/* The address of a defined function, by the GNU hash table. 0: none. */
static ElfW(Addr) find_symbol(const symbol_tables *tables, const char *name)
{
    if (!tables->symbols || !tables->strings || !tables->gnu_hash)
        return 0;
    const uint32_t buckets = tables->gnu_hash[0], first = tables->gnu_hash[1], bloom = tables->gnu_hash[2];
    const uint32_t *bucket = tables->gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    uint32_t hash = 5381;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        hash = hash * 33 + *c;
    uint32_t symbol = bucket[hash % buckets];
    if (symbol < first)
        return 0;
    for (;; symbol++) {
        const uint32_t link = chain[symbol - first];
        const ElfW(Sym) *found = &tables->symbols[symbol];
        if ((link | 1) == (hash | 1) && found->st_value && is_default(tables, symbol) &&
            is_same(tables->strings + found->st_name, name))
            return found->st_value;
        if (link & 1)
            return 0;
    }
}

/* "libc.so.6", "libc-2.31.so", "libdl.so.2", in any folder. */
static bool is_c_library(const char *path)
{
    const char *name = path;
    for (; *path; path++)
        if (*path == '/')
            name = path + 1;
    return name[0] == 'l' && name[1] == 'i' && name[2] == 'b' &&
           ((name[3] == 'c' && (name[4] == '.' || name[4] == '-')) ||
            (name[3] == 'd' && name[4] == 'l' && name[5] == '.'));
}

/* The loader's list is read without a call, which a sanitizer or the program may have replaced: a look-up can be the
 * first thing that happens in a process. */
static __attribute__((noinline, cold)) void find_loader(void)
{
    for (const struct link_map *object = _r_debug.r_map; object; object = object->l_next) {
        if (!is_c_library(object->l_name))
            continue;
        const symbol_tables tables = read_dynamic(object);
        const ElfW(Addr) get = find_symbol(&tables, "dlsym"), get_version = find_symbol(&tables, "dlvsym");
        if (!get || !get_version)
            continue;
        atomic_store_explicit(&loader_dlvsym, (dlvsym_function *)(object->l_addr + get_version), memory_order_relaxed);
        atomic_store_explicit(&loader_dlsym, (dlsym_function *)(object->l_addr + get), memory_order_release);
        return;
    }
    __builtin_trap(); /* a C library without dlsym: there is nothing to hand on to */
}

static inline dlsym_function *real_dlsym(void)
{
    dlsym_function *real = atomic_load_explicit(&loader_dlsym, memory_order_acquire);
    if (__builtin_expect(!real, 0)) {
        find_loader();
        real = atomic_load_explicit(&loader_dlsym, memory_order_acquire);
    }
    return real;
}

void *exec_loader_dlsym(void *handle, const char *name)
{
    return real_dlsym()(handle, name);
}

/* References to dlsym in this library, which is linked with --wrap=dlsym. */
void *__wrap_dlsym(void *handle, const char *name) __attribute__((alias("exec_loader_dlsym")));

/* ---- the hooked functions ---- */

extern const char __ehdr_start[], _end[]; /* by the linker, of this library */

bool exec_is_own_code(const void *address)
{
    return (const char *)address >= __ehdr_start && (const char *)address < _end;
}

/* What a look-up of a hooked name answers. `found` is this library's own symbol where the program asked for any
 * library's: then there must be a real one, too. */
static void *put_hook(exec_hook hook, void *found)
{
    exec_function real = NULL;
    if (found && exec_is_own_code(found))
        return exec_hook_real(hook) ? found : NULL;
    memcpy(&real, &found, sizeof real);
    if (!real)
        return NULL;
    if (exec_hook_found(hook, real))
        memcpy(&found, &exec_hook_rows[hook].hook, sizeof found);
    return found;
}

static __attribute__((noinline)) void *look_up_hooked(exec_hook hook, void *handle, const char *name)
{
    return put_hook(hook, real_dlsym()(handle, name));
}

/* The hook to be handed out for a name. *nothing: the name is the driver's, and there is no driver. With RTLD_NEXT what
 * the loader finds is the answer. */
static inline exec_hook hook_for(void *handle, const char *name, bool *nothing)
{
    const exec_hook hook = exec_hook_find(name);
    *nothing = hook != EXEC_HOOK_COUNT && handle == RTLD_NEXT && !exec_hook_real(hook);
    return handle == RTLD_NEXT ? EXEC_HOOK_COUNT : hook;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    bool nothing;
    dlsym_function *real = real_dlsym();
    const exec_hook hook = hook_for(handle, name, &nothing);
    if (nothing)
        return NULL;
    if (hook == EXEC_HOOK_COUNT)
        return real(handle, name);
    return look_up_hooked(hook, handle, name);
}

static __attribute__((noinline)) void *look_up_version_hooked(exec_hook hook, void *handle, const char *name,
                                                              const char *version)
{
    return put_hook(hook, atomic_load_explicit(&loader_dlvsym, memory_order_relaxed)(handle, name, version));
}

__attribute__((visibility("default"))) void *dlvsym(void *handle, const char *name, const char *version)
{
    bool nothing;
    (void)real_dlsym();
    const exec_hook hook = hook_for(handle, name, &nothing);
    if (nothing)
        return NULL;
    if (hook == EXEC_HOOK_COUNT)
        return atomic_load_explicit(&loader_dlvsym, memory_order_relaxed)(handle, name, version);
    return look_up_version_hooked(hook, handle, name, version);
}
