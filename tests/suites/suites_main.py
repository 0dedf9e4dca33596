"""pytest with suites_plugin, as a program of its own: processes that a test spawns run this file too, and take the door."""

import importlib.util
import sys

if importlib.util.find_spec("_numba_cuda_redirector"):  # of a numba-cuda that was not installed, but unpacked
    import _numba_cuda_redirector  # noqa: F401
import suites_plugin  # noqa: F401

if __name__ == "__main__":
    import pytest

    sys.exit(pytest.main(["-p", "suites_plugin", "-p", "no:cacheprovider", "-q", "--tb=short", "-rN", *sys.argv[1:]]))
