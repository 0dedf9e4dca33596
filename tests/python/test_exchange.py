"""DLPack, in both forms, and the CUDA Array Interface."""

import ctypes

import pytest

import strata

numpy = pytest.importorskip("numpy")


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    pass


class Legacy(ctypes.Structure):
    pass


VersionedDeleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(Versioned))
LegacyDeleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(Legacy))
Versioned._fields_ = [
    ("major", ctypes.c_uint32),
    ("minor", ctypes.c_uint32),
    ("context", ctypes.c_void_p),
    ("deleter", VersionedDeleter),
    ("flags", ctypes.c_uint64),
    ("tensor", DLTensor),
]
Legacy._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", LegacyDeleter)]

get_name = ctypes.pythonapi.PyCapsule_GetName
get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
set_name = ctypes.pythonapi.PyCapsule_SetName
set_name.restype, set_name.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def content(capsule, name, kind):
    assert get_name(capsule) == name
    return ctypes.cast(get_pointer(capsule, name), ctypes.POINTER(kind)).contents


def check(tensor, buffer):
    assert (tensor.data, tensor.byte_offset) == (buffer.ptr, 0)
    assert (tensor.device_type, tensor.device_id) == buffer.__dlpack_device__() == (2, 0)
    assert tuple(tensor.shape[: tensor.ndim]) == buffer.shape == (4, 8)
    assert tuple(tensor.strides[: tensor.ndim]) == (8, 1)
    assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)


@pytest.fixture
def buffer(runtime):
    made = runtime.allocate(1024).view("float32", (4, 8), offset=256)
    yield made
    made.free()


def test_a_new_consumer_gets_the_versioned_form(buffer):
    capsule = buffer.__dlpack__(max_version=(1, 1))
    managed = content(capsule, b"dltensor_versioned", Versioned)
    assert (managed.major, managed.flags) == (1, 0)
    check(managed.tensor, buffer)


@pytest.mark.parametrize("version", [None, (0, 8)])
def test_an_old_consumer_gets_the_old_form(buffer, version):
    capsule = buffer.__dlpack__(max_version=version)
    check(content(capsule, b"dltensor", Legacy).tensor, buffer)


@pytest.mark.parametrize(
    "name, kind, version", [(b"dltensor_versioned", Versioned, (1, 0)), (b"dltensor", Legacy, None)]
)
def test_a_consumer_keeps_the_memory(runtime, driver, name, kind, version):
    buffer = runtime.allocate(1000)
    driver.fill(buffer, 9)
    capsule = buffer.__dlpack__(max_version=version)
    managed = content(capsule, name, kind)
    taken = b"used_" + name  # whose bytes the capsule does not copy
    set_name(capsule, taken)
    del capsule
    buffer.free()
    assert runtime.usage()["live_blocks"] == 1
    out = ctypes.create_string_buffer(1000)
    driver.cuMemcpyDtoH_v2(out, ctypes.c_uint64(managed.tensor.data), ctypes.c_size_t(1000))
    assert out.raw == b"\x09" * 1000
    managed.deleter(ctypes.pointer(managed))
    assert runtime.usage()["live_blocks"] == 0


def test_a_capsule_that_nothing_took_lets_go(runtime):
    for version in (None, (1, 3)):
        buffer = runtime.allocate(1000)
        capsule = buffer.__dlpack__(max_version=version)
        buffer.free()
        assert runtime.usage()["live_blocks"] == 1
        del capsule
        assert runtime.usage()["live_blocks"] == 0


def test_streams_of_dlpack(runtime, driver):
    stream = runtime.stream()
    with runtime.allocate(1000, stream) as buffer:
        driver.fill(buffer, 1)
        for number in (None, -1, 1, 2, driver.make_stream()):
            assert get_name(buffer.__dlpack__(stream=number)) == b"dltensor"
        with pytest.raises(ValueError):
            buffer.__dlpack__(stream=0)
    stream.close()


def test_an_argument_that_raises_is_heard(buffer):
    class Wish:
        def __bool__(self):
            raise KeyError("wish")

    with pytest.raises(KeyError, match="wish"):
        buffer.__dlpack__(copy=Wish())


def test_what_cannot_be_had_is_a_buffer_error(buffer):
    for arguments in ({"copy": True}, {"dl_device": (1, 0)}, {"dl_device": (2, 7)}):
        with pytest.raises(BufferError):
            buffer.__dlpack__(**arguments)
    buffer.__dlpack__(copy=False, dl_device=(2, 0))
    with pytest.raises(TypeError):
        buffer.__dlpack__(max_version="1.0")
    with pytest.raises(TypeError):
        buffer.__dlpack__(dl_device="cuda")


@pytest.mark.parametrize("stack, device", [("pinned", 3), ("managed", 13)])
def test_numpy_reads_and_keeps_memory_of_the_host(stack, device):
    with strata.Runtime(stack) as runtime:
        buffer = runtime.allocate(4 * 8)
        view = buffer.view("int32", (2, 4))
        assert view.__dlpack_device__()[0] == device
        array = numpy.from_dlpack(view)
        buffer.free()
        view.free()
        array[:] = numpy.arange(8).reshape(2, 4)
        assert array.sum() == 28 and array.dtype == numpy.int32
        assert runtime.usage()["live_blocks"] == 1
        del array
        assert runtime.usage()["live_blocks"] == 0


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int8", "uint16", "int64", "complex64", "complex128"])
def test_element_types_are_numpys(name):
    with strata.Runtime("pinned") as runtime:
        dtype = numpy.dtype(name)
        whole = runtime.allocate(64)
        for named in (name, dtype, dtype.type, dtype.str, f"torch.{name}"):
            assert whole.view(named).dtype == name
        view = whole.view(name)
        assert numpy.from_dlpack(view).dtype == dtype
        assert view.__cuda_array_interface__["typestr"] == dtype.str
        whole.free()
        view.free()


