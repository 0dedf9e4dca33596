"""Buffers, memory without a stream, streams."""

import ctypes
import gc
import threading
import weakref

import pytest

import strata


def test_sizes_are_numbers_or_texts(runtime):
    for size, bytes_of_it in ((1000, 1000), ("1KiB", 1024), ("1.5 MiB".replace(" ", ""), 3 << 19), (0, 0)):
        with runtime.allocate(size) as buffer:
            assert buffer.nbytes == bytes_of_it
            assert buffer.shape == (bytes_of_it,)
            assert bool(buffer.ptr) == bool(bytes_of_it)
    assert strata.parse_size("2GiB") == 2 << 30


def test_bad_sizes_are_refused(runtime):
    for size, error in ((-1, ValueError), (1 << 64, ValueError), ("2 florins", strata.InvalidValueError), (1.5, TypeError), (None, TypeError)):
        with pytest.raises(error, match="^nbytes: ") as caught:
            runtime.allocate(size)
        assert not isinstance(caught.value, strata.StackSyntaxError)  # that is of a stack's text


def test_alignment_is_kept(runtime):
    with runtime.allocate(100, alignment=4096) as buffer:
        assert buffer.ptr % 4096 == 0
    with pytest.raises(ValueError, match="power of two"):
        runtime.allocate(100, alignment=3)


def test_memory_keeps_what_is_written(runtime, driver):
    with runtime.allocate(1000) as buffer:
        driver.fill(buffer, 7)
        assert driver.read(buffer) == b"\7" * 1000


def test_a_buffer_is_freed_with_its_last_reference(runtime):
    buffer = runtime.allocate(1000)
    alive = weakref.ref(buffer)
    assert runtime.usage()["live_blocks"] == 1
    del buffer
    assert alive() is None and runtime.usage()["live_blocks"] == 0


def test_a_freed_buffer_says_so(runtime):
    buffer = runtime.allocate(1000)
    assert not buffer.freed
    buffer.free()
    buffer.free()  # does nothing
    assert buffer.freed and "freed" in repr(buffer)
    for use in (
        lambda: buffer.ptr,
        lambda: buffer.nbytes,
        lambda: buffer.view("u1"),
        lambda: buffer.record(None),
        lambda: buffer.use(None).__enter__(),
        lambda: buffer.__dlpack__(),
        lambda: buffer.__cuda_array_interface__,
    ):
        with pytest.raises(strata.FreedError, match="was freed"):
            use()


def test_views_share_and_keep_the_memory(runtime, driver):
    whole = runtime.allocate(1024)
    driver.fill(whole, 1)
    view = whole.view("float32", (4, 8), offset=512)
    assert (view.dtype, view.shape, view.nbytes, view.ptr) == ("float32", (4, 8), 128, whole.ptr + 512)
    assert whole.view("<f8").shape == (128,)
    assert whole.view(shape=(2, 512)).dtype == "uint8"
    whole.free()
    assert runtime.usage()["live_blocks"] == 1
    assert driver.read(view) == b"\1" * 128
    del view
    assert runtime.usage()["live_blocks"] == 0


def test_views_that_do_not_fit_are_refused(runtime):
    with runtime.allocate(1024) as whole:
        for arguments in (("f4", (257,)), ("f4", (1,), 1), ("u1", (1,), 1024), ("u1", (1 << 40, 1 << 40))):
            with pytest.raises(ValueError):
                whole.view(*arguments)
        with pytest.raises(TypeError, match="dtype"):
            whole.view("decimal")


