"""Strata: stream-ordered CUDA memory from a stack of layers.

    import strata

    with strata.tag("request 17"), strata.budget("2GiB") as budget:
        buffer = strata.allocate("1GiB", stream)  # a strata.Buffer: DLPack, __cuda_array_interface__
    print(budget.peak, strata.report())

A process has one runtime for each device, strata.runtime(device), which every library can share: strata.cupy.use(),
strata.numba.use() and strata.cuda_core.MemoryResource() take memory from it. configure() says of which stack it is made.

Errors are exceptions below strata.Error; out of memory is strata.OutOfMemoryError, also a MemoryError. Objects may be
used by several threads. Scopes (tag, budget, scope) hold for the thread that entered them, and are left on it.
In a forked child nothing of Strata's works, and freeing does nothing: start processes by "spawn".
"""

from __future__ import annotations

import importlib as _importlib
import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._core import (
    Buffer,
    DriverNotFoundError,
    Error,
    FreedError,
    HostMemoryError,
    InvalidValueError,
    Memory,
    OutOfBudgetError,
    OutOfMemoryError,
    Runtime,
    StackSyntaxError,
    Stream,
    Use,
    budget,
    choose_driver,
    default_stack,
    device_info,
    driver_info,
    memory_info,
    parse_size,
    runtime,
    scope,
    set_mode,
    stream_handle,
    tag,
    library_name as _library_name,
    made_runtimes as _made_runtimes,
    version as _version,
)

__all__ = [
    "Buffer",
    "DriverNotFoundError",
    "Error",
    "FreedError",
    "HostMemoryError",
    "InvalidValueError",
    "Memory",
    "OutOfBudgetError",
    "OutOfMemoryError",
    "Runtime",
    "StackSyntaxError",
    "Stream",
    "Use",
    "allocate",
    "budget",
    "choose_driver",
    "configure",
    "default_stack",
    "device_info",
    "driver_info",
    "get_include",
    "get_library",
    "get_prefix",
    "memory_info",
    "parse_size",
    "report",
    "runtime",
    "scope",
    "set_mode",
    "stats",
    "stream_handle",
    "tag",
]

__version__ = _version()


def configure(*, driver: str | None = None, stack: str | None = None, device: int | None = None) -> None:
    """Chooses the driver and the stack of the process's runtimes, before their first use.

    driver  "cuda", "sim" (no GPU needed), "auto", or a library's path; STRATA_DRIVER in the environment wins
    stack   the text of the stack, such as "budget(limit=80%), statistics, pool". It is put into the environment as
            STRATA_STACK, so that child processes take it, too
    device  makes the runtime of this device at once, so that an error in the text is raised here, and nothing is chosen

    An Error of the status BUSY, or a ValueError, says that it is too late.
    """
    if stack is not None and not isinstance(stack, str):
        raise TypeError(f"stack: expected a text such as \"statistics, pool\", not {type(stack)}")
    if driver is not None:
        choose_driver(driver)
    if stack is None:
        if device is not None:
            runtime(device)
        return
    _check_is_early(stack)
    before = _os.environ.get("STRATA_STACK")
    _os.environ["STRATA_STACK"] = stack
    if device is None:
        return
    try:
        runtime(device)
        _check_is_early(stack)
    except BaseException:
        if before is None:
            del _os.environ["STRATA_STACK"]
        else:
            _os.environ["STRATA_STACK"] = before
        raise


def _check_is_early(stack: str) -> None:
    for device, found in _made_runtimes().items():
        if found.split() != stack.split():
            raise ValueError(
                f"the runtime of device {device} has the stack {found!r} already; "
                f"choose {stack!r} before the first allocation of the process"
            )


def allocate(
    nbytes: int | str, stream: object = None, *, device: int = 0, alignment: int = 0, tag: str | None = None
) -> Buffer:
    """Allocates from the process's runtime of a device: see Runtime.allocate."""
    return runtime(device).allocate(nbytes, stream, alignment=alignment, tag=tag)


def report(device: int = 0, *, format: str = "text") -> str:
    """The report of the process's runtime of a device: see Runtime.report."""
    return runtime(device).report(format=format)


def stats(device: int = 0) -> dict[str, int]:
    """The values of the process's runtime of a device: see Runtime.stats."""
    return runtime(device).stats()


def get_prefix() -> str:
    """The folder with `include` and `lib`, as of an installation of the C library."""
    return _os.path.dirname(_os.path.abspath(__file__))


def get_include() -> str:
    """The folder of the C headers: strata/strata.h."""
    return _os.path.join(get_prefix(), "include")


def get_library() -> str:
    """The C library that this package uses, for ctypes and for linkers."""
    return _os.path.join(get_prefix(), "lib", _library_name)


_ADAPTERS = ("cuda_core", "cupy", "numba", "torch")

if _TYPE_CHECKING:
    from . import cuda_core, cupy, numba, torch
else:

    def __getattr__(name: str) -> object:
        """strata.cupy and the others, imported when they are first used: each needs its library."""
        if name not in _ADAPTERS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return _importlib.import_module("." + name, __name__)
        except ImportError as error:
            raise AttributeError(f"strata.{name} cannot be imported: {error}") from error

    def __dir__() -> list[str]:
        return sorted({*globals(), *_ADAPTERS})
