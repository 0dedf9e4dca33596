/* The words of a recording. */
#include "service/recording.h"

#include <stddef.h>

const char service_recording_head[] = "strata service recording 1";

const char *const service_recording_kinds[RECORDING_KINDS] = {
    [SERVICE_ALLOCATE] = "allocate",
    [SERVICE_COPY_TO_HOST] = "to_host",
    [SERVICE_COPY_FROM_HOST] = "from_host",
    [SERVICE_RUN] = "run",
    [SERVICE_LOAD] = "load",
    [SERVICE_LAUNCH] = "launch",
    [SERVICE_RECORD_GRAPH] = "record_graph",
    [SERVICE_LAUNCH_GRAPH] = "launch_graph",
    [SERVICE_BLAS] = "blas",
    [SERVICE_COPY] = "copy",
    [SERVICE_FILL] = "fill",
    [SERVICE_MAKE_GRAPH] = "make_graph",
    [SERVICE_PLAY_GRAPH] = "play_graph",
    [RECORDING_UNKNOWN] = "unknown",
    [RECORDING_INTO] = "into",
};

const char *const service_recording_priorities[] = {
    [STRATA_PRIORITY_NORMAL] = "normal", [STRATA_PRIORITY_LOW] = "low", [STRATA_PRIORITY_HIGH] = "high"};

const char *const service_recording_hints[] = {
    [STRATA_HINT_NONE] = "none", [STRATA_HINT_SHORT] = "short", [STRATA_HINT_LONG] = "long"};

const char *const service_recording_arguments[] = {[STRATA_ARGUMENT_VALUE] = "value",
                                                   [STRATA_ARGUMENT_READ] = "read",
                                                   [STRATA_ARGUMENT_WRITE] = "write",
                                                   [STRATA_ARGUMENT_READ_WRITE] = "both"};

const char *const service_recording_orders[] = {
    [STRATA_BLAS_ORDER_NONE] = "none", [STRATA_BLAS_ROWS] = "rows", [STRATA_BLAS_COLUMNS] = "columns"};

/* ---- cuBLAS ---- */

#define AT(member) offsetof(strata_service_blas_call, call.member)

const recording_routine service_recording_routines[RECORDING_ROUTINES] = {
    [STRATA_BLAS_GEMM] = {"gemm",
                          12,
                          {{"order", RECORDING_ORDER, AT(gemm.order)},
                           {"transpose_a", RECORDING_BOOL, AT(gemm.transpose_a)},
                           {"transpose_b", RECORDING_BOOL, AT(gemm.transpose_b)},
                           {"m", RECORDING_SIZE, AT(gemm.m)},
                           {"n", RECORDING_SIZE, AT(gemm.n)},
                           {"k", RECORDING_SIZE, AT(gemm.k)},
                           {"alpha", RECORDING_DOUBLE, AT(gemm.alpha)},
                           {"beta", RECORDING_DOUBLE, AT(gemm.beta)},
                           {"count", RECORDING_SIZE, AT(gemm.count)},
                           {"a", RECORDING_OPERAND, AT(gemm.a)},
                           {"b", RECORDING_OPERAND, AT(gemm.b)},
                           {"c", RECORDING_OPERAND, AT(gemm.c)}}},
    [STRATA_BLAS_GEMV] = {"gemv",
                          9,
                          {{"order", RECORDING_ORDER, AT(gemv.order)},
                           {"transpose", RECORDING_BOOL, AT(gemv.transpose)},
                           {"m", RECORDING_SIZE, AT(gemv.m)},
                           {"n", RECORDING_SIZE, AT(gemv.n)},
                           {"alpha", RECORDING_DOUBLE, AT(gemv.alpha)},
                           {"beta", RECORDING_DOUBLE, AT(gemv.beta)},
                           {"a", RECORDING_OPERAND, AT(gemv.a)},
                           {"x", RECORDING_OPERAND, AT(gemv.x)},
                           {"y", RECORDING_OPERAND, AT(gemv.y)}}},
    [STRATA_BLAS_GER] = {"ger",
                         7,
                         {{"order", RECORDING_ORDER, AT(ger.order)},
                          {"m", RECORDING_SIZE, AT(ger.m)},
                          {"n", RECORDING_SIZE, AT(ger.n)},
                          {"alpha", RECORDING_DOUBLE, AT(ger.alpha)},
                          {"x", RECORDING_OPERAND, AT(ger.x)},
                          {"y", RECORDING_OPERAND, AT(ger.y)},
                          {"a", RECORDING_OPERAND, AT(ger.a)}}},
    [STRATA_BLAS_TRSM] = {"trsm",
                          10,
                          {{"order", RECORDING_ORDER, AT(trsm.order)},
                           {"right", RECORDING_BOOL, AT(trsm.right)},
                           {"upper", RECORDING_BOOL, AT(trsm.upper)},
                           {"transpose", RECORDING_BOOL, AT(trsm.transpose)},
                           {"unit_diagonal", RECORDING_BOOL, AT(trsm.unit_diagonal)},
                           {"m", RECORDING_SIZE, AT(trsm.m)},
                           {"n", RECORDING_SIZE, AT(trsm.n)},
                           {"alpha", RECORDING_DOUBLE, AT(trsm.alpha)},
                           {"a", RECORDING_OPERAND, AT(trsm.a)},
                           {"b", RECORDING_OPERAND, AT(trsm.b)}}},
    [STRATA_BLAS_AXPY] = {"axpy",
                          4,
                          {{"n", RECORDING_SIZE, AT(vectors.n)},
                           {"alpha", RECORDING_DOUBLE, AT(vectors.alpha)},
                           {"x", RECORDING_OPERAND, AT(vectors.x)},
                           {"y", RECORDING_OPERAND, AT(vectors.y)}}},
    [STRATA_BLAS_SCAL] = {"scal",
                          3,
                          {{"n", RECORDING_SIZE, AT(vectors.n)},
                           {"alpha", RECORDING_DOUBLE, AT(vectors.alpha)},
                           {"x", RECORDING_OPERAND, AT(vectors.x)}}},
    [STRATA_BLAS_DOT] = {"dot",
                         4,
                         {{"n", RECORDING_SIZE, AT(vectors.n)},
                          {"x", RECORDING_OPERAND, AT(vectors.x)},
                          {"y", RECORDING_OPERAND, AT(vectors.y)},
                          {"result", RECORDING_OPERAND, AT(vectors.result)}}},
    [STRATA_BLAS_NRM2] = {"nrm2",
                          3,
                          {{"n", RECORDING_SIZE, AT(vectors.n)},
                           {"x", RECORDING_OPERAND, AT(vectors.x)},
                           {"result", RECORDING_OPERAND, AT(vectors.result)}}},
};
