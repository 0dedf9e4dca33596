"""Trains a small perceptron: many short steps, where the cost of each allocation shows."""
import torch
from torch import nn
from turns import main


def prepare(device, times):
    model = nn.Sequential(
        nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch = 512 * times
    inputs = torch.randn(8 * batch, 784, device=device)
    labels = torch.randint(0, 10, (8 * batch,), device=device)

    def step(_, steps):
        losses = torch.empty(steps, device=device)
        for i in range(steps):
            begin = i % 8 * batch
            loss = nn.functional.cross_entropy(model(inputs[begin : begin + batch]), labels[begin : begin + batch])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses[i] = loss.detach()
        return losses

    return step


if __name__ == "__main__":
    main(prepare, 400)
