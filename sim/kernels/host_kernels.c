/* The host kernels of Strata's own kernels (driver/kernels/pattern.cu of the library), registered from the start. One
 * replay moves hundreds of gigabytes: the loops over whole words can be vectorised, and are kept from the sanitizers,
 * which find nothing in memory that only they touch, under the simulation's lock. */
#include "kernels/kernels.h"
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the pattern is written in words, which must be little endian"
#endif

#define INLINED   inline __attribute__((always_inline))
#define UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

enum { WORD = sizeof(uint64_t), STRIDE = 512 };

/* The loops, inlined into functions for different processors: only some multiply vectors of 64-bit words. */
UNCHECKED INLINED static void fill_loop(unsigned char *to, uint64_t words, uint64_t seed)
{
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word = sim_mix(seed + i);
        __builtin_memcpy(to + i * WORD, &word, WORD);
    }
}

UNCHECKED INLINED static uint64_t difference_loop(const unsigned char *at, uint64_t words, uint64_t seed)
{
    uint64_t different = 0;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word;
        __builtin_memcpy(&word, at + i * WORD, WORD);
        different |= word ^ sim_mix(seed + i);
    }
    return different;
}

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,avx512dq,avx512vl")))

static bool is_wide(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#else
#define WIDE

static bool is_wide(void)
{
    return false;
}
#endif

UNCHECKED WIDE static void fill_wide(unsigned char *to, uint64_t words, uint64_t seed)
{
    fill_loop(to, words, seed);
}

UNCHECKED WIDE static uint64_t difference_wide(const unsigned char *at, uint64_t words, uint64_t seed)
{
    return difference_loop(at, words, seed);
}

UNCHECKED static void fill_words(unsigned char *to, uint64_t words, uint64_t seed)
{
    if (is_wide())
        fill_wide(to, words, seed);
    else
        fill_loop(to, words, seed);
}

UNCHECKED static uint64_t differences(const unsigned char *at, uint64_t words, uint64_t seed)
{
    return is_wide() ? difference_wide(at, words, seed) : difference_loop(at, words, seed);
}

typedef struct pattern_verdict {
    uint64_t bytes;
    uint64_t first;
} pattern_verdict;

static void compare_bytes(const unsigned char *at, uint64_t offset, uint64_t bytes, uint64_t seed,
                          pattern_verdict *verdict)
{
    for (uint64_t i = offset; i < offset + bytes; i++) {
        unsigned char expected = (unsigned char)(sim_mix(seed + i / WORD) >> (i % WORD * 8));
        if (at[i] != expected) {
            verdict->bytes++;
            verdict->first = i < verdict->first ? i : verdict->first;
        }
    }
}

/* Compares strides of words, and bytes only where a stride differs. */
static pattern_verdict compare(const unsigned char *at, uint64_t bytes, uint64_t seed)
{
    pattern_verdict verdict = {.first = UINT64_MAX};
    uint64_t offset = 0;
    while (bytes - offset >= WORD) {
        uint64_t words = (bytes - offset) / WORD;
        words = words < STRIDE ? words : STRIDE;
        if (differences(at + offset, words, seed + offset / WORD) != 0)
            compare_bytes(at, offset, words * WORD, seed, &verdict);
        offset += words * WORD;
    }
    compare_bytes(at, offset, bytes - offset, seed, &verdict);
    return verdict;
}

static uint64_t parameter(const strata_sim_launch *launch, unsigned index)
{
    uint64_t value;
    memcpy(&value, launch->parameters[index], sizeof value);
    return value;
}

void sim_pattern_fill(strata_sim_launch *launch)
{
    uint64_t address = parameter(launch, 0);
    uint64_t bytes = parameter(launch, 1);
    uint64_t seed = parameter(launch, 2);
    if (bytes == 0 || !launch->declare_write(launch, address, bytes))
        return;
    unsigned char *to = launch->write(launch, address, bytes);
    if (!to)
        return;
    uint64_t words = bytes / WORD;
    fill_words(to, words, seed);
    uint64_t last = sim_mix(seed + words);
    memcpy(to + words * WORD, &last, bytes % WORD);
}

void sim_pattern_check(strata_sim_launch *launch)
{
    uint64_t address = parameter(launch, 0);
    uint64_t bytes = parameter(launch, 1);
    uint64_t seed = parameter(launch, 2);
    uint64_t result = parameter(launch, 3);
    uint64_t found[2];
    if (bytes == 0 || !launch->declare_read(launch, address, bytes) ||
        !launch->declare_atomic(launch, result, sizeof found))
        return;
    const unsigned char *at = launch->read(launch, address, bytes);
    unsigned char *to = launch->write(launch, result, sizeof found);
    if (!at || !to)
        return;
    pattern_verdict verdict = compare(at, bytes, seed);
    if (verdict.bytes == 0)
        return;
    memcpy(found, to, sizeof found);
    found[0] += verdict.bytes;
    found[1] = verdict.first < found[1] ? verdict.first : found[1];
    memcpy(to, found, sizeof found);
}

strata_sim_kernel sim_host_kernel_find(const char *name, const char **known_as)
{
#define ROW(name, host_kernel) {#name, host_kernel},
    static const struct {
        const char *name;
        strata_sim_kernel host_kernel;
    } host_kernels[] = {SIM_HOST_KERNELS(ROW)};
#undef ROW
    for (size_t i = 0; i < sizeof host_kernels / sizeof host_kernels[0]; i++) {
        if (strcmp(name, host_kernels[i].name) == 0) {
            *known_as = host_kernels[i].name;
            return host_kernels[i].host_kernel;
        }
    }
    return NULL;
}
