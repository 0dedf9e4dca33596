"""Cases of cuda.core's test_memory.py, written anew by name.

The resources that its tests make of driver calls (DummyDevice..., DummyPinned..., DummyUnifiedMemoryResource) are parameters
here. With SUITES_DOOR=cuda_core the one for device memory is strata.cuda_core.MemoryResource; the others, and the library's
own resources, are what `strata exec` sees.
"""

import ctypes
import gc
import os
import sys

import numpy
import pytest
from cuda.bindings import driver

try:
    from cuda import core
    from cuda.core.utils import StridedMemoryView
except ImportError:  # before 1.0
    from cuda.core import experimental as core
    from cuda.core.experimental.utils import StridedMemoryView

Buffer, Device, MemoryResource = core.Buffer, core.Device, core.MemoryResource
DOOR = os.environ.get("SUITES_DOOR") == "cuda_core"
SIZE = 1024


def call(function, *words):
    status, *values = function(*words)
    assert int(status) == 0, status
    return values[0] if values else None


def synchronize():
    call(driver.cuCtxSynchronize)  # Device.sync asks the CUDA runtime


def made_buffer(address, size, resource, stream):
    try:
        return Buffer.from_handle(int(address), size, mr=resource, stream=stream)
    except TypeError:  # before 1.2
        return Buffer.from_handle(int(address), size, mr=resource)


class Dummy(MemoryResource):
    is_device_accessible = True
    is_host_accessible = False
    device_id = 0

    def __init__(self, device):
        self.device = device

    def allocate(self, size, stream=None, **ignored):
        return made_buffer(self.take(size), size, self, stream)

    def deallocate(self, ptr, size, stream=None, **ignored):
        self.give(int(ptr))


class DummyDevice(Dummy):
    def take(self, size):
        return call(driver.cuMemAlloc, size)

    def give(self, address):
        call(driver.cuMemFree, address)


class DummyUnified(DummyDevice):
    is_host_accessible = True

    def take(self, size):
        return call(driver.cuMemAllocManaged, size, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)


class DummyPinned(Dummy):
    is_host_accessible = True

    def take(self, size):
        return call(driver.cuMemAllocHost, size)

    def give(self, address):
        call(driver.cuMemFreeHost, address)


@pytest.fixture
def device():
    result = Device()
    result.set_current()
    yield result
    gc.collect()
    synchronize()


@pytest.fixture
def stream(device):
    return device.create_stream()


def strata_resource(device):
    import strata.cuda_core

    return strata.cuda_core.MemoryResource(device.device_id)


RESOURCES = {"dummy_device": strata_resource if DOOR else DummyDevice, "unified": DummyUnified, "pinned": DummyPinned}


@pytest.fixture(params=list(RESOURCES))
def resource(request, device):
    return RESOURCES[request.param](device)


def bytes_of(buffer):
    """What the device has there."""
    result = numpy.empty(buffer.size, dtype=numpy.uint8)
    call(driver.cuMemcpyDtoH, result.ctypes.data, int(buffer.handle), buffer.size)
    return result


def fill_from_host(buffer, values):
    values = numpy.ascontiguousarray(values)
    call(driver.cuMemcpyHtoD, int(buffer.handle), values.ctypes.data, values.nbytes)


# ---- buffers of a resource of one's own -------------------------------------------------------------------------------


def test_buffer_initialization(resource, stream):
    buffer = resource.allocate(SIZE, stream=stream)
    assert int(buffer.handle) != 0 and buffer.size == SIZE and buffer.memory_resource is resource
    assert buffer.is_device_accessible == resource.is_device_accessible
    assert buffer.is_host_accessible == resource.is_host_accessible
    buffer.close()


def test_buffer_copy_to(resource, device, stream):
    source, target = (resource.allocate(SIZE, stream=stream) for _ in range(2))
    stream.sync()
    fill_from_host(source, numpy.arange(SIZE) % 251)
    source.copy_to(target, stream=stream)
    synchronize()
    assert (bytes_of(target) == bytes_of(source)).all()
    target.close()
    source.close()


