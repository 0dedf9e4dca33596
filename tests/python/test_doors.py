"""The doors to CuPy, Numba and cuda.core.

Numba and cuda.core run on the simulated driver, as libcuda.so.1 in a folder of its own. The CUDA runtime does not, and
so neither does CuPy: a stand-in has the classes that its allocators meet. tests/python/gpu_check.py has the real one.
"""

import importlib.util
import os
import pathlib

import pytest

import strata

HERE = pathlib.Path(__file__).parent
MIB = 1 << 20


@pytest.fixture
def on_simulated_libcuda(process, tmp_path):
    """Runs a program whose libcuda is the simulated driver."""
    info = strata.driver_info()
    if not info["simulated"]:
        return process
    (tmp_path / "libcuda.so.1").symlink_to(info["library"])
    (tmp_path / "libcuda.so").symlink_to("libcuda.so.1")

    def run(text, **environment):
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        return process(text, LD_LIBRARY_PATH=path, STRATA_DRIVER="cuda", **environment)

    return run


def needs(module):
    package, dot, _ = module.rpartition(".")
    there = (not dot or importlib.util.find_spec(package)) and importlib.util.find_spec(module)
    return pytest.mark.skipif(not there, reason=f"{module} is not installed")


def lines(result):
    status, output, errors = result
    errors = [line for line in errors.splitlines() if not line.startswith("strata-sim: missing entry points")]
    assert (status, errors) == (0, []), errors
    return output.splitlines()


# ---- CuPy -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cupy(monkeypatch, driver):
    driver  # its context is current
    monkeypatch.syspath_prepend(str(HERE / "stand_in"))
    for name in ("cupy", "strata.cupy"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    import cupy

    yield cupy
    monkeypatch.undo()


def live():
    return strata.runtime().usage()["live_blocks"]


def test_cupy_arrays_come_from_strata(cupy):
    import strata.cupy

    before = live()
    strata.cupy.use()
    with strata.tag("array"):
        array = cupy.cuda.alloc(MIB)
    assert array.ptr and array.mem.size == MIB and array.mem.device_id == 0
    assert live() == before + 1 and "array" in strata.report()
    del array
    assert live() == before
    assert cupy.cuda.alloc(0).ptr == 0


def test_cupy_memory_is_of_the_current_stream_which_it_keeps(cupy, driver):
    import strata.cupy

    allocator = strata.cupy.use()
    assert allocator.malloc(10).mem.owner.stream == 0
    stream = cupy.cuda.Stream(driver.make_stream(), driver.destroy_stream)
    with stream:
        memory = cupy.cuda.alloc(MIB)
    assert isinstance(memory.mem.owner, strata.Buffer) and memory.mem.owner.stream == stream.ptr
    driver.fill(memory.mem.owner, 1)
    del stream
    assert cupy.cuda.Stream.ended == 0  # the memory keeps it
    del memory
    assert cupy.cuda.Stream.ended == 1


def test_cupy_memory_of_a_foreign_or_captured_stream_is_good_on_any(cupy, driver):
    import strata.cupy

    strata.cupy.use()
    handle = driver.make_stream()
    with cupy.cuda.ExternalStream(handle):
        memory = cupy.cuda.alloc(MIB)
    assert isinstance(memory.mem.owner, strata.Memory)
    driver.destroy_stream(handle)  # before the memory
    del memory
    captured = cupy.cuda.Stream(driver.make_stream(), driver.destroy_stream)
    captured.capturing = True
    with captured:
        assert isinstance(cupy.cuda.alloc(MIB).mem.owner, strata.Memory)
    strata.cupy.use(order="any")
    assert isinstance(cupy.cuda.alloc(MIB).mem.owner, strata.Memory)
    with pytest.raises(ValueError, match="order"):
        strata.cupy.use(order="some")


def test_cupy_out_of_memory_is_cupys_own(cupy):
    import strata.cupy

    strata.cupy.use()
    with strata.budget("1MiB"), pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="2 MiB") as caught:
        cupy.cuda.alloc(2 * MIB)
    assert isinstance(caught.value.__cause__, strata.OutOfBudgetError)
    assert (caught.value.size, caught.value.limit) == (2 * MIB, MIB)


