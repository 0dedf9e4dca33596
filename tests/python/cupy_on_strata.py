"""A pytest plug-in that runs CuPy's own tests with its arrays in Strata's memory. Needs a GPU, and the folder tests/ of
CuPy's source distribution, at the version that is installed:

    PYTHONPATH=$package:tests/python pytest -p cupy_on_strata CUPY/tests/cupy_tests/core_tests

CUPY_ON_STRATA=any takes memory that any stream may use.
"""

import os

import cupy
import strata
import strata.cupy

_allocator = strata.cupy.use(order=os.environ.get("CUPY_ON_STRATA", "stream"))


def pytest_runtest_setup(item):
    """Tests that set an allocator of their own leave CuPy's pool behind."""
    cupy.cuda.set_allocator(_allocator.malloc)


def pytest_terminal_summary(terminalreporter):
    usage = strata.runtime(cupy.cuda.runtime.getDevice()).usage()
    terminalreporter.write_line(
        f"strata: at most {usage['reserved_peak']} bytes reserved, {usage['live_blocks']} blocks live at the end"
    )