def test_buffer_copy_from(resource, device, stream):
    source, target = (resource.allocate(SIZE, stream=stream) for _ in range(2))
    stream.sync()
    fill_from_host(source, numpy.full(SIZE, 7, dtype=numpy.uint8))
    target.copy_from(source, stream=stream)
    synchronize()
    assert (bytes_of(target) == 7).all()
    target.close()
    source.close()


def test_buffer_fill(resource, device, stream):
    buffer = resource.allocate(SIZE, stream=stream)
    for value, dtype in ((b"\x42", numpy.uint8), (b"\x34\x12", numpy.uint16), (b"\xef\xbe\xad\xde", numpy.uint32)):
        try:
            buffer.fill(value, stream=stream)
        except TypeError:  # before 1.0
            buffer.fill(int.from_bytes(value, "little"), width=len(value), stream=stream)
        synchronize()
        assert (bytes_of(buffer).view(dtype) == int.from_bytes(value, "little")).all()
    buffer.close()


def test_buffer_close(resource, stream):
    buffer = resource.allocate(SIZE, stream=stream)
    buffer.close()
    assert int(buffer.handle) == 0 and buffer.memory_resource is None
    buffer.close()


def test_buffer_close_on_another_stream(resource, device, stream):
    buffer = resource.allocate(SIZE, stream=stream)
    other = device.create_stream()
    other.wait(stream.record())
    buffer.close(other)
    synchronize()


def test_buffer_garbage_collection(resource, stream):
    for _ in range(100):
        resource.allocate(SIZE, stream=stream)
    gc.collect()
    stream.sync()


def test_buffer_dunder_dlpack(resource, stream):
    buffer = resource.allocate(SIZE, stream=stream)
    assert "dltensor" in repr(buffer.__dlpack__()) and "dltensor" in repr(buffer.__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError):
        buffer.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        buffer.__dlpack__(max_version=())


def test_buffer_dunder_dlpack_device_success(resource, stream):
    kind, number = resource.allocate(SIZE, stream=stream).__dlpack_device__()
    assert (int(kind) == 2) == (not resource.is_host_accessible) and number == 0


def test_memory_resource_and_owner_disallowed(resource):
    memory = (ctypes.c_byte * 20)()
    with pytest.raises(ValueError, match="cannot be both specified together"):
        Buffer.from_handle(ctypes.addressof(memory), 20, mr=resource, owner=memory)


def test_device_memory_resource_setter(resource, device, stream):
    before = device.memory_resource
    try:
        device.memory_resource = resource
        buffer = device.allocate(SIZE, stream=stream)
        assert buffer.memory_resource is resource
        buffer.close()
    finally:
        device.memory_resource = before


def test_strided_memory_view_of_a_buffer(resource, stream):
    buffer = resource.allocate(SIZE, stream=stream)
    view = StridedMemoryView.from_any_interface(buffer, stream_ptr=-1)
    assert view.ptr == int(buffer.handle) and view.shape == (SIZE,)


@pytest.mark.parametrize("kind", ["dummy_device", "unified", "pinned"])
def test_buffer_external(kind, device, stream):
    """A buffer of a bare address finds out what it is."""
    resource = RESOURCES[kind](device)
    held = resource.allocate(32, stream=stream)
    stream.sync()
    buffer = Buffer.from_handle(int(held.handle), 32)
    assert buffer.is_device_accessible and buffer.device_id == device.device_id
    assert buffer.is_host_accessible == resource.is_host_accessible
    buffer.close()
    held.close()


# ---- the library's own resources --------------------------------------------------------------------------------------


def test_buffer_external_host():
    memory = (ctypes.c_byte * 20)()
    buffer = Buffer.from_handle(ctypes.addressof(memory), 20, owner=memory)
    assert not buffer.is_device_accessible and buffer.is_host_accessible and buffer.device_id == -1
    buffer.close()


