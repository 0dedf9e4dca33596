"""Strata's C library, which the shim needs to be loaded before it."""

from __future__ import annotations

import ctypes
import os

SONAME = "libstrata.so.0.1"


def path() -> str:
    """Of the package, of STRATA_LIBRARY, or where the loader looks."""
    try:
        from strata import get_library
    except ImportError:
        return os.environ.get("STRATA_LIBRARY", SONAME)
    return get_library()


def open_library(driver: str | None) -> ctypes.CDLL:
    """Loads the library and chooses the driver. Raises RuntimeError."""
    try:
        library = ctypes.CDLL(path())
    except OSError as error:
        raise RuntimeError(f"Strata's library cannot be loaded: {error}") from None
    if driver is not None and library.strata_driver_choose(driver.encode()):
        raise RuntimeError(f"the driver cannot be {driver!r}: another one is open")
    return library
