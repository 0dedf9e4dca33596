/* A library that patches the program's slot of a driver function, as profilers and other interposers do. */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static CUresult (*before)(CUdeviceptr *, size_t);
static int calls;

__attribute__((visibility("default"))) int count_calls(void);
__attribute__((visibility("default"))) int patch_program(void);

int count_calls(void)
{
    return calls;
}

static CUresult patched(CUdeviceptr *out, size_t bytes)
{
    calls++;
    return before(out, bytes);
}

static void patch_slot(void **slot)
{
    CUresult (*own)(CUdeviceptr *, size_t) = patched;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    memcpy(&before, slot, sizeof before);
    if (mprotect((void *)((size_t)slot & ~(page - 1)), page, PROT_READ | PROT_WRITE) == 0) /* NOLINT: its page */
        memcpy(slot, &own, sizeof own);
}

/* The program is the first object; its relocations name the slot. */
int patch_program(void)
{
    const struct link_map *object = _r_debug.r_map;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const ElfW(Rela) * relocations[2] = {0};
    size_t bytes[2] = {0}, count = 0;
    for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++) {
        void *address = (void *)entry->d_un.d_ptr; /* NOLINT: as the loader says */
        if (entry->d_tag == DT_SYMTAB)
            symbols = address;
        else if (entry->d_tag == DT_STRTAB)
            strings = address;
        else if (entry->d_tag == DT_JMPREL)
            relocations[0] = address;
        else if (entry->d_tag == DT_PLTRELSZ)
            bytes[0] = entry->d_un.d_val;
        else if (entry->d_tag == DT_RELA)
            relocations[1] = address;
        else if (entry->d_tag == DT_RELASZ)
            bytes[1] = entry->d_un.d_val;
    }
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; relocations[t] && i < bytes[t] / sizeof(ElfW(Rela)); i++) {
            const ElfW(Rela) *relocation = &relocations[t][i];
            const char *name = strings + symbols[ELF64_R_SYM(relocation->r_info)].st_name;
            if (strcmp(name, "cuMemAlloc_v2") == 0) {
                patch_slot((void **)(object->l_addr + relocation->r_offset)); /* NOLINT: as the loader says */
                count++;
            }
        }
    return (int)count;
}
