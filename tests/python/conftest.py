"""What the tests of the Python package share: the driver, a checker of order, processes of their own.

STRATA_DRIVER decides where they run; without it, on the simulated driver. PYTHONPATH names the package, a build's
python/ or an installed wheel.
"""

import ctypes
import os
import subprocess
import sys
import textwrap

import pytest

os.environ.setdefault("STRATA_DRIVER", "sim")
# Each process of the tests is checked: exit status 99 and a report for a missing wait or an access to freed memory.
os.environ.setdefault("STRATA_SIM_CHECK", "1")
os.environ.setdefault("STRATA_SIM_CHECK_EXIT", "99")

import strata  # noqa: E402  the environment comes first


class Driver:
    """The driver that Strata has opened, for copies and fills."""

    def __init__(self):
        self.library = ctypes.CDLL(strata.driver_info()["library"])

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            result = function(*arguments)
            assert result == 0, f"{name} returned {result}"

        return call

    def fill(self, buffer, value, stream=None):
        handle = strata.stream_handle(buffer.stream if stream is None else stream)
        self.cuMemsetD8Async(
            ctypes.c_uint64(buffer.ptr), ctypes.c_ubyte(value), ctypes.c_size_t(buffer.nbytes), ctypes.c_void_p(handle)
        )

    def read(self, buffer):
        self.cuCtxSynchronize()
        out = ctypes.create_string_buffer(buffer.nbytes)
        self.cuMemcpyDtoH_v2(out, ctypes.c_uint64(buffer.ptr), ctypes.c_size_t(buffer.nbytes))
        return out.raw

    def make_stream(self):
        """A non-blocking stream that Strata does not know."""
        stream = ctypes.c_void_p()
        self.cuStreamCreate(ctypes.byref(stream), ctypes.c_uint(1))
        return stream.value

    def destroy_stream(self, handle):
        self.cuStreamDestroy_v2(ctypes.c_void_p(handle))


@pytest.fixture(scope="session")
def driver():
    strata.device_info()  # retains the primary context
    driver = Driver()
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ctypes.c_int(0))
    driver.cuCtxSetCurrent(context)
    return driver


@pytest.fixture
def runtime():
    """A private runtime, at whose end nothing is left."""
    with strata.Runtime("budget, statistics, pool") as made:
        yield made
        assert made.usage()["live_blocks"] == 0


@pytest.fixture
def process():
    """Runs a program in a Python of its own; returns (status, output, errors)."""

    def run(text, **environment):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **environment},
        )
        return done.returncode, done.stdout, done.stderr

    return run
