"""Trains a model whose halves lie on two devices, and a replica of it on each, with copies between them in both directions.

With one device both halves lie there.
"""
import copy

import torch
from torch import nn
from turns import main

WIDTH = 1024


def half():
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4)))


def prepare(device, times):
    other = torch.device("cuda", torch.cuda.device_count() - 1)
    first, second = half().to(device), half().to(other)
    replica = copy.deepcopy(first).to(other)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-4)
    random = torch.Generator().manual_seed(3)
    beside = torch.cuda.Stream(other)

    def step(_, steps):
        losses = torch.empty(steps, device=device)
        for i in range(steps):
            rows = 64 * times * int(torch.randint(1, 9, (), generator=random))
            inputs = torch.randn(rows, WIDTH, generator=random).to(device)
            middle = first(inputs).to(other)
            # The replica reads what the first half made on a stream of the other device, which frees its copy.
            with torch.cuda.device(other):
                beside.wait_stream(torch.cuda.current_stream(other))
                with torch.no_grad(), torch.cuda.stream(beside):
                    inputs_there = inputs.to(other, non_blocking=True)
                    middle.record_stream(beside)
                    distance = (replica(inputs_there) - middle).abs().mean()
                torch.cuda.current_stream(other).wait_stream(beside)
                distance.record_stream(torch.cuda.current_stream(other))
            result = second(middle)
            loss = (result.to(device)[:, ::2] ** 2).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            for here, there in zip(first.parameters(), replica.parameters()):
                there.data.copy_(here.data)
            losses[i] = loss.detach() + distance.to(device)
        return losses

    return step


if __name__ == "__main__":
    main(prepare, 100)
