/* std::default_random_engine and std::uniform_int_distribution as in libstdc++: a multiplicative congruential generator
 * of modulus 2^31 - 1 (std::minstd_rand0), and rejection, or two draws for larger ranges. */
#include "random_allocations.h"

const random_case random_cases[RANDOM_CASES] = {
    {1000, 1, 516054525, 323760572, 638},
    {1000, 4, 2068726278, 1332080261, 642},
    {1000, 64, 32516438967, 16777102043, 528},
    {1000, 256, 120204814794, 16776470325, 150},
    {1000, 1024, 463104276902, 16775773201, 44},
    {1000, 4096, 1814524904445, 16775344215, 15},
    {10000, 1, 5232447760, 3254545443, 6204},
    {10000, 4, 20931697845, 13049102281, 6203},
    {10000, 64, 286999706790, 16777214948, 634},
    {10000, 256, 1123517815284, 16777171549, 167},
    {10000, 1024, 4463008213689, 16777185961, 51},
    {10000, 4096, 18022585713930, 16775887653, 16},
    {100000, 1, 48663148396, 16777215997, 36071},
    {100000, 4, 180127682660, 16777215986, 9714},
    {100000, 64, 2811519828526, 16777214347, 644},
    {100000, 256, 11229933505850, 16777214413, 176},
    {100000, 1024, 44773478309836, 16777213763, 53},
    {100000, 4096, 179863776314225, 16777201659, 19},
};

enum { ALLOCATION_PROBABILITY = 73 /* percent */ };

#define MIB ((uint64_t)1 << 20)

typedef struct engine {
    uint64_t state; /* 1 to 2^31 - 2 */
} engine;

#define ENGINE_MODULUS UINT64_C(2147483647)
#define ENGINE_RANGE   (ENGINE_MODULUS - 2) /* its greatest number less its least */

/* Draws a number from 0 to ENGINE_RANGE. */
static uint64_t draw(engine *self)
{
    self->state = self->state * 16807 % ENGINE_MODULUS;
    return self->state - 1;
}

/* Draws a number from 0 to `greatest`, inclusive, which is at most ENGINE_RANGE. */
static uint64_t draw_small(engine *self, uint64_t greatest)
{
    if (greatest == ENGINE_RANGE)
        return draw(self);
    const uint64_t scale = ENGINE_RANGE / (greatest + 1), past = (greatest + 1) * scale;
    for (;;) {
        uint64_t drawn = draw(self);
        if (drawn < past)
            return drawn / scale;
    }
}

static uint64_t draw_up_to(engine *self, uint64_t greatest)
{
    if (greatest <= ENGINE_RANGE)
        return draw_small(self, greatest);
    for (;;) {
        const uint64_t values = ENGINE_RANGE + 1;
        uint64_t high = values * draw_up_to(self, greatest / values);
        uint64_t drawn = high + draw(self);
        if (drawn <= greatest && drawn >= high)
            return drawn;
    }
}

static uint64_t draw_size(engine *self, uint32_t max_mib)
{
    return 1 + draw_up_to(self, max_mib * MIB - 1);
}

void random_sizes(uint32_t max_mib, uint64_t *sizes, size_t count)
{
    engine source = {1};
    for (size_t i = 0; i < count; i++)
        sizes[i] = draw_size(&source, max_mib);
}

void random_make(uint32_t allocations, uint32_t max_mib, peer_step *steps, uint32_t *slots, peer_step *live,
                 random_case *came_to)
{
    engine source = {1};
    uint64_t live_bytes = 0;
    uint32_t active = 0, made = 0, slots_used = 0, slots_free = 0;
    *came_to = (random_case){.allocations = allocations, .max_mib = max_mib};
    for (size_t i = 0; i < (size_t)2 * allocations; i++) {
        const uint64_t bytes = draw_size(&source, max_mib);
        bool allocate = true;
        if (active)
            allocate = draw_up_to(&source, 99) < ALLOCATION_PROBABILITY && made < allocations &&
                       live_bytes + bytes < RANDOM_USAGE_MIB * MIB;
        if (allocate) {
            const uint32_t slot = slots_free ? slots[--slots_free] : slots_used++;
            steps[i] = live[active++] = (peer_step){.bytes = bytes, .slot = slot};
            made++;
            live_bytes += bytes;
            came_to->sum_bytes += bytes;
        } else {
            const uint64_t chosen = draw_up_to(&source, allocations - 1) % active;
            const peer_step freed = live[chosen];
            live[chosen] = live[--active];
            live_bytes -= freed.bytes;
            slots[slots_free++] = freed.slot;
            steps[i] = (peer_step){.slot = freed.slot};
        }
        if (live_bytes > came_to->peak_bytes)
            came_to->peak_bytes = live_bytes;
        if (active > came_to->peak_blocks)
            came_to->peak_blocks = active;
    }
}

bool random_totals_match(const random_case *came_to, const random_case *seen)
{
    return came_to->allocations == seen->allocations && came_to->max_mib == seen->max_mib &&
           came_to->sum_bytes == seen->sum_bytes && came_to->peak_bytes == seen->peak_bytes &&
           came_to->peak_blocks == seen->peak_blocks;
}
