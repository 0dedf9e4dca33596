/* Operands: what memory they mean, whether it suffices, and their uses. */
#include "runtime/blas/internal.h"

/* Errors: INVALID_VALUE (not one of reference, block and batch). */
static strata_status check_kind(const strata_blas_operand *operand, const char *name)
{
    if (!operand)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %s is NULL", name);
    if ((operand->ref != NULL) + (operand->block != NULL) + (operand->batch != NULL) != 1)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %s: set one of ref, block and batch", name);
    return STRATA_SUCCESS;
}

static strata_status check_type(const strata_blas_operand *operand, const char *name, strata_element type)
{
    if (operand->type == STRATA_ELEMENT_NONE || operand->type == type)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %s has elements of type %s, not %s", name,
                       strata_element_name(type), strata_element_name(operand->type));
}

/* The whole memory of the operand, without its offset. */
static strata_status find_memory(const strata_blas_operand *operand, const char *name, blas_memory *out)
{
    strata_ref_memory memory;
    if (operand->batch) {
        *out = (blas_memory){.type = operand->batch->type, .elements = operand->batch->elements};
        return strata_ref_raw_device_ptr(operand->batch->pointers, &out->address);
    }
    if (operand->block) {
        const size_t bytes = strata_element_bytes(operand->type);
        if (!bytes)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %s is a block: set the type of its elements", name);
        *out = (blas_memory){operand->block->address, operand->type, operand->block->bytes / bytes};
        return STRATA_SUCCESS;
    }
    const strata_status status = strata_ref_access(operand->ref, &memory);
    if (status == STRATA_SUCCESS)
        *out = (blas_memory){memory.address, strata_ref_type(operand->ref), strata_ref_len(operand->ref)};
    return status;
}

strata_status blas_operand_resolve(const strata_blas_operand *operand, const char *name, blas_memory *out)
{
    *out = (blas_memory){0};
    strata_status status = check_kind(operand, name);
    if (status == STRATA_SUCCESS)
        status = find_memory(operand, name, out);
    if (status == STRATA_SUCCESS)
        status = check_type(operand, name, out->type);
    if (status != STRATA_SUCCESS || operand->batch)
        return status;
    if (operand->offset > out->elements)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %s begins at element %zu of %zu", name, operand->offset,
                           out->elements);
    out->elements -= operand->offset;
    out->address += operand->offset * strata_element_bytes(out->type);
    return STRATA_SUCCESS;
}

strata_status blas_operand_resolve_real(const strata_blas_operand *operand, const char *name, strata_element type,
                                        blas_memory *out)
{
    const strata_status status = blas_operand_resolve(operand, name, out);
    if (status != STRATA_SUCCESS)
        return status;
    if (operand->batch)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %s is a batch; only gemm takes one", name);
    if (type != STRATA_ELEMENT_NONE && out->type != type)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %s is %s, and another one %s: they have one type", name,
                           strata_element_name(out->type), strata_element_name(type));
    if (out->type != STRATA_ELEMENT_F32 && out->type != STRATA_ELEMENT_F64)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand %s is %s; expected f32 or f64", name,
                           strata_element_name(out->type));
    return STRATA_SUCCESS;
}

/* Elements from the first to the last of `count` parts of `part` elements each, `step` apart. False: too many. */
static bool span(size_t count, size_t step, size_t part, size_t *elements)
{
    *elements = 0;
    if (!count || !part)
        return true;
    return !__builtin_mul_overflow(count - 1, step, elements) && !__builtin_add_overflow(*elements, part, elements) &&
           *elements <= INT64_MAX;
}

static strata_status refuse_size(const char *name, size_t needed, const blas_memory *memory)
{
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "operand %s needs %zu elements of %s from its offset on, and has %zu", name, needed,
                       strata_element_name(memory->type), memory->elements);
}

static strata_status refuse_overflow(const char *name)
{
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "the size of operand %s overflows", name);
}

strata_status blas_vector_resolve(const strata_blas_operand *operand, const char *name, strata_element type, size_t n,
                                  blas_memory *out, int64_t *step)
{
    const strata_status status = blas_operand_resolve_real(operand, name, type, out);
    if (status != STRATA_SUCCESS)
        return status;
    const size_t steps = operand->step ? operand->step : 1;
    size_t needed;
    if (!span(n, steps, 1, &needed) || steps > INT64_MAX)
        return refuse_overflow(name);
    *step = (int64_t)steps;
    return needed <= out->elements ? STRATA_SUCCESS : refuse_size(name, needed, out);
}

strata_status blas_matrix_check(const strata_blas_operand *operand, const char *name, const blas_memory *memory,
                                size_t outer, size_t inner, size_t matrices, int64_t *leading)
{
    const size_t least = inner ? inner : 1;
    const size_t lead = operand->leading ? operand->leading : least;
    size_t one, all;
    if (lead < least)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "operand %s: a leading dimension of %zu is below the %zu elements of a row or column", name,
                           lead, inner);
    if (lead > INT64_MAX || operand->stride > INT64_MAX || !span(outer, lead, inner, &one) ||
        !span(matrices, operand->stride, one, &all))
        return refuse_overflow(name);
    *leading = (int64_t)lead;
    if (operand->batch)
        all = one;
    return all <= memory->elements ? STRATA_SUCCESS : refuse_size(name, all, memory);
}

/* ---- uses ---- */

static strata_status use_memory(strata_launch *launch, const strata_blas_operand *operand, const strata_block *block,
                                strata_access access)
{
    return operand->ref ? strata_launch_use_ref(launch, operand->ref, access)
                        : strata_launch_use(launch, block, access);
}

strata_status blas_operand_use(strata_launch *launch, const strata_blas_operand *operand, strata_access access)
{
    const strata_blas_batch *batch = operand->batch;
    if (!batch)
        return use_memory(launch, operand, operand->block, access);
    strata_status status = strata_launch_use_ref(launch, batch->pointers, STRATA_ACCESS_READ);
    for (size_t i = 0; i < batch->count && status == STRATA_SUCCESS; i++)
        status = use_memory(launch, &batch->operands[i], &batch->blocks[i], access);
    return status;
}
