"""Writes past the end of a block."""
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0


def make(bytes):
    block = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(bytes)) == 0  # line 13
    return block


def drop(block):
    assert cuda.cuMemFree_v2(block) == 0  # line 18


block = make(1000)
assert cuda.cuMemsetD8_v2(block, ctypes.c_ubyte(1), ctypes.c_size_t(1004)) == 0
drop(block)
assert cuda.cuCtxSynchronize() == 0