class Index:
    """A number that is no int, as NumPy's."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def test_shapes_are_of_any_numbers_and_not_negative(runtime):
    with runtime.allocate(1024) as whole:
        for given in (Index(2), (Index(2),), [2], (True, Index(2))):
            shape = whole.view("f4", given).shape
            assert shape[-1] == 2 and all(type(extent) is int for extent in shape)
        for wrong in (-1, (4, -1), 1 << 63, (1 << 63, 0), (1 << 40, 1 << 40)):
            with pytest.raises(ValueError, match="^shape: "):
                whole.view("f4", wrong)
        with pytest.raises(TypeError):
            whole.view("f4", (1.0,))


class Ptr:
    def __init__(self, handle):
        self.ptr = handle


class CudaStream:
    def __init__(self, handle):
        self.cuda_stream = handle


class Handle:
    def __init__(self, handle):
        self.handle = ctypes.c_void_p(handle)


class Protocol:
    def __init__(self, handle):
        self.pair = (0, handle)

    def __cuda_stream__(self):
        return self.pair


class EarlyProtocol:
    def __init__(self, handle):
        self.__cuda_stream__ = (0, handle)


@pytest.mark.parametrize("kind", [int, Ptr, CudaStream, Handle, Protocol, EarlyProtocol])
def test_streams_of_other_libraries_are_understood(runtime, driver, kind):
    handle = driver.make_stream()
    stream = kind(handle)
    assert strata.stream_handle(stream) == handle
    with runtime.allocate(1000, stream) as buffer:
        assert buffer.stream == handle
    driver.destroy_stream(handle)
    assert strata.stream_handle(kind(0)) == 0


def test_what_is_no_stream_is_refused(runtime):
    for stream in ("one", 1.5, object()):
        with pytest.raises(TypeError, match="stream"):
            runtime.allocate(10, stream)
    with pytest.raises(OverflowError):
        runtime.allocate(10, -1)


@pytest.mark.parametrize("member", ["__cuda_stream__", "ptr", "cuda_stream", "handle"])
def test_a_stream_that_does_not_tell_its_handle_says_why(runtime, member):
    def fail(self):
        raise KeyError("the stream was closed")

    stream = type("Stream", (), {member: property(fail)})()
    with pytest.raises(KeyError, match="the stream was closed"):
        runtime.allocate(10, stream)


def test_memory_is_no_stream(runtime, driver):
    """It has a `ptr` or a `handle`, too: its address, on which a driver may crash."""
    driver  # its context is current

    class Tensor:
        handle = 4096

        def __dlpack__(self):
            pass

    with runtime.allocate(100) as buffer:
        for memory in (buffer, strata.Memory(100), Tensor()):
            for call in (strata.stream_handle, lambda stream: runtime.allocate(10, stream), buffer.use, buffer.free):
                with pytest.raises(TypeError, match="^stream: "):
                    call(memory)


@pytest.mark.parametrize("answer", [5, (0,), None])
def test_a_stream_with_another_protocol_is_refused(runtime, answer):
    class Other:
        def __cuda_stream__(self):
            return answer

    with pytest.raises(TypeError, match="stream: __cuda_stream__ gives a version and a handle"):
        runtime.allocate(10, Other())


def test_a_buffer_keeps_the_object_that_named_its_stream(runtime, driver):
    handle = driver.make_stream()
    stream = Ptr(handle)
    alive = weakref.ref(stream)
    buffer = runtime.allocate(1000, stream)
    del stream
    assert alive() is not None
    driver.fill(buffer, 1)
    del buffer
    assert alive() is None
    driver.cuCtxSynchronize()
    driver.destroy_stream(handle)


def reuse_on_another_stream(runtime, driver, nbytes):
    """Writes memory that was just freed, on another stream: the checker tells whether that comes after former work."""
    other = runtime.stream()
    with runtime.allocate(nbytes, other) as buffer:
        driver.fill(buffer, 2)
        assert driver.read(buffer) == b"\2" * nbytes
    other.close()


@pytest.mark.parametrize("named_by", [Ptr, int])
def test_a_free_comes_after_work_of_an_unknown_stream(driver, named_by):
    nbytes = 3 << 20
    with strata.Runtime("pool(max_size=4MiB, initial_size=4MiB)") as runtime:  # the memory is used again at once
        handle = driver.make_stream()
        buffer = runtime.allocate(nbytes, named_by(handle))
        for value in range(8):
            driver.fill(buffer, value)
        del buffer
        reuse_on_another_stream(runtime, driver, nbytes)
        driver.cuCtxSynchronize()
        driver.destroy_stream(handle)


def test_a_free_can_name_the_last_stream(driver):
    nbytes = 3 << 20
    with strata.Runtime("pool(max_size=4MiB, initial_size=4MiB)") as runtime:
        first, last = runtime.stream(), runtime.stream()
        buffer = runtime.allocate(nbytes, first)
        with buffer.use(last):
            driver.fill(buffer, 3, last)
        driver.fill(buffer, 4, last)
        buffer.free(last)
        reuse_on_another_stream(runtime, driver, nbytes)
        first.close()
        last.close()


def test_a_use_orders_streams_and_the_free(driver):
    nbytes = 3 << 20
    with strata.Runtime("pool(max_size=4MiB, initial_size=4MiB)") as runtime:
        first, second = runtime.stream(), runtime.stream()
        buffer = runtime.allocate(nbytes, first)
        with buffer.use(first, "w"):
            driver.fill(buffer, 3, first)
        with buffer.use(second, "rw") as inside:
            assert inside is buffer
            driver.fill(buffer, 4, second)
        del buffer, inside
        reuse_on_another_stream(runtime, driver, nbytes)
        first.close()
        second.close()


def test_a_use_comes_after_work_of_the_allocation_stream(runtime, driver):
    """Also where that stream is not registered, and where other streams have used the memory before."""
    foreign, other = Ptr(driver.make_stream()), driver.make_stream()
    for stream in (foreign, runtime.stream(), None):
        buffer = runtime.allocate(1 << 20, stream)
        for _ in range(2):
            driver.fill(buffer, 1)
            with buffer.use(other):
                driver.fill(buffer, 2, other)
            driver.cuCtxSynchronize()
    del buffer
    driver.destroy_stream(other)
    driver.destroy_stream(foreign.ptr)


def test_recorded_work_comes_before_the_free(driver):
    nbytes = 3 << 20
    with strata.Runtime("pool(max_size=4MiB, initial_size=4MiB)") as runtime:
        first, second = runtime.stream(), runtime.stream()
        buffer = runtime.allocate(nbytes, first)
        runtime.synchronize(first)
        driver.fill(buffer, 4, second)
        buffer.record(second, "w")
        buffer.free()
        reuse_on_another_stream(runtime, driver, nbytes)
        first.close()
        second.close()


@pytest.mark.parametrize("kind", [Ptr, int])
def test_a_stream_can_use_a_buffer_until_its_free(driver, kind):
    nbytes = 3 << 20
    with strata.Runtime("pool(max_size=4MiB, initial_size=4MiB)") as runtime:
        first, second = runtime.stream(), kind(driver.make_stream())
        buffer = runtime.allocate(nbytes, first)
        runtime.synchronize(first)
        buffer.use_until_free(second)
        driver.fill(buffer, 4, second)  # after the call, unlike record
        del buffer
        reuse_on_another_stream(runtime, driver, nbytes)
        first.close()
        driver.cuCtxSynchronize()
        driver.destroy_stream(strata.stream_handle(second))


def test_a_use_begins_and_ends_once(runtime):
    with runtime.allocate(100) as buffer:
        use = buffer.use(None, "r")
        with pytest.raises(ValueError):
            use.__exit__(None, None, None)
        with use:
            with pytest.raises(ValueError):
                use.__enter__()
        with pytest.raises(ValueError, match="access"):
            buffer.use(None, "execute")


def test_registered_streams_are_known(runtime, driver):
    handle = driver.make_stream()
    runtime.register_stream(handle)
    with pytest.raises(ValueError):
        runtime.register_stream(handle)
    with runtime.allocate(1000, handle) as buffer:
        driver.fill(buffer, 1)
    runtime.unregister_stream(handle)
    driver.destroy_stream(handle)


def test_streams_of_a_runtime(runtime):
    with runtime.stream() as stream:
        assert stream.__cuda_stream__() == (0, stream.handle)
        stream.synchronize()
    assert stream.closed
    with pytest.raises(ValueError, match="closed"):
        stream.handle
    many = [runtime.stream() for _ in range(16)]
    with pytest.raises(strata.Error) as caught:
        runtime.stream()
    assert caught.value.status_name == "STRATA_ERROR_STREAMS_EXHAUSTED"
    del many
    runtime.stream().close()


def test_memory_for_any_stream(driver):
    driver  # its context is current
    before = strata.runtime().usage()["live_blocks"]
    memory = strata.Memory("1MiB")
    assert memory.nbytes == 1 << 20 and memory.ptr
    assert strata.runtime().usage()["live_blocks"] == before + 1
    memory.free()
    assert memory.ptr == 0
    memory.free()
    memory = strata.Memory(1000)
    memory.free(stream=0)
    strata.Memory(1000)  # freed at once
    assert strata.Memory(0).ptr == 0
    assert strata.runtime().usage()["live_blocks"] == before


def test_threads_allocate_and_free_each_others_buffers(runtime):
    rounds, lists = 200, [[] for _ in range(4)]
    failures = []

    def work(own, other):
        try:
            for i in range(rounds):
                own.append(runtime.allocate(1 + i * 100, tag="threads"))
                if len(other) > 5:
                    other.pop()
        except Exception as error:  # shown by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(lists[i], lists[i - 1])) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    lists.clear()
    gc.collect()
    assert runtime.usage()["live_blocks"] == 0


def test_buffers_in_circles_are_freed_by_the_collector(runtime):
    class Node:
        pass

    node = Node()
    node.self, node.buffer = node, runtime.allocate(1000)
    del node
    gc.collect()
    assert runtime.usage()["live_blocks"] == 0


def test_naming_a_stream_again_keeps_one_object(runtime, driver):
    handle, other = driver.make_stream(), driver.make_stream()

    class Named:
        live = 0

        def __init__(self, number):
            self.ptr = number
            Named.live += 1

        def __del__(self):
            Named.live -= 1

    with runtime.allocate(4096) as buffer:
        for _ in range(100):
            buffer.use_until_free(Named(handle))
            buffer.use_until_free(Named(other))
        assert Named.live == 2
        driver.fill(buffer, 1, other)
    for stream in (handle, other):
        driver.destroy_stream(stream)


def test_the_owner_of_a_stream_that_another_object_named_is_kept(runtime, driver):
    handle = driver.make_stream()

    class View:
        ptr = handle

    class Owner:
        ptr = handle

        def __del__(self):
            driver.destroy_stream(self.ptr)
            ended.append(self.ptr)

    ended = []
    with runtime.allocate(4096) as buffer:
        buffer.use_until_free(View())
        buffer.use_until_free(Owner())
        assert not ended


def test_a_registration_that_has_ended_names_no_stream(driver):
    """A later stream may have its handle; the work of the former one may still run."""
    nbytes = 3 << 20
    with strata.Runtime("pool(max_size=4MiB, initial_size=4MiB)") as runtime:
        handle = driver.make_stream()
        runtime.register_stream(handle)
        buffer = runtime.allocate(nbytes, runtime.stream())
        buffer.use_until_free(handle)
        driver.cuCtxSynchronize()
        for value in range(8):
            driver.fill(buffer, value, handle)
        runtime.unregister_stream(handle)
        driver.destroy_stream(handle)
        again = driver.make_stream()
        runtime.register_stream(again)
        del buffer
        reuse_on_another_stream(runtime, driver, nbytes)
        runtime.unregister_stream(again)
        driver.destroy_stream(again)


def test_a_use_that_another_thread_leaves_is_refused_and_goes_on(runtime):
    use, errors = runtime.allocate(4096).use(None), []
    use.__enter__()

    def leave():
        try:
            use.__exit__(None, None, None)
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert len(errors) == 1 and "on the thread that entered it" in errors[0]
    use.__exit__(None, None, None)
    del use
    assert runtime.usage()["live_blocks"] == 0


class Worker:
    """Ends its stream when it is collected; what it holds is part of the circle."""

    def __init__(self, driver):
        self.driver, self.handle = driver, driver.make_stream()

    def __cuda_stream__(self):
        return (0, self.handle)

    def __del__(self):
        self.driver.destroy_stream(self.handle)


@pytest.mark.parametrize("hold", ["allocation", "view", "open use", "use", "begun use"])
def test_a_circle_of_a_stream_and_its_buffer_is_collected(runtime, driver, hold):
    """The stream's finalizer runs first, so that its handle is dead when the memory is freed."""
    worker = Worker(driver)
    buffer = runtime.allocate(4096, worker if hold in ("allocation", "view") else None)
    if hold != "use":
        driver.fill(buffer, 1, worker.handle)
    if hold == "view":
        buffer = buffer.view("float32")
    elif hold == "open use":
        buffer.use_until_free(worker)
    elif hold != "allocation":
        buffer = buffer.use(worker)
        if hold == "begun use":
            buffer.__enter__()
    worker.held = buffer
    del worker, buffer
    gc.collect()
    assert runtime.usage()["live_blocks"] == 0
    stream = runtime.stream()
    with runtime.allocate(4096, stream) as again:  # memory of before, whose fill is complete
        driver.fill(again, 2, stream.handle)
    stream.close()


