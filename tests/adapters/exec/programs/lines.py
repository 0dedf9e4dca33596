"""Asks for memory from code of many shapes; prints the frames that each request's call stack must have."""
import asyncio
import ctypes
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0


def expect(frame):
    names = []
    while frame:
        code = frame.f_code
        name = code.co_qualname if hasattr(code, "co_qualname") else code.co_name
        names.append(f"{name} ({code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    print("|".join(names))


def take():
    block = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(4096)) == 0; expect(sys._getframe())  # one line


def generator():
    yield 1
    take()


for _ in generator():
    pass


async def coroutine():
    await asyncio.sleep(0)
    take()


asyncio.run(coroutine())


class Block:
    def __enter__(self):
        take()
        return self

    def __exit__(self, *error):
        take()

    @property
    def size(self):
        return take()

    def __add__(self, other):
        return [take()
                for _ in range(1)]


with Block() as block:
    block.size
    block + block
list(map(lambda x: take(), [1]))
sorted([1, 2], key=lambda x:
       take() or 0)
try:
    raise ValueError
except ValueError:
    take()
finally:
    take()


def größe_大きさ():
    take()


größe_大きさ()
exec(compile("\n" * 3000 + "take()\n", "<far down>", "exec"))
exec(compile("x = 1; y = 2\n" * 3000 + "take()\n", "<long>", "exec"))
exec(compile("\n".join(["def far():"] + ["    a = (1,\n    2, 3)"] * 3000 + ["    take()"]), "<wide>", "exec"))
far()


def recurse(depth):
    return recurse(depth - 1) if depth else take()


recurse(8)


def in_a_thread():
    assert cuda.cuCtxSetCurrent(context) == 0
    take()


thread = threading.Thread(target=in_a_thread)
thread.start()
thread.join()
