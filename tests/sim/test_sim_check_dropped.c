/* Programs that need every wait and record that they make: the driver forgets one after the other, and the checker
 * reports each time. */
#include "planted/correct.h"

/* Runs the program without its n-th edge. False if it makes fewer. */
static bool run_without(const struct program *program, uint64_t nth)
{
    strata_sim_fault fault = {
        .size = sizeof fault, .kind = STRATA_SIM_DROP_EDGE, .nth = nth, .edges = STRATA_SIM_EDGE_ANY};
    uint32_t id;
    uint64_t reached;
    uint64_t count;
    OK(p_clear_reports());
    struct world world = world_begin(program->modes);
    OK(p_add_fault(&fault, &id));
    program->run(&world);
    OK(p_fault_reached(id, &reached));
    OK(p_clear_faults());
    OK(p_cuCtxSynchronize());
    OK(p_get_report_count(&count));
    world_end(&world);
    if (reached >= nth && count == 0)
        fail_msg("%s: nothing notices that edge %llu is dropped", program->name, (unsigned long long)nth);
    return reached >= nth;
}

static void drop_each(void **state)
{
    const struct program *program = *state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint64_t nth = 1;
        OK(p_set_seed(seed));
        while (run_without(program, nth))
            nth++;
        assert_true(nth > 1);
    }
}

int main(void)
{
    struct program tight[CORRECT];
    size_t count = 0;
    for (size_t i = 0; i < CORRECT; i++)
        if (correct[i].needs_every_edge)
            tight[count++] = correct[i];
    return run_programs(tight, count, drop_each);
}
