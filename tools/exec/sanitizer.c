/* What the dynamic section of a file says: the address sanitizer's library, which refuses to run if another one is
 * loaded before it, and whether the file is the loader. */
#include "tools/exec/exec.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PARTS = 64, MOST_ENTRIES = 1024 };

typedef struct elf_file {
    int file;
    Elf64_Phdr parts[MOST_PARTS];
    size_t count;
    Elf64_Dyn entries[MOST_ENTRIES]; /* the last one is DT_NULL */
} elf_file;

static bool read_at(int file, void *to, size_t bytes, Elf64_Off offset)
{
    return pread(file, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

static bool read_parts(elf_file *elf)
{
    Elf64_Ehdr header;
    if (!read_at(elf->file, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof elf->parts[0] ||
        header.e_phnum > MOST_PARTS)
        return false;
    elf->count = header.e_phnum;
    return read_at(elf->file, elf->parts, elf->count * sizeof elf->parts[0], header.e_phoff);
}

static bool read_entries(elf_file *elf)
{
    for (size_t i = 0; i < elf->count; i++) {
        const Elf64_Phdr *part = &elf->parts[i];
        size_t bytes = part->p_filesz;
        if (part->p_type != PT_DYNAMIC)
            continue;
        if (bytes > sizeof elf->entries - sizeof elf->entries[0])
            bytes = sizeof elf->entries - sizeof elf->entries[0];
        return read_at(elf->file, elf->entries, bytes, part->p_offset);
    }
    return false;
}

/* Finds where an address of the loaded program lies in the file. */
static bool find_offset(const elf_file *elf, Elf64_Addr address, Elf64_Off *offset)
{
    for (size_t i = 0; i < elf->count; i++) {
        const Elf64_Phdr *part = &elf->parts[i];
        if (part->p_type == PT_LOAD && address >= part->p_vaddr && address - part->p_vaddr < part->p_filesz) {
            *offset = part->p_offset + (address - part->p_vaddr);
            return true;
        }
    }
    return false;
}

static bool is_sanitizer(const char *name)
{
    return strncmp(name, "libasan.so", 10) == 0 || strncmp(name, "libclang_rt.asan", 16) == 0;
}

/* glibc's, by its own name, such as "ld-linux-x86-64.so.2". */
static bool is_loader(const char *name)
{
    return strncmp(name, "ld-", 3) == 0;
}

/* Finds the first name of an entry with this tag that is wanted. */
static bool look_through(const elf_file *elf, Elf64_Sxword tag, bool (*is_wanted)(const char *name), char *name,
                         size_t room)
{
    Elf64_Off strings = 0;
    for (const Elf64_Dyn *entry = elf->entries; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_STRTAB && !find_offset(elf, entry->d_un.d_ptr, &strings))
            return false;
    for (const Elf64_Dyn *entry = elf->entries; strings && entry->d_tag != DT_NULL; entry++) {
        char text[64] = "";
        if (entry->d_tag == tag && pread(elf->file, text, sizeof text - 1, (off_t)(strings + entry->d_un.d_val)) > 0 &&
            is_wanted(text))
            return snprintf(name, room, "%s", text) < (int)room;
    }
    return false;
}

static bool find_name(const char *path, Elf64_Sxword tag, bool (*is_wanted)(const char *name), char *name, size_t room)
{
    elf_file elf = {.file = open(path, O_RDONLY | O_CLOEXEC)};
    if (elf.file < 0)
        return false;
    const bool found = read_parts(&elf) && read_entries(&elf) && look_through(&elf, tag, is_wanted, name, room);
    close(elf.file);
    return found;
}

bool exec_find_sanitizer(const char *path, char *name, size_t room)
{
    return find_name(path, DT_NEEDED, is_sanitizer, name, room);
}

bool exec_is_loader(const char *path)
{
    char name[64];
    return find_name(path, DT_SONAME, is_loader, name, sizeof name);
}
