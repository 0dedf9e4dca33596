"""Checks strata.torch with PyTorch's own libraries on the simulated driver: tests/torch/run-sim starts it.

Kernels do not run there, so data moves by copies alone. The simulated driver delays work, and its checker reports work
that touches memory too early or too late.
"""
import ctypes
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import torch

import sim_handles  # noqa: F401: its checks run, too
import strata.torch
from sim_common import CHECKS, MIB, check, copy_of, expect, filled, holds

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "programs"))


def agree():
    import features

    features.snapshot_agrees_with_statistics()


@check
def copies():
    expect(torch.cuda.get_allocator_backend() == "strata")
    first = filled(3)
    expect(holds(copy_of(first), 3))


@check
def recorded_streams():
    side = torch.cuda.Stream()
    for turn in range(10):
        source = filled(turn)
        target = torch.empty_like(source)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            target.copy_(source, non_blocking=True)
        source.record_stream(side)
        del source
        others = [filled(100) for _ in range(4)]
        torch.cuda.synchronize()
        expect(holds(target, turn), turn, target.cpu()[:4])
        del others


@check
def freed_on_its_stream():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        source = filled(7)
        results = []
        for _ in range(20):
            source = copy_of(source)
            results.append(source)
        del results
    other = filled(9)
    torch.cuda.current_stream().wait_stream(side)
    expect(holds(source, 7) and holds(other, 9))


@check
def threads_on_streams():
    wrong = []

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            source = filled(number, 5000)
            for turn in range(100):
                source = copy_of(source)
                if turn % 25 == 0 and not holds(source, number):
                    wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not wrong, wrong)


def captured(held, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        middle = copy_of(held)
        result = copy_of(middle)
        del middle
        again = copy_of(result)
    return graph, result, again


@check
def graphs():
    held = filled(0)
    graph, result, again = captured(held)
    for value in (1, 2):
        held.copy_(torch.full((MIB,), float(value)))
        noise = [filled(50) for _ in range(8)]
        graph.replay()
        expect(holds(result, value) and holds(again, value), value)
        del noise
    agree()


@check
def graph_memory_goes_back():
    torch.cuda.empty_cache()
    gc.collect()
    before = torch.cuda.memory_reserved()
    graph, result, again = captured(filled(1, 40 * MIB))
    expect(torch.cuda.memory_reserved() >= before + 320 * MIB, torch.cuda.memory_reserved() - before)
    private = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) != (0, 0)]
    expect(sum(s["total_size"] for s in private) >= 320 * MIB, len(private))
    del graph, result, again
    gc.collect()
    torch.cuda.empty_cache()
    expect(torch.cuda.memory_reserved() <= before + 8 * MIB, before, torch.cuda.memory_reserved())
    agree()


@check
def shared_graph_pool():
    held = filled(0)
    first, result, _ = captured(held)
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=first.pool()):
        last = copy_of(result)
    held.copy_(torch.full((MIB,), 4.0))
    first.replay()
    second.replay()
    expect(holds(last, 4))


@check
def frees_in_a_capture():
    outside = filled(5)
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        current = torch.cuda.current_stream()
        result = copy_of(outside)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            inside = copy_of(result)
        inside.record_stream(current)
        outside.record_stream(side)
        del outside
        last = copy_of(inside)
        current.wait_stream(side)
        del inside
    active = torch.cuda.memory_stats()["active.all.current"]
    filled(1)
    expect(torch.cuda.memory_stats()["active.all.current"] <= active, "the free was not made up for")
    del graph, result, last


@check
def pools():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = filled(6)
        small = filled(7, 100)
        address = inside.data_ptr()
        del inside
        inside = filled(8)
        expect(inside.data_ptr() == address, "a free block of the pool was not taken")
    outside = filled(9)
    ids = {tuple(s["segment_pool_id"]) for s in pool.snapshot()}
    expect(ids == {tuple(pool.id)}, ids)
    expect(holds(inside, 8) and holds(small, 7) and holds(outside, 9))
    agree()
    del inside, small, pool
    gc.collect()
    torch.cuda.empty_cache()