def test_a_use_kept_by_a_finalizer_of_its_circle_is_over(runtime, driver):
    kept = []

    class Keeper(Worker):
        def __del__(self):
            super().__del__()
            kept.append(self.held)

    worker, buffer = Keeper(driver), runtime.allocate(4096)
    worker.held = buffer.use(worker)
    del worker
    gc.collect()
    with pytest.raises(ValueError, match="the use has ended"):
        kept[0].__enter__()
    kept.clear()
    del buffer
    assert runtime.usage()["live_blocks"] == 0


def test_a_closed_runtime_is_refused_and_a_busy_one_stays():
    runtime = strata.Runtime("pool")
    buffer = runtime.allocate(10)
    with pytest.raises(strata.Error) as caught:
        runtime.close()
    assert caught.value.status_name == "STRATA_ERROR_BUSY"
    del buffer
    runtime.close()
    runtime.close()
    assert runtime.closed
    with pytest.raises(ValueError, match="closed"):
        runtime.allocate(10)
    with pytest.raises(ValueError, match="as long as the process"):
        strata.runtime().close()


def test_an_exception_is_not_hidden_by_the_buffers_that_it_leaves():
    with pytest.raises(KeyError, match="mine"):
        with strata.Runtime("pool") as runtime:
            buffer = runtime.allocate(100)
            raise KeyError("mine")
    assert not runtime.closed and buffer.ptr
    buffer.free()
    runtime.close()
    with pytest.raises(strata.Error, match="drop the runtime") as caught:
        with strata.Runtime("pool") as runtime:
            buffer = runtime.allocate(100)
    assert "abandon" not in str(caught.value)  # a function of C


