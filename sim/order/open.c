/* The start and the end of the order's room: its slabs, clocks and components. */
#include "order/order.h"
#include <stdlib.h>

bool sim_order_open(void)
{
    return sim_slab_open(&sim_order.contexts, sizeof(sim_context)) &&
           sim_slab_open(&sim_order.streams, sizeof(struct CUstream_st)) &&
           sim_slab_open(&sim_order.events, sizeof(struct CUevent_st)) && sim_threads_open();
}

void sim_clocks_close(void)
{
    sim_clock_drop(sim_order.host_knows);
    sim_order.host_knows = NULL;
    free(sim_order.components);
    sim_order.components = NULL;
    sim_order.component_slots = 0;
}

void sim_order_close(void)
{
    sim_slab_close(&sim_order.contexts);
    sim_slab_close(&sim_order.streams);
    sim_slab_close(&sim_order.events);
}
