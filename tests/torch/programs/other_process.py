"""What the second process of the check `processes` does: adds one to each tensor that it is sent."""
import torch


def add_one(there, back):
    while True:
        tensor = there.get()
        if tensor is None:
            return
        try:
            tensor.add_(1)
            torch.cuda.synchronize()
            del tensor
            back.put("done")
        except Exception as error:
            back.put(f"{type(error).__name__}: {error}")
