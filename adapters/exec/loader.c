/* The loader's own functions, and this library's own symbols, read from the tables of the loaded objects.
 *
 * The loader's dlsym cannot be looked up by dlsym, which is hooked. Since glibc 2.34 there are two versions of it, of
 * which the default one is taken. No call of another library is made: a look-up can be the first thing that happens in
 * a process, before a sanitizer whose functions stand in front of the C library's is ready for them. */
#define _GNU_SOURCE
#include "adapters/exec/loader.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

static _Atomic(dlsym_function *) loader_dlsym; /* set once, by whichever thread comes first, to the same */
static _Atomic(dlvsym_function *) loader_dlvsym;

/* ---- an object's table of symbols ---- */

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
            exec_is_same(tables->strings + found->st_name, name))
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

/* Finds the C library's dlsym and dlvsym in the loader's list of objects. Calls no function that a sanitizer or the
 * program may have replaced: a look-up can be the first thing that happens in a process. */
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

dlsym_function *exec_loader_dlsym_function(void)
{
    dlsym_function *real = atomic_load_explicit(&loader_dlsym, memory_order_acquire);
    if (__builtin_expect(!real, 0)) {
        find_loader();
        real = atomic_load_explicit(&loader_dlsym, memory_order_acquire);
    }
    return real;
}

dlvsym_function *exec_loader_dlvsym_function(void)
{
    exec_loader_dlsym_function();
    return atomic_load_explicit(&loader_dlvsym, memory_order_relaxed);
}

void *exec_loader_dlsym(void *handle, const char *name)
{
    return exec_loader_dlsym_function()(handle, name);
}

/* What references to dlsym in this library are bound to, since it is linked with --wrap=dlsym. */
void *__wrap_dlsym(void *handle, const char *name) __attribute__((alias("exec_loader_dlsym")));

/* ---- this library ---- */

extern const char __ehdr_start[], _end[]; /* by the linker */

bool exec_is_own_code(const void *address)
{
    return (const char *)address >= __ehdr_start && (const char *)address < _end;
}

void *exec_own_symbol(const char *name)
{
    for (const struct link_map *object = _r_debug.r_map; object; object = object->l_next) {
        if (!exec_is_own_code(object->l_ld))
            continue;
        const symbol_tables tables = read_dynamic(object);
        const ElfW(Addr) found = find_symbol(&tables, name);
        return found ? (void *)(object->l_addr + found) : NULL;
    }
    return NULL;
}