@check
def recorded_in_a_pool():
    pool = torch.cuda.MemPool()
    side = torch.cuda.Stream()
    with torch.cuda.use_mem_pool(pool):
        source = filled(3)
    target = torch.empty_like(source)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        target.copy_(source, non_blocking=True)
    source.record_stream(side)
    del source
    with torch.cuda.use_mem_pool(pool):
        other = filled(11)
    torch.cuda.synchronize()
    expect(holds(target, 3))
    del other, pool
    gc.collect()
    torch.cuda.empty_cache()
    agree()


@check
def checkpoints():
    device, pool = torch.cuda.current_device(), torch.cuda.graph_pool_handle()
    held = filled(1)

    def record():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            first, dropped, last = copy_of(held), copy_of(held), copy_of(held)
            del dropped
        return graph, first, last

    graph, first, last = record()
    addresses = first.data_ptr(), last.data_ptr()
    state = torch._C._cuda_getCheckpointState(device, pool)
    with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=pool):
        later = [copy_of(held) for _ in range(30)]
    stale = [tensor.untyped_storage()._cdata for tensor in later]
    expect(torch._C._cuda_checkPoolLiveAllocations(device, pool, {t.data_ptr() for t in (first, last, *later)}))
    for tensor in (first, last):
        torch._C._free_And_Remove_DeleterFn(tensor.untyped_storage()._cdata)
    live = [torch._C._construct_storage_from_data_pointer(address, held.device, 4 * MIB) for address in addresses]
    torch._C._cuda_setCheckpointPoolState(device, state, stale, [storage._cdata for storage in live])
    expect(torch._C._cuda_checkPoolLiveAllocations(device, pool, set(addresses)))
    agree()
    before = torch.cuda.memory_allocated()
    del later
    expect(torch.cuda.memory_allocated() == before, "a stale tensor freed memory")
    graph.replay()
    del first, last
    first, last = (torch.empty(0, device="cuda").set_(storage) for storage in live)
    expect(holds(first, 1) and holds(last, 1))
    del first, last, live, graph
    gc.collect()
    expect(torch._C._cuda_checkPoolLiveAllocations(device, pool, set()))
    agree()


@check
def checkpoints_beside_frees():
    """Other threads free blocks while their pool is set back."""
    pool, stream = torch.cuda.MemPool(), torch.cuda.current_stream().cuda_stream
    allocate, free = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete

    def several(count):
        with torch.cuda.use_mem_pool(pool):
            return [allocate(1000, stream) for _ in range(count)]

    def free_some(addresses):
        for address in addresses:
            try:
                free(address)
            except RuntimeError as error:  # it was freed below
                expect("invalid device pointer" in str(error), error)

    free_some(several(1))
    state, before, outcomes = torch._C._cuda_getCheckpointState(0, pool.id), sys.getswitchinterval(), set()
    torch.cuda.memory._record_memory_history(context="all", stacks="python")  # a free waits for Python's lock
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(60):
            held = several(300)
            threads = [threading.Thread(target=free_some, args=(held[k::3],)) for k in range(3)]
            for thread in threads:
                thread.start()
            try:
                torch._C._cuda_setCheckpointPoolState(0, state, [], [])
            except RuntimeError as error:
                outcomes.add(str(error).split("\n")[0])
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
        torch.cuda.memory._record_memory_history(enabled=None)
    # PyTorch misses the tensors that were freed, or a free has not got Python's lock for as long as is waited.
    expect(all("Any stale tensors" in text or "is in use" in text for text in outcomes), outcomes)
    agree()


ALLOCATOR = """
#include <cuda_runtime_api.h>
#include <stdlib.h>
extern "C" void *take(ssize_t bytes, int device, cudaStream_t stream)
{
    void *address = NULL;
    cudaMalloc(&address, bytes);
    return address;
}
extern "C" void give(void *address, ssize_t bytes, int device, cudaStream_t stream)
{
    cudaFree(address);
}
"""


