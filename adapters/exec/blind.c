/* Which objects are bound past the hooks: their relocations of a hooked name hold another address than the hook's.
 *
 * A slot that is bound lazily and was not called yet points into its own object, and does not count. */
#define _GNU_SOURCE
#include "adapters/exec/blind.h"

#include "adapters/exec/hooks.h"
#include "adapters/exec/uncovered.h"

#include <link.h>

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

/* What is looked for: an object's slots in which `is_meant` holds for the function's name and where it is bound. */
typedef struct blind_search {
    bool (*is_meant)(const char *symbol, ElfW(Addr) bound);
    void (*visit)(const char *text, void *data);
    void *data;
    bool by_symbol; /* visit is called with names of functions, else once for an object with the object's */
} blind_search;

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

static bool is_past_hook(const char *symbol, ElfW(Addr) bound)
{
    const exec_hook hook = exec_hook_find(symbol);
    return hook != EXEC_HOOK_COUNT && bound != (ElfW(Addr))(uintptr_t)exec_hook_function(hook);
}

static bool is_uncovered(const char *symbol, ElfW(Addr) bound)
{
    return exec_is_uncovered_name(symbol) && exec_hook_find(symbol) == EXEC_HOOK_COUNT &&
           exec_is_driver_code((const void *)bound); /* NOLINT: an address of the loader's */
}

static bool is_found(const blind_search *search, const struct dl_phdr_info *object, const object_tables *tables,
                     const ElfW(Rela) * relocation)
{
    if (!IS_SLOT(relocation->r_info))
        return false;
    const ElfW(Addr) bound = *(const ElfW(Addr) *)(object->dlpi_addr + relocation->r_offset);
    const char *symbol = tables->strings + tables->symbols[ELF64_R_SYM(relocation->r_info)].st_name;
    if (!bound || lies_in(object, bound) || !search->is_meant(symbol, bound))
        return false;
    if (search->by_symbol)
        search->visit(symbol, search->data);
    return !search->by_symbol;
}

/* True: the object was found, and is done with. */
static bool search_object(const blind_search *search, const struct dl_phdr_info *object, const object_tables *tables)
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
    const blind_search *search = data;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const object_tables tables =
            read_tables(object, (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr));
        if (tables.symbols && tables.strings && search_object(search, object, &tables))
            search->visit(object->dlpi_name[0] ? object->dlpi_name : "the program", search->data);
    }
    return 0;
}

void exec_blind_visit(void (*visit)(const char *object, void *data), void *data)
{
    blind_search search = {is_past_hook, visit, data, false};
    dl_iterate_phdr(look_into, &search);
}

void exec_blind_visit_uncovered(void (*visit)(const char *symbol, void *data), void *data)
{
    blind_search search = {is_uncovered, visit, data, true};
    dl_iterate_phdr(look_into, &search);
}
