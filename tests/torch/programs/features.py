"""Checks what PyTorch's users see of the allocator: one function each, one line of JSON each.

A check returns a short text of what it saw, raises Skip where this machine or build has no such thing, and fails by any
other exception. The names of those to run can be given as arguments; --limit says that memory is limited to little, so
that the check of running out is quick.
"""
import copy
import gc
import json
import os
import sys
import threading
import time
import traceback

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

MIB = 1 << 20
CHECKS = []


class Skip(Exception):
    pass


def check(function):
    CHECKS.append(function)
    return function


def expect(condition, *values):
    if not condition:
        raise AssertionError(", ".join(str(value) for value in values) or "the condition is false")


def stat(name):
    return torch.cuda.memory_stats()[name]


@check
def allocated_bytes():
    before = torch.cuda.memory_allocated()
    tensor = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
    expect(torch.cuda.memory_allocated() - before == 10 * MIB, before, torch.cuda.memory_allocated())
    expect(torch.cuda.memory_reserved() >= torch.cuda.memory_allocated())
    del tensor
    expect(torch.cuda.memory_allocated() == before, before, torch.cuda.memory_allocated())
    return torch.cuda.get_allocator_backend()


@check
def pools_by_size():
    before = {kind: stat(f"allocation.{kind}.current") for kind in ("all", "small_pool", "large_pool")}
    small, large = torch.empty(1000, device="cuda"), torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
    after = {kind: stat(f"allocation.{kind}.current") - count for kind, count in before.items()}
    expect(after == {"all": 2, "small_pool": 1, "large_pool": 1}, after)
    del small, large


@check
def peaks():
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    del tensor
    expect(torch.cuda.max_memory_allocated() == start + 64 * MIB, torch.cuda.max_memory_allocated() - start)
    torch.cuda.reset_peak_memory_stats()
    expect(torch.cuda.max_memory_allocated() == start)


@check
def accumulated():
    torch.cuda.reset_accumulated_memory_stats()
    for _ in range(3):
        torch.empty(MIB, dtype=torch.uint8, device="cuda")
    expect(stat("allocation.all.allocated") == 3 and stat("allocation.all.freed") == 3, stat("allocation.all.allocated"))


@check
def snapshot_agrees_with_statistics():
    keep = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (100, 70000, MIB, 3 * MIB, 40 * MIB)]
    del keep[2]
    sums = {}
    for segment in torch.cuda.memory_snapshot():
        kind = segment["segment_type"] + "_pool"
        for pool in ("all", kind):
            add = lambda name, value: sums.__setitem__(f"{name}.{pool}.current", sums.get(f"{name}.{pool}.current", 0) + value)
            add("segment", 1)
            add("reserved_bytes", segment["total_size"])
            add("allocated_bytes", segment["allocated_size"])
            add("active_bytes", segment["active_size"])
            expect(segment["total_size"] == sum(block["size"] for block in segment["blocks"]), segment["address"])
            for block in segment["blocks"]:
                if block["state"] == "inactive" and len(segment["blocks"]) > 1:
                    add("inactive_split", 1)
                    add("inactive_split_bytes", block["size"])
                elif block["state"] == "active_allocated":
                    add("allocation", 1)
    stats = torch.cuda.memory_stats()
    wrong = [f"{name}: snapshot {value}, statistics {stats[name]}" for name, value in sums.items() if stats[name] != value]
    expect(not wrong, *wrong)
    return f"{len(sums)} sums"


@check
def summary():
    expect("Allocated memory" in torch.cuda.memory_summary())
    expect("Allocated memory" in torch.cuda.memory_summary(abbreviated=True))


@check
def history():
    torch.cuda.memory._record_memory_history(max_entries=1000)
    try:
        tensor = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
        address = tensor.data_ptr()
        snapshot = torch.cuda.memory._snapshot()
        del tensor
        after = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    blocks = {block["address"]: block for segment in snapshot["segments"] for block in segment["blocks"]}
    frames = [frame["filename"] for frame in blocks[address].get("frames", [])]
    expect(any("features.py" in frame for frame in frames), frames[:3])
    actions = [entry["action"] for entry in after["device_traces"][torch.cuda.current_device()] if entry["addr"] == address]
    expect("alloc" in actions and "free_completed" in actions, actions)
    return f"{len(frames)} frames"


@check
def empty_cache():
    tensor = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    del tensor
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved()
    expect(reserved < torch.cuda.memory_allocated() + 256 * MIB, reserved)
    return f"{reserved // MIB} MiB stay"


@check
def empty_tensors():
    expect(torch.empty(0, device="cuda").data_ptr() == 0)
    expect(torch.cuda.caching_allocator_alloc(0) == 0)


@check
def raw():
    stream = torch.cuda.Stream()
    pointer = torch.cuda.caching_allocator_alloc(3 * MIB, stream=stream)
    expect(pointer and pointer % 512 == 0, hex(pointer))
    torch.cuda.caching_allocator_delete(pointer)


