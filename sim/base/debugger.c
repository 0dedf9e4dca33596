/* Memory debuggers: Valgrind's client requests, no-ops elsewhere, and functions of the sanitizers' runtimes, there if
 * the program was built with them. */
#include "base/base.h"
#include <stdlib.h>

#if defined(STRATA_SIM_VALGRIND)
#include <valgrind/memcheck.h>
#include <valgrind/valgrind.h>
#endif

void __asan_poison_memory_region(const volatile void *address, size_t bytes) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *address, size_t bytes) __attribute__((weak));

void __lsan_register_root_region(const void *address, size_t bytes) __attribute__((weak));
void __lsan_unregister_root_region(const void *address, size_t bytes) __attribute__((weak));

static bool is_sanitized(void)
{
    return __asan_poison_memory_region && __asan_unpoison_memory_region;
}

/* The sanitizer writes a byte for each eight: of large ranges only rims are closed, to keep large devices cheap. */
static const uint64_t rim = UINT64_C(32) << 20;

static void poison(const char *memory, uint64_t bytes)
{
    if (bytes <= 2 * rim) {
        __asan_poison_memory_region(memory, (size_t)bytes);
        return;
    }
    __asan_poison_memory_region(memory, (size_t)rim);
    __asan_poison_memory_region(memory + (bytes - rim), (size_t)rim);
}

static void unpoison_rims(const char *memory, uint64_t bytes)
{
    uint64_t part = bytes < rim ? bytes : rim;
    __asan_unpoison_memory_region(memory, (size_t)part);
    __asan_unpoison_memory_region(memory + (bytes - part), (size_t)part);
}

void sim_bytes_close(const char *memory, uint64_t bytes)
{
#if defined(STRATA_SIM_VALGRIND)
    VALGRIND_MAKE_MEM_NOACCESS(memory, bytes);
#endif
    if (is_sanitized())
        poison(memory, bytes);
}

void sim_bytes_born(const char *memory, uint64_t bytes, uint64_t held)
{
#if defined(STRATA_SIM_VALGRIND)
    VALGRIND_MALLOCLIKE_BLOCK(memory, bytes, 0, 0);
#endif
    if (is_sanitized()) {
        __asan_poison_memory_region(memory + bytes, (size_t)(held - bytes));
        __asan_unpoison_memory_region(memory, (size_t)bytes);
    }
}

void sim_bytes_gone(const char *memory, uint64_t bytes)
{
#if defined(STRATA_SIM_VALGRIND)
    VALGRIND_FREELIKE_BLOCK(memory, 0);
#endif
    if (is_sanitized())
        poison(memory, bytes);
}

void sim_bytes_forget(const char *memory, uint64_t bytes)
{
    if (is_sanitized())
        __asan_unpoison_memory_region(memory, (size_t)bytes);
}

void sim_bytes_forget_range(const char *memory, uint64_t bytes)
{
    if (is_sanitized())
        unpoison_rims(memory, bytes);
}

void sim_bytes_hold_pointers(const char *memory, uint64_t bytes)
{
    if (__lsan_register_root_region && __lsan_unregister_root_region)
        __lsan_register_root_region(memory, (size_t)bytes);
}

void sim_bytes_hold_no_pointers(const char *memory, uint64_t bytes)
{
    if (__lsan_register_root_region && __lsan_unregister_root_region)
        __lsan_unregister_root_region(memory, (size_t)bytes);
}

#if defined(STRATA_SIM_VALGRIND)

bool sim_debugger_is_valgrind(void)
{
    return RUNNING_ON_VALGRIND != 0;
}

void sim_bytes_written(const char *memory, uint64_t bytes)
{
    VALGRIND_MAKE_MEM_DEFINED(memory, bytes);
}

void sim_bytes_fence(const char *memory, uint64_t bytes)
{
    VALGRIND_MAKE_MEM_NOACCESS(memory, bytes);
}

void sim_bytes_unwritten(const char *memory, uint64_t bytes)
{
    VALGRIND_MAKE_MEM_UNDEFINED(memory, bytes);
}

void sim_debugger_look_away(void)
{
    VALGRIND_DISABLE_ERROR_REPORTING;
}

void sim_debugger_look_again(void)
{
    VALGRIND_ENABLE_ERROR_REPORTING;
}

/* Reads memcheck's marks of each byte. False: not all bytes are addressable, or memcheck does not run. */
static bool put_aside(const char *memory, uint64_t bytes, unsigned char *bits)
{
    enum { DONE = 1 };
    return VALGRIND_GET_VBITS(memory, bits, bytes) == DONE;
}

static void put_back(const char *memory, uint64_t bytes, unsigned char *bits)
{
    VALGRIND_MAKE_MEM_UNDEFINED(memory, bytes);
    VALGRIND_SET_VBITS(memory, bits, bytes);
}

#else

bool sim_debugger_is_valgrind(void)
{
    return false;
}

void sim_bytes_written(const char *memory, uint64_t bytes)
{
    (void)memory;
    (void)bytes;
}

void sim_bytes_fence(const char *memory, uint64_t bytes)
{
    (void)memory;
    (void)bytes;
}

void sim_bytes_unwritten(const char *memory, uint64_t bytes)
{
    (void)memory;
    (void)bytes;
}

void sim_debugger_look_away(void)
{
}

void sim_debugger_look_again(void)
{
}

static bool put_aside(const char *memory, uint64_t bytes, unsigned char *bits)
{
    (void)memory;
    (void)bytes;
    (void)bits;
    return false;
}

static void put_back(const char *memory, uint64_t bytes, unsigned char *bits)
{
    (void)memory;
    (void)bytes;
    (void)bits;
}

#endif

bool sim_debugger_is_there(void)
{
    return sim_debugger_is_valgrind() || is_sanitized();
}

typedef struct sim_in_flight_range {
    struct sim_in_flight_range *next;
    const char *memory;
    uint64_t bytes;
    unsigned char bits[]; /* with Valgrind, `bytes` of them */
} sim_in_flight_range;

void sim_bytes_in_flight(sim_in_flight_range **ranges, const char *memory, uint64_t bytes)
{
    bool valgrind = sim_debugger_is_valgrind();
    if (!sim_debugger_is_there())
        return;
    sim_in_flight_range *range = malloc(sizeof *range + (valgrind ? (size_t)bytes : 0));
    if (!range || (valgrind && !put_aside(memory, bytes, range->bits))) {
        free(range);
        return;
    }
    range->memory = memory;
    range->bytes = bytes;
    range->next = *ranges;
    *ranges = range;
    sim_bytes_close(memory, bytes);
}

void sim_bytes_landed(sim_in_flight_range **ranges)
{
    while (*ranges) {
        sim_in_flight_range *range = *ranges;
        *ranges = range->next;
        if (sim_debugger_is_valgrind())
            put_back(range->memory, range->bytes, range->bits);
        sim_bytes_forget(range->memory, range->bytes);
        free(range);
    }
}
