"""A kernel of its own writes four bytes behind a tensor. Under `strata exec --guard`, with PyTorch's cache off, the report
names the line that made the tensor:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 strata exec --guard -- python3 tests/torch/programs/overrun.py
"""
import cupy
import torch

KERNEL = cupy.RawKernel(
    "extern \"C\" __global__ void scale(float *values, float by, int count) {\n"
    "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i <= count) values[i] *= by;\n"  # <= instead of <
    "}\n",
    "scale",
)


def make_values(count):
    return torch.ones(count, device="cuda")  # the line that is named


def main():
    values = make_values(1000)
    KERNEL((1,), (1024,), (values.data_ptr(), cupy.float32(2), cupy.int32(1000)))
    torch.cuda.synchronize()
    print("sum", values.sum().item())
    del values


if __name__ == "__main__":
    main()