def test_the_process_runtime_is_one_object():
    assert strata.runtime() is strata.runtime(0)
    with pytest.raises(strata.Error):
        strata.runtime(1000)
    with strata.allocate(10) as buffer:
        assert buffer.runtime is strata.runtime()


def test_reports(runtime):
    with runtime.allocate("1MiB", tag="weights"):
        values = runtime.stats()
        assert values["budget.in_use"] == 1 << 20
        assert runtime.get("budget.in_use") == 1 << 20
        assert "weights" in runtime.report()
        assert runtime.report(format="json").startswith("{")
        usage = runtime.usage()
        assert usage["live_bytes"] == 1 << 20 and usage["reserved_bytes"] >= 1 << 20
    with pytest.raises(ValueError, match="format"):
        runtime.report(format="xml")
    with pytest.raises(ValueError):
        runtime.get("budget.colour")
    runtime.reap()
    assert runtime.trim() >= 1 << 20
    assert runtime.usage()["reserved_bytes"] == 0


def test_values_are_set_from_texts(runtime):
    runtime.set("budget.limit", "1MiB")
    assert runtime.limits() == {**runtime.limits(), "limit": 1 << 20, "in_use": 0, "remaining": 1 << 20}
    with pytest.raises(strata.OutOfBudgetError):
        runtime.allocate("2MiB")
    runtime.set("budget.limit", 0)
    assert runtime.limits()["limit"] is None
    for wrong in (-1, 1.5, None, "much"):
        with pytest.raises(strata.InvalidValueError, match="^value: budget.limit: ") as caught:
            runtime.set("budget.limit", wrong)
        assert not isinstance(caught.value, strata.StackSyntaxError)


