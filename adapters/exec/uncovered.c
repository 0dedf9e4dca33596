/* Stand-ins for functions of which only the address is known. Each is a few instructions that add one to its counter
 * and jump: arguments, result and return address stay as the caller and the function have them. */
#define _GNU_SOURCE
#include "adapters/exec/uncovered.h"

#include "adapters/exec/hooks.h"
#include "adapters/exec/loader.h"
#include "adapters/exec/settings.h"

#include <dlfcn.h>

#define STAND_INS 128
#define CODE      32 /* bytes of each */
#define STRING(x) TEXT(x)
#define TEXT(x)   #x

/* Read by the code below: 16 bytes. The function is written once; any thread. */
typedef struct stand_in {
    _Atomic(void *) function;
    _Atomic uint64_t calls;
} stand_in;
__attribute__((visibility("hidden"))) stand_in exec_stand_ins[STAND_INS];
extern const char exec_stand_in_code[] __attribute__((visibility("hidden")));

enum { LONGEST = 64 };
static char names[STAND_INS][LONGEST]; /* each written before its function */
static _Atomic unsigned used;          /* may grow beyond their number */

/* Repeats the code in the assembler; in it, exec_stand_in_n is the number of the stand-in and of its entry in the
 * table. */
#define EACH(code)                                                                   \
    __asm__(".text\n"                                                                \
            ".balign 32\n"                                                           \
            ".hidden exec_stand_in_code\n"                                           \
            ".globl exec_stand_in_code\n"                                            \
            ".type exec_stand_in_code, %function\n"                                  \
            "exec_stand_in_code:\n"                                                  \
            ".set exec_stand_in_n, 0\n"                                              \
            ".rept " STRING(STAND_INS) "\n" code ".balign 32\n"                      \
                                       ".set exec_stand_in_n, exec_stand_in_n + 1\n" \
                                       ".endr\n"                                     \
                                       ".size exec_stand_in_code, . - exec_stand_in_code\n")

#if defined __x86_64__
EACH("endbr64\n"
     "lock incq exec_stand_ins + 16 * exec_stand_in_n + 8(%rip)\n"
     "jmp *exec_stand_ins + 16 * exec_stand_in_n(%rip)\n");
#elif defined __aarch64__
/* The two registers are the linker's, for code between a call and its function. Without a third one, calls that two
 * threads make at once may count as one. The first instruction is `bti c`. */
EACH("hint #34\n"
     "adrp x16, exec_stand_ins + 16 * exec_stand_in_n\n"
     "add x16, x16, :lo12:exec_stand_ins + 16 * exec_stand_in_n\n"
     "ldr x17, [x16, #8]\n"
     "add x17, x17, #1\n"
     "str x17, [x16, #8]\n"
     "ldr x16, [x16]\n"
     "br x16\n");
#else
#error "stand-ins for this processor are not written"
#endif

bool exec_is_uncovered_name(const char *symbol)
{
    return symbol[0] == 'c' && symbol[1] == 'u' && symbol[2] >= 'A' && symbol[2] <= 'Z' && !exec_is_covered(symbol);
}

bool exec_is_driver_file(const char *path)
{
    static const char name[] = "libcuda.so";
    const char *file = path;
    for (const char *at = path; *at; at++)
        if (*at == '/')
            file = at + 1;
    for (size_t i = 0; i + 1 < sizeof name; i++)
        if (file[i] != name[i])
            return false;
    return true;
}

static bool is_driver_code(const void *address)
{
    Dl_info where;
    return dladdr(address, &where) && where.dli_fname && exec_is_driver_file(where.dli_fname);
}

static void *code_of(unsigned i)
{
    return (void *)(uintptr_t)(exec_stand_in_code + (size_t)i * CODE);
}

static void copy_name(char to[LONGEST], const char *name)
{
    size_t i = 0;
    for (; name[i] && i + 1 < LONGEST; i++)
        to[i] = name[i];
    to[i] = '\0';
}

/* Returns the function's stand-in, a new one if it has none; the function itself if all are used. Two threads may take
 * one each for a function: both count. */
static void *take(const char *symbol, void *function)
{
    const unsigned taken = atomic_load_explicit(&used, memory_order_acquire);
    for (unsigned i = 0; i < taken && i < STAND_INS; i++)
        if (atomic_load_explicit(&exec_stand_ins[i].function, memory_order_acquire) == function)
            return code_of(i);
    if (taken >= STAND_INS)
        return function;
    const unsigned own = atomic_fetch_add(&used, 1);
    if (own >= STAND_INS)
        return function;
    copy_name(names[own], symbol);
    atomic_store_explicit(&exec_stand_ins[own].function, function, memory_order_release);
    return code_of(own);
}

void *exec_uncovered(const char *symbol, void *function)
{
    const bool counts = function && !exec_is_own_code(function) && exec_is_uncovered_name(symbol) && exec_is_wanted();
    return counts ? take(symbol, function) : function;
}

void *exec_uncovered_if_driver(const char *symbol, void *function)
{
    const bool counts = function && !exec_is_own_code(function) && exec_is_wanted() && is_driver_code(function);
    return counts ? take(symbol, function) : function;
}

static bool is_taken(unsigned i)
{
    return atomic_load_explicit(&exec_stand_ins[i].function, memory_order_acquire) != NULL;
}

/* The first stand-in of the name: a function may have several forms, by the version and the default stream that are
 * asked for. */
static unsigned first_of_name(unsigned i)
{
    for (unsigned first = 0; first < i; first++)
        if (is_taken(first) && exec_is_same(names[first], names[i]))
            return first;
    return i;
}

void exec_uncovered_visit(void (*visit)(const char *symbol, uint64_t calls, void *data), void *data)
{
    uint64_t calls[STAND_INS] = {0};
    for (unsigned i = 0; i < STAND_INS; i++)
        if (is_taken(i))
            calls[first_of_name(i)] += atomic_load_explicit(&exec_stand_ins[i].calls, memory_order_relaxed);
    for (unsigned i = 0; i < STAND_INS; i++)
        if (calls[i])
            visit(names[i], calls[i], data);
}
