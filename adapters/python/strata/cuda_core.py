"""A memory resource for cuda.core: strata.cuda_core.MemoryResource.

    device = cuda.core.Device()
    device.set_current()
    device.memory_resource = strata.cuda_core.MemoryResource(device.device_id)
    buffer = device.allocate(1 << 20, stream=stream)

cuda.core names the stream at the allocation and at the free, and a buffer keeps the stream that it will be freed on: the
memory is stream-ordered, and no call waits for the device.
"""

from __future__ import annotations

from typing import Any

try:
    from cuda.core import Buffer as _CudaBuffer
    from cuda.core import MemoryResource as _CudaMemoryResource
except ImportError:  # before 1.0
    from cuda.core.experimental import Buffer as _CudaBuffer
    from cuda.core.experimental import MemoryResource as _CudaMemoryResource

from . import Buffer, FreedError, Runtime, runtime as _default_runtime, stream_handle

__all__ = ["MemoryResource"]


class MemoryResource(_CudaMemoryResource):  # type: ignore[misc]
    """Memory of a runtime, as buffers of cuda.core.

    device   the ordinal; its runtime is strata.runtime(device), which is asked for by each allocation
    runtime  a private runtime instead

    Out of memory is strata.OutOfMemoryError, a MemoryError. Buffers have no IPC descriptor.
    """

    def __init__(self, device: int = 0, *, runtime: Runtime | None = None) -> None:
        self._private = runtime
        self._device = _default_runtime(device).device if runtime is None else runtime.device
        self._live: dict[int, Buffer] = {}  # by address; item access is atomic
        self._dead: list[tuple[int, Buffer]] = []  # of before a reset of the device, whose addresses others have

    def allocate(self, size: int, stream: Any = None, **ignored: Any) -> Any:
        """Allocates for work on `stream`; None: the legacy default stream."""
        buffer = self.runtime.allocate(size, _named(stream))
        address = buffer.ptr
        if address:
            dead = self._live.pop(address, None)
            self._live[address] = buffer
            if dead is not None:
                self._dead.append((address, dead))
        try:
            return _make_buffer(address, size, self, stream)
        except BaseException:
            self._live.pop(address, None)
            raise

    def deallocate(self, ptr: Any, size: int, stream: Any = None, **ignored: Any) -> None:
        """Frees in the order of `stream`; None, as at the process's end: in that of the allocation."""
        buffer = self._take(int(ptr))
        if buffer is None:
            return
        try:
            buffer.free(None if stream is None else _named(stream))
        except FreedError:
            pass  # of before a reset of the device: the memory has ended with the context

    def _take(self, address: int) -> Buffer | None:
        """The buffer to free: cuda.core tells the address alone, and the live buffer goes with the last call."""
        for dead in tuple(self._dead):
            if dead[0] == address:
                self._dead.remove(dead)
                return dead[1]
        return self._live.pop(address, None)

    @property
    def device_id(self) -> int:
        return self._device

    @property
    def is_device_accessible(self) -> bool:
        return True

    @property
    def is_host_accessible(self) -> bool:
        return False

    @property
    def is_ipc_enabled(self) -> bool:
        return False

    @property
    def runtime(self) -> Runtime:
        """The runtime whose memory this is: strata.runtime(device) is another one after a reset of the device."""
        return _default_runtime(self._device) if self._private is None else self._private


def _named(stream: Any) -> Any:
    """The stream, or its number: a default stream needs no object, and a graph builder has its stream's handle."""
    handle = stream_handle(stream)
    return handle if handle in (0, 1, 2) else stream


def _make_buffer(address: int, size: int, resource: MemoryResource, stream: Any) -> Any:
    if stream is None:
        return _CudaBuffer.from_handle(address, size, mr=resource)
    try:
        return _CudaBuffer.from_handle(address, size, mr=resource, stream=stream)
    except TypeError:  # before 1.2: the buffer is freed on the default stream
        return _CudaBuffer.from_handle(address, size, mr=resource)