@pytest.mark.parametrize("call", ["allocate", "stream", "trim", "set", "synchronize"])
def test_a_runtime_that_an_argument_closes_is_refused(call):
    runtime = strata.Runtime("budget, statistics, pool")

    class Closes:
        def __index__(self):
            runtime.close()
            return 4096

        def __str__(self):
            runtime.close()
            return "4KiB"

        def __cuda_stream__(self):
            runtime.close()
            return (0, 0)

    class Stream:
        __cuda_stream__ = Closes.__cuda_stream__

    calls = {
        "allocate": lambda: runtime.allocate(Closes()),
        "stream": lambda: runtime.allocate(100, Stream()),
        "trim": lambda: runtime.trim(Closes()),
        "set": lambda: runtime.set("budget.limit", Closes()),
        "synchronize": lambda: runtime.synchronize(Stream()),
    }
    with pytest.raises(ValueError, match="closed"):
        calls[call]()


def test_a_runtime_is_not_closed_under_another_threads_call():
    """Threads report and allocate while another one closes: each call either works or finds the runtime closed."""
    for _ in range(20):
        runtime = strata.Runtime("budget, statistics, pool")
        failures, start = [], threading.Event()

        def work():
            start.wait()
            try:
                for _ in range(50):
                    runtime.report()
                    runtime.allocate(1000).free()
                    runtime.stats()
            except ValueError:
                pass  # closed
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        start.set()
        while not runtime.closed:
            try:
                runtime.close()
            except strata.Error as error:
                assert error.status_name == "STRATA_ERROR_BUSY"
        for thread in threads:
            thread.join()
        assert not failures


