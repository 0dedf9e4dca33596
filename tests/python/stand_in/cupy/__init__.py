"""A stand-in for CuPy where there is no GPU: the classes that an allocator meets, with CuPy's names and meaning."""

import types


class Stream:
    ended = 0

    def __init__(self, ptr=0, destroy=None):
        self.ptr, self.destroy, self.capturing = ptr, destroy, False
        self.before = []

    def __enter__(self):
        self.before.append(cuda.current)
        cuda.current = self
        return self

    def __exit__(self, *_):
        cuda.current = self.before.pop()

    def __del__(self):
        if self.destroy:
            self.destroy(self.ptr)
            Stream.ended += 1

    def is_capturing(self):
        assert self.ptr, "the legacy stream must not be asked"
        return self.capturing


class ExternalStream(Stream):
    pass


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        assert ptr or device_id >= 0
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        self.size, self.total, self.limit = size, total, limit
        super().__init__(f"Out of memory allocating {size} bytes (allocated so far: {total} bytes)")


def set_allocator(allocator=None):
    cuda.allocator = allocator


cuda = types.SimpleNamespace(
    Stream=Stream,
    ExternalStream=ExternalStream,
    UnownedMemory=UnownedMemory,
    MemoryPointer=MemoryPointer,
    set_allocator=set_allocator,
    alloc=lambda size: cuda.allocator(size),
    get_current_stream=lambda: cuda.current,
    current=Stream(),
    allocator=None,
    runtime=types.SimpleNamespace(getDevice=lambda: 0),
    memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
)
