"""A pytest plugin: takes the door that SUITES_DOOR names, writes each test's result down as it comes, and chooses tests.

SUITES_DOOR   torch, cupy, cuda_core: strata.NAME.use(), or the resource, before a test module is imported; unset: none
SUITES_LOG    a file of lines of JSON: {"start": id}, {"id", "outcome", "words"}; a test that ends the process is the one
              that began and did not end
SUITES_ONLY   a file of ids, one a line: the others are deselected
SUITES_SKIP   as SUITES_ONLY: these are deselected
SUITES_SITE   a folder of packages that are used where the machine has none
"""

import json
import os
import re
import sys

if os.environ.get("SUITES_SITE") and os.environ["SUITES_SITE"] not in sys.path:
    sys.path.append(os.environ["SUITES_SITE"])

import pytest  # noqa: E402

_DOOR = os.environ.get("SUITES_DOOR", "")
_LOG = os.environ.get("SUITES_LOG")


def take_door():
    """Once a process; spawned processes and pytest-xdist's workers come here too."""
    if _DOOR == "torch":
        import strata.torch

        if not strata.torch.is_used():
            strata.torch.use()
    elif _DOOR == "cupy":
        import strata.cupy

        strata.cupy.use()


take_door()


def _ids(variable):
    path = os.environ.get(variable)
    if not path or not os.path.exists(path):
        return set()
    with open(path, encoding="utf-8") as file:
        return set(file.read().splitlines())


def _write(record):
    if _LOG and "PYTEST_XDIST_WORKER" not in os.environ:  # the controller hears of all
        with open(_LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


@pytest.hookimpl(trylast=True)  # after -k
def pytest_collection_modifyitems(config, items):
    only, skip = _ids("SUITES_ONLY"), _ids("SUITES_SKIP")
    kept = [item for item in items if (not only or item.nodeid in only) and item.nodeid not in skip]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
    _write({"collected": len(kept)})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node, ids):
    _write({"collected": len(ids)})


def pytest_collectreport(report):
    if report.failed:
        _write({"id": f"{report.nodeid} (import)", "outcome": "failed", "words": _words(report)})


def pytest_runtest_logstart(nodeid, location):
    _write({"start": nodeid})


def _words(report):
    """The error's first line, without what varies: addresses and long numbers."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = [line.strip() for line in str(report.longrepr or "").splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    line = crash.message.strip().partition("\n")[0] if crash else errors[-1] if errors else lines[-1] if lines else ""
    return re.sub(r"0x[0-9a-f]+|\b\d{5,}\b", "N", line[:300])


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcome = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "skipped" if outcome == "skipped" else "passed"
        words = _words(report) if outcome == "failed" else ""
        _write({"id": report.nodeid, "outcome": outcome, "words": words})


@pytest.fixture
def initialize_from_pytest_config(request):
    """Of numba-cuda's conftest, which its wheel lacks: a test's class keeps failed file checks in a file if this is set."""
    if request.cls is not None:
        request.cls._dump_failed_filechecks = False