def own_allocator(work):
    import glob

    site = os.path.dirname(os.path.dirname(torch.__file__))
    include = glob.glob(os.path.join(site, "nvidia", "*", "include", "cuda_runtime_api.h"))[0]
    source, library = os.path.join(work, "own.cc"), os.path.join(work, "own.so")
    with open(source, "w", encoding="ascii") as file:
        file.write(ALLOCATOR)
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    words = ["g++", "-shared", "-fPIC", "-I", os.path.dirname(include), "-o", library, source]
    subprocess.run(words, check=True, env=clean)
    return torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give")


@check
def a_pool_with_an_allocator():
    with tempfile.TemporaryDirectory() as work:
        own = own_allocator(work)
        pool = torch.cuda.MemPool(own.allocator())
        with torch.cuda.use_mem_pool(pool):
            inside = filled(4)
        expect(holds(inside, 4))
        agree()
        before = torch.cuda.memory_reserved()
        del inside, pool
        gc.collect()
        torch.cuda.empty_cache()
        expect(torch.cuda.memory_reserved() <= before - 20 * MIB, before, torch.cuda.memory_reserved())


def mebibytes(count):
    return torch.empty(count * MIB, dtype=torch.uint8, device="cuda")


def is_refused(count):
    try:
        mebibytes(count)
        return False
    except torch.OutOfMemoryError:
        return True


@check
def a_fraction_counts_a_pools_own_allocator():
    torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as work:
        own = own_allocator(work)
        pool = torch.cuda.MemPool(own.allocator())
        allowed = torch.cuda.memory_reserved() + 60 * MIB
        torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info()[1])
        try:
            with torch.cuda.use_mem_pool(pool):
                inside = mebibytes(40)
                expect(is_refused(40), "80 MiB of the program's allocator fit into 60")
            expect(is_refused(40), "40 MiB beside 40 fit into 60")
            outside = mebibytes(10)
            del inside, pool
            gc.collect()
            torch.cuda.empty_cache()
            outside = [outside, mebibytes(40)]
            expect(is_refused(20), "70 MiB fit into 60")
            del outside
            torch.cuda.set_per_process_memory_fraction(0.0)
            torch.cuda.empty_cache()
            expect(is_refused(64), "a fraction of 0 allows memory")
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    expect(mebibytes(100).numel() == 100 * MIB)


@check
def whole_statistics():
    import features

    for name in ("allocated_bytes", "pools_by_size", "peaks", "accumulated", "summary", "empty_cache", "empty_tensors", "raw"):
        getattr(features, name)()
    for name in ("free_on_another_thread", "mem_pool", "mem_pool_thread", "accelerator_memory", "fraction", "history"):
        getattr(features, name)()


