"""Generates tokens with a model of about a billion random weights, whose key and value cache grows by a token a step."""
import math

import torch
from turns import main

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH = 32000, 2048, 16, 18, 8


def layer_weights(device, random):
    def weight(rows, columns):
        return torch.randn(rows, columns, device=device, generator=random, dtype=torch.bfloat16) / math.sqrt(rows)

    return weight(WIDTH, 3 * WIDTH), weight(WIDTH, WIDTH), weight(WIDTH, 4 * WIDTH), weight(4 * WIDTH, WIDTH)


def attend(x, weights, cache):
    batch, length, _ = x.shape
    q, k, v = (t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (x @ weights[0]).split(WIDTH, dim=2))
    if cache is not None:
        k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
    scores = (q @ k.transpose(2, 3)).float() / math.sqrt(WIDTH // HEADS)
    if length > 1:
        scores += torch.full((length, length), -1e4, device=x.device).triu(1)
    mixed = (scores.softmax(dim=-1).to(v.dtype) @ v).transpose(1, 2).reshape(batch, length, WIDTH)
    return mixed @ weights[1], (k, v)


def normalized(x):
    return torch.nn.functional.rms_norm(x, (WIDTH,))


@torch.inference_mode()
def prepare(device, times):
    random = torch.Generator(device).manual_seed(17)
    embedding = torch.randn(VOCABULARY, WIDTH, device=device, generator=random, dtype=torch.bfloat16)
    layers = [layer_weights(device, random) for _ in range(LAYERS)]

    def forward(tokens, caches):
        x = embedding[tokens]
        for i, weights in enumerate(layers):
            mixed, caches[i] = attend(normalized(x), weights, caches[i])
            x = x + mixed
            x = x + torch.nn.functional.gelu(normalized(x) @ weights[2]) @ weights[3]
        return (normalized(x[:, -1]) @ embedding.t()).argmax(dim=-1, keepdim=True)

    @torch.inference_mode()
    def step(number, steps):
        lengths = torch.Generator().manual_seed(19 + number)
        prompt = torch.randint(0, VOCABULARY, (BATCH * times, 64 + 32 * int(torch.randint(0, 9, (), generator=lengths))), generator=lengths)
        caches = [None] * LAYERS
        tokens = [forward(prompt.to(device), caches)]
        while len(tokens) < steps:
            tokens.append(forward(tokens[-1], caches))
        return torch.cat(tokens, dim=1)

    return step


if __name__ == "__main__":
    main(prepare, 96)
