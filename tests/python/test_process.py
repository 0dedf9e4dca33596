"""Start, fork and exit of a process."""

import os

import pytest

import strata


def test_the_driver_and_the_stack_are_chosen_before_the_first_use(process):
    status, output, errors = process(
        """
        import os, strata
        del os.environ["STRATA_DRIVER"]
        strata.configure(driver="sim", stack="budget(limit=1MiB), pool", device=0)
        print(strata.driver_info()["simulated"], strata.runtime().stack, os.environ["STRATA_STACK"])
        strata.configure(stack="budget(limit=1MiB),  pool", device=0)  # the same
        for late in ({"stack": "pool", "device": 0}, {"driver": "/nowhere/libcuda.so"}):
            try:
                strata.configure(**late)
            except (ValueError, strata.Error) as error:
                print(type(error).__name__)
        """
    )
    text = "budget(limit=1MiB), pool"
    assert (status, output.splitlines(), errors) == (0, [f"True {text} {text}", "ValueError", "Error"], "")


def test_a_stack_is_chosen_before_there_is_a_runtime(process):
    status, output, errors = process(
        """
        import os, strata
        strata.configure(driver="sim", stack="statistics, pool")
        strata.configure(stack="pool")  # there is none yet
        kept = strata.Memory(64)
        strata.configure(stack="pool")  # the same
        for stack in (5, b"pool", ["pool"]):
            try:
                strata.configure(stack=stack)
                raise SystemExit(f"took {stack!r}")
            except TypeError as error:
                assert str(error).startswith("stack: expected a text"), error
        for stack in ("nope", "statistics, pool"):
            try:
                strata.configure(stack=stack)
            except ValueError as error:
                print(error)
        print(os.environ["STRATA_STACK"])
        """
    )
    late = "the runtime of device 0 has the stack 'pool' already; choose {!r} before the first allocation of the process"
    assert (status, errors) == (0, "")
    assert output.splitlines() == [late.format("nope"), late.format("statistics, pool"), "pool"]


def test_a_bad_stack_for_a_device_is_an_error_at_once(process):
    status, _, errors = process('import strata; strata.configure(driver="sim", stack="nope", device=0)')
    assert status == 1 and "strata.StackSyntaxError" in errors and "nope" in errors


def test_a_bad_stack_for_a_device_is_not_chosen(process):
    status, output, errors = process(
        """
        import os, strata
        os.environ.pop("STRATA_STACK", None)
        for before in (None, "null"):
            if before:
                os.environ["STRATA_STACK"] = before
            try:
                strata.configure(stack="nope", device=0)
            except strata.StackSyntaxError:
                print(os.environ.get("STRATA_STACK"))
        print(strata.runtime().stack)
        """
    )
    assert (status, output.split(), errors) == (0, ["None", "null", "null"], "")


def test_a_device_alone_gets_its_runtime(process):
    status, output, errors = process('import strata; strata.configure(device=0); print(len(strata._core.made_runtimes()))')
    assert (status, output, errors) == (0, "1\n", "")


def test_a_stack_outside_of_utf_8_can_be_told(process):
    status, output, errors = process(
        """
        import os, strata
        os.environb[b"STRATA_STACK"] = b'null, "\\xff"'
        print(ascii(strata.default_stack()))
        os.environb[b"STRATA_STACK"] = b'budget(name="\\xff"), null'
        print(ascii(strata.runtime().stack))
        strata.configure(stack=os.environ["STRATA_STACK"].replace("\\udcff", "\\ufffd"))
        """
    )
    assert (status, errors) == (0, "")
    assert output.splitlines() == [
        ascii('null, "\ufffd"'),
        ascii('budget(name="\ufffd"), null'),
    ]