@check
def a_history_of_another_size_stays_in_order():
    """A larger one continues behind the newest entry, and a smaller one keeps the newest."""

    def record(most, *sizes):
        torch.cuda.memory._record_memory_history(max_entries=most)
        for units in sizes:
            torch.empty(512 * units, dtype=torch.uint8, device="cuda")
        return [entry["size"] // 512 for entry in torch.cuda.memory._snapshot()["device_traces"][0]]

    try:
        expect(record(4, 1, 2) == [1, 2, 2, 2], "the newest four")
        expect(record(8, 3) == [1, 2, 2, 2, 3, 3, 3], "all of both")
        expect(record(2) == [3, 3] and record(2, 4) == [4, 4], "the newest two")
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


@check
def a_history_names_regions_and_annotations():
    from torch.profiler import record_function

    # A function of autograd is told to the recorder by its class's name, as a compiled region is by its own.
    forward = staticmethod(lambda context, unused: mebibytes(2))
    region = type("Torch-Compiled Region: 3/1", (torch.autograd.Function,), {"forward": forward})

    torch.cuda.memory._record_memory_history(compile_context=True)
    try:
        with record_function("outer"):
            held = [mebibytes(1), region.apply(torch.zeros(1)), mebibytes(4)]
        told = torch.cuda.memory._snapshot()
        regions = {entry["size"] // MIB: entry["compile_context"] for entry in told["device_traces"][0] if entry["action"] == "alloc"}
        expect(regions == {1: "N/A", 2: "Torch-Compiled Region: 3/1", 4: "N/A"}, regions)
        notes = [(note["name"], note["stage"]) for note in told["external_annotations"]]
        expect(("outer", "START") in notes and ("outer", "END") in notes, notes)
        expect(notes.index(("outer", "START")) < notes.index(("outer", "END")), notes)
        times = [note["time_us"] for note in told["external_annotations"]]
        times += [entry["time_us"] for entry in told["device_traces"][0]]
        expect(all(abs(moment / 1e6 - time.time()) < 60 for moment in times), times)
        del held
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    expect(not torch.cuda.memory._snapshot()["external_annotations"])


@check
def running_out():
    held = []
    try:
        while True:
            held.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        text = str(error)
    expect("CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of" in text, text)
    expect(torch.cuda.memory_stats()["num_ooms"] >= 1)
    held.clear()
    expect(holds(filled(2, 30 * MIB), 2))
    agree()


@check
def shared_with_a_process():
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(there, back))
    child.daemon = True
    child.start()
    sent = [filled(5, 1000), filled(7, 5 * MIB), filled(7, 5 * MIB)[MIB:]]
    for tensor in sent:
        there.put(tensor)
    for tensor in sent:
        answer = back.get(timeout=30)
        expect(answer == "ok", answer)
    torch.cuda.synchronize()
    expect(holds(sent[0], 1) and holds(sent[1], 2) and holds(sent[2], 3), [tensor.cpu()[:2] for tensor in sent])
    there.put(None)
    child.join(30)
    expect(child.exitcode == 0, child.exitcode)


def receive(there, back):
    for value, wanted in ((1, 5), (2, 7), (3, 7)):
        try:
            tensor = there.get()
            answer = "ok" if holds(tensor, wanted) else f"got {tensor.cpu()[:3]}, not {wanted}"
            last = torch.device("cuda", torch.cuda.device_count() - 1)
            tensor.copy_(torch.full(tensor.shape, float(value)).to(last))
            torch.cuda.synchronize()
            del tensor
            gc.collect()
            back.put(answer)
        except Exception as error:
            back.put(f"{type(error).__name__}: {error}")
    there.get()


@check
def forked_child():
    tensor = filled(1)
    child = os.fork()
    if child == 0:
        del tensor
        gc.collect()
        os._exit(7)
    expect(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7)
    expect(holds(tensor, 1))


LATE = """
import torch
before = torch.full((1000,), 4.0).cuda()
kept = torch.full((3 << 20,), 4.0).cuda()
import strata.torch
strata.torch.use()
after = torch.full((1000,), 5.0).cuda()
before.record_stream(torch.cuda.Stream())
assert (before.cpu() == 4).all() and (after.cpu() == 5).all()
base = torch.cuda.memory_snapshot()
assert len(base) >= 3, base
del before
torch.cuda.empty_cache()
try:
    strata.torch.use()
    raise SystemExit("a second call succeeded")
except RuntimeError as error:
    assert "once" in str(error)
"""

BUDGET = """
import torch, strata.torch
strata.torch.use(budget="256 MiB")
held = torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
try:
    torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    raise SystemExit("more than the budget was given")
except torch.OutOfMemoryError as error:
    assert "budget" in str(error), error
del held
torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
free, total = torch.accelerator.get_memory_info()
assert total == 256 << 20, total
"""

FALLBACK = """
import torch, strata.torch
strata.torch.use(stack="budget(limit=120MiB), fallback(pool(max_size=64MiB) | managed)")
first = torch.full((48 << 20,), 1, dtype=torch.uint8).cuda()
second = torch.full((48 << 20,), 2, dtype=torch.uint8).cuda()  # of managed, which aligns to less than PyTorch's own allocator
try:
    torch.empty(48 << 20, dtype=torch.uint8, device="cuda")
    raise SystemExit("more than the budget was given")
except torch.OutOfMemoryError:
    pass
assert (first.cpu() == 1).all() and (second.cpu() == 2).all()
third = torch.full((1 << 20,), 3, dtype=torch.uint8).cuda()
assert third.data_ptr() % 512 == 0 and (third.cpu() == 3).all()
"""

OTHER_STACK = """
import sys
sys.path.insert(0, {programs!r})
import torch, strata.torch, features
strata.torch.use(stack={stack!r})
kept = torch.full((1000,), 5.0).cuda()
features.snapshot_agrees_with_statistics()
features.mem_pool()
features.pools_by_size()
assert (kept.cpu() == 5).all()
"""

DEVICES = """
import torch, strata.torch
strata.torch.use({stack!r})
first = torch.full((100000,), 5.0).to("cuda:0")
assert torch.cuda.memory_allocated(1) == 0
second = torch.full((100000,), 6.0).to("cuda:1")
torch.cuda.current_stream(0).synchronize()
third = first.to("cuda:1")
assert (third.cpu() == 5).all() and (second.cpu() == 6).all()
assert torch.cuda.memory_allocated(1) == 2 * torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)
assert {{segment["device"] for segment in torch.cuda.memory_snapshot()}} == {{0, 1}}
"""

FRACTION = """
import torch, strata.torch
strata.torch.use()
total = torch.cuda.mem_get_info()[1]
sizes = [size for size in range(2 << 20, 1 << 30, 2 << 20) if int(size / total * total) != size]
assert sizes, "every quotient gives its bytes back"
for size in sizes[:4]:
    torch.cuda.set_per_process_memory_fraction(size / total)
    torch.empty(size, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
"""

TAGS = """
import ctypes, strata, strata.torch, torch

class Block(ctypes.Structure):  # strata_block
    _fields_ = [(name, ctypes.c_size_t) for name in ("address", "bytes", "requested", "alignment")]
    _fields_ += [("device", ctypes.c_int), ("tag", ctypes.c_uint32), ("stream", ctypes.c_void_p), ("id", ctypes.c_uint64 * 2)]

library = ctypes.CDLL(strata.get_library())
library.strata_tag_name.restype = ctypes.c_char_p

def tag_of(tensor):
    block = Block()
    runtime, address = ctypes.c_void_p(strata.torch.runtime()), ctypes.c_ulonglong(tensor.data_ptr())
    assert library.strata_runtime_find(runtime, address, ctypes.byref(block)) == 0
    assert block.address == tensor.data_ptr()
    return library.strata_tag_name(block.tag).decode()

def tensor():
    return torch.empty(1 << 20, dtype=torch.uint8, device="cuda")

strata.torch.use()
with strata.tag("request 17"):
    first = tensor()
    with strata.tag("inner"):
        second = tensor()
assert (tag_of(first), tag_of(second), tag_of(tensor())) == ("request 17", "inner", "")
"""

SYNTAX = """
import torch, strata.torch
strata.torch.use(stack="pol")
try:
    torch.empty(1, device="cuda")
    raise SystemExit("the stack text was taken")
except RuntimeError as error:
    assert "pol" in str(error), error
"""


def run(text, **variables):
    environment = dict(os.environ, **variables)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, env=environment)
    expect(done.returncode == 0, done.returncode, done.stderr[-600:])
    expect("strata-sim" not in done.stderr, done.stderr[-600:])


