"""Runs a program with strata.torch.use(): launch_use.py [--stack TEXT] [--budget SIZE] PROGRAM [ARGUMENT...]

The program is not changed. Processes that it starts by "spawn" run the first part of this file again, so they use
Strata too.
"""
import os
import sys

arguments = sys.argv[1:]
options = {}
while arguments and arguments[0] in ("--stack", "--budget"):
    options[arguments[0][2:]] = arguments[1]
    arguments = arguments[2:]

import strata.torch

strata.torch.use(**options)

if __name__ == "__main__":
    program = arguments[0]
    folder = os.path.dirname(os.path.abspath(program))
    sys.path.insert(0, folder)
    saved, sys.argv = sys.argv, arguments
    # A process that is spawned gets sys.argv too, and reads the options from it.
    import multiprocessing.spawn

    prepare = multiprocessing.spawn.get_preparation_data
    multiprocessing.spawn.get_preparation_data = lambda name: {**prepare(name), "sys_argv": saved}
    with open(program, encoding="utf-8") as source:
        exec(compile(source.read(), program, "exec"), {"__name__": "__main__", "__file__": program})
