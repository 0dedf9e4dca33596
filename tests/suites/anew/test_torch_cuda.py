"""Cases of PyTorch's test_cuda.py that are newer than the source which the other suites run, written anew by name.

What a case of this name checks of PyTorch's own allocator alone (segments of 2 and 20 MiB, no_split's one block a segment,
expandable segments) is not here.
"""

import ctypes
import gc
import glob
import os
import subprocess
import threading

import pytest
import torch

MIB = 1 << 20

SOURCE = """
#include <stddef.h>
extern int cudaMalloc(void **, size_t);
extern int cudaFree(void *);
int allocated, freed;
void *own_allocate(ptrdiff_t bytes, int device, void *stream)
{
    void *address = NULL;
    (void)device, (void)stream, allocated++;
    return cudaMalloc(&address, (size_t)bytes) ? NULL : address;
}
void own_free(void *address, ptrdiff_t bytes, int device, void *stream)
{
    (void)bytes, (void)device, (void)stream, freed++;
    cudaFree(address);
}
"""


@pytest.fixture(autouse=True)
def clean():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    gc.collect()
    torch.cuda.empty_cache()


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("allocator")
    source, path = folder / "own.c", folder / "libown.so"
    source.write_text(SOURCE)
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    found = [name for pattern in ("nvidia/*/lib", "nvidia/*/*/lib") for name in glob.glob(f"{packages}/{pattern}/libcudart.so.1*")]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    # The runtime is in the process already, by this name; without one here the symbols stay open until then.
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(path), str(source), *found[:1]], check=True, env=environment)
    return str(path)


class Own:
    """An allocator of the program's, and the counts of its calls."""

    def __init__(self, library):
        self.loaded = ctypes.CDLL(library)
        self.count("allocated").value = self.count("freed").value = 0
        self.pluggable = torch.cuda.memory.CUDAPluggableAllocator(library, "own_allocate", "own_free")

    def count(self, name):
        return ctypes.c_int.in_dll(self.loaded, name)

    def allocated(self):
        return self.count("allocated").value

    def freed(self):
        return self.count("freed").value


@pytest.fixture
def own(library):
    return Own(library)


def tensor(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def allow(mib):
    """At most so many MiB more than are reserved."""
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + mib * MIB) / total)


# ---- statistics -------------------------------------------------------------------------------------------------------


def test_memory_stats():
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    accelerator = torch.accelerator
    before = accelerator.memory_stats()["active_bytes.all.current"]
    allocated, reserved = accelerator.max_memory_allocated(), accelerator.max_memory_reserved()
    assert accelerator.memory_allocated() == allocated and accelerator.memory_reserved() == reserved
    held = torch.zeros(256, device="cuda")
    assert accelerator.memory_stats()["active_bytes.all.current"] == before + 1024
    assert accelerator.memory_stats()["active_bytes.all.freed"] == 0
    del held
    accelerator.empty_cache()
    assert accelerator.memory_stats()["active_bytes.all.current"] == before
    assert accelerator.memory_stats()["active_bytes.all.freed"] == 1024
    accelerator.reset_peak_memory_stats()
    assert accelerator.max_memory_allocated() == allocated


def test_memory_allocation():
    before = torch.cuda.memory_allocated()
    address = torch.cuda.caching_allocator_alloc(1)
    assert torch.cuda.memory_allocated() > before
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == before


def test_set_per_process_memory_fraction_of_a_moment():
    allow(40)
    held = tensor(30)
    with pytest.raises(torch.OutOfMemoryError):
        tensor(30)
    del held
    assert tensor(30).numel() == 30 * MIB


def test_out_of_memory_message():
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity of"):
        torch.empty(800000000 << 30, dtype=torch.int8, device="cuda")
    with pytest.raises(RuntimeError, match="Tried to allocate more than 1EB memory"):
        torch.empty(8000000000 << 30, dtype=torch.int8, device="cuda")


# ---- MemPool ----------------------------------------------------------------------------------------------------------


def test_mempool_id():
    first = torch.cuda.graph_pool_handle()
    second = torch.cuda.MemPool().id
    third = torch.cuda.graph_pool_handle()
    assert (first[0] == 0) == (second[0] == 0)
    assert first[1] < second[1] < third[1]