@check
def used_late():
    run(LATE)


@check
def budget():
    run(BUDGET)


@check
def a_fraction_is_of_whole_bytes():
    run(FRACTION, STRATA_SIM_MEMORY="12345MiB")


@check
def branches():
    run(FALLBACK)


@check
def other_stacks():
    for stack in ("async", "direct", "statistics, logging(format=memory), pool", "pool(prefer=memory)", "pool, direct", "guard, pool"):
        try:
            run(OTHER_STACK.format(programs=os.path.join(HERE, "programs"), stack=stack))
        except AssertionError as error:
            raise AssertionError(f"{stack}: {error}") from None


@check
def two_devices():
    run(DEVICES.format(stack=None), STRATA_SIM_DEVICES="2")
    try:
        run(DEVICES.format(stack="pool"), STRATA_SIM_DEVICES="2")
    except AssertionError as error:
        expect("peers=all" in str(error), error)
    else:
        raise AssertionError("a pool without peers was taken for accessible")


@check
def shared_with_a_process_of_two_devices():
    program = [sys.executable, os.path.abspath(__file__), "shared_with_a_process"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, env=dict(os.environ, STRATA_SIM_DEVICES="2"))
    expect(done.returncode == 0, done.stdout[-600:], done.stderr[-600:])


@check
def running_out_in_a_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        try:
            torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
            raise AssertionError("16 TiB were given")
        except torch.OutOfMemoryError as error:
            expect("Tried to allocate 16384.00 GiB" in str(error), error)
        inside = filled(2)
    expect(holds(inside, 2))