def test_owner_close():
    memory = (ctypes.c_byte * 20)()
    before = sys.getrefcount(memory)
    buffer = Buffer.from_handle(ctypes.addressof(memory), 20, owner=memory)
    assert sys.getrefcount(memory) != before
    buffer.close()
    assert sys.getrefcount(memory) == before


def test_buffer_external_pinned_registered(device):
    memory = numpy.zeros(1 << 16, dtype=numpy.uint8)
    address = memory.ctypes.data
    call(driver.cuMemHostRegister, address, memory.nbytes, 0)
    try:
        buffer = Buffer.from_handle(address, memory.nbytes, owner=memory)
        assert buffer.is_device_accessible and buffer.is_host_accessible
        buffer.close()
    finally:
        call(driver.cuMemHostUnregister, address)


def pooled(device, **options):
    if not device.properties.memory_pools_supported:
        pytest.skip("no memory pools")
    if not options:
        return core.DeviceMemoryResource(device)
    return core.DeviceMemoryResource(device, options=core.DeviceMemoryResourceOptions(**options))


def test_device_memory_resource_initialization(device, stream):
    resource = pooled(device)
    assert resource.device_id == device.device_id and resource.is_device_accessible and not resource.is_host_accessible
    buffer = resource.allocate(SIZE, stream=stream)
    assert buffer.size == SIZE and buffer.device_id == device.device_id
    buffer.close()


def test_device_memory_resource(device, stream):
    resource = pooled(device, max_size=2 << 20)
    first, second = (resource.allocate(size, stream=stream) for size in (SIZE, 2 * SIZE))
    assert first.handle != second.handle and (first.size, second.size) == (SIZE, 2 * SIZE)
    stream.sync()
    fill_from_host(first, numpy.full(SIZE, 9, dtype=numpy.uint8))
    first.copy_to(resource.allocate(SIZE, stream=stream), stream=stream)
    synchronize()
    first.close()
    second.close()


def test_mempool_attributes(device, stream):
    resource = pooled(device, max_size=2 << 20)
    attributes = resource.attributes
    before = attributes.used_mem_current
    buffer = resource.allocate(SIZE, stream=stream)
    assert attributes.used_mem_current > before and attributes.reserved_mem_current >= attributes.used_mem_current
    assert attributes.used_mem_high >= attributes.used_mem_current
    buffer.close()


def test_vmm_allocator_basic_allocation(device):
    if not device.properties.virtual_memory_management_supported:
        pytest.skip("no virtual memory management")
    resource = core.VirtualMemoryResource(device, config=core.VirtualMemoryResourceOptions(handle_type="posix_fd"))
    buffers = [resource.allocate(SIZE * (i + 1)) for i in range(5)]
    assert all(buffer.size >= SIZE * (i + 1) and buffer.device_id == device.device_id for i, buffer in enumerate(buffers))
    for buffer in buffers:
        buffer.close()


def test_vmm_allocator_grow_allocation(device):
    if not device.properties.virtual_memory_management_supported:
        pytest.skip("no virtual memory management")
    resource = core.VirtualMemoryResource(device, config=core.VirtualMemoryResourceOptions(handle_type="posix_fd"))
    grown = resource.modify_allocation(resource.allocate(2 << 20), 4 << 20)
    assert grown.size >= 4 << 20
    fill_from_host(grown, numpy.full(4 << 20, 5, dtype=numpy.uint8))
    assert (bytes_of(grown)[: 4 << 20] == 5).all()
    grown.close()


def test_graph_memory_resource_object(device):
    first, second = core.GraphMemoryResource(device), core.GraphMemoryResource(device.device_id)
    assert first is second


def test_default_resource_allocates(device, stream):
    buffers = [device.allocate(size, stream=stream) for size in (1, SIZE, 32 << 20)]
    stream.sync()
    assert all(int(buffer.handle) for buffer in buffers)
    fill_from_host(buffers[1], numpy.full(SIZE, 3, dtype=numpy.uint8))
    assert (bytes_of(buffers[1]) == 3).all()
    for buffer in buffers:
        buffer.close(stream)