def test_cupy_arrays_in_circles_are_collected_before_memory_runs_out(cupy):
    import strata.cupy

    strata.cupy.use()
    with strata.budget("2MiB"):
        circle = [cupy.cuda.alloc(3 * MIB // 2)]
        circle.append(circle)
        del circle
        assert cupy.cuda.alloc(3 * MIB // 2).ptr


# ---- Numba ----------------------------------------------------------------------------------------------------------

NUMBA = """
    import numpy, strata
    from numba import cuda
    {choose}
    array = cuda.to_device(numpy.arange(1000.0))
    print(array.copy_to_host().sum(), strata.runtime().usage()["live_blocks"])
    other = cuda.device_array(1000)
    other.copy_to_device(array)
    print(other.copy_to_host().sum(), type(cuda.current_context().memory_manager).__module__)
    with strata.budget("1KiB"):
        try:
            cuda.device_array(1 << 20)
        except cuda.cudadrv.driver.CudaAPIError as error:
            print(error.code)
    print(cuda.current_context().get_memory_info().total == strata.device_info()["total_bytes"])
    del array, other
    cuda.current_context().memory_manager.deallocations.clear()
    print(strata.runtime().usage()["live_blocks"])
    at_exit = cuda.to_device(numpy.arange(10))
    """


@needs("numba_cuda")
@pytest.mark.parametrize("by", ["use", "environment"])
def test_numba_arrays_come_from_strata(on_simulated_libcuda, by):
    choose = "import strata.numba; strata.numba.use()" if by == "use" else ""
    environment = {} if by == "use" else {"NUMBA_CUDA_MEMORY_MANAGER": "strata.numba"}
    result = on_simulated_libcuda(NUMBA.format(choose=choose), **environment)
    assert lines(result) == ["499500.0 1", "499500.0 strata.numba", "2", "True", "0"]


@needs("numba_cuda")
def test_numba_is_told_of_a_budget_as_the_devices_size(on_simulated_libcuda):
    result = on_simulated_libcuda(
        """
        import strata, strata.numba
        from numba import cuda
        strata.numba.use("budget(limit=64MiB), pool")
        print(cuda.current_context().get_memory_info())
        """
    )
    assert lines(result) == ["MemoryInfo(free=67108864, total=67108864)"]


@needs("numba_cuda")
def test_numba_goes_on_after_each_close(on_simulated_libcuda):
    result = on_simulated_libcuda(
        """
        import numpy, strata, strata.numba
        from numba import cuda
        strata.numba.use()
        kept = []
        for turn in range(4):
            array = cuda.to_device(numpy.arange(1000.0))
            kept += [strata.Memory(1000), strata.allocate(1000), array if turn % 2 else None]
            print(array.copy_to_host().sum(), strata.runtime().usage()["live_blocks"])
            del array
            cuda.close()
            if turn == 2:
                print(strata.memory_info()[1] == strata.device_info()["total_bytes"])
        for one in kept:  # of contexts that have ended
            if hasattr(one, "free"):
                one.free()
        print(cuda.to_device(numpy.arange(10.0)).copy_to_host().sum())
        """
    )
    assert lines(result) == ["499500.0 3"] * 3 + ["True", "499500.0 3", "45.0"]


# ---- cuda.core ------------------------------------------------------------------------------------------------------

CUDA_CORE = """
    import gc, strata, strata.cuda_core
    from cuda.core import Device
    device = Device()
    device.set_current()
    resource = strata.cuda_core.MemoryResource(device.device_id)
    device.memory_resource = resource
    stream = device.create_stream()
    live = lambda: strata.runtime().usage()["live_blocks"]
    with strata.tag("core"):
        buffer = device.allocate(1 << 20, stream=stream)
    print(buffer.size, buffer.memory_resource is resource, buffer.is_device_accessible, live())
    print("core" in strata.report())
    buffer.close(stream)
    print(live())
    buffer = device.allocate(1 << 20, stream=stream)
    del stream
    gc.collect()
    buffer.close()
    del buffer
    print(live(), device.allocate(0, stream=device.default_stream).size)
    positional = resource.allocate(1000, device.default_stream)
    with strata.budget("1MiB"):
        try:
            device.allocate(2 << 20, stream=device.default_stream)
        except MemoryError as error:
            print(type(error).__name__)
    private = strata.cuda_core.MemoryResource(runtime=strata.Runtime("pool"))
    kept = private.allocate(1000, stream=device.create_stream())
    print(private.device_id, private.runtime.usage()["live_blocks"])
    """


@needs("cuda.core")
def test_cuda_core_buffers_come_from_strata(on_simulated_libcuda):
    assert lines(on_simulated_libcuda(CUDA_CORE)) == [
        "1048576 True True 1",
        "True",
        "0",
        "0 0",
        "OutOfBudgetError",
        "0 1",
    ]


@needs("cuda.core")
def test_cuda_core_is_told_that_a_buffer_has_no_descriptor(on_simulated_libcuda):
    result = on_simulated_libcuda(
        """
        import pickle, strata.cuda_core
        from cuda.core import Device
        Device().set_current()
        buffer = strata.cuda_core.MemoryResource().allocate(1000)
        for ask in (lambda: buffer.ipc_descriptor, lambda: pickle.dumps(buffer)):
            try:
                ask()
            except RuntimeError as error:
                print("IPC" in str(error))
        """
    )
    assert lines(result) == ["True", "True"]


CUDA_CORE_RESET = """
    import ctypes, strata, strata.cuda_core
    from cuda.core import Device
    device = Device()
    device.set_current()
    resource = strata.cuda_core.MemoryResource(device.device_id)
    before = resource.allocate(1 << 20)
    assert ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0) == 0
    buffers = []
    while not buffers or (int(buffers[-1].handle) != int(before.handle) and len(buffers) < 100):
        buffers.append(resource.allocate(1 << 20))
    live = lambda: resource.runtime.usage()["live_blocks"] - len(buffers)
    print(int(buffers[-1].handle) == int(before.handle), live())
    before.close()
    print(live())
    for buffer in buffers:
        buffer.close()
    print(resource.runtime.usage()["live_blocks"])
    """


@needs("cuda.core")
def test_cuda_core_buffers_of_before_a_reset_free_no_later_one(on_simulated_libcuda):
    if not strata.driver_info()["simulated"]:
        pytest.skip("a reset of a GPU's context is not for tests beside others")
    # This owner gives the same addresses again.
    assert lines(on_simulated_libcuda(CUDA_CORE_RESET, STRATA_STACK="direct")) == ["True 0", "0", "0"]
