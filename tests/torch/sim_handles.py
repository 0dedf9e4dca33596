"""Checks of sim_check.py: handles of strata.torch's memory for other processes, and peers that stall."""
import os
import resource
import signal
import socket
import sys
import time

import torch

from sim_common import MIB, check, expect, filled


def handle_of(tensor):
    """(all that a receiver gets, number of the offer, name of the socket), of memory that no receiver has."""
    shared = tensor.untyped_storage()._share_cuda_()
    torch.UntypedStorage._release_ipc_counter(*shared[4:6], device="cuda")
    handle = shared[1][shared[1].index(b"strata1") + 7 :]
    return shared, handle[:8], handle[8:]


def connected(name):
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(5)
    peer.connect(b"\0" + name)
    return peer


def parts_of(number, name):
    with connected(name) as peer:
        peer.send(number)
        return int.from_bytes(peer.recv(8), sys.byteorder)


@check
def handles_without_a_free_descriptor():
    held = filled(1, 1000)
    number, name = handle_of(held)[1:]
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, limits[1]))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    try:
        peer.connect(b"\0" + name)
        before = time.process_time()
        time.sleep(1)
        spent = time.process_time() - before
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    expect(spent < 0.3, f"the thread took {spent:.1f} s of processor time in a second without descriptors")
    peer.settimeout(5)
    peer.send(number)
    expect(len(peer.recv(8)) == 8)
    peer.close()


@check
def a_receiver_that_stalls_holds_up_none():
    held = torch.empty(8192 * MIB, dtype=torch.uint8, device="cuda")  # of more parts than a socket holds messages
    number, name = handle_of(held)[1:]
    stalled = connected(name)
    stalled.send(number)
    time.sleep(0.5)
    count = int.from_bytes(stalled.recv(8), sys.byteorder)
    before = time.monotonic()
    handle_of(filled(1, 1000))
    expect(time.monotonic() - before < 2, "a handle waited for a receiver that reads nothing", count)
    stalled.close()


@check
def a_sender_that_stalls_is_given_up():
    shared, _, name = handle_of(filled(1, 1000))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stalling = b"strata-stalls-%0*d" % (len(name) - 14, os.getpid())
    listener.bind(b"\0" + stalling)
    listener.listen(1)
    shared = (shared[0], shared[1].replace(name, stalling), *shared[2:])
    signal.alarm(30)  # else the call, which keeps Python's lock, would last for ever
    try:
        torch.UntypedStorage._new_shared_cuda(*shared)
        raise AssertionError("memory was mapped that no process has sent")
    except RuntimeError as error:
        expect("does not answer" in str(error), error)
    finally:
        signal.alarm(0)
        listener.close()


@check
def a_signal_ends_no_wait_for_a_sender():
    """The sender's queue is full, and stays so."""
    name, start = "strata-torch-busy-sender", time.monotonic()
    listener, waiting = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    with listener, waiting:
        listener.bind("\0" + name)
        listener.listen(0)
        waiting.connect("\0" + name)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            handle = b"strata1" + (1).to_bytes(8, "little") + name.encode()
            torch.UntypedStorage._new_shared_cuda(0, handle, 100, 0, b"", 0, b"", False)
            raise AssertionError("memory was mapped that no process has sent")
        except RuntimeError as error:
            expect("does not answer" in str(error), error)
        finally:
            signal.signal(signal.SIGALRM, before)
    expect(time.monotonic() - start > 4, "the wait was ended by a signal")


@check
def handles_behind_a_closed_socket():
    """The program closes what it does not know, and with it the socket."""
    held = filled(1, 1000)
    number, name = handle_of(held)[1:]
    expect(parts_of(number, name) == 1)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(descriptor)) as found:
                if found.getsockname() == b"\0" + name:
                    os.close(descriptor)
        except OSError:
            pass
    for _ in range(2):
        expect(parts_of(*handle_of(held)[1:]) == 1)
