/* Batches: matrices anywhere in memory, whose addresses lie on the device for cuBLAS to read.
 *
 * The addresses are written once, when the batch is made. Calls then copy nothing, and a graph reads them at each
 * launch; a copy inside the capture would read host memory that is gone by then. */
#include "runtime/blas/internal.h"

#include "core/base/host_memory.h"
#include "core/streams/call_scope.h"

/* PTDS programs see a macro of this name. */
#undef strata_blas_batch_create

static strata_status check_members(const strata_blas_operand *operands, size_t count, strata_blas_batch *batch,
                                   uint64_t *addresses)
{
    for (size_t i = 0; i < count; i++) {
        blas_memory memory;
        const strata_status status = blas_operand_resolve(&operands[i], "of a batch", &memory);
        if (status != STRATA_SUCCESS)
            return status;
        if (operands[i].batch)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %zu of a batch is a batch", i);
        if (i && memory.type != batch->type)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %zu of a batch is %s, and the first one %s", i,
                               strata_element_name(memory.type), strata_element_name(batch->type));
        batch->type = memory.type;
        batch->elements = i && batch->elements < memory.elements ? batch->elements : memory.elements;
        addresses[i] = memory.address;
    }
    return STRATA_SUCCESS;
}

/* Clones the members' references and copies their blocks. */
static void keep_members(const strata_blas_operand *operands, size_t count, strata_blas_batch *batch)
{
    for (size_t i = 0; i < count; i++) {
        batch->operands[i] = operands[i];
        batch->operands[i].ref = strata_ref_clone(operands[i].ref);
        batch->operands[i].block = NULL;
        if (operands[i].block)
            batch->blocks[i] = *operands[i].block;
    }
    batch->count = count;
}

/* The host's copy is read before the call returns: it is pageable memory. */
static strata_status copy_addresses(const strata_blas_batch *batch, const uint64_t *addresses, size_t count,
                                    CUstream stream)
{
    CUdeviceptr to;
    strata_call_scope scope;
    strata_status status = strata_ref_raw_device_ptr(batch->pointers, &to);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, batch->runtime->device,
                                         STRATA_CALL_SCOPE_CONTEXT | strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.MemcpyHtoDAsync(to, addresses, count * sizeof *addresses, stream);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuMemcpyHtoDAsync", "writing the addresses of a batch");
}

static strata_status write_addresses(const strata_blas *blas, const strata_blas_batch *batch, const uint64_t *addresses,
                                     size_t count, CUstream stream)
{
    strata_launch launch;
    strata_status status = strata_launch_begin(&launch, blas->runtime, stream, blas->mode);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_launch_use_ref(&launch, batch->pointers, STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&launch);
    if (status == STRATA_SUCCESS) {
        status = copy_addresses(batch, addresses, count, stream);
        if (status == STRATA_SUCCESS)
            status = strata_launch_commit(&launch);
        else
            strata_launch_cancel(&launch);
    }
    strata_launch_end(&launch);
    return status;
}

static strata_status fill(strata_blas *blas, const strata_blas_operand *operands, size_t count, CUstream stream,
                          strata_blas_batch *batch)
{
    uint64_t *addresses = strata_host_zalloc(count * sizeof *addresses);
    if (!addresses)
        return strata_fail_host_memory("the addresses of a batch");
    strata_status status = check_members(operands, count, batch, addresses);
    if (status == STRATA_SUCCESS)
        status = strata_ref_allocate(blas->runtime, STRATA_ELEMENT_U64, count, false, stream, &batch->pointers);
    if (status == STRATA_SUCCESS)
        status = write_addresses(blas, batch, addresses, count, stream);
    if (status == STRATA_SUCCESS)
        keep_members(operands, count, batch);
    strata_host_free(addresses);
    return status;
}

static strata_status make(strata_blas *blas, size_t count, strata_blas_batch **out)
{
    strata_blas_batch *batch = strata_host_zalloc(sizeof *batch);
    *out = batch;
    if (batch) {
        batch->runtime = blas->runtime;
        batch->operands = strata_host_zalloc(count * sizeof *batch->operands);
        batch->blocks = strata_host_zalloc(count * sizeof *batch->blocks);
    }
    return batch && batch->operands && batch->blocks ? STRATA_SUCCESS : strata_fail_host_memory("a batch");
}

/* Releases all references, even after a failure; the first is returned. */
static strata_status end(strata_blas_batch *batch)
{
    if (!batch)
        return STRATA_SUCCESS;
    strata_status status = strata_ref_release(batch->pointers);
    for (size_t i = 0; i < batch->count; i++) {
        const strata_status one = strata_ref_release(batch->operands[i].ref);
        status = status == STRATA_SUCCESS ? one : status;
    }
    strata_host_free(batch->operands);
    strata_host_free(batch->blocks);
    strata_host_free(batch);
    return status;
}

strata_status strata_blas_batch_create(strata_blas *blas, const strata_blas_operand *operands, size_t count,
                                       CUstream stream, strata_blas_batch **out)
{
    strata_blas_batch *batch = NULL;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_batch_create: out is NULL");
    *out = NULL;
    strata_status status = blas_check(blas, "strata_blas_batch_create");
    if (status != STRATA_SUCCESS)
        return status;
    if (!operands || !count || count > SIZE_MAX / sizeof *batch->blocks)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_batch_create: there is no operand, or too many");
    status = blas_check_not_captured(blas->runtime, stream, "a batch of matrices is made");
    if (status == STRATA_SUCCESS)
        status = make(blas, count, &batch);
    if (status == STRATA_SUCCESS)
        status = fill(blas, operands, count, stream, batch);
    if (status == STRATA_SUCCESS) {
        *out = batch;
        return STRATA_SUCCESS;
    }
    strata_error_suppress_begin();
    end(batch);
    strata_error_suppress_end(false);
    return status;
}

strata_status strata_blas_batch_destroy(strata_blas_batch *batch)
{
    const strata_status status = strata_check_not_forked();
    return status == STRATA_SUCCESS ? end(batch) : status;
}

size_t strata_blas_batch_count(const strata_blas_batch *batch)
{
    return batch ? batch->count : 0;
}
