/* Call stacks of the host. Every operation captures one, so that must be cheap: frames are bare addresses, and equal
 * stacks are kept once, so memory grows with the program's code, not its history.
 *
 * libunwind walks a stack much faster than the C library; libdw knows names and lines. Both are optional, opened at run
 * time. */
#include "check/check.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef STRATA_SIM_LIBDW
#include <elfutils/libdwfl.h>
#endif

enum { MOST_FRAMES = 24, OWN_FRAMES = 16 };

typedef struct call_stack {
    uint64_t hash;
    size_t depth;
    void *frames[];
} call_stack;

/* Guarded by sim.lock. A stack's number is its place in `stacks`, from 1; `table` has numbers by hash. */
static struct {
    call_stack **stacks;
    uint32_t count;
    uint32_t capacity;
    uint32_t *table; /* 2 * capacity, a power of two */
    uintptr_t own_begin;
    uintptr_t own_end; /* of this library's code */
    int (*walk)(void **frames, int most);
} depot;

/* ---- capturing ---- */

static int find_own(struct dl_phdr_info *info, size_t bytes, void *found)
{
    (void)bytes;
    uintptr_t here = (uintptr_t)(void *)&depot;
    uintptr_t begin = UINTPTR_MAX;
    uintptr_t end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            begin = at < begin ? at : begin;
            end = at + info->dlpi_phdr[i].p_memsz > end ? at + info->dlpi_phdr[i].p_memsz : end;
        }
    }
    if (here < begin || here >= end)
        return 0;
    depot.own_begin = begin;
    depot.own_end = end;
    *(bool *)found = true;
    return 1;
}

static bool own(const void *frame)
{
    uintptr_t at = (uintptr_t)frame;
    return at >= depot.own_begin && at < depot.own_end;
}

/* libunwind frees a thread's data at its end, after the thread sanitizer has left the thread. */
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

static void open_walker(void)
{
    void *library = libunwind_is_safe() ? dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL) : NULL;
    void *found = library ? dlsym(library, "unw_backtrace") : NULL;
    depot.walk = backtrace;
    if (found)
        memcpy(&depot.walk, &found, sizeof found);
}

static uint64_t hash_of(void *const *frames, size_t depth)
{
    uint64_t hash = depth;
    for (size_t i = 0; i < depth; i++) {
        hash = (hash ^ (uintptr_t)frames[i]) * 0x9e3779b97f4a7c15U;
        hash ^= hash >> 29;
    }
    return hash;
}

static uint32_t mask(void)
{
    return 2 * depot.capacity - 1;
}

static void enter(uint32_t number)
{
    uint32_t at = (uint32_t)depot.stacks[number - 1]->hash & mask();
    while (depot.table[at] != 0)
        at = (at + 1) & mask();
    depot.table[at] = number;
}

static bool grow(void)
{
    uint32_t capacity = depot.capacity ? 2 * depot.capacity : 256;
    call_stack **stacks = realloc(depot.stacks, capacity * sizeof(*stacks));
    if (!stacks)
        return false;
    depot.stacks = stacks;
    uint32_t *table = calloc((size_t)capacity * 2, sizeof *table);
    if (!table)
        return false;
    free(depot.table);
    depot.table = table;
    depot.capacity = capacity;
    for (uint32_t number = 1; number <= depot.count; number++)
        enter(number);
    return true;
}

static uint32_t find(void *const *frames, size_t depth, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & mask();
    for (; depot.table[at] != 0; at = (at + 1) & mask()) {
        const call_stack *stack = depot.stacks[depot.table[at] - 1];
        if (stack->hash == hash && stack->depth == depth && memcmp(stack->frames, frames, depth * sizeof *frames) == 0)
            return depot.table[at];
    }
    return 0;
}

static uint32_t add(void *const *frames, size_t depth, uint64_t hash)
{
    if (depot.count == depot.capacity && !grow())
        return 0;
    call_stack *stack = malloc(sizeof *stack + depth * sizeof *frames);
    if (!stack)
        return 0;
    stack->hash = hash;
    stack->depth = depth;
    memcpy(stack->frames, frames, depth * sizeof *frames);
    depot.stacks[depot.count++] = stack;
    enter(depot.count);
    return depot.count;
}

static uint32_t capture(void)
{
    void *all[MOST_FRAMES + OWN_FRAMES];
    if (!depot.walk) {
        bool found = false;
        dl_iterate_phdr(find_own, &found);
        open_walker();
    }
    if (depot.capacity == 0 && !grow())
        return 0;
    int walked = depot.walk(all, MOST_FRAMES + OWN_FRAMES);
    size_t depth = walked > 0 ? (size_t)walked : 0;
    size_t first = 0;
    while (first < depth && own(all[first]))
        first++;
    void **frames = all + first;
    depth = depth - first < MOST_FRAMES ? depth - first : MOST_FRAMES;
    if (depth == 0)
        return 0;
    uint64_t hash = hash_of(frames, depth);
    uint32_t known = find(frames, depth, hash);
    return known ? known : add(frames, depth, hash);
}

/* The stack that called into this library; 0: none, or out of memory. A walk reads by system calls in which
 * pthread_cancel would end the thread, with the lock. */
