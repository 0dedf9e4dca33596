"""PyTorch, CuPy and JAX as they are, under `strata exec`: what the report says of their caches, their Python lines, and a
guard's finding. Libraries that are not installed are left out.

    DRIVER=cuda STRATA=build/release/bin/strata python3 tests/adapters/exec/library_reports.py    # with a GPU
    tests/adapters/exec/run-library-reports SITE BUILD                      # PyTorch on the simulated driver
"""
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20


# ---- programs, each in a process of its own; they print what the report must say ----


def torch_make(size):
    import torch

    return torch.empty(size, dtype=torch.uint8, device="cuda")


def torch_cache():
    import torch

    large = torch_make(30 * MIB)
    kept = torch_make(5 * MIB)
    del large
    cuda = torch.cuda
    print(cuda.memory_reserved(), cuda.memory_allocated(), cuda.max_memory_reserved(), cuda.max_memory_allocated())
    return kept


def torch_backward():
    import torch

    weights = torch.ones(1000, 1000, device="cuda", requires_grad=True)
    (weights * 2).sum().backward()
    torch.cuda.synchronize()
    print("done")


def torch_overrun():
    import torch

    block = torch_make(1000)
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuMemsetD8_v2(ctypes.c_uint64(block.data_ptr()), ctypes.c_ubyte(1), ctypes.c_size_t(1004)) == 0
    del block
    torch.cuda.synchronize()


def cupy_make(size):
    import cupy

    return cupy.cuda.alloc(size)


def cupy_cache():
    import cupy

    large = cupy_make(30 * MIB)
    kept = cupy_make(5 * MIB)
    del large
    pool = cupy.get_default_memory_pool()
    print(pool.total_bytes(), pool.used_bytes())
    return kept


def jax_cache():
    import jax

    kept = jax.numpy.ones((5, MIB), dtype="uint8").block_until_ready()
    statistics = jax.local_devices()[0].memory_stats()
    print(statistics["bytes_in_use"], statistics["peak_bytes_in_use"])
    return kept


# ---- checks ----


def run(options, program, **environment):
    strata = [os.environ.get("STRATA", "strata"), "exec", "--driver", os.environ.get("DRIVER", "sim")]
    done = subprocess.run([*strata, *options, "--", sys.executable, __file__, program], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def report_of(program):
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        out, _ = run(["--json", "--stacks=1000", "--output", file.name], program)
        return [int(word) for word in out.split() if word.isdigit()], json.load(file)


def cache_of(report, library):
    return next(cache for cache in report["caches"]["libraries"] if cache["library"] == library)


def assert_line(report, function):
    frames = [frame for stack in report["devices"][0]["by_call_stack"] for frame in stack["call_stack"]]
    assert any(frame.startswith(function) and "library_reports.py:" in frame for frame in frames), frames


def check_torch():
    said, report = report_of("torch_cache")
    cache = cache_of(report, "PyTorch")
    assert said == [cache["held"], cache["used"], cache["held_peak"], cache["used_peak"]], (said, cache)
    assert cache["unused_peak_seen"] >= 30 * MIB, cache
    assert_line(report, "torch_make")
    _, errors = run(["--guard"], "torch_overrun", PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert "guard: overrun" in errors and "torch_make (" in errors and "library_reports.py:" in errors, errors
    if os.environ.get("DRIVER") == "cuda":  # the simulated driver has none of PyTorch's kernels
        report_of("torch_backward")


def check_cupy():
    said, report = report_of("cupy_cache")
    cache = cache_of(report, "CuPy")
    assert said == [cache["held"], cache["used"]], (said, cache)
    assert_line(report, "cupy_make")


def check_jax():
    said, report = report_of("jax_cache")
    cache = cache_of(report, "JAX")
    assert said == [cache["used"], cache["used_peak"]], (said, cache)
    assert_line(report, "jax_cache")


def check_all():
    for library in ["torch", "cupy", "jax"]:
        if importlib.util.find_spec(library) is None:
            print(f"{library} is not installed")
            continue
        globals()[f"check_{library}"]()
        print(f"{library}: its cache and its lines are reported")


if len(sys.argv) > 1:
    kept = globals()[sys.argv[1]]()
else:
    check_all()
