"""Runs a program in turns, each a number of steps, and prints a line of JSON for each turn.

A program is a function that prepares a model for batches of its own size times a number, and returns another one, which
does the steps of a turn and returns a tensor of what they gave (losses or tokens). With --wait a turn begins when a line arrives on standard input, so that
several processes can take turns on one GPU.
"""
import argparse
import hashlib
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch


def deterministic():
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    # Filling fresh memory would hide the reuse of memory that other work still reads.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False


def digest(values):
    return hashlib.sha256(values.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def turn(step, number, steps):
    torch.cuda.synchronize()
    start, before = time.perf_counter(), time.process_time()
    values = step(number, steps)
    launched, host = time.perf_counter() - start, time.process_time() - before
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    free, total = torch.cuda.mem_get_info()
    return {
        "turn": number,
        "steps": steps,
        "seconds": seconds,
        "launched": launched,
        "host": host,
        "digest": digest(values),
        "last": values.flatten()[-1].item(),
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "device": total - free,
    }


def main(prepare, steps):
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=steps, help="steps of each turn")
    parser.add_argument("--times", type=int, default=1, help="batches of so many times the program's size")
    parser.add_argument("--wait", action="store_true", help="wait for a line on standard input before each turn")
    options = parser.parse_args()
    deterministic()
    step = prepare(torch.device("cuda", 0), options.times)
    torch.cuda.synchronize()
    if options.wait:
        print(json.dumps({"ready": True}), flush=True)
    for number in range(options.turns):
        if options.wait and not sys.stdin.readline():
            break
        print(json.dumps(turn(step, number, options.steps)), flush=True)
