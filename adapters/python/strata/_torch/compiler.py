"""Compiles a shim from its sources: for scripts/torch-shims, and at the first use with a PyTorch that the package has no
shim for. The result is kept in XDG_CACHE_HOME, under a name that all it was made from decides."""

from __future__ import annotations

import concurrent.futures
import fcntl
import glob
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = ["-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-DNDEBUG", "-Wall"]


class CompileError(RuntimeError):
    pass


def source_folder() -> str:
    """Of the installed package, else of the checkout."""
    installed = os.path.join(HERE, "src")
    folder = installed if os.path.exists(os.path.join(installed, "install.cc")) else _above("adapters/torch/install.cc")
    if folder is None:
        raise CompileError("the package has no sources of the shim")
    return folder


def _above(file: str) -> str | None:
    """The folder of a file of the checkout in which this package lies."""
    folder = HERE
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        if os.path.exists(os.path.join(folder, file)):
            return os.path.dirname(os.path.join(folder, file))
    return None


def strata_include() -> str:
    checkout = _above("include/strata/runtime.h")
    if checkout is not None:
        return os.path.dirname(checkout)
    try:
        from strata import get_include
    except ImportError:
        raise CompileError("Strata's headers were not found") from None
    return get_include()


def cuda_include(site: str | None = None) -> list[str]:
    """Folders with cuda.h, cuda_runtime_api.h and crt/: a toolkit, or the wheels beside PyTorch."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [os.path.join(home, "include") for home in homes if home]
    if site:
        folders = sorted(glob.glob(os.path.join(site, "nvidia", "*", "include"))) + folders
    found = []
    for name in ("cuda.h", "cuda_runtime_api.h", os.path.join("crt", "host_defines.h")):
        folder = next((folder for folder in folders if os.path.exists(os.path.join(folder, name))), None)
        if folder is None:
            raise CompileError(
                f"the CUDA header {name} was not found; install the CUDA toolkit and set CUDA_HOME, "
                "or pip install nvidia-cuda-runtime nvidia-cuda-crt"
            )
        if folder not in found:
            found.append(folder)
    return found


def compiler() -> list[str]:
    words = shlex.split(os.environ.get("CXX", "g++"))
    if not words or not shutil.which(words[0]):
        raise CompileError(f"there is no C++ compiler ({words[0] if words else 'CXX is empty'}); install g++")
    return words


def run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"{shlex.join(words)}\n{done.stdout}{done.stderr}")


def make_stubs(folder: str) -> list[str]:
    """Libraries with the names of those that the shim needs, and nothing in them: the loader takes the loaded ones. So the
    C++ library is PyTorch's also where the compiler would put its own into the shim: with two of them in a process, a
    number that one formats is a crash, or nothing, of the other."""
    from .library import SONAME

    empty = os.path.join(folder, "empty.c")
    with open(empty, "w", encoding="ascii"):
        pass
    made = []
    for name in ("libc10.so", "libc10_cuda.so", SONAME, "libstdc++.so.6", "libgcc_s.so.1"):
        made.append(os.path.join(folder, name))
        run([*compiler(), "-x", "c", "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-o", made[-1], empty])
    return made


def link(objects: list[str], out: str, work: str) -> None:
    """Nothing else is needed by name: the CUDA runtime is found through libc10_cuda.so."""
    libraries = ["-Wl,--no-as-needed", *make_stubs(work), "-ldl", "-lc", "-lgcc"]
    run([*compiler(), "-shared", "-s", "-nodefaultlibs", "-o", out, *objects, *libraries])


def compile_shim(out: str, version: tuple[int, int], torch_include: str, cuda: list[str]) -> None:
    """Compiles and links a shim. Raises CompileError."""
    sources = sorted(glob.glob(os.path.join(source_folder(), "*.cc")))
    standard = "-std=c++20" if version >= (2, 14) else "-std=c++17"
    includes = ["-I" + strata_include()] + [word for folder in [torch_include, *cuda] for word in ("-isystem", folder)]
    with tempfile.TemporaryDirectory() as work:
        objects = [os.path.join(work, os.path.basename(source)[:-3] + ".o") for source in sources]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
            each = lambda source, target: run([*compiler(), standard, *FLAGS, *includes, "-c", source, "-o", target])
            list(threads.map(each, sources, objects))
        made = os.path.join(work, "shim.so")
        link(objects, made, work)
        temporary = f"{out}.{os.getpid()}"
        shutil.copyfile(made, temporary)
        os.replace(temporary, out)


def cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "strata")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def fingerprint(version: str) -> str:
    """Of the sources, Strata's headers and PyTorch's version."""
    digest = hashlib.sha256(version.encode())
    headers = glob.glob(os.path.join(strata_include(), "strata", "*.h"))
    for path in sorted(glob.glob(os.path.join(source_folder(), "*")) + headers):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def compile_for(torch: object, version: tuple[int, int]) -> str:
    """The path of a shim in the cache, compiled if need be. Raises RuntimeError."""
    full = torch.__version__  # type: ignore[attr-defined]
    site = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))  # type: ignore[attr-defined]
    try:
        path = os.path.join(cache_folder(), f"torch-{version[0]}.{version[1]}-{fingerprint(full)}.so")
        with open(path + ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(path):
                compile_shim(path, version, os.path.join(site, "torch", "include"), cuda_include(site))
    except (CompileError, OSError) as error:
        raise RuntimeError(f"Strata has no shim for PyTorch {full}, and it cannot be compiled here: {error}") from None
    return path
