/* Which objects are bound past the hooks: their relocations of a hooked name hold another address than the hook's.
 *
 * A slot that is bound lazily and was not called yet points into its own object, and does not count.
 *
 * dl_iterate_phdr calls with a lock of the loader held, inside of the one that dladdr and dlopen take: names are
 * collected first, and visited afterwards. */
#define _GNU_SOURCE
#include "adapters/exec/blind.h"

#include "adapters/exec/hooks.h"
#include "adapters/exec/uncovered.h"
#include "core/base/fork_wait.h"
#include "core/base/host_memory.h"

#include <link.h>
#include <string.h>

#if defined __x86_64__
#define SLOT_TYPE(info) ELF64_R_TYPE(info)
#define IS_SLOT(info)   (SLOT_TYPE(info) == R_X86_64_JUMP_SLOT || SLOT_TYPE(info) == R_X86_64_GLOB_DAT)
#elif defined __aarch64__
#define IS_SLOT(info) (ELF64_R_TYPE(info) == R_AARCH64_JUMP_SLOT || ELF64_R_TYPE(info) == R_AARCH64_GLOB_DAT)
#else
#error "relocations of this processor are not known here"
#endif

typedef struct object_tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Rela) * relocations[2]; /* of functions that are bound lazily; of the rest */
    size_t bytes[2];
} object_tables;

enum { DRIVERS = 4, ROOM = 1 << 16 };

/* What is looked for: an object's slots in which `is_meant` holds for the function's name and where it is bound. */
typedef struct blind_search blind_search;
typedef bool is_meant_slot(const blind_search *search, const char *symbol, ElfW(Addr) bound);
struct blind_search {
    is_meant_slot *is_meant;
    bool by_symbol; /* names of functions are collected, else those of the objects, once each */
    bool full;
    struct {
        ElfW(Addr) begin, end;
    } drivers[DRIVERS]; /* where libcuda lies */
    size_t driver_count, used;
    char names[ROOM]; /* each ends with a zero */
};

static ElfW(Addr) place(const struct dl_phdr_info *object, ElfW(Addr) address)
{
    return address < object->dlpi_addr ? address + object->dlpi_addr : address;
}

static object_tables read_tables(const struct dl_phdr_info *object, const ElfW(Dyn) * entry)
{
    object_tables tables = {0};
    for (; entry->d_tag != DT_NULL; entry++) {
        const ElfW(Addr) address = place(object, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            tables.symbols = (const void *)address;
        else if (entry->d_tag == DT_STRTAB)
            tables.strings = (const void *)address;
        else if (entry->d_tag == DT_JMPREL)
            tables.relocations[0] = (const void *)address;
        else if (entry->d_tag == DT_PLTRELSZ)
            tables.bytes[0] = entry->d_un.d_val;
        else if (entry->d_tag == DT_RELA)
            tables.relocations[1] = (const void *)address;
        else if (entry->d_tag == DT_RELASZ)
            tables.bytes[1] = entry->d_un.d_val;
    }
    return tables;
}

static bool lies_in(const struct dl_phdr_info *object, ElfW(Addr) address)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && address - object->dlpi_addr - part->p_vaddr < part->p_memsz)
            return true;
    }
    return false;
}

/* The hook of cuInit sees no memory: of what is bound past it alone nothing is missed. */
static bool is_past_hook(const blind_search *search, const char *symbol, ElfW(Addr) bound)
{
    (void)search;
    const exec_hook hook = exec_hook_find(symbol);
    return hook != EXEC_HOOK_COUNT && hook != EXEC_HOOK_cuInit &&
           bound != (ElfW(Addr))(uintptr_t)exec_hook_function(hook);
}

static bool is_in_driver(const blind_search *search, ElfW(Addr) address)
{
    for (size_t i = 0; i < search->driver_count; i++)
        if (address >= search->drivers[i].begin && address < search->drivers[i].end)
            return true;
    return false;
}

static bool is_uncovered(const blind_search *search, const char *symbol, ElfW(Addr) bound)
{
    return exec_is_uncovered_name(symbol) && exec_hook_find(symbol) == EXEC_HOOK_COUNT && is_in_driver(search, bound);
}

static void collect(blind_search *search, const char *name)
{
    const size_t bytes = strlen(name) + 1;
    search->full |= bytes > ROOM - search->used;
    if (search->full)
        return;
    memcpy(search->names + search->used, name, bytes);
    search->used += bytes;
}

static bool is_found(blind_search *search, const struct dl_phdr_info *object, const object_tables *tables,
                     const ElfW(Rela) * relocation)
{
    if (!IS_SLOT(relocation->r_info))
        return false;
    const ElfW(Addr) bound = *(const ElfW(Addr) *)(object->dlpi_addr + relocation->r_offset);
    const char *symbol = tables->strings + tables->symbols[ELF64_R_SYM(relocation->r_info)].st_name;
    if (!bound || lies_in(object, bound) || !search->is_meant(search, symbol, bound))
        return false;
    if (search->by_symbol)
        collect(search, symbol);
    return !search->by_symbol;
}

/* True: a slot was found, and the object's name is to be collected. */
static bool search_object(blind_search *search, const struct dl_phdr_info *object, const object_tables *tables)
{
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; tables->relocations[t] && i < tables->bytes[t] / sizeof(ElfW(Rela)); i++)
            if (is_found(search, object, tables, &tables->relocations[t][i]))
                return true;
    return false;
}

static int look_into(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    blind_search *search = data;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const object_tables tables =
            read_tables(object, (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr));
        if (tables.symbols && tables.strings && search_object(search, object, &tables))
            collect(search, object->dlpi_name[0] ? object->dlpi_name : "the program");
    }
    return 0;
}

static int find_drivers(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    blind_search *search = data;
    ElfW(Addr) begin = 0, end = 0;
    if (search->driver_count == DRIVERS || !exec_is_driver_file(object->dlpi_name))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const ElfW(Addr) address = object->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        begin = !end || address < begin ? address : begin;
        end = address + part->p_memsz > end ? address + part->p_memsz : end;
    }
    search->drivers[search->driver_count].begin = begin;
    search->drivers[search->driver_count++].end = end;
    return 0;
}

/* Calls visit for each name, after the search. Without host memory nothing is found. */
static void search_all(is_meant_slot *is_meant, bool by_symbol, void (*visit)(const char *name, void *data), void *data)
{
    blind_search *search = strata_host_zalloc(sizeof *search);
    if (!search)
        return;
    search->is_meant = is_meant;
    search->by_symbol = by_symbol;
    const strata_fork_hold hold = strata_fork_hold_begin(); /* the loader's lock stays taken in a child */
    dl_iterate_phdr(find_drivers, search);
    dl_iterate_phdr(look_into, search);
    strata_fork_hold_end(hold);
    for (size_t at = 0; at < search->used; at += strlen(search->names + at) + 1)
        visit(search->names + at, data);
    if (search->full)
        visit("and more", data);
    strata_host_free(search);
}

void exec_blind_visit(void (*visit)(const char *object, void *data), void *data)
{
    search_all(is_past_hook, false, visit, data);
}

void exec_blind_visit_uncovered(void (*visit)(const char *symbol, void *data), void *data)
{
    search_all(is_uncovered, true, visit, data);
}
