"""Numba's device arrays in Strata's memory: strata.numba.use(), or NUMBA_CUDA_MEMORY_MANAGER=strata.numba.

Numba tells its memory manager of no stream, neither at the allocation nor at the free, and its arrays are used on any.
So they get memory that any stream may use at once, and a free waits for the device, as with cuMemAlloc and cuMemFree.
As with those, frees are collected and done in batches (NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT and _RATIO).
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from numba import cuda
from numba.cuda import HostOnlyCUDAMemoryManager, MemoryInfo
from numba.cuda.cudadrv.driver import AutoFreePointer, CudaAPIError

from . import Error, Memory, OutOfMemoryError, configure, memory_info

__all__ = ["MemoryManager", "use"]

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


def _allocate(size: int) -> Memory:
    try:
        return Memory(size)
    except OutOfMemoryError as error:
        raise CudaAPIError(_OUT_OF_MEMORY, str(error)) from error


def _free(memory: Memory) -> None:
    try:
        memory.free()
    except Error:
        pass  # Numba frees in finalizers, where nothing handles errors; Strata's log has it


class MemoryManager(HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """The plug-in for numba.cuda.set_memory_manager; Numba makes one for each context, and one without."""

    def memalloc(self, size: int) -> Any:
        """Allocates device memory. Out of memory is CudaAPIError of the code 2, after pending frees were done."""
        memory = self._attempt_allocation(lambda: _allocate(size))
        key, pointer = memory.ptr, ctypes.c_void_p(memory.ptr)
        allocations, deallocations = self.allocations, self.deallocations

        def finalize() -> None:
            allocations.pop(key, None)
            deallocations.add_item(_free, memory, size)

        array = AutoFreePointer(weakref.proxy(self.context), pointer, size, finalizer=finalize)
        allocations[key] = array
        return array.own()

    def initialize(self) -> None:
        """Called for each context, before its first allocation and whenever it becomes current."""
        if self.deallocations.memory_capacity == 0:
            self.deallocations.memory_capacity = self.get_memory_info().total

    def get_memory_info(self) -> MemoryInfo:
        """Free and total bytes; a budget is the device's size."""
        free, total = memory_info()
        return MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        """Refused: cuIpcGetMemHandle takes memory of cuMemAlloc alone."""
        raise RuntimeError(
            "memory of Strata has no legacy IPC handle; export it with strata_pool_export, or allocate it without Strata"
        )

    @property
    def interface_version(self) -> int:
        return 1


_numba_memory_manager = MemoryManager  # the name that NUMBA_CUDA_MEMORY_MANAGER asks for


def use(stack: str | None = None) -> None:
    """Makes Numba allocate its device arrays from Strata; before its first context, that is, the first use of a device.

    stack  the stack of the process's runtimes; None: STRATA_STACK, else the default
    """
    configure(stack=stack)
    cuda.set_memory_manager(MemoryManager)
