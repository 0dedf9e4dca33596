"""PyTorch on Strata: its allocator for CUDA memory is replaced, and nothing in the program changes.

    import strata.torch

    strata.torch.use(budget="20GiB")

Call use() once, before the first tensor on a GPU; later works too, and tensors that exist then stay with PyTorch's own
allocator. Statistics, snapshots, memory pools, CUDA graphs, record_stream and torch.OutOfMemoryError are as before.
docs/torch.md has the details.
"""

from __future__ import annotations

import ctypes
import os
import threading

from ._torch import library, shim

__all__ = ["is_used", "runtime", "use"]

_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None
_ERROR_BYTES = 2048
_MOST_DEVICES = 128


def use(stack: str | None = None, *, budget: int | str | None = None, driver: str | None = None) -> None:
    """Makes Strata PyTorch's allocator for CUDA memory, for the rest of the process.

    stack: the stack text of each device. Default: STRATA_STACK of the environment, else a pool that other processes
        and other devices can access where the machine allows it.
    budget: the most memory that PyTorch may have on each device, in bytes or as "20GiB" or "50%".
    driver: "cuda", "sim", "auto" or a path, as strata.choose_driver().

    Raises RuntimeError if the allocator cannot be replaced: PyTorch has no CUDA, is of a version without a shim that
    cannot be compiled here, or Strata is its allocator already. An error in the stack text is raised by the first
    request for memory.
    """
    global _loaded
    import torch

    with _lock:
        if _loaded is not None:
            raise RuntimeError("Strata is PyTorch's allocator already; call strata.torch.use() once")
        _check_torch(torch)
        library.open_library(driver)
        loaded = shim.load(torch)
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        text = stack if stack is not None else os.environ.get("STRATA_STACK", "").strip()
        limit = "" if budget is None else str(budget)
        words = library.encode("stack", text), library.encode("budget", limit)
        devices = torch.cuda.device_count() if torch.cuda.is_initialized() else 0
        if loaded.strata_torch_install(*words, devices, error, _ERROR_BYTES):
            raise RuntimeError(error.value.decode(errors="replace"))
        _loaded = loaded


def is_used() -> bool:
    """Whether use() has been called."""
    return _loaded is not None


def runtime(device: int = 0) -> int:
    """The address of the device's strata_runtime, for the C library; made if need be.

    Raises RuntimeError before use(), and if the runtime cannot be made.
    """
    if _loaded is None:
        raise RuntimeError("call strata.torch.use() first")
    if not 0 <= device < _MOST_DEVICES:  # PyTorch's numbers of devices have eight bits
        raise RuntimeError(f"Strata: no device {device}")
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    address = _loaded.strata_torch_runtime(device, error, _ERROR_BYTES)
    if not address:
        raise RuntimeError(error.value.decode(errors="replace"))
    return int(address)


def _check_torch(torch: object) -> None:
    if torch.version.cuda is None:  # type: ignore[attr-defined]
        raise RuntimeError(f"PyTorch {torch.__version__} is a build without CUDA")  # type: ignore[attr-defined]
