/* Products of matrices. cuBLAS knows column order: a matrix in row order is its transpose there, and the transpose of
 * op(A) op(B) is the product of the transposes in the other order. So row order swaps the operands, and m with n. */
#include "runtime/blas/internal.h"

/* PTDS programs see a macro of this name. */
#undef strata_blas_gemm

typedef struct gemm_operands {
    blas_memory a, b, c;
} gemm_operands;

/* cuBLAS's number of the type; -1: it has none. */
static int library_type(strata_element type)
{
    switch (type) {
    case STRATA_ELEMENT_F32:
        return STRATA_CUDA_R_32F;
    case STRATA_ELEMENT_F64:
        return STRATA_CUDA_R_64F;
    case STRATA_ELEMENT_F16:
        return STRATA_CUDA_R_16F;
    case STRATA_ELEMENT_BF16:
        return STRATA_CUDA_R_16BF;
    case STRATA_ELEMENT_F8E4M3:
        return STRATA_CUDA_R_8F_E4M3;
    case STRATA_ELEMENT_F8E5M2:
        return STRATA_CUDA_R_8F_E5M2;
    default:
        return -1;
    }
}

static bool is_f8(strata_element type)
{
    return type == STRATA_ELEMENT_F8E4M3 || type == STRATA_ELEMENT_F8E5M2;
}

static bool types_fit(strata_element a, strata_element b, strata_element c)
{
    if (is_f8(a) && is_f8(b) && !(a == STRATA_ELEMENT_F8E5M2 && b == STRATA_ELEMENT_F8E5M2))
        return c == STRATA_ELEMENT_F32 || c == STRATA_ELEMENT_F16 || c == STRATA_ELEMENT_BF16;
    if (a != b || is_f8(a) || library_type(a) < 0)
        return false;
    const bool half = a == STRATA_ELEMENT_F16 || a == STRATA_ELEMENT_BF16;
    return c == a || (half && c == STRATA_ELEMENT_F32);
}

static strata_status resolve(const strata_blas_gemm_call *call, gemm_operands *out)
{
    strata_status status = blas_operand_resolve(&call->a, "A", &out->a);
    if (status == STRATA_SUCCESS)
        status = blas_operand_resolve(&call->b, "B", &out->b);
    if (status == STRATA_SUCCESS)
        status = blas_operand_resolve(&call->c, "C", &out->c);
    if (status != STRATA_SUCCESS || types_fit(out->a.type, out->b.type, out->c.type))
        return status;
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_gemm: no product of %s and %s into %s",
                       strata_element_name(out->a.type), strata_element_name(out->b.type),
                       strata_element_name(out->c.type));
}

/* One matrix, matrices at strides, or three batches. */
static strata_status check_count(const strata_blas_gemm_call *call)
{
    const strata_blas_batch *batches[] = {call->a.batch, call->b.batch, call->c.batch};
    const int given = (batches[0] != NULL) + (batches[1] != NULL) + (batches[2] != NULL);
    if (!given)
        return STRATA_SUCCESS;
    if (given < 3)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_gemm: A, B and C are batches, or none of them is");
    for (int i = 0; i < 3; i++)
        if (batches[i]->count != (call->count ? call->count : 1))
            return strata_fail(STRATA_ERROR_INVALID_VALUE,
                               "strata_blas_gemm: a batch of %zu matrices in a product of %zu", batches[i]->count,
                               call->count ? call->count : 1);
    return STRATA_SUCCESS;
}

/* Checks a matrix as it lies in memory: so many rows of so many elements, or columns. */
static strata_status check_shape(const strata_blas_gemm_call *call, const strata_blas_operand *operand,
                                 const char *name, const blas_memory *memory, size_t rows, size_t columns,
                                 int64_t *leading)
{
    const bool by_rows = call->order == STRATA_BLAS_ROWS;
    return blas_matrix_check(operand, name, memory, by_rows ? rows : columns, by_rows ? columns : rows,
                             operand->batch || !call->count ? 1 : call->count, leading);
}

static strata_status check_c_apart(const strata_blas_gemm_call *call, int64_t leading)
{
    const size_t outer = call->order == STRATA_BLAS_ROWS ? call->m : call->n;
    const size_t inner = call->order == STRATA_BLAS_ROWS ? call->n : call->m;
    if (call->count <= 1 || call->c.batch || !outer || !inner ||
        call->c.stride >= (outer - 1) * (size_t)leading + inner)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "operand C: at a stride of %zu elements its matrices overlap",
                       call->c.stride);
}

static strata_status check_shapes(const strata_blas_gemm_call *call, const gemm_operands *memory, int64_t leading[3])
{
    const size_t m = call->m, n = call->n, k = call->k;
    if (m > INT64_MAX || n > INT64_MAX || k > INT64_MAX || call->count > INT64_MAX)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_gemm: a size is above the largest int64_t");
    strata_status status =
        check_shape(call, &call->a, "A", &memory->a, call->transpose_a ? k : m, call->transpose_a ? m : k, &leading[0]);
    if (status == STRATA_SUCCESS)
        status = check_shape(call, &call->b, "B", &memory->b, call->transpose_b ? n : k, call->transpose_b ? k : n,
                             &leading[1]);
    if (status == STRATA_SUCCESS)
        status = check_shape(call, &call->c, "C", &memory->c, m, n, &leading[2]);
    return status == STRATA_SUCCESS ? check_c_apart(call, leading[2]) : status;
}

