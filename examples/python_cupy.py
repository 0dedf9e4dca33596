"""CuPy's arrays in Strata's memory, under a budget: needs CuPy and a GPU."""

import cupy

import strata
import strata.cupy

strata.cupy.use("budget, statistics, pool")

with strata.tag("forward"), strata.budget("512MiB") as budget:
    weights = cupy.random.standard_normal((4096, 4096), dtype=cupy.float32)
    inputs = cupy.random.standard_normal((4096, 1024), dtype=cupy.float32)
    outputs = cupy.maximum(weights @ inputs, 0)
    try:
        cupy.zeros((1 << 14, 1 << 14), dtype=cupy.float32)  # 1 GiB
    except cupy.cuda.memory.OutOfMemoryError as error:
        print(error)
    print(float(outputs.mean()), "peak", budget.peak)

print(strata.report())