def test_the_library_for_torch_says_why_it_takes_no_driver(process):
    status, output, errors = process(
        """
        from strata._torch import library
        for driver in ("bogus", "/nowhere/libcuda.so"):
            try:
                library.open_library(driver)
            except RuntimeError as error:
                print(error)
            import strata
            strata.driver_info()
        """
    )
    first, second = output.splitlines()
    assert (status, errors) == (0, "")
    assert first.startswith("the driver cannot be 'bogus': driver choice \"bogus\": expected cuda, sim, auto")
    assert second.startswith("the driver cannot be '/nowhere/libcuda.so': ") and "is already open" in second


def test_texts_for_torch_are_whole(process):
    status, output, errors = process(
        """
        import os, sys, types
        import strata.torch
        from strata._torch import shim
        cuda = types.SimpleNamespace(is_initialized=lambda: False)
        sys.modules["torch"] = types.SimpleNamespace(version=types.SimpleNamespace(cuda="13.0"), cuda=cuda)
        given = []
        shim.load = lambda torch: types.SimpleNamespace(strata_torch_install=lambda *words: given.append(words[:2]))
        for wrong in ({"stack": "pool\\0, pool"}, {"budget": "8GiB\\0"}, {"driver": "sim\\0"}):
            try:
                strata.torch.use(**wrong)
            except ValueError as error:
                print(error)
        os.environb[b"STRATA_STACK"] = b'budget(name="\\xff"), pool'
        strata.torch.use(budget=4096)
        print(given)
        """
    )
    assert (status, errors) == (0, "")
    assert output.splitlines() == [
        "stack: a text has no null character, as 'pool\\x00, pool' has",
        "budget: a text has no null character, as '8GiB\\x00' has",
        "driver: a text has no null character, as 'sim\\x00' has",
        str([(b'budget(name="\xff"), pool', b"4096")]),
    ]


def test_the_runtime_of_a_device_that_torch_cannot_have_is_refused(monkeypatch):
    class Loaded:
        @staticmethod
        def strata_torch_runtime(device, error, error_bytes):
            return 1 << 12 | device & 0xFF

    monkeypatch.setattr(strata.torch, "_loaded", Loaded)
    assert strata.torch.runtime(1) == 1 << 12 | 1
    for device in (-1, 128, 256):
        with pytest.raises(RuntimeError, match=f"no device {device}"):
            strata.torch.runtime(device)


@pytest.mark.parametrize("end", ["", "import sys; sys.exit(0)", "import gc; gc.disable()"])
def test_memory_that_is_live_at_the_exit_is_freed_in_silence(process, end):
    status, output, errors = process(
        f"""
        import threading, strata
        runtime = strata.Runtime("pool")
        stream = runtime.stream()
        kept = [runtime.allocate(1000, stream), strata.allocate(1000), strata.Memory(1000)]
        capsule = kept[0].__dlpack__()
        kept.append(kept)  # a circle
        class Late:
            def __del__(self, buffer=kept[1]):
                buffer.free()
        late = Late()
        budget = strata.budget("1MiB")
        budget.__enter__()
        inside = strata.allocate(10)
        threading.Thread(target=lambda: strata.allocate(10)).start()
        {end}
        """
    )
    assert (status, output, errors) == (0, "", "")