def test_mempool_multithread():
    ids = []
    threads = [threading.Thread(target=lambda: ids.append(torch.cuda.MemPool().id)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 4


def test_mempool_with_allocator(own):
    pool = torch.cuda.MemPool(own.pluggable.allocator())
    assert pool.use_count() == 1 and own.allocated() == 0
    with torch.cuda.use_mem_pool(pool):
        first = tensor(1)
        assert pool.use_count() == 2
    assert pool.use_count() == 1 and own.allocated() == 1
    outside = tensor(1)
    assert own.allocated() == 1 and not any(
        segment["address"] <= outside.data_ptr() < segment["address"] + segment["total_size"] for segment in pool.snapshot())
    del first, pool
    gc.collect()
    torch.cuda.empty_cache()
    assert own.freed() == own.allocated()


def test_mempool_empty_cache():
    pool = torch.cuda.MemPool()
    outside = tensor(4)
    with torch.cuda.use_mem_pool(pool):
        inside = tensor(4)
    del inside, outside, pool
    assert torch.cuda.memory_allocated() == 0 or torch.cuda.memory._snapshot()["segments"]


def test_mempool_empty_cache_inactive(own):
    def allocate():
        pool = torch.cuda.MemPool(own.pluggable.allocator())
        with torch.cuda.use_mem_pool(pool):
            return tensor(16)  # outlives its pool

    held = allocate()
    gc.collect()
    assert own.allocated() == 1 and own.freed() == 0
    held.fill_(1)
    del held
    torch.cuda.empty_cache()
    assert own.freed() == 1


def test_tensor_delete_after_allocator_delete(own):
    pool = torch.cuda.MemPool(own.pluggable.allocator())
    with torch.cuda.use_mem_pool(pool):
        held = tensor(1)
    del pool, own.pluggable
    gc.collect()
    assert own.freed() == 0
    del held
    torch.cuda.empty_cache()
    assert own.freed() == own.allocated() == 1


def test_mempool_limited_memory_with_allocator(own):
    not_used = torch.cuda.MemPool(own.pluggable.allocator())
    used = torch.cuda.MemPool(own.pluggable.allocator(), use_on_oom=True)
    allow(80)
    with torch.cuda.use_mem_pool(not_used):
        first = tensor(40)
    with torch.cuda.use_mem_pool(used):
        second = tensor(40)
    address = second.data_ptr()
    with pytest.raises(torch.OutOfMemoryError):
        tensor(40)
    del first, second
    third = tensor(30)
    assert third.data_ptr() == address
    with pytest.raises(torch.OutOfMemoryError):
        tensor(30)
    del third
    with torch.cuda.use_mem_pool(used):
        assert tensor(20).data_ptr() == address


def test_deleted_mempool_not_used_on_oom(own):
    allow(40)
    for _ in range(10):
        pool = torch.cuda.MemPool(own.pluggable.allocator(), use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            held = tensor(40)
        del held, pool
    pool = torch.cuda.MemPool(own.pluggable.allocator(), use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        held = tensor(40)
    inside = range(held.data_ptr(), held.data_ptr() + 40 * MIB)
    del held
    first, second = tensor(20), tensor(20)
    assert first.data_ptr() in inside and second.data_ptr() in inside
    assert first.data_ptr() != second.data_ptr()


def test_mempool_emptycache_multithread():
    def work(pool):
        with torch.cuda.use_mem_pool(pool):
            held = torch.empty(4, device="cuda")
            del held
            torch.cuda.empty_cache()

    pools = [torch.cuda.MemPool() for _ in range(4)]
    threads = [threading.Thread(target=work, args=(pool,)) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(pool.snapshot()) for pool in pools] == [1] * 4


def test_nested_mempool():
    pools = [torch.cuda.MemPool() for _ in range(3)]
    held = []

    def nest(number):
        with torch.cuda.use_mem_pool(pools[number]):
            held.append(tensor(80))
            if number < 2:
                nest(number + 1)
                held.append(tensor(80))

    nest(0)
    assert [len(torch.cuda.memory.memory_snapshot(pool.id)) for pool in pools] == [2, 2, 1]


def test_mempool_ctx_multithread():
    inside, done = threading.Event(), threading.Event()
    other = []

    def main():
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            held = tensor(1)
            del held
            inside.set()
            done.wait(20)
            other.append(sum(segment["active_size"] for segment in pool.snapshot()))

    def side():
        inside.wait(20)
        held = tensor(1)
        other.append(held.numel())
        done.set()
        del held

    threads = [threading.Thread(target=main), threading.Thread(target=side)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert other == [MIB, 0]


# ---- graphs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("joined", [False, True])
def test_graph_capture_reclaim_2_streams(joined):
    """Memory that another stream of the capture uses is not given to the first before they join."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(first):
        graph.capture_begin()
        held = torch.empty(8, device="cuda")
        address = held.data_ptr()
        second.wait_stream(first)
        with torch.cuda.stream(second):
            other = torch.empty_like(held)
            other.copy_(held)
            held.record_stream(second)
        del held
        if joined:
            first.wait_stream(second)
        later = torch.empty(8, device="cuda")
        reused = later.data_ptr() == address
        if not joined:
            first.wait_stream(second)
        later.zero_()
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    assert joined or not reused


def test_graph_capture_oom():
    allow(40)
    with pytest.raises(torch.OutOfMemoryError):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            tensor(80)
    assert tensor(30).numel() == 30 * MIB


def test_graph_memory_stats_and_use_result_after_destroy_graph():
    before = torch.cuda.memory_allocated()
    source = torch.full((MIB,), 2.0).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = torch.empty_like(source)
        result.copy_(source)
    graph.replay()
    graph.reset()
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == before + 2 * 4 * MIB
    assert bool((result.cpu() == 2).all())
    del result, source
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == before
