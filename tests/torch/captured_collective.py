"""Sums over two processes and GPUs, in a captured graph, whose buffers NCCL registers where it finds handles behind them.

    strata exec --children -- python3 tests/torch/captured_collective.py        # and without strata exec, for comparison

With --use in the processes themselves: strata.torch.use(). Prints "right" and ends with 0, or says what is wrong.
"""
import os
import sys

import torch
import torch.distributed as dist

COUNT, RANKS = 4 << 20, 2


def work(rank, use):
    if use:
        import strata.torch

        strata.torch.use()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29551")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS, device_id=torch.device("cuda", rank))
    given = torch.full((COUNT,), float(rank + 1), device="cuda")
    total = torch.empty_like(given)
    dist.all_reduce(given.clone())  # NCCL begins before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total.copy_(given)
        dist.all_reduce(total)
    for _ in range(3):
        total.zero_()
        graph.replay()
        torch.cuda.synchronize()
        if not bool((total == RANKS * (RANKS + 1) / 2).all()):
            sys.exit(f"rank {rank}: wrong sums: {total[:4].tolist()}")
    dist.barrier()
    del graph
    dist.destroy_process_group()


if __name__ == "__main__":
    if torch.cuda.device_count() < RANKS:
        sys.exit("It needs two GPUs.")
    torch.multiprocessing.spawn(work, args=("--use" in sys.argv,), nprocs=RANKS)
    print("right")