def test_an_exit_handler_meets_a_driver_that_may_be_gone(process):
    status, output, errors = process(
        """
        import atexit, strata
        buffer = strata.allocate(1000)
        @atexit.register
        def last():
            buffer.free()
            print("freed", buffer.freed)
        """
    )
    assert (status, output, errors) == (0, "freed True\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_frees_nothing_and_is_told(process):
    status, output, errors = process(
        """
        import gc, os, sys, warnings, strata
        warnings.simplefilter("ignore")
        runtime = strata.Runtime("budget, statistics, pool")
        stream = runtime.stream()
        buffer, memory = runtime.allocate(1000, stream), strata.Memory(1000)
        capsule = buffer.__dlpack__(max_version=(1, 0))
        budget, scope = strata.budget("1MiB", runtime=runtime), strata.scope("x", runtime=runtime)
        child = os.fork()
        if child == 0:
            try:
                runtime.allocate(10)
            except strata.Error as error:
                print(error.status_name, flush=True)
            buffer.free()
            del buffer, memory, capsule, budget, scope, stream, runtime
            gc.collect()
            os._exit(0)
        _, state = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(state), runtime.usage()["live_blocks"])
        buffer.free()
        del capsule
        print(runtime.usage()["live_blocks"])
        """
    )
    assert (status, output.splitlines(), errors) == (0, ["STRATA_ERROR_FORKED", "0 1", "0"], "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_scopes_in_silence(process):
    status, output, errors = process(
        """
        import os, sys, strata
        with strata.Runtime("budget, statistics, pool") as runtime, runtime.stream() as stream:
            with strata.budget("1MiB", runtime=runtime), strata.tag("t"), strata.scope("x", runtime=runtime):
                with runtime.allocate(1000, stream) as buffer, buffer.use(stream):
                    child = os.fork()
                    if child == 0:
                        sys.exit(7)
        if child != 0:
            _, state = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(state))
        """
    )
    assert (status, output, errors) == (0, "7\n", "")


def test_a_process_that_forks_first_works(process):
    status, output, errors = process(
        """
        import multiprocessing, strata
        def work(_):
            with strata.allocate(1000) as buffer:
                return buffer.nbytes
        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(sum(pool.map(work, range(4))))
        """
    )
    assert (status, output, errors) == (0, "4000\n", "")


def test_import_opens_no_driver(process):
    status, _, errors = process("import strata; strata.parse_size('1GiB')", STRATA_DRIVER="/nowhere/libcuda.so")
    assert (status, errors) == (0, "")


@pytest.mark.skipif(not strata.driver_info()["simulated"], reason="a reset ends what other libraries hold")
@pytest.mark.parametrize("first", ["strata.runtime()", "strata.allocate(1000)", "strata.Memory(1000)",
                                   "strata.memory_info()", "strata.stats()", "strata.budget('1MiB').__enter__()"])
def test_the_first_call_after_a_reset_has_a_new_runtime(process, first):
    status, output, errors = process(
        f"""
        import ctypes, strata
        def reset():
            assert ctypes.CDLL(strata.driver_info()["library"]).cuDevicePrimaryCtxReset_v2(0) == 0
        before = strata.runtime()
        kept = [strata.allocate(1000), strata.Memory(1000)]
        strata.allocate(1000).free()  # for a hit of the pool
        reset()
        {first}
        print(strata.runtime() is before, strata.allocate(1000).ptr != 0)
        try:
            before.allocate(1000)
        except strata.Error as error:
            print(error.status_name)
        try:
            kept[0].__dlpack__()
        except strata.FreedError as error:
            print(error.status_name)
        for one in kept:
            one.free()
        """
    )
    expected = ["False True", "STRATA_ERROR_DEVICE_RESET", "STRATA_ERROR_STALE"]
    assert (status, output.splitlines(), errors) == (0, expected, "")


# Of cuda.core what the resource needs, for a machine without it.
@pytest.mark.skipif(not strata.driver_info()["simulated"], reason="a reset ends what other libraries hold")
def test_a_resource_for_cuda_core_goes_on_after_a_reset(process):
    status, output, errors = process(
        """
        import ctypes, sys, types
        core = types.ModuleType("cuda.core")
        core.MemoryResource = object
        core.Buffer = type("Buffer", (), {"from_handle": staticmethod(lambda address, size, **of: address)})
        sys.modules.update({"cuda": types.ModuleType("cuda"), "cuda.core": core})
        import strata, strata.cuda_core
        resource = strata.cuda_core.MemoryResource(0)
        resource.deallocate(resource.allocate(1000), 1000)  # for a hit of the pool
        before = resource.runtime
        assert ctypes.CDLL(strata.driver_info()["library"]).cuDevicePrimaryCtxReset_v2(0) == 0
        kept = resource.allocate(1000)
        print(kept != 0, resource.runtime is before, strata.runtime().usage()["live_blocks"], resource.device_id)
        """
    )
    assert (status, output, errors) == (0, "True False 1 0\n", "")
