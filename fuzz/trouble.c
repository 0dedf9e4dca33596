/* Host memory fails between the library and its allocator: the linker replaces the library's functions by the ones here
 * (--wrap). Driver calls fail through the simulated driver's fault plan (strata/sim/fault.h). */
#include "fuzz/trouble.h"

#include "core/base/host_memory.h"
#include "fuzz/begin.h"
#include "fuzz/players.h"

/* The entry points that an input's byte chooses from; from ANY_CALL_FROM on, the n-th call of any. */
static const char *const entries[][2] = {
    {"cuEventCreate"},
    {"cuEventQuery"},
    {"cuEventRecord"},
    {"cuEventSynchronize"},
    {"cuStreamCreate"},
    {"cuStreamDestroy"},
    {"cuStreamSynchronize"},
    {"cuStreamWaitEvent"},
    {"cuStreamGetId"},
    {"cuMemAllocFromPoolAsync", "cuMemAlloc"},
    {"cuMemFreeAsync", "cuMemFree"},
};

enum { ENTRIES = sizeof entries / sizeof entries[0], ANY_CALL_FROM = 192, MOST_FAULTS = 30 };

typedef enum trouble_kind { TROUBLE_NONE, TROUBLE_HOST_MEMORY, TROUBLE_DRIVER } trouble_kind;

/* One player runs at a time, so no lock is needed. */
static struct {
    trouble_kind kind;
    unsigned nth;               /* the first that fails, from 1 */
    bool onwards;               /* and all after it */
    const char *const *entries; /* up to two; NULL: any call */
    CUresult result;
} planned;

static trouble_kind active, struck;
static bool met[PLAYERS];
static unsigned countdown;            /* allocations until one fails; 0: it has failed */
static uint32_t faults[MOST_FAULTS];  /* ids of the active faults */
static uint64_t strikes[MOST_FAULTS]; /* the call that each of them fails */
static size_t fault_count;

static struct {
    PFN_strata_sim_add_fault add;
    PFN_strata_sim_fault_reached reached;
    PFN_strata_sim_clear_faults clear;
} plan;

/* ---- host memory ---- */

static bool refuse_memory(void)
{
    if (active != TROUBLE_HOST_MEMORY || (countdown == 0 && !planned.onwards))
        return false;
    if (countdown > 0 && --countdown > 0)
        return false;
    struck = TROUBLE_HOST_MEMORY;
    return true;
}

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);
void *__real_strata_host_zalloc_aligned(size_t alignment, size_t bytes);
void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return refuse_memory() ? NULL : __real_strata_host_zalloc(bytes);
}

void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes)
{
    return refuse_memory() ? NULL : __real_strata_host_zalloc_aligned(alignment, bytes);
}

/* ---- driver calls ---- */

void trouble_open(void)
{
    fuzz_find("strata_sim_add_fault", &plan.add);
    fuzz_find("strata_sim_fault_reached", &plan.reached);
    fuzz_find("strata_sim_clear_faults", &plan.clear);
}

static void add_fault(const char *entry, uint64_t nth)
{
    strata_sim_fault fault = {
        .size = sizeof fault, .kind = STRATA_SIM_FAIL_CALL, .nth = nth, .error = planned.result, .entry = entry};
    check_cu(plan.add(&fault, &faults[fault_count]));
    strikes[fault_count++] = nth;
}

/* A fault fires once; `onwards` adds as many as there is room for. */
static void add_faults(void)
{
    const char *first = planned.entries ? planned.entries[0] : NULL;
    const char *second = planned.entries ? planned.entries[1] : NULL;
    unsigned each = planned.onwards ? MOST_FAULTS / 2 : 1;
    for (unsigned i = 0; i < each; i++) {
        add_fault(first, planned.nth + i);
        if (second)
            add_fault(second, planned.nth + i);
    }
}

/* Returns whether any fault fired. */
static bool end_faults(void)
{
    bool any = false;
    for (size_t i = 0; i < fault_count; i++) {
        uint64_t reached;
        check_cu(plan.reached(faults[i], &reached));
        any = any || reached >= strikes[i];
    }
    check_cu(plan.clear());
    fault_count = 0;
    return any;
}

/* ---- planning ---- */

void trouble_plan(fuzz_input *input)
{
    unsigned what = fuzz_byte(input), where = fuzz_byte(input);
    bool any_call = what & 1 && where >= ANY_CALL_FROM;
    planned.kind = what & 1 ? TROUBLE_DRIVER : TROUBLE_HOST_MEMORY;
    planned.onwards = what & 2 && !any_call;
    planned.result = what & 4 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    planned.nth = any_call ? 1 + where - ANY_CALL_FROM : 1 + (what >> 3) % 8;
    planned.entries = any_call ? NULL : entries[where % ENTRIES];
    const char *call = any_call ? "any driver call" : planned.entries[0];
    fuzz_tell("the next call meets %s%s, number %u%s", planned.kind == TROUBLE_DRIVER ? "a failing " : "no host memory",
              planned.kind == TROUBLE_DRIVER ? call : "", planned.nth, planned.onwards ? " and all after it" : "");
}

void trouble_forget(void)
{
    planned.kind = TROUBLE_NONE;
}

void trouble_begin(void)
{
    struck = TROUBLE_NONE;
    countdown = planned.nth;
    active = planned.kind;
    if (active == TROUBLE_DRIVER)
        add_faults();
}

strata_status trouble_end(strata_status status)
{
    if (active == TROUBLE_DRIVER && end_faults())
        struck = TROUBLE_DRIVER;
    active = planned.kind = TROUBLE_NONE;
    met[players_now()] |= struck != TROUBLE_NONE;
    return status;
}

bool trouble_met(unsigned player)
{
    bool was = met[player];
    met[player] = false;
    return was;
}

bool trouble_struck(void)
{
    return struck != TROUBLE_NONE;
}

bool trouble_explains(strata_status status)
{
    if (struck == TROUBLE_HOST_MEMORY)
        return status == STRATA_ERROR_OUT_OF_HOST_MEMORY;
    return struck == TROUBLE_DRIVER && (status == STRATA_ERROR_DRIVER || status == STRATA_ERROR_OUT_OF_MEMORY);
}
