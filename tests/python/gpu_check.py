#!/usr/bin/env python3
"""Checks the Python package on a machine with a GPU, each door with the library it is for.

usage: gpu_check.py [SECTION...]

Needs the package on PYTHONPATH (scripts/gpu-python installs the wheel and starts this), NumPy, and what there is of CuPy,
PyTorch, JAX, Numba and cuda.core: a section whose library is missing, or cannot be imported by itself, is skipped. Each
section runs in a process of its own, which must exit with live arrays in silence; its result is printed as it ends, and
nothing in it keeps the others from running. Results are compared with NumPy's.
"""

import gc
import importlib
import importlib.util
import os
import subprocess
import sys
import threading
import time

MIB = 1 << 20


def live():
    import strata

    return strata.runtime().usage()["live_blocks"]


def check(truth, words):
    assert truth, words


def numbers(count=100_000, seed=1):
    import numpy

    return numpy.random.default_rng(seed).standard_normal(count, dtype=numpy.float32)


# ---- sections -------------------------------------------------------------------------------------------------------


def core():
    import strata

    info = strata.driver_info()
    print(f"{strata.device_info()['name']}, driver {info['version']}, {info['library']}")
    check(not info["simulated"], "this is not the simulated driver")
    with strata.Runtime("budget(limit=64MiB), statistics, pool") as runtime:
        stream = runtime.stream()
        buffer = runtime.allocate("32MiB", stream, tag="first")
        try:
            runtime.allocate("64MiB", stream)
            check(False, "64 MiB beside 32 fit into 64")
        except strata.OutOfBudgetError as error:
            check(error.limit == 64 * MIB and isinstance(error, MemoryError), "the error tells the limit")
        check("first" in runtime.report(), "the report names the tag")
        buffer.free()
        runtime.reap()
        check(runtime.trim() >= 32 * MIB, "memory goes back")
        stream.close()
    try:
        with strata.Runtime("direct") as runtime:
            runtime.allocate("16TiB")
        check(False, "16 TiB were had")
    except strata.OutOfMemoryError as error:
        check(error.driver_name == "CUDA_ERROR_OUT_OF_MEMORY", "the driver's refusal is told")
    return [strata.allocate(MIB), strata.Memory(MIB)]


def exchange_cupy():
    import cupy
    import numpy
    import strata

    values = numbers()
    buffer = strata.allocate(values.nbytes).view("float32")
    for array in (cupy.from_dlpack(buffer), cupy.asarray(buffer)):
        array[:] = cupy.asarray(values)
        check(numpy.array_equal(cupy.asnumpy(array * 2), values * 2), "CuPy computes in a buffer")
        array[:] = 0
    del buffer
    gc.collect()
    check(live() == 1, "the array keeps the memory")
    del array
    check(live() == 0, "the memory goes with the array")
    return cupy.from_dlpack(strata.allocate(MIB))


def exchange_torch():
    import numpy
    import strata
    import torch

    values = numbers()
    buffer = strata.allocate(values.nbytes).view("float32")
    tensor = torch.from_dlpack(buffer)
    tensor.copy_(torch.from_numpy(values))
    check(numpy.array_equal((tensor * 2).cpu().numpy(), values * 2), "PyTorch computes in a buffer")
    other = torch.as_tensor(buffer, device="cuda")
    check(other.data_ptr() == buffer.ptr, "PyTorch reads the array interface without a copy")
    half = strata.allocate(1024).view("bfloat16", (8, 64))
    check(torch.from_dlpack(half).dtype == torch.bfloat16, "bfloat16 goes to PyTorch")
    stream = torch.cuda.Stream()
    named = strata.allocate(MIB, stream)
    check(named.stream == stream.cuda_stream, "a stream of PyTorch names the allocation stream")
    del buffer, tensor, other, half, named
    gc.collect()
    check(live() == 0, "the memory goes with the tensors")
    return torch.from_dlpack(strata.allocate(MIB))


def exchange_jax():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import numpy
    import strata

    values = numbers()
    buffer = strata.allocate(values.nbytes).view("float32")
    if importlib.util.find_spec("cupy"):
        import cupy

        cupy.from_dlpack(buffer)[:] = cupy.asarray(values)
        cupy.cuda.Device().synchronize()
    array = jax.dlpack.from_dlpack(buffer)
    if importlib.util.find_spec("cupy"):
        check(numpy.array_equal(numpy.asarray(array * 2), values * 2), "JAX computes in a buffer")
    return array


