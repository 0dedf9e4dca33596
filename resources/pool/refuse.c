/* The error of a request that no step has served. */
#include "core/base/error.h"
#include "core/base/size_text.h"
#include "core/stack/neighbours.h"
#include "resources/pool/internal.h"

static strata_status refuse_initial(pool *self, const strata_request *request, const pool_outcome *outcome)
{
    const strata_error *below = &outcome->below;
    const bool from_below = below->status != STRATA_SUCCESS;
    if (from_below && below->status != STRATA_ERROR_OUT_OF_MEMORY && below->status != STRATA_ERROR_OUT_OF_BUDGET)
        return strata_error_raise_again(below);
    if (!from_below && outcome->result != CUDA_SUCCESS && outcome->result != CUDA_ERROR_OUT_OF_MEMORY)
        return strata_fail_allocation(&self->resource, request, outcome->result, outcome->call);
    const size_t device_free = strata_device_free_bytes(self->device);
    char beside[STRATA_NEIGHBOURS_TEXT];
    strata_neighbours_describe(self->device, self->resource.stack, beside);
    strata_error *error = strata_error_begin(from_below ? below->status : STRATA_ERROR_OUT_OF_MEMORY);
    if (from_below)
        *error = *below;
    error->requested = request->bytes;
    error->tag = request->tag;
    error->device_free = device_free;
    return strata_error_raise(error,
                              "pool: initial_size of %s cannot be reserved: free on device %d %s of %s%s. Choose "
                              "a smaller initial_size%s%.200s",
                              strata_size_text(self->initial_bytes).text, self->device->ordinal,
                              strata_size_text(device_free).text, strata_size_text(self->device->info.total_bytes).text,
                              beside, from_below ? ". Layer below: " : "", from_below ? below->message : "");
}

static strata_status refuse_fixed(pool *self, const strata_request *request, const strata_error *below)
{
    if (below->status != STRATA_ERROR_OUT_OF_MEMORY && below->status != STRATA_ERROR_OUT_OF_BUDGET)
        return strata_error_raise_again(below);
    if (below->driver_code == CUDA_ERROR_OUT_OF_MEMORY)
        return strata_fail_allocation_in_steps(&self->resource, request, below->driver_code, below->driver_call,
                                               self->store.granule);
    strata_error *error = strata_error_begin(below->status);
    *error = *below;
    error->requested = request->bytes;
    error->tag = request->tag;
    return strata_error_raise(error,
                              "pool: no free memory for a request of %s (tag \"%.60s\"), and no new piece: %.400s",
                              strata_size_text(request->bytes).text, strata_tag_name(request->tag), below->message);
}

strata_status pool_refuse(pool *self, const strata_request *request, const pool_outcome *outcome)
{
    if (outcome->no_host_memory)
        return strata_fail_host_memory("a piece of a pool");
    if (outcome->wait_error.status != STRATA_SUCCESS)
        return strata_error_raise_again(&outcome->wait_error);
    if (outcome->initial)
        return refuse_initial(self, request, outcome);
    if (outcome->below.status != STRATA_SUCCESS)
        return refuse_fixed(self, request, &outcome->below);
    const CUresult result = outcome->result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : outcome->result;
    return strata_fail_allocation_in_steps(&self->resource, request, result, outcome->call, self->store.granule);
}