static void swap_operands(blas_product *product)
{
    const blas_product of = *product;
    product->op_a = of.op_b;
    product->op_b = of.op_a;
    product->m = of.n;
    product->n = of.m;
    product->a = of.b;
    product->b = of.a;
    product->type_a = of.type_b;
    product->type_b = of.type_a;
    product->lda = of.ldb;
    product->ldb = of.lda;
    product->stride_a = of.stride_b;
    product->stride_b = of.stride_a;
}

static blas_product make_product(const strata_blas_gemm_call *call, const gemm_operands *memory,
                                 const int64_t leading[3])
{
    const bool wide = memory->a.type == STRATA_ELEMENT_F64;
    blas_product product = {
        .op_a = call->transpose_a ? STRATA_CUBLAS_OP_T : STRATA_CUBLAS_OP_N,
        .op_b = call->transpose_b ? STRATA_CUBLAS_OP_T : STRATA_CUBLAS_OP_N,
        .m = (int64_t)call->m,
        .n = (int64_t)call->n,
        .k = (int64_t)call->k,
        .alpha = blas_factor_of(call->alpha, wide),
        .beta = blas_factor_of(call->beta, wide),
        .a = memory->a.address,
        .b = memory->b.address,
        .c = memory->c.address,
        .type_a = library_type(memory->a.type),
        .type_b = library_type(memory->b.type),
        .type_c = library_type(memory->c.type),
        .lda = leading[0],
        .ldb = leading[1],
        .ldc = leading[2],
        .stride_a = (long long)call->a.stride,
        .stride_b = (long long)call->b.stride,
        .stride_c = (long long)call->c.stride,
        .count = call->count ? (int64_t)call->count : 1,
        .batched = call->a.batch != NULL,
        .compute = wide ? STRATA_CUBLAS_COMPUTE_64F : STRATA_CUBLAS_COMPUTE_32F,
    };
    if (call->order == STRATA_BLAS_ROWS)
        swap_operands(&product);
    return product;
}

/* An address of the device as the library takes it. */
static void *pointer_to(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static int submit(const strata_blas *blas, const void *data, const blas_place *place, const char **function)
{
    const blas_product *p = data;
    const strata_blas_table *call = &blas->library->call;
    void *a = pointer_to(p->a), *b = pointer_to(p->b), *c = pointer_to(p->c);
    (void)place;
    if (p->batched) {
        *function = "cublasGemmBatchedEx";
        return call->gemm_batched(blas->handle, p->op_a, p->op_b, p->m, p->n, p->k, &p->alpha, a, p->type_a, p->lda, b,
                                  p->type_b, p->ldb, &p->beta, c, p->type_c, p->ldc, p->count, p->compute,
                                  STRATA_CUBLAS_GEMM_DEFAULT);
    }
    if (p->count > 1) {
        *function = "cublasGemmStridedBatchedEx";
        return call->gemm_strided(blas->handle, p->op_a, p->op_b, p->m, p->n, p->k, &p->alpha, a, p->type_a, p->lda,
                                  p->stride_a, b, p->type_b, p->ldb, p->stride_b, &p->beta, c, p->type_c, p->ldc,
                                  p->stride_c, p->count, p->compute, STRATA_CUBLAS_GEMM_DEFAULT);
    }
    *function = "cublasGemmEx";
    return call->gemm(blas->handle, p->op_a, p->op_b, p->m, p->n, p->k, &p->alpha, a, p->type_a, p->lda, b, p->type_b,
                      p->ldb, &p->beta, c, p->type_c, p->ldc, p->compute, STRATA_CUBLAS_GEMM_DEFAULT);
}

static strata_status check_f8(const strata_blas_gemm_call *call, const gemm_operands *memory)
{
    if (!is_f8(memory->a.type) || (!call->a.batch && call->count <= 1))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "strata_blas_gemm: products of f8 are of one matrix each");
}

strata_status strata_blas_gemm(strata_blas *blas, const strata_blas_gemm_call *given, CUstream stream)
{
    strata_blas_gemm_call call;
    gemm_operands memory;
    int64_t leading[3];
    strata_status status = blas_read_call(blas, "strata_blas_gemm", given, &call, sizeof call);
    if (status == STRATA_SUCCESS)
        status = blas_check_order(call.order, "strata_blas_gemm");
    if (status == STRATA_SUCCESS)
        status = resolve(&call, &memory);
    if (status == STRATA_SUCCESS)
        status = check_count(&call);
    if (status == STRATA_SUCCESS)
        status = check_f8(&call, &memory);
    if (status == STRATA_SUCCESS)
        status = check_shapes(&call, &memory, leading);
    if (status != STRATA_SUCCESS || !call.m || !call.n)
        return status;
    const blas_product product = make_product(&call, &memory, leading);
    const blas_use uses[] = {{&call.a, STRATA_ACCESS_READ},
                             {&call.b, STRATA_ACCESS_READ},
                             {&call.c, call.beta == 0 ? STRATA_ACCESS_WRITE : STRATA_ACCESS_READ_WRITE}};
    return blas_submit(
        blas,
        &(blas_work){
            .uses = uses, .count = 3, .submit = is_f8(memory.a.type) ? blas_submit_lt : submit, .data = &product},
        stream);
}
