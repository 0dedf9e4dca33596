/* libdw (elfutils) is opened at the first request and stays open: reading debug information again would take seconds.
 * The declarations are its interface of version 0.122, which later versions keep. Separate debug files are not
 * searched. */
#include "core/base/call_stack_names.h"

#include "core/base/fork_wait.h"
#include "core/base/lock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Dwfl Dwfl;
typedef struct Dwfl_Module Dwfl_Module;
typedef struct Dwfl_Line Dwfl_Line;

typedef int (*find_elf_function)(Dwfl_Module *module, void **data, const char *name, uint64_t base, char **file,
                                 void **elf);
typedef int (*find_debuginfo_function)(Dwfl_Module *module, void **data, const char *name, uint64_t base,
                                       const char *file, const char *link, uint32_t crc, char **found);

/* Dwfl_Callbacks */
typedef struct dwfl_callbacks {
    find_elf_function find_elf;
    find_debuginfo_function find_debuginfo;
    void *section_address; /* relocatable files only */
    char **debuginfo_path;
} dwfl_callbacks;

/* Guarded by names_lock. */
static struct {
    bool tried;
    Dwfl *dwfl; /* NULL: no libdw, or it failed */
    Dwfl *(*begin)(const dwfl_callbacks *callbacks);
    Dwfl_Module *(*addrmodule)(Dwfl *dwfl, uint64_t address);
    void (*report_begin_add)(Dwfl *dwfl);
    int (*report_end)(Dwfl *dwfl, void *removed, void *data);
    int (*linux_proc_report)(Dwfl *dwfl, pid_t process);
    find_elf_function linux_proc_find_elf;
    const char *(*module_addrname)(Dwfl_Module *module, uint64_t address);
    Dwfl_Line *(*module_getsrc)(Dwfl_Module *module, uint64_t address);
    const char *(*lineinfo)(Dwfl_Line *line, uint64_t *address, int *number, int *column, uint64_t *time,
                            uint64_t *length);
    dwfl_callbacks callbacks;
} dw;

static strata_lock names_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_FRAME_NAMES);

static int find_nothing(Dwfl_Module *module, void **data, const char *name, uint64_t base, const char *file,
                        const char *link, uint32_t crc, char **found)
{
    (void)module, (void)data, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)found;
    return -1;
}

static bool open_functions(void *library)
{
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"dwfl_begin", &dw.begin},
        {"dwfl_addrmodule", &dw.addrmodule},
        {"dwfl_report_begin_add", &dw.report_begin_add},
        {"dwfl_report_end", &dw.report_end},
        {"dwfl_linux_proc_report", &dw.linux_proc_report},
        {"dwfl_linux_proc_find_elf", &dw.linux_proc_find_elf},
        {"dwfl_module_addrname", &dw.module_addrname},
        {"dwfl_module_getsrc", &dw.module_getsrc},
        {"dwfl_lineinfo", &dw.lineinfo},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found)
            return false;
        memcpy(functions[i].function, &found, sizeof found);
    }
    return true;
}

static void open_names(void)
{
    dw.tried = true;
    void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library || !open_functions(library))
        return;
    dw.callbacks.find_elf = dw.linux_proc_find_elf;
    dw.callbacks.find_debuginfo = find_nothing;
    dw.dwfl = dw.begin(&dw.callbacks);
}

/* Includes modules loaded since the last call. */
static Dwfl_Module *module_at(uint64_t address)
{
    if (!dw.tried)
        open_names();
    Dwfl_Module *module = dw.dwfl ? dw.addrmodule(dw.dwfl, address) : NULL;
    if (!dw.dwfl || module)
        return module;
    dw.report_begin_add(dw.dwfl);
    dw.linux_proc_report(dw.dwfl, getpid());
    dw.report_end(dw.dwfl, NULL, NULL);
    return dw.addrmodule(dw.dwfl, address);
}

/* ---- names of C++ ---- */

static pthread_once_t demangler_looked_for = PTHREAD_ONCE_INIT;
static char *(*demangle)(const char *name, char *text, size_t *size, int *status); /* NULL: no C++ in this process */

static void find_demangler(void)
{
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? dlsym(library, "__cxa_demangle") : NULL;
    if (found)
        memcpy(&demangle, &found, sizeof found);
}

