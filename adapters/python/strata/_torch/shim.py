"""The shim for the PyTorch that is loaded: a prebuilt one of the package, or one that is compiled once and kept."""

from __future__ import annotations

import ctypes
import os

from . import compiler

HERE = os.path.dirname(os.path.abspath(__file__))


def version_of(torch: object) -> tuple[int, int]:
    """(2, 11) of "2.11.0+cu130"."""
    major, minor = torch.__version__.split(".")[:2]  # type: ignore[attr-defined]
    return int(major), int(minor)


def file_name(version: tuple[int, int]) -> str:
    return f"strata_torch_{version[0]}_{version[1]}.so"


def find(torch: object) -> str:
    """The path of a shim for this PyTorch; compiles it if the package has none. Raises RuntimeError."""
    version = version_of(torch)
    if version < (2, 11):
        raise RuntimeError(f"PyTorch {torch.__version__} is too old: Strata needs 2.11 or later")  # type: ignore[attr-defined]
    prebuilt = os.path.join(HERE, file_name(version))
    return prebuilt if os.path.exists(prebuilt) else compiler.compile_for(torch, version)


def load(torch: object) -> ctypes.CDLL:
    """Loads the shim. It is refused if it was compiled for another minor version, whose virtual table differs."""
    path = find(torch)
    try:
        shim = ctypes.CDLL(path)
    except OSError as error:
        raise RuntimeError(f"the shim for PyTorch cannot be loaded: {error}") from None
    version = version_of(torch)
    compiled = shim.strata_torch_version()
    if compiled != version[0] * 100 + version[1]:
        raise RuntimeError(f"{path} is for PyTorch {compiled // 100}.{compiled % 100}, not {version[0]}.{version[1]}; remove it")
    size = ctypes.c_size_t
    shim.strata_torch_install.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, size]
    shim.strata_torch_runtime.argtypes = [ctypes.c_int, ctypes.c_char_p, size]
    shim.strata_torch_runtime.restype = ctypes.c_void_p
    return shim