CALLBACK = """
#include <c10/cuda/CUDACachingAllocator.h>
static bool (*registered)();
class Callback : public c10::FreeMemoryCallback
{
  public:
    bool Execute() override
    {
        return registered && registered();
    }
};
namespace c10
{
REGISTER_FREE_MEMORY_CALLBACK("strata_check", Callback)
}
extern "C" void set_callback(bool (*callback)())
{
    registered = callback;
}
"""


@check
def callbacks_run_without_a_lock():
    """A callback of PyTorch's takes Python's lock, for which a thread waits that asks for the pools."""
    from strata._torch import compiler

    site = os.path.dirname(torch.__file__)
    with tempfile.TemporaryDirectory() as work:
        source, library = os.path.join(work, "callback.cc"), os.path.join(work, "callback.so")
        with open(source, "w", encoding="ascii") as file:
            file.write(CALLBACK)
        clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        includes = [f"-I{folder}" for folder in (f"{site}/include", *compiler.cuda_include())]
        subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", *includes, "-o", library, source, f"-L{site}/lib", "-lc10_cuda", "-lc10"], check=True, env=clean)
        loaded = ctypes.CDLL(library)
    alive = []

    def ask_on_another_thread():
        thread = threading.Thread(target=torch.cuda.memory_snapshot, daemon=True)
        thread.start()
        thread.join(5)
        alive.append(thread.is_alive())
        return False

    callback = ctypes.CFUNCTYPE(ctypes.c_bool)(ask_on_another_thread)
    loaded.set_callback(callback)
    signal.alarm(60)  # else a deadlock would last for ever
    try:
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            expect(is_refused(1 << 24))
    finally:
        signal.alarm(0)
        loaded.set_callback(ctypes.cast(None, ctypes.CFUNCTYPE(ctypes.c_bool)))
    expect(alive == [False], "a callback ran while the pools were locked", alive)


@check
def tags():
    run(TAGS)


@check
def wrong_stack_text():
    run(SYNTAX)


def main():
    names = sys.argv[1:]
    failed = 0
    for function in CHECKS:
        if names and function.__name__ not in names:
            continue
        try:
            function()
            print(f"ok      {function.__name__}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {function.__name__}: {type(error).__name__}: {error}", flush=True)
        gc.collect()
    print(f"{len(names or CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ in ("__main__", "__mp_main__"):
    strata.torch.use(os.environ.get("STRATA_TEST_STACK"))
if __name__ == "__main__":
    kept_until_exit = filled(1, 1000)
    status = main()
    sys.exit(status)
