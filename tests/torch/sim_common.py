"""What sim_check.py and sim_handles.py share: the list of checks, and tensors of one value."""
import torch

MIB = 1 << 20
CHECKS = []  # in the order in which they run


def check(function):
    CHECKS.append(function)
    return function


def expect(condition, *values):
    if not condition:
        raise AssertionError(", ".join(str(value) for value in values) or "the condition is false")


def filled(value, count=MIB):
    """On the GPU, by a copy from the host."""
    return torch.full((count,), float(value)).cuda()


def copy_of(source):
    result = torch.empty_like(source)
    result.copy_(source, non_blocking=True)
    return result


def holds(tensor, value):
    return bool((tensor.cpu() == value).all())