@pytest.mark.parametrize("collected", [False, True], ids=["dropped", "collected"])
def test_a_begun_use_that_another_thread_drops_is_finished_by_its_own(runtime, collected):
    stream = runtime.stream()
    buffer = runtime.allocate(1000, stream)
    uses = [buffer.use(stream)]
    uses[0].__enter__()
    if collected:
        uses.append(uses)  # in a circle
    held = [uses]
    del uses

    def drop():
        held.clear()
        gc.collect()

    gc.disable()
    try:
        thread = threading.Thread(target=drop if collected else lambda: held.pop().clear())
        thread.start()
        thread.join()
    finally:
        gc.enable()
    buffer.free()
    stream.close()
    runtime.reap()
    assert runtime.usage()["live_blocks"] == 0


def test_a_use_is_begun_by_one_of_several_threads():
    with strata.Runtime("statistics, pool", stream_capacity=32) as runtime:
        streams = [runtime.stream() for _ in range(20)]  # the use waits for them, so that its begin takes a while
        for _ in range(200):
            buffer = runtime.allocate(1000, streams[0])
            for stream in streams[1:]:
                buffer.record(stream, "r")
            use, begun, barrier = buffer.use(streams[0]), [], threading.Barrier(3)

            def work():
                barrier.wait()
                try:
                    use.__enter__()
                    begun.append(threading.get_ident())
                except ValueError:
                    pass
                barrier.wait()
                if threading.get_ident() in begun:
                    use.__exit__(None, None, None)

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(begun) == 1
            buffer.free()
        for stream in streams:
            stream.close()
        assert runtime.usage()["live_blocks"] == 0