uint32_t sim_stack_capture(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    const uint32_t number = capture();
    pthread_setcancelstate(before, &before);
    return number;
}

/* ---- names and lines ---- */

static void print_plain(const void *frame, FILE *out)
{
    Dl_info info;
    if (dladdr(frame, &info) == 0 || !info.dli_fname)
        fprintf(out, "%p", frame);
    else if (info.dli_sname)
        fprintf(out, "%s (%s)", info.dli_sname, info.dli_fname);
    else
        fprintf(out, "%s+0x%zx", info.dli_fname, (size_t)((const char *)frame - (const char *)info.dli_fbase));
}

#ifdef STRATA_SIM_LIBDW
/* Guarded by sim.lock. */
static struct {
    bool tried;
    void *library; /* NULL: not there */
    Dwfl *dwfl;
    __typeof__(&dwfl_begin) begin;
    __typeof__(&dwfl_end) end;
    __typeof__(&dwfl_addrmodule) addrmodule;
    __typeof__(&dwfl_report_begin_add) report_begin_add;
    __typeof__(&dwfl_report_end) report_end;
    __typeof__(&dwfl_linux_proc_report) linux_proc_report;
    __typeof__(&dwfl_linux_proc_find_elf) linux_proc_find_elf;
    __typeof__(&dwfl_module_addrname) module_addrname;
    __typeof__(&dwfl_module_getsrc) module_getsrc;
    __typeof__(&dwfl_module_info) module_info;
    __typeof__(&dwfl_lineinfo) lineinfo;
    Dwfl_Callbacks callbacks;
} dw;

/* The callback that finds separate debug information: finds none, so that none is looked for in the network. */
static int none(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base, const char *file, const char *link,
                GElf_Word crc, char **found)
{
    (void)module;
    (void)data;
    (void)name;
    (void)base;
    (void)file;
    (void)link;
    (void)crc;
    (void)found;
    return -1;
}

static bool open_names(void)
{
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"dwfl_begin", &dw.begin},
        {"dwfl_end", &dw.end},
        {"dwfl_addrmodule", &dw.addrmodule},
        {"dwfl_report_begin_add", &dw.report_begin_add},
        {"dwfl_report_end", &dw.report_end},
        {"dwfl_linux_proc_report", &dw.linux_proc_report},
        {"dwfl_linux_proc_find_elf", &dw.linux_proc_find_elf},
        {"dwfl_module_addrname", &dw.module_addrname},
        {"dwfl_module_getsrc", &dw.module_getsrc},
        {"dwfl_module_info", &dw.module_info},
        {"dwfl_lineinfo", &dw.lineinfo},
    };
    dw.library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; dw.library && i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(dw.library, functions[i].name);
        if (!found)
            return false;
        memcpy(functions[i].function, &found, sizeof found);
    }
    dw.callbacks.find_elf = dw.linux_proc_find_elf;
    dw.callbacks.find_debuginfo = none;
    dw.dwfl = dw.library ? dw.begin(&dw.callbacks) : NULL;
    return dw.dwfl != NULL;
}

static Dwfl_Module *module_at(Dwarf_Addr address)
{
    if (!dw.tried) {
        dw.tried = true;
        open_names();
    }
    Dwfl_Module *module = dw.dwfl ? dw.addrmodule(dw.dwfl, address) : NULL;
    if (dw.dwfl && !module) {
        dw.report_begin_add(dw.dwfl);
        dw.linux_proc_report(dw.dwfl, getpid());
        dw.report_end(dw.dwfl, NULL, NULL);
        module = dw.addrmodule(dw.dwfl, address);
    }
    return module;
}

static void print_frame(const void *frame, FILE *out)
{
    Dwarf_Addr address = (Dwarf_Addr)(uintptr_t)frame - 1; /* inside the call */
    Dwfl_Module *module = module_at(address);
    const char *name = module ? dw.module_addrname(module, address) : NULL;
    Dwfl_Line *line = module ? dw.module_getsrc(module, address) : NULL;
    int number = 0;
    const char *file = line ? dw.lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    if (!name)
        print_plain(frame, out);
    else if (file)
        fprintf(out, "%s (%s:%d)", name, file, number);
    else
        fprintf(out, "%s (%s)", name, dw.module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
}

static void close_names(void)
{
    if (dw.dwfl) {
        dw.end(dw.dwfl);
        dw.dwfl = NULL;
        dw.tried = false;
    }
}
#else
static void print_frame(const void *frame, FILE *out)
{
    print_plain(frame, out);
}

static void close_names(void)
{
}
#endif

void sim_stack_print(uint32_t number, FILE *out)
{
    if (number == 0)
        return;
    const call_stack *stack = depot.stacks[number - 1];
    for (size_t i = 0; i < stack->depth; i++) {
        fputs("      ", out);
        print_frame(stack->frames[i], out);
        fputc('\n', out);
    }
}

void sim_stacks_close(void)
{
    close_names();
    for (uint32_t i = 0; i < depot.count; i++)
        free(depot.stacks[i]);
    free(depot.stacks);
    free(depot.table);
    depot.stacks = NULL;
    depot.table = NULL;
    depot.count = 0;
    depot.capacity = 0;
}
