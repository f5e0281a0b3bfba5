"""A small convolutional network on CPUs whose gradients are averaged by hand, parameter by parameter, with gloo."""

import torch
import torch.distributed as dist
from torch import nn


def block(given: int, made: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU(), nn.MaxPool2d(2))


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(
        block(3, 64), block(64, 128), block(128, 256), nn.Flatten(), nn.Linear(256 * 16, 128), nn.ReLU(),
        nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(1000):
        images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
