/* What both doors of ONNX Runtime share: memory by address, ordered with a stream. */
#ifndef STRATA_ADAPTERS_ONNX_ONNX_H
#define STRATA_ADAPTERS_ONNX_ONNX_H

#include <stdatomic.h>
#include <stdint.h>

#include <strata/onnx.h>

/* Allocations minus frees; any thread. */
typedef _Atomic int64_t onnx_live;

/* Checks whether a runtime and a stream can serve ONNX Runtime. Errors: INVALID_VALUE, UNSUPPORTED (no search by
 * address), and those of the runtime. */
strata_status onnx_check(strata_runtime *runtime, CUstream stream);

/* NULL: 0 bytes were asked for, or the error record says why. */
void *onnx_allocate(strata_runtime *runtime, size_t bytes, CUstream stream, onnx_live *live);

/* Frees in the order of the allocation's stream. NULL is ignored. */
void onnx_deallocate(strata_runtime *runtime, void *address, onnx_live *live);

#endif