def cupy_work(cupy, numpy):
    """Arithmetic with many temporaries, on the default stream, on others, and in threads."""
    values = numbers()
    expected = numpy.sort(values * 3 + 1)[:1000]

    def once(rounds):
        for _ in range(rounds):
            array = cupy.asarray(values)
            result = cupy.sort(array * 3 + 1)[:1000]
            check(numpy.array_equal(cupy.asnumpy(result), expected), "CuPy's result is NumPy's")

    once(20)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    for _ in range(10):
        for stream in streams:
            with stream:
                once(1)
    failures = []

    def in_thread():
        try:
            with cupy.cuda.Stream(non_blocking=True):
                once(20)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=in_thread) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not failures, failures)
    matrix = cupy.asarray(values[:90_000].reshape(300, 300))
    check(numpy.allclose(cupy.asnumpy(matrix @ matrix), cupy.asnumpy(matrix) @ cupy.asnumpy(matrix), atol=1e-3), "matmul")


def cupy_streams(cupy):
    """Streams that end before their arrays, and a capture."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        array = cupy.arange(100_000)
    del stream
    gc.collect()
    check(int(array.sum()) == 4999950000, "an array outlives its stream's name")
    own = cupy.cuda.Stream(non_blocking=True)
    with cupy.cuda.ExternalStream(own.ptr):
        array = cupy.arange(1000)
        own.synchronize()
    del own
    check(int(array.sum()) == 499500, "an array outlives a foreign stream")
    del array
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        source = cupy.ones(1000, dtype="float32")
        kept = source + source  # compiled before the capture
        stream.begin_capture()
        result = source + source
        graph = stream.end_capture()
        graph.launch()
        stream.synchronize()
        check(float(result.sum()) == 2000, "memory that was allocated in a capture")
    return kept


def cupy_door(order):
    import cupy
    import numpy
    import strata
    import strata.cupy

    strata.cupy.use(order=order)
    cupy_work(cupy, numpy)
    kept = cupy_streams(cupy)
    check(cupy.get_default_memory_pool().used_bytes() == 0, "CuPy's own pool is not used")
    before = live()
    with strata.tag("tagged"):
        kept = [kept, cupy.zeros(1000)]
    check(live() == before + 1, "an array is a block")
    check("tagged" in strata.report(), "the tag of an array")
    with strata.budget("64MiB"):
        first = cupy.zeros(10 * MIB, dtype="float32")
        try:
            cupy.zeros(10 * MIB, dtype="float32")
            check(False, "80 MiB fit into 64")
        except cupy.cuda.memory.OutOfMemoryError as error:
            check(isinstance(error.__cause__, strata.OutOfBudgetError), "its cause is Strata's")
        del first
        kept.append(cupy.zeros(10 * MIB, dtype="float32"))  # goes on
    return kept


def cupy_stream_order():
    return cupy_door("stream")


def cupy_any_order():
    return cupy_door("any")


def numba_door():
    import numpy
    import strata
    import strata.numba
    from numba import cuda

    strata.numba.use("budget(limit=2GiB), statistics, pool")

    @cuda.jit
    def scale(array, factor):
        i = cuda.grid(1)
        if i < array.size:
            array[i] *= factor

    values = numbers()
    for _ in range(20):
        array = cuda.to_device(values)
        scale[(values.size + 255) // 256, 256](array, numpy.float32(2))
        check(numpy.array_equal(array.copy_to_host(), values * 2), "Numba's result is NumPy's")
    stream = cuda.stream()
    array = cuda.to_device(values, stream=stream)
    scale[(values.size + 255) // 256, 256, stream](array, numpy.float32(3))
    result = array.copy_to_host(stream=stream)
    stream.synchronize()
    check(numpy.array_equal(result, values * 3), "Numba's result on a stream of its own is NumPy's")
    check(cuda.current_context().get_memory_info().total == 2 << 30, "the budget is the device's size")
    try:
        cuda.device_array(1 << 30, dtype=numpy.float64)
        check(False, "8 GiB fit into 2")
    except cuda.cudadrv.driver.CudaAPIError as error:
        check(error.code == 2, "out of memory is CUDA's code")
    del array
    cuda.current_context().memory_manager.deallocations.clear()
    check(live() == 0, "Numba frees")
    return cuda.to_device(values)


def cuda_core_door():
    import numpy
    import strata
    import strata.cuda_core
    from cuda.core import Device

    device = Device()
    device.set_current()
    device.memory_resource = strata.cuda_core.MemoryResource(device.device_id)
    stream = device.create_stream()
    for size in (0, 1, 1000, 32 * MIB):
        buffer = device.allocate(size, stream=stream)
        check(buffer.size == size and live() == (size > 0), "a buffer is a block")
        buffer.close(stream)
    check(live() == 0, "buffers are freed")
    buffer = device.allocate(4000, stream=stream)
    if importlib.util.find_spec("cupy"):
        import cupy

        array = cupy.from_dlpack(buffer).view("float32")
        array[:] = 3
        check(numpy.array_equal(cupy.asnumpy(array), numpy.full(1000, 3, "float32")), "a buffer's content")
        del array
    with strata.budget("1MiB"):
        try:
            device.allocate(2 * MIB, stream=stream)
            check(False, "2 MiB fit into 1")
        except strata.OutOfMemoryError:
            pass
    return buffer


def speed():
    """Not a check: one allocation and its free, of 1 MiB, in CuPy; the best of five rounds of 20,000."""
    import cupy
    import strata.cupy

    def measure():
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(20_000):
                cupy.cuda.alloc(MIB)
            best = min(best, time.perf_counter() - start)
        return best / 20_000 * 1e6

    cupy.cuda.alloc(MIB)
    print(f"CuPy's pool                {measure():8.2f} us")
    strata.cupy.use("pool")
    print(f"strata.cupy, stream        {measure():8.2f} us")
    with cupy.cuda.Stream(non_blocking=True):
        print(f"... on another stream      {measure():8.2f} us")
    strata.cupy.use("pool", order="any")
    print(f"strata.cupy, any           {measure():8.2f} us")


SECTIONS = {
    "core": (core, ()),
    "exchange_cupy": (exchange_cupy, ("cupy",)),
    "exchange_torch": (exchange_torch, ("torch",)),
    "exchange_jax": (exchange_jax, ("jax",)),
    "cupy_stream": (cupy_stream_order, ("cupy",)),
    "cupy_any": (cupy_any_order, ("cupy",)),
    "numba": (numba_door, ("numpy", "numba_cuda", "numba.cuda")),
    "cuda_core": (cuda_core_door, ("cuda.core",)),
    "speed": (speed, ("cupy",)),
}

kept_to_the_end = []  # live at the exit


UNUSABLE = 77  # exit status of a section whose library cannot be imported
SECONDS = 120  # for a section


def is_there(module):
    """Whether a package has it; nothing of its own is imported, since that may fail."""
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def import_libraries(modules):
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # any: libraries fail in many ways beside a version that they were not made for
            print(f"{module} cannot be imported: {type(error).__name__}: {error}")
            sys.exit(UNUSABLE)


def run_section(name):
    """Runs a section in a process of its own; its verdict, and what to show of it."""
    missing = [module for module in SECTIONS[name][1] if not is_there(module)]
    if missing:
        return "skipped", f"no {missing[0]} here"
    command = [sys.executable, __file__, "--in-process", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        return "FAILED", f"did not end within {SECONDS} s\n{(error.stdout or b'').decode(errors='replace')}"
    words = f"{done.stdout}{done.stderr}".strip()
    if done.returncode == UNUSABLE:
        return "skipped", words
    # Libraries may write of themselves; of an end that goes wrong, Python and Strata write these.
    wrong = [word for word in ("Traceback", "Exception", "rror", "strata") if word in done.stderr]
    if done.returncode == 0 and not wrong:
        return "passed", words
    return "FAILED", f"exit status {done.returncode}\n{words}"


def main(names):
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        print(f"no section {unknown[0]}; there are: {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    verdicts = []
    for name in names or SECTIONS:
        start = time.monotonic()
        verdict, words = run_section(name)
        verdicts.append(verdict)
        print(f"{name:16} {verdict:8} {time.monotonic() - start:5.1f} s", flush=True)
        for line in words.splitlines():
            print(f"    {line}", flush=True)
    print(f"{verdicts.count('passed')} passed, {verdicts.count('FAILED')} failed, {verdicts.count('skipped')} skipped")
    return "FAILED" in verdicts


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-process"]:
        section, needed = SECTIONS[sys.argv[2]]
        import_libraries(needed)
        kept_to_the_end.append(section())
    else:
        sys.exit(main(sys.argv[1:]))
