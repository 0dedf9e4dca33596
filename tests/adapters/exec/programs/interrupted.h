/* Which instruction a signal interrupted, and whether it is strata exec's. The program defines _GNU_SOURCE. */
#ifndef STRATA_TEST_EXEC_INTERRUPTED_H
#define STRATA_TEST_EXEC_INTERRUPTED_H

#include <link.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

/* Where the code of strata exec lies. */
static struct {
    uintptr_t from, to;
} strata_code;

static int find_library(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    if (!strstr(info->dlpi_name, "libstrata-exec"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            strata_code.from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            strata_code.to = strata_code.from + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static uintptr_t interrupted_at(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#endif
}

#endif