def test_types_that_numpy_has_not(runtime):
    with runtime.allocate(64) as whole:
        for name, code, bits in (("bfloat16", 4, 16), ("float8_e4m3fn", 10, 8), ("float8_e5m2", 12, 8)):
            view = whole.view(name)
            capsule = view.__dlpack__(max_version=(1, 0))
            tensor = content(capsule, b"dltensor_versioned", Versioned).tensor
            assert (tensor.code, tensor.bits) == (code, bits)
            assert not hasattr(view, "__cuda_array_interface__")


def test_the_array_interface(runtime):
    stream = runtime.stream()
    with runtime.allocate(1024, stream) as whole:
        view = whole.view("<f4", (2, 128))
        assert view.__cuda_array_interface__ == {
            "shape": (2, 128),
            "typestr": "<f4",
            "data": (whole.ptr, False),
            "strides": None,
            "version": 3,
            "stream": stream.handle,
        }
    with runtime.allocate(1024) as legacy:
        assert legacy.__cuda_array_interface__["stream"] == 1  # 0 is forbidden
    view.free()
    stream.close()


def test_a_consumers_stream_comes_after_work_of_the_allocation_stream(runtime, driver):
    """Also where Strata does not know that stream: the simulated driver's checker tells."""
    foreign = type("Stream", (), {"ptr": driver.make_stream()})()
    consumer = driver.make_stream()
    for stream in (foreign, runtime.stream()):
        buffer = runtime.allocate(1 << 20, stream)
        for whole in (buffer, buffer.view("float32")):
            driver.fill(whole, 1)
            capsule = whole.__dlpack__(stream=consumer)
            driver.fill(whole, 2, consumer)
            driver.cuCtxSynchronize()
            del capsule
        del buffer, whole
    driver.destroy_stream(consumer)
    driver.destroy_stream(foreign.ptr)


def test_the_stream_of_the_array_interface_comes_after_recorded_uses(runtime, driver):
    foreign = type("Stream", (), {"ptr": driver.make_stream()})()
    user = driver.make_stream()
    for stream in (foreign, runtime.stream(), None):
        buffer = runtime.allocate(1 << 20, stream)
        with buffer.use(user):
            driver.fill(buffer, 1, user)
        view = buffer.view("float32")
        driver.fill(view, 2, view.__cuda_array_interface__["stream"])
        driver.cuCtxSynchronize()
        del buffer, view
    driver.destroy_stream(user)
    driver.destroy_stream(foreign.ptr)


def test_the_array_interface_can_be_read_in_a_capture(runtime, driver):
    handle, graph = driver.make_stream(), ctypes.c_void_p()
    buffer = runtime.allocate(1 << 20, type("Stream", (), {"ptr": handle})())
    buffer.record(None)
    driver.cuStreamBeginCapture_v2(ctypes.c_void_p(handle), ctypes.c_int(0))
    assert buffer.__cuda_array_interface__["stream"] == handle
    driver.cuStreamEndCapture(ctypes.c_void_p(handle), ctypes.byref(graph))
    driver.cuGraphDestroy(graph)
    buffer.free(None)
    driver.destroy_stream(handle)


def test_another_stream_can_take_a_tensor_while_the_allocation_stream_is_captured(runtime, driver):
    handle, other, graph = driver.make_stream(), driver.make_stream(), ctypes.c_void_p()
    buffer = runtime.allocate(1 << 20, type("Stream", (), {"ptr": handle})())
    driver.cuStreamBeginCapture_v2(ctypes.c_void_p(handle), ctypes.c_int(0))
    buffer.__dlpack__(stream=other)
    buffer.__dlpack__()
    driver.cuStreamEndCapture(ctypes.c_void_p(handle), ctypes.byref(graph))
    driver.cuGraphDestroy(graph)
    buffer.free(None)
    driver.destroy_stream(other)
    driver.destroy_stream(handle)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("stack", ["pinned", "managed"])
def test_the_host_reads_what_the_device_has_written(driver, stack, known):
    with strata.Runtime(stack) as runtime:
        stream = runtime.stream() if known else type("Stream", (), {"ptr": driver.make_stream()})()
        buffer = runtime.allocate(1 << 20, stream)
        for value in range(8):
            driver.fill(buffer, value)
        assert (numpy.from_dlpack(buffer) == 7).all()
        del buffer
        if not known:
            driver.destroy_stream(stream.ptr)
        del stream


@pytest.mark.parametrize("read", ["array interface", "DLPack"])
def test_the_free_waits_for_a_consumer(driver, read):
    nbytes = 3 << 20
    with strata.Runtime("pool(max_size=4MiB, initial_size=4MiB)") as runtime:
        stream, consumer, other = runtime.stream(), driver.make_stream(), runtime.stream()
        buffer = runtime.allocate(nbytes, stream)
        runtime.synchronize(stream)
        capsule = buffer.__cuda_array_interface__ if read == "array interface" else buffer.__dlpack__(stream=-1)
        driver.fill(buffer, 5, consumer)  # Strata is not told
        del capsule, buffer
        with runtime.allocate(nbytes, other) as again:
            driver.fill(again, 6)
        stream.close()
        other.close()
        driver.cuCtxSynchronize()
        driver.destroy_stream(consumer)
