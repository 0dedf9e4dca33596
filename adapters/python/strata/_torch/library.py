"""Strata's C library, which the shim needs to be loaded before it."""

from __future__ import annotations

import ctypes
import os

SONAME = "libstrata.so.0.1"


class _Error(ctypes.Structure):
    """strata_error, of strata/status.h."""

    _fields_ = [
        ("status", ctypes.c_int),
        ("driver_code", ctypes.c_int),
        ("driver_name", ctypes.c_char_p),
        ("driver_call", ctypes.c_char_p),
        ("sizes", ctypes.c_size_t * 7),
        ("tag", ctypes.c_uint32),
        ("generation", ctypes.c_uint64),
        ("message", ctypes.c_char * 512),
    ]


def path() -> str:
    """Of the package, of STRATA_LIBRARY, or where the loader looks."""
    try:
        from strata import get_library
    except ImportError:
        return os.environ.get("STRATA_LIBRARY", SONAME)
    return get_library()


def encode(name: str, text: str) -> bytes:
    """An argument for C, where a text ends at the first null. Bytes outside of UTF-8, of the environment, stay."""
    if "\0" in text:
        raise ValueError(f"{name}: a text has no null character, as {text!r} has")
    return text.encode(errors="surrogateescape")


def open_library(driver: str | None) -> ctypes.CDLL:
    """Loads the library and chooses the driver. Raises RuntimeError."""
    try:
        library = ctypes.CDLL(path())
    except OSError as error:
        raise RuntimeError(f"Strata's library cannot be loaded: {error}") from None
    if driver is not None and library.strata_driver_choose(encode("driver", driver)):
        library.strata_last_error.restype = ctypes.POINTER(_Error)
        reason = library.strata_last_error().contents.message.decode(errors="replace")
        raise RuntimeError(f"the driver cannot be {driver!r}: {reason}")
    return library
