"""Trains a model of GPT-2's shape (12 layers, 768 wide) with random weights on sequences of changing length."""
import math

import torch
from torch import nn
from turns import main

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT = 50304, 768, 12, 12, 1024


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.before_mlp = nn.LayerNorm(WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        batch, length, _ = x.shape
        q, k, v = self.attention(self.before_attention(x)).split(WIDTH, dim=2)
        q, k, v = (t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(WIDTH // HEADS) + mask[:length, :length]
        mixed = (scores.softmax(dim=-1).to(v.dtype) @ v).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.project(mixed)
        return x + self.narrow(nn.functional.gelu(self.widen(self.before_mlp(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -1e4).triu(1), persistent=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.norm(x) @ self.token.weight.t()


def prepare(device, times):
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    random = torch.Generator().manual_seed(11)

    def step(_, steps):
        losses = torch.empty(steps, device=device)
        for i in range(steps):
            length = int(torch.randint(4, 17, (), generator=random)) * 64
            tokens = torch.randint(0, VOCABULARY, (8 * times, length), generator=random)
            tokens = tokens.pin_memory().to(device, non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16):
                scores = model(tokens[:, :-1])
                loss = nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY).float(), tokens[:, 1:].reshape(-1))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses[i] = loss.detach()
        return losses

    return step


if __name__ == "__main__":
    main(prepare, 20)
