/* Opening and closing of memory/, and its hooks for order/. */
#include "memory/memory.h"

static void queue_gone(const sim_queue *queue)
{
    for (int i = 0; i < sim.settings.devices; i++)
        for (sim_space *space = sim_order.devices[i].memory->spaces; space; space = space->next)
            sim_space_forget_queue(space, queue);
}

static sim_memory_hooks hooks = {
    .seen = sim_device_observe,
    .queue_gone = queue_gone,
};

bool sim_memory_open(void)
{
    if (sim_debugger_is_there()) {
        hooks.submitted = sim_in_flight_begin;
        hooks.running = sim_in_flight_run;
    }
    sim_hooks.memory = &hooks;
    sim_memory_types_open();
    return sim_slab_open(&sim_memory.pools, sizeof(struct CUmemPoolHandle_st)) &&
           sim_slab_open(&sim_memory.physicals, sizeof(sim_physical));
}

void sim_memory_close(void)
{
    sim_slab_close(&sim_memory.pools);
    sim_slab_close(&sim_memory.physicals);
}