static bool begins_with(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

/* The length without parameters, which begin with a parenthesis outside of template arguments. */
static size_t length_of_name(const char *name)
{
    static const char unnamed[] = "(anonymous namespace)", operator[] = "operator";
    size_t depth = 0, i = 0;
    while (name[i] && (depth || name[i] != '(' || begins_with(name + i, unnamed))) {
        if (begins_with(name + i, unnamed)) {
            i += strlen(unnamed);
        } else if (begins_with(name + i, operator)) {
            i += strlen(operator);
            i += begins_with(name + i, "()") ? 2 : strcspn(name + i, "(");
        } else {
            depth += name[i] == '<';
            depth -= name[i] == '>' && depth;
            i++;
        }
    }
    return i;
}

/* As it stands in the source, if it is of C++ and a library for that is loaded. */
static void put_name(const char *name, char *text, size_t size)
{
    int failed = 1;
    const bool mangled = begins_with(name, "_Z");
    if (mangled)
        pthread_once(&demangler_looked_for, find_demangler);
    char *plain = mangled && demangle ? demangle(name, NULL, NULL, &failed) : NULL;
    if (plain && failed == 0)
        snprintf(text, size, "%.*s", (int)length_of_name(plain), plain);
    else
        snprintf(text, size, "%s", name);
    free(plain);
}

/* ---- room ---- */

/* libdw takes up to 160 KiB of stack for a file's lines; on a smaller one it would end the process. */
enum { ROOM_FOR_LINES = 256 << 10 };

typedef struct stack_range {
    const char *lowest, *above; /* NULL: unknown */
} stack_range;

/* Finds the thread's stack. A main thread's is found in /proc. */
static void find_stack(stack_range *stack)
{
    pthread_attr_t attributes;
    void *end = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &end, &bytes) == 0)
        *stack = (stack_range){end, (const char *)end + bytes};
    pthread_attr_destroy(&attributes);
}

/* Of a coroutine's own stack the room is not known. */
static bool has_room_for_lines(void)
{
    static _Thread_local stack_range stack;
    if (!stack.lowest)
        find_stack(&stack);
    const char *here = __builtin_frame_address(0);
    return here > stack.lowest && here < stack.above && here - stack.lowest >= ROOM_FOR_LINES;
}

/* ---- naming ---- */

/* names_lock is held. */
static bool name_by_debug_information(const void *frame, char *text, size_t size)
{
    uint64_t address = (uint64_t)(uintptr_t)frame - 1; /* inside the call, not after it */
    Dwfl_Module *module = has_room_for_lines() ? module_at(address) : NULL;
    const char *name = module ? dw.module_addrname(module, address) : NULL;
    Dwfl_Line *line = name ? dw.module_getsrc(module, address) : NULL;
    int number = 0;
    const char *file = line ? dw.lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    char plain[512];
    Dl_info info;
    if (name)
        put_name(name, plain, sizeof plain);
    if (file)
        snprintf(text, size, "%s (%s:%d)", plain, file, number);
    else if (name) /* lines need .debug_aranges, which clang writes only on request */
        snprintf(text, size, "%s (%s)", plain, dladdr(frame, &info) && info.dli_fname ? info.dli_fname : "?");
    return name != NULL;
}

static void name_by_loader(const void *frame, char *text, size_t size)
{
    char plain[512];
    Dl_info info;
    if (dladdr((const char *)frame - 1, &info) == 0 || !info.dli_fname) {
        snprintf(text, size, "%p", frame);
    } else if (info.dli_sname) {
        put_name(info.dli_sname, plain, sizeof plain);
        snprintf(text, size, "%s (%s)", plain, info.dli_fname);
    } else {
        snprintf(text, size, "%s+0x%zx", info.dli_fname, (size_t)((const char *)frame - (const char *)info.dli_fbase));
    }
}

void strata_call_stack_name(const void *frame, char *text, size_t size)
{
    if ((uintptr_t)frame & STRATA_CALL_STACK_TEXT) {
        const uintptr_t named = (uintptr_t)frame & ~STRATA_CALL_STACK_TEXT;
        snprintf(text, size, "%s", (const char *)named); /* NOLINT: made from this pointer */
        return;
    }
    const strata_fork_hold hold = strata_fork_hold_begin(); /* this lock and the loader's stay taken in a child */
    strata_lock_take(&names_lock);
    bool named = name_by_debug_information(frame, text, size);
    strata_lock_release(&names_lock);
    if (!named)
        name_by_loader(frame, text, size);
    strata_fork_hold_end(hold);
}
