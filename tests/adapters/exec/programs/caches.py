"""Modules that answer as PyTorch, CuPy and JAX do. With the word "hold" it waits for the end of its input; with "trace" it
says which files' code has run."""
import ctypes
import sys
import time
import types

MIB = 1 << 20


def module(name, **members):
    made = types.ModuleType(name)
    vars(made).update(members)
    sys.modules[name] = made


used = 5 * MIB


def torch_statistics(device):
    if device:
        raise RuntimeError("Invalid device argument")
    return {
        "allocated_bytes": {"all": {"current": used, "peak": 35 * MIB}},
        "reserved_bytes": {"all": {"current": 50 * MIB, "peak": 60 * MIB}},
    }


class Pool:
    held = 40 * MIB

    def total_bytes(self):
        return self.held

    def used_bytes(self):
        return 10 * MIB

    def malloc(self, size):
        pass


class Device:
    def __init__(self, id, statistics):
        self.id = id
        self.memory_stats = lambda: statistics


class Backend:
    def local_devices(self):
        return [
            Device(0, {"bytes_in_use": 3 * MIB, "peak_bytes_in_use": 7 * MIB, "pool_bytes": 20 * MIB, "peak_pool_bytes": 21 * MIB}),
            Device(1, {"bytes_in_use": 4 * MIB, "peak_bytes_in_use": 8 * MIB}),
            Device(2, None),
        ]


pool = Pool()
if sys.argv[1] != "trace":
    module("torch._C", _cuda_memoryStats=torch_statistics)
    module("cupy.cuda.memory", get_allocator=lambda: pool.malloc)
    module("jax._src.xla_bridge", _backends={"cuda": Backend()})
if sys.version_info < (3, 11):
    import atexit  # strata exec cannot import it untraced
files = set()
if sys.argv[1] == "trace":
    sys.settrace(lambda frame, event, argument: files.add(frame.f_code.co_filename))
cuda = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(MIB)) == 0
if sys.argv[1] == "hold":
    used = 6 * MIB  # after the first answer, and before the next one that is not asked for
    print("holds", flush=True)
    while True:  # the main thread must come to Python code for an answer
        import select

        if select.select([sys.stdin], [], [], 0.02)[0]:
            break
elif sys.argv[1] == "trace":
    for _ in range(15):
        time.sleep(0.1)
    sys.settrace(None)
    print(sorted(files))
else:
    time.sleep(0.5)
    pool.held = 30 * MIB  # a smaller answer at the end
