/* Each figure is the slope from the first chunk of entries to all: the cost of one more block. A stack's other memory
 * is printed once for each owner. Counts are rounded to whole chunks. */
#include "host_blocks.h"

#include "core/base/host_memory.h"
#include "core/blocks/blocks.h"

#include <strata/strata.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct shape {
    const char *name;
    size_t least, most; /* bytes, powers of two; most 0: all have `least` */
} shape;

static const shape shapes[] = {
    {"512 B", 512, 0},
    {"1 KiB", 1 << 10, 0},
    {"2 KiB", 2 << 10, 0},
    {"4 KiB", 4 << 10, 0},
    {"8 KiB", 8 << 10, 0},
    {"16 KiB", 16 << 10, 0},
    {"20 KiB", 20 << 10, 0},
    {"32 KiB", 32 << 10, 0},
    {"40 KiB", 40 << 10, 0},
    {"64 KiB", 64 << 10, 0},
    {"100 KiB", 100 << 10, 0},
    {"128 KiB", 128 << 10, 0},
    {"200 KiB", 200 << 10, 0},
    {"256 KiB", 256 << 10, 0},
    {"300 KiB", 300 << 10, 0},
    {"340 KiB", 340 << 10, 0},
    {"512 KiB", 512 << 10, 0},
    {"1 MiB", 1 << 20, 0},
    {"2 MiB", 2 << 20, 0},
    {"3 MiB", 3 << 20, 0},
    {"512 B to 8 KiB", 512, 8 << 10},
    {"512 B to 64 KiB", 512, 64 << 10},
    {"512 B to 1 MiB", 512, 1 << 20},
    {"64 KiB to 4 MiB", 64 << 10, 4 << 20},
};

static const char *const owners[] = {"null", "direct", "async", "pool"};

enum { SHAPES = sizeof shapes / sizeof shapes[0], OWNERS = sizeof owners / sizeof owners[0] };

static uint64_t random_state = 1;

static uint64_t pick(uint64_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 20) % below;
}

/* Random sizes: each doubling between `least` and `most` is equally likely. */
static size_t pick_size(const shape *of)
{
    if (!of->most)
        return of->least;
    const unsigned doublings = (unsigned)__builtin_ctzll(of->most / of->least);
    const size_t size = of->least << pick(doublings);
    return size + pick(size);
}

typedef struct cost {
    bool measured; /* the device had memory for all blocks */
    double each;   /* bytes a block */
    double stack;  /* the stack's other bytes */
} cost;

static size_t allocate(strata_resource *top, const shape *of, strata_block *blocks, size_t from, size_t end)
{
    for (; from < end; from++)
        if (strata_resource_allocate(top, &(strata_request){.bytes = pick_size(of)}, &blocks[from]) != STRATA_SUCCESS)
            break;
    return from;
}

static cost measure(const char *owner, const shape *of, strata_block *blocks, size_t count)
{
    strata_stack *stack;
    const uint64_t before = strata_host_bytes();
    if (strata_stack_create(owner, 0, &stack) != STRATA_SUCCESS)
        return (cost){0};
    strata_resource *top = strata_stack_top(stack);
    const size_t chunk = STRATA_ENTRY_CHUNK - 1; /* entry 0 is not used */
    size_t made = allocate(top, of, blocks, 0, chunk);
    const uint64_t first = strata_host_bytes();
    made = allocate(top, of, blocks, made, count);
    const uint64_t all = strata_host_bytes();
    cost found = {.measured = made == count, .each = (double)(all - first) / (double)(count - chunk)};
    found.stack = (double)(all - before) - found.each * (double)count;
    for (size_t i = 0; i < made; i++)
        if (strata_resource_deallocate(top, &blocks[i], NULL) != STRATA_SUCCESS)
            found.measured = false;
    if (strata_stack_destroy(stack) != STRATA_SUCCESS)
        found.measured = false;
    return found;
}

static void print_row(const char *name, const bool *measured, const double *figures, const char *format)
{
    printf("%-16s", name);
    for (size_t i = 0; i < OWNERS; i++)
        if (measured[i])
            printf(format, figures[i]);
        else
            printf("%10s", "-");
    printf("\n");
}

static void sweep(size_t count)
{
    const size_t whole = (count + STRATA_ENTRY_CHUNK - 1) / STRATA_ENTRY_CHUNK * STRATA_ENTRY_CHUNK - 1;
    strata_block *blocks = calloc(whole, sizeof *blocks);
    if (!blocks)
        exit(1);
    bool any[OWNERS] = {false};
    double most[OWNERS] = {0}, stack[OWNERS] = {0};
    printf("\n%zu live blocks, bytes of host memory a block\n%-16s", whole, "");
    for (size_t i = 0; i < OWNERS; i++)
        printf("%10s", owners[i]);
    printf("\n");
    for (size_t k = 0; k < SHAPES; k++) {
        bool measured[OWNERS];
        double each[OWNERS];
        for (size_t i = 0; i < OWNERS; i++) {
            const cost found = measure(owners[i], &shapes[k], blocks, whole);
            measured[i] = found.measured;
            each[i] = found.each;
            if (!found.measured)
                continue;
            any[i] = true;
            most[i] = found.each > most[i] ? found.each : most[i];
            stack[i] = found.stack / 1024 > stack[i] ? found.stack / 1024 : stack[i];
        }
        print_row(shapes[k].name, measured, each, "%10.1f");
    }
    print_row("most", any, most, "%10.1f");
    print_row("stack, KiB", any, stack, "%10.0f");
    free(blocks);
}

int host_blocks_measure(size_t count)
{
    setenv("STRATA_SIM_MEMORY", "1TiB", 0); /* room for the largest sizes */
    if (strata_driver_choose("auto") != STRATA_SUCCESS) {
        fprintf(stderr, "strata_bench_host: %s\n", strata_last_error()->message);
        return 1;
    }
    printf("host memory from %s\n", strata_host_allocator_name());
    if (count) {
        sweep(count);
    } else {
        sweep(10000);
        sweep(100000);
    }
    return 0;
}
