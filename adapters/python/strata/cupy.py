"""CuPy's arrays in Strata's memory: strata.cupy.use().

CuPy gives its allocator no stream, but has a current one, and its own pool has a rule: memory belongs to the stream that
was current when it was allocated, and goes back in the order of that stream; a program that uses an array on another
stream orders the two. Memory of Strata's that is allocated and freed in the order of the current stream therefore serves
every program that is right with CuPy's pool, without a wait. That needs a handle that is alive at the free, which comes
whenever an array dies:

  the default stream, the per-thread one   always are
  cupy.cuda.Stream                         the array's memory keeps the stream
  cupy.cuda.ExternalStream, a capture      not known: memory that any stream may use at once, whose free waits for the
                                           device, as that of cudaMalloc and cudaFree

Programs that are right with cudaMalloc alone take that memory for everything: use(order="any").
"""

from __future__ import annotations

import gc
from typing import Any

import cupy

from . import Buffer, Memory, OutOfMemoryError, configure, runtime

__all__ = ["Allocator", "use"]

_ORDERS = ("stream", "any")


class Allocator:
    """An allocator for cupy.cuda.set_allocator: its method malloc. use() makes and sets one."""

    def __init__(self, *, order: str = "stream") -> None:
        if order not in _ORDERS:
            raise ValueError(f'order: expected "stream" or "any", not {order!r}')
        self._order = order

    def malloc(self, nbytes: int) -> Any:
        """Allocates for the current device and stream; a cupy.cuda.MemoryPointer."""
        device = cupy.cuda.runtime.getDevice()
        if nbytes == 0:
            return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, 0, self, device), 0)
        try:
            owner = self._allocate(nbytes, device)
        except OutOfMemoryError:
            gc.collect()  # arrays in circles, as CuPy's own pool does
            owner = self._allocate_or_raise(nbytes, device)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(owner.ptr, nbytes, owner, device), 0)

    def _allocate(self, nbytes: int, device: int) -> Buffer | Memory:
        stream = cupy.cuda.get_current_stream()
        if self._order == "any" or isinstance(stream, cupy.cuda.ExternalStream) or _is_capturing(stream):
            return Memory(nbytes)
        # A default stream is named by its number: the free then needs no object.
        return runtime(device).allocate(nbytes, stream.ptr if stream.ptr in (0, 1) else stream)

    def _allocate_or_raise(self, nbytes: int, device: int) -> Buffer | Memory:
        try:
            return self._allocate(nbytes, device)
        except OutOfMemoryError as error:
            own = cupy.cuda.memory.OutOfMemoryError(nbytes, error.in_use, error.limit)
            own.args = (f"{own}: {error}",)
            raise own from error


def _is_capturing(stream: Any) -> bool:
    # The legacy default stream cannot be captured, and asking it during another stream's capture is an error.
    return stream.ptr not in (0, 1) and stream.is_capturing()


def use(stack: str | None = None, *, order: str = "stream") -> Allocator:
    """Makes CuPy allocate its arrays from Strata, in all threads, from now on.

    stack   the stack of the process's runtimes; None: STRATA_STACK, else the default
    order   "stream": in the order of the current stream, where its handle lives long enough; "any": memory that any
            stream may use at once, whose free waits for the device

    Arrays that are there keep their memory. Out of memory is cupy.cuda.memory.OutOfMemoryError, a MemoryError, whose
    __cause__ is Strata's. cupy.get_default_memory_pool() is unaffected: what it reports is no longer what is in use;
    strata.report() is. To go back: cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc).
    """
    configure(stack=stack, device=cupy.cuda.runtime.getDevice() if stack is not None else None)
    allocator = Allocator(order=order)
    cupy.cuda.set_allocator(allocator.malloc)
    return allocator