def test_a_begun_use_is_finished_though_its_thread_has_ended(runtime):
    stream = runtime.stream()
    buffer = runtime.allocate(1000, stream)
    uses = [buffer.use(stream)]

    def run(call):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    run(lambda: uses[0].__enter__())
    uses.clear()  # here, on the thread that has allocated the buffer
    run(runtime.usage)
    buffer.free()
    stream.close()
    runtime.reap()
    assert runtime.usage()["live_blocks"] == 0


def test_a_close_that_is_refused_takes_nothing_from_other_threads():
    """A thread gives back what it has while another one closes in vain, here in the middle of its refusal."""
    runtime = strata.Runtime("budget(limit=64MiB), statistics, pool")
    kept = runtime.allocate(1000)  # for which the runtime cannot be closed
    stream = runtime.stream()
    buffer = runtime.allocate("1MiB", stream)
    use = buffer.use(stream)
    use.__enter__()
    reserved, scope = strata.budget("1MiB", reserve=True, runtime=runtime), strata.scope(runtime=runtime)
    refused, over, failures = threading.Event(), threading.Event(), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def wait(error, data):
        refused.set()
        over.wait(20)

    def close():
        try:
            runtime.close()
        except strata.Error as error:
            failures.append(error.status_name)

    library = ctypes.CDLL(strata._core.__file__)
    library.strata_set_log_callback(wait, None)
    thread = threading.Thread(target=close)
    thread.start()
    assert refused.wait(20)
    library.strata_set_log_callback(None, None)
    try:
        use.__exit__(None, None, None)
        with buffer.use(stream):
            buffer.record(stream)
        buffer.free(stream)
        stream.close()
        del reserved, scope, use
    finally:
        over.set()
        thread.join()
    assert failures == ["STRATA_ERROR_BUSY"] and not runtime.closed
    assert runtime.usage()["live_blocks"] == 1
    kept.free()
    runtime.reap()
    assert runtime.limits()["in_use"] == 0
    runtime.close()


@pytest.mark.parametrize("mode", [0, 2], ids=["global", "relaxed"])
def test_in_a_capture_memory_for_any_stream_can_be_had(runtime, driver, mode):
    handle, graph = driver.make_stream(), ctypes.c_void_p()
    kept = runtime.allocate(1000, Ptr(handle))
    before = strata.runtime().usage()["live_blocks"]
    driver.cuStreamBeginCapture_v2(ctypes.c_void_p(handle), ctypes.c_int(mode))
    with pytest.raises(strata.Error) as caught:
        runtime.allocate(1000, Ptr(handle))
    assert caught.value.status_name == "STRATA_ERROR_STREAM_CAPTURE"
    memory = strata.Memory("1MiB")
    driver.fill(memory, 1, handle)
    strata.Memory("1MiB")  # is freed inside of the capture
    del kept  # its stream is being captured
    driver.cuStreamEndCapture(ctypes.c_void_p(handle), ctypes.byref(graph))
    driver.cuGraphDestroy(graph)
    driver.destroy_stream(handle)
    memory.free()
    strata.Memory(10)  # does what was put off
    assert strata.runtime().usage()["live_blocks"] == before
    runtime.reap()


def test_a_buffer_without_bytes_is_at_address_0():
    with strata.allocate(0) as buffer:
        assert buffer.ptr == 0
        assert repr(buffer) == "<strata.Buffer at 0x0: uint8 (0,)>"
