/* The charges of a shared budget after a reset of the device: its blocks are gone, and other processes may have their
 * bytes. A later free or completion of such a block finds no charge. Memory of the driver's pools outlives the context,
 * and stays charged until the context has begun anew, in which it can be freed. */
#include "core/base/error.h"
#include "resources/budget/internal.h"

static bool has_blocks(strata_resource *layer)
{
    strata_usage usage = {0};
    strata_error_suppress_begin();
    layer->ops->give_back(layer, UINT64_MAX, false);
    const strata_status status = layer->ops->usage(layer, &usage);
    strata_error_suppress_end(false);
    return status != STRATA_SUCCESS || usage.bytes_outstanding;
}

static bool outlives_context(const budget *self)
{
    strata_resource *layer = (strata_resource *)&self->resource;
    while ((layer = strata_resource_next_below(&self->resource, layer)))
        if (layer->ops->outlives_context && has_blocks(layer))
            return true;
    return false;
}

/* Ends all charges: of live blocks, of blocks of other layers, and of those whose frees wait for streams that are gone.
 * Returns their bytes. */
static uint64_t end_charges(budget *self)
{
    const strata_table *table = strata_resource_table(&self->resource);
    const uint32_t end = strata_table_slot_limit(strata_resource_table(&self->resource));
    uint64_t bytes = 0;
    for (uint32_t slot = 1; slot < end; slot++) {
        budget_record *record = budget_record_in(self, strata_table_entry(table, slot));
        strata_budget_account *account = atomic_load_explicit(&record->account, memory_order_relaxed);
        const uint64_t charge = account ? budget_record_take(record, UINT64_MAX) : 0;
        if (charge)
            budget_return_charge(self, record, account, charge);
        bytes += charge;
    }
    return bytes;
}

uint64_t budget_end_lost_charges(budget *self)
{
    return self->base.shared && self->resource.stack && strata_device_is_lost(self->device) && !outlives_context(self)
               ? end_charges(self)
               : 0;
}
