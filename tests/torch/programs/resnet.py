"""Trains a residual network of ResNet-50's shape on images of changing size, which a second stream brings."""
import torch
from torch import nn
from turns import main


class Block(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def network():
    layers = [nn.Conv2d(3, 64, 7, 4, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    inside = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Block(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*layers)


def prepare(device, times):
    features = network().to(device).to(memory_format=torch.channels_last)
    head = nn.Linear(2048, 1000).to(device)
    optimizer = torch.optim.SGD([*features.parameters(), *head.parameters()], lr=0.01, momentum=0.9)
    random = torch.Generator().manual_seed(13)
    count = 32 * times
    images = torch.randn(count, 3, 256, 256).pin_memory()
    side = torch.cuda.Stream(device)

    def bring():
        size = int(torch.randint(4, 9, (), generator=random)) * 32
        labels = torch.randint(0, 1000, (count,), generator=random)
        with torch.cuda.stream(side):
            batch = images.to(device, non_blocking=True)[:, :, :size, :size].contiguous(memory_format=torch.channels_last)
            return batch, labels.to(device, non_blocking=True)

    def step(_, steps):
        losses = torch.empty(steps, device=device)
        following = bring()
        for i in range(steps):
            torch.cuda.current_stream().wait_stream(side)
            batch, labels = following
            for tensor in (batch, labels):
                tensor.record_stream(torch.cuda.current_stream())
            following = bring()
            with torch.autocast("cuda", torch.bfloat16):
                pooled = features(batch).mean(dim=(2, 3))
            loss = nn.functional.cross_entropy(head(pooled.float()), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses[i] = loss.detach()
            del batch, labels
        return losses

    return step


if __name__ == "__main__":
    main(prepare, 20)
