"""Trains a small perceptron: many short steps, where the cost of each allocation shows."""
import torch
from torch import nn
from turns import main


def prepare(device):
    model = nn.Sequential(
        nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = torch.randn(4096, 784, device=device)
    labels = torch.randint(0, 10, (4096,), device=device)

    def step(_, steps):
        losses = torch.empty(steps, device=device)
        for i in range(steps):
            begin = (i * 512) % 4096
            loss = nn.functional.cross_entropy(model(inputs[begin : begin + 512]), labels[begin : begin + 512])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses[i] = loss.detach()
        return losses

    return step


if __name__ == "__main__":
    main(prepare, 400)
