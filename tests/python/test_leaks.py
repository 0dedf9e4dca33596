"""No call leaves Python objects behind, whether it succeeds or fails."""

import gc
import sys

import pytest

import strata


class Stream:
    ptr = 0


def attempt(call):
    try:
        call()
    except (strata.Error, ValueError, TypeError, BufferError, AttributeError, OverflowError, RuntimeError):
        pass


def every_call(runtime):
    buffer = runtime.allocate("1KiB", Stream(), tag="leaks")
    view = buffer.view("float32", (4, 8), offset=256)
    repr(view), view.ptr, view.nbytes, view.shape, view.dtype, view.stream, view.tag, view.runtime, view.freed
    view.__dlpack__(max_version=(1, 0)), view.__dlpack__(), view.__dlpack_device__(), view.__cuda_array_interface__
    buffer.record(None, "r")
    buffer.use_until_free(Stream())
    with buffer.use(None):
        pass
    with strata.tag("t") as tag, strata.budget("1MiB", runtime=runtime) as budget, strata.scope("s", runtime=runtime) as scope:
        runtime.allocate(10).free(stream=None)
        tag.name, budget.usage(), budget.limit, budget.in_use, budget.peak, scope.read()
        budget.limit = "2MiB"
    with runtime.stream() as stream:
        stream.synchronize(), stream.__cuda_stream__(), stream.handle
        runtime.allocate(10, stream).free(stream)
    strata.Memory(10).free(0)
    runtime.report(), runtime.report(format="json"), runtime.stats(), runtime.usage(), runtime.limits(), repr(runtime)
    runtime.get("budget.limit"), runtime.set("budget.limit", 0), runtime.trim("1MiB")
    strata.driver_info(), strata.device_info(), strata.memory_info(), strata.parse_size("1KiB"), strata.default_stack()
    for wrong in (
        lambda: runtime.allocate("2 florins"),
        lambda: runtime.allocate(-1),
        lambda: runtime.allocate(10, object()),
        lambda: runtime.allocate(10, alignment=3),
        lambda: runtime.allocate(1 << 60),
        lambda: buffer.view("decimal"),
        lambda: buffer.view("f4", (1 << 62, 1 << 62)),
        lambda: buffer.view(shape=("a",)),
        lambda: buffer.__dlpack__(copy=True),
        lambda: buffer.__dlpack__(dl_device=(1, 0)),
        lambda: buffer.__dlpack__(max_version="1"),
        lambda: buffer.view("bfloat16").__cuda_array_interface__,
        lambda: buffer.use(None, "execute"),
        lambda: strata.budget("200%", runtime=runtime),
        lambda: strata.budget("1KiB", runtime="x"),
        lambda: strata.budget(1 << 63, runtime=runtime),
        lambda: strata.scope(runtime="x"),
        lambda: strata.tag("never entered").__exit__(),
        lambda: strata.Runtime("pol"),
        lambda: strata.Runtime("pool", events="never"),
        lambda: runtime.get("budget.colour"),
        lambda: runtime.set("budget.limit", "much"),
        lambda: runtime.report(format="xml"),
        lambda: runtime.register_stream(0),
    ):
        attempt(wrong)


@pytest.mark.skipif(not hasattr(sys, "getallocatedblocks"), reason="this interpreter does not count blocks")
def test_nothing_is_left_of_any_call(runtime, driver):
    driver  # its context is current
    rounds, growths = 20, []
    # The interpreter's own caches fill for a while: up to 50 tries. A leak of one object a round shows in each of them.
    while len(growths) < 50 and (not growths or growths[-1] >= rounds // 2):
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(rounds):
            every_call(runtime)
        gc.collect()
        growths.append(sys.getallocatedblocks() - before)
    assert growths[-1] < rounds // 2, f"{rounds} rounds left so many objects behind: {growths}"