@check
def record_stream():
    side = torch.cuda.Stream()
    for _ in range(5):
        tensor = torch.ones(8 * MIB, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            total = tensor.sum()
        tensor.record_stream(side)
        del tensor
        others = [torch.zeros(8 * MIB, device="cuda") for _ in range(3)]
        torch.cuda.synchronize()
        expect(total.item() == 8 * MIB, total.item())
        del others


@check
def streams_reuse_after_wait():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(50):
            a = torch.full((MIB,), 3.0, device="cuda")
            b = a * 2
            del a
        total = b.sum()
    torch.cuda.current_stream().wait_stream(side)
    expect(total.item() == 6.0 * MIB, total.item())


@check
def threads():
    wrong = []

    def work(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(200):
                tensor = torch.full((1 + (i * 7919) % (MIB // 2),), float(number), device="cuda")
                if i % 50 == 0 and not bool((tensor == number).all()):
                    wrong.append((number, i))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expect(not wrong, wrong)


@check
def free_on_another_thread():
    before = torch.cuda.memory_allocated()
    box = [torch.ones(MIB, device="cuda")]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    expect(torch.cuda.memory_allocated() == before)


@check
def graph():
    before = torch.cuda.memory_allocated()
    weight = torch.randn(512, 512, device="cuda")
    held = torch.randn(512, 512, device="cuda")
    captured = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            (held @ weight).relu() @ weight
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(captured):
        middle = (held @ weight).relu()
        result = middle @ weight
        del middle
    for _ in range(3):
        held.copy_(torch.randn(512, 512, device="cuda"))
        noise = [torch.full((512, 512), 9.0, device="cuda") for _ in range(20)]
        captured.replay()
        expected = (held @ weight).relu() @ weight
        # cuBLAS may choose another kernel inside the capture; the noise would be seen.
        expect(torch.allclose(result, expected, rtol=1e-3, atol=0.5), (result - expected).abs().max().item())
        del noise
    del captured, result, expected, held, weight
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # one for each stream that multiplied
    torch.cuda.empty_cache()
    expect(torch.cuda.memory_allocated() <= before + 32 * MIB, torch.cuda.memory_allocated() - before)


@check
def graphs_share_a_pool():
    held = torch.zeros(MIB, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = held + 1
    with torch.cuda.graph(second, pool=first.pool()):
        b = a * 2
    for value in (1.0, 5.0):
        held.fill_(value)
        first.replay()
        second.replay()
        expect(bool((b == 2 * (value + 1)).all()))


@check
def free_in_a_capture():
    outside = torch.ones(MIB, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = outside * 3
        del outside
        again = torch.zeros(MIB, device="cuda")
    captured.replay()
    torch.cuda.synchronize()
    expect(bool((again == 0).all()))
    del result


@check
def record_stream_in_a_capture():
    side = torch.cuda.Stream()
    outside = torch.ones(MIB, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        current = torch.cuda.current_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            inside = torch.ones(MIB, device="cuda")
            result = inside + outside
        inside.record_stream(current)
        outside.record_stream(side)
        del inside
        current.wait_stream(side)
    captured.replay()
    expect(bool((result == 2).all()))


@check
def many_captures():
    result = []
    for i in range(10):
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            value = torch.full((MIB,), float(i), device="cuda") + 1
        result.append((captured, value))
    for i, (captured, value) in enumerate(result):
        captured.replay()
    torch.cuda.synchronize()
    for i, (captured, value) in enumerate(result):
        expect(bool((value == i + 1).all()), i)


@check
def graphed_callables():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
    inputs = torch.randn(32, 256, device="cuda")
    # Of a copy: what a backward pass leaves on a model's parameters belongs to its stream, and ends a capture.
    other = copy.deepcopy(model)
    expected = other(inputs)
    expected.sum().backward()
    gradient = other[0].weight.grad.clone()
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(32, 256, device="cuda"),))
    result = graphed(inputs)
    result.sum().backward()
    expect(torch.allclose(result, expected, rtol=1e-3, atol=1e-3), "result")
    expect(torch.allclose(model[0].weight.grad, gradient), "gradient")


@check
def mem_pool():
    pool = torch.cuda.MemPool()
    outside = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    with torch.cuda.use_mem_pool(pool):
        inside = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    segments = pool.snapshot()
    covers = lambda tensor: any(
        segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"] for segment in segments
    )
    expect(covers(inside) and not covers(outside), len(segments))
    expect(all(tuple(segment["segment_pool_id"]) == tuple(pool.id) for segment in segments))
    expect(pool.use_count() == 1, pool.use_count())
    del inside, pool, segments
    gc.collect()
    return "one user"


@check
def mem_pool_thread():
    pool = torch.cuda.MemPool()
    seen = []

    def other():
        seen.append(torch.empty(4 * MIB, dtype=torch.uint8, device="cuda"))

    with torch.cuda.use_mem_pool(pool):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    addresses = [(segment["address"], segment["total_size"]) for segment in pool.snapshot()]
    expect(not any(begin <= seen[0].data_ptr() < begin + size for begin, size in addresses), "another thread got the pool's memory")


@check
def cudnn_benchmark():
    torch.backends.cudnn.benchmark = True
    torch.use_deterministic_algorithms(False)
    try:
        layer = torch.nn.Conv2d(64, 128, 3, padding=1).cuda()
        images = torch.randn(16, 64, 56, 56, device="cuda", requires_grad=True)
        for _ in range(2):
            layer(images).sum().backward()
        torch.cuda.synchronize()
    finally:
        torch.backends.cudnn.benchmark = False


@check
def accelerator_memory():
    if not hasattr(torch, "accelerator") or not hasattr(torch.accelerator, "memory_allocated"):
        raise Skip("this PyTorch has no torch.accelerator.memory_allocated")
    tensor = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
    expect(torch.accelerator.memory_allocated() == torch.cuda.memory_allocated(), torch.accelerator.memory_allocated())
    expect(torch.accelerator.memory_reserved() == torch.cuda.memory_reserved(), torch.accelerator.memory_reserved())
    torch.accelerator.empty_cache()
    del tensor


@check
def fraction():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    limit = (torch.cuda.memory_reserved() + 512 * MIB) / total
    torch.cuda.set_per_process_memory_fraction(limit)
    try:
        torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
        raise AssertionError("600 MiB were given")
    except torch.OutOfMemoryError as error:
        text = str(error)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    expect("Tried to allocate 600.00 MiB" in text, text)
    torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
    return text.splitlines()[0][:60]


@check
def too_much():
    before = stat("num_ooms")
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda device, size, total, free: seen.append(size))
    try:
        torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        raise AssertionError("16 TiB were given")
    except torch.OutOfMemoryError as error:
        expect("CUDA out of memory. Tried to allocate 16384.00 GiB" in str(error), str(error))
    expect(stat("num_ooms") == before + 1, stat("num_ooms") - before)
    expect(seen and seen[-1] == 1 << 44, seen)
    expect(bool((torch.ones(MIB, device="cuda") == 1).all()))


@check
def out_of_memory_and_on():
    model = torch.nn.Linear(1024, 1024).cuda()
    # cuBLAS makes a handle for each thread, for which PyTorch's cache would leave no room.
    model(torch.randn(4096, 1024, device="cuda")).sum().backward()
    held = []
    piece = 64 * MIB if "--limit" in sys.argv else 4096 * MIB
    try:
        while True:
            held.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pieces = len(held)
    held.clear()
    for _ in range(3):
        model(torch.randn(4096, 1024, device="cuda")).sum().backward()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return f"{pieces} x {piece // MIB} MiB"


@check
def profiler():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as recorded:
        tensor = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
        del tensor
    most = max(abs(event.self_device_memory_usage) for event in recorded.key_averages())
    expect(most >= 32 * MIB, most)


@check
def processes():
    import torch.multiprocessing as processes
    import other_process

    context = processes.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    child = context.Process(target=other_process.add_one, args=(there, back))
    child.start()
    try:
        tensors = [torch.full((1000,), 5.0, device="cuda"), torch.full((5 * MIB,), 7.0, device="cuda")]
        for tensor in tensors:
            there.put(tensor)
        for _ in tensors:
            answer = back.get(timeout=60)
            expect(answer == "done", answer)
        torch.cuda.synchronize()
        expect(bool((tensors[0] == 6).all()) and bool((tensors[1] == 8).all()), tensors[0][0].item(), tensors[1][0].item())
    finally:
        there.put(None)
        child.join(30)
        if child.is_alive():
            child.terminate()


@check
def peers():
    if torch.cuda.device_count() < 2:
        raise Skip("one device")
    first = torch.arange(MIB, device="cuda:0")
    second = first.to("cuda:1")
    expect(torch.equal(second.cpu(), first.cpu()))
    expect(torch.equal((second + 1).to("cuda:0"), first + 1))


@check
def compiled():
    if "--slow" not in sys.argv:
        raise Skip("needs --slow")
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
    inputs = torch.randn(32, 256, device="cuda")
    expected = model(inputs)
    fast = torch.compile(model, mode="reduce-overhead")
    for _ in range(4):
        result = fast(inputs)
    expect(torch.allclose(result, expected, atol=1e-4))


def main():
    names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    torch.empty(1, device="cuda")
    for function in CHECKS:
        if names and function.__name__ not in names:
            continue
        start = time.perf_counter()
        line = {"check": function.__name__, "ok": True, "detail": ""}
        try:
            line["detail"] = function() or ""
        except Skip as reason:
            line.update(skipped=True, detail=str(reason))
        except Exception as error:
            line.update(ok=False, detail=f"{type(error).__name__}: {error}"[:400])
            if os.environ.get("STRATA_TEST_TRACEBACK"):
                traceback.print_exc()
        gc.collect()
        line["seconds"] = round(time.perf_counter() - start, 3)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
