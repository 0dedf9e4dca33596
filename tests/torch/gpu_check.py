"""Compares PyTorch on its own allocator with PyTorch on Strata, on a machine with a GPU.

    python3 tests/torch/gpu_check.py                            stock, use, memory: programs and features
    python3 tests/torch/gpu_check.py --quick                    less of each
    python3 tests/torch/gpu_check.py --modes stock,exec,bare    under `strata exec`
    python3 tests/torch/gpu_check.py --speed                    are steps a second at least stock's, where the GPU decides?

Modes: stock; use (strata.torch.use()); memory (the same with --memory-stack); exec (strata exec, with PyTorch's own
cache); bare (strata exec, PYTORCH_NO_CUDA_MEMORY_CACHING=1). The programs know nothing of the mode.

Each program runs in --processes processes for each mode, one after another, since how fast a process can launch work
differs from process to process. Those of different modes take turns on the GPU, so that a change of its clock concerns
all alike; the median of all turns counts. With --speed batches are so large that the GPU decides, not the host, and how
long before its end a turn had launched everything is printed, and what the host's processors worked until then. Losses and tokens of all turns must be equal bit by bit.
Exit status 1 if a mode's results differ from those of the first mode, a feature fails that the first mode passes, or
with --speed a mode has fewer steps a second than the first, beyond --tolerance. --speed skips itself without a GPU or
without PyTorch.
"""
import argparse
import json
import os
import queue
import shlex
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAMS = os.path.join(HERE, "programs")
STEPS = {"mlp": 400, "gpt": 16, "resnet": 16, "generate": 96, "pipeline": 100}
SPEED_PROGRAMS = "gpt,resnet"
SPEED_TIMES = {"gpt": 2, "resnet": 8}  # of the batch, for which an H200 decides; the host's launches decide on mlp and generate
SPEED_MEMORY = 128 << 30  # of the device, for these; with less batches are smaller
SPEED_STEPS = {"mlp": 400, "gpt": 12, "resnet": 12, "generate": 96, "pipeline": 100}
SPEED_ROUNDS = 5
QUICK_STEPS = {"mlp": 200, "gpt": 8, "resnet": 8, "generate": 32, "pipeline": 40}


def python_path():
    """Of a build with the whole package, else of the sources, which are enough for strata.torch."""
    built = os.path.join(ROOT, "build", "release", "python")
    return built if os.path.exists(os.path.join(built, "strata", "torch.py")) else os.path.join(ROOT, "adapters", "python")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default="stock,use,memory")
    parser.add_argument("--programs", default=",".join(STEPS),
                        help="of: " + ",".join(STEPS) + "; with + between them they run together; empty: none")
    parser.add_argument("--processes", type=int, default=0, help="processes of each program in each mode")
    parser.add_argument("--rounds", type=int, default=0, help="timed turns of each process")
    parser.add_argument("--features", default="all", help="checks by name, with commas; all; empty: none")
    parser.add_argument("--times", type=int, default=0, help="batches of so many times the programs' own size")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--speed", action="store_true",
                        help=f"modes stock and use, programs {SPEED_PROGRAMS}, medians of {SPEED_ROUNDS} by turns; no features")
    parser.add_argument("--tolerance", type=float, default=1.0, help="of --speed, in percent of stock's steps a second")
    parser.add_argument("--slow", action="store_true", help="also torch.compile")
    parser.add_argument("--stack", default="", help="stack text of the modes use, exec and bare")
    parser.add_argument("--memory-stack", default="pool(prefer=memory)", help="stack text of the mode memory")
    parser.add_argument("--budget", default="6GiB", help="of the run that runs out of memory; empty: no such run")
    parser.add_argument("--strata", default=os.path.join(ROOT, "build", "release", "bin", "strata"), help="the command")
    parser.add_argument("--path", default=python_path(), help="the folder with strata/")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a process may take for one answer")
    parser.add_argument("--json", help="file for all that was measured")
    options = parser.parse_args()
    options.speed_times = {}
    if options.speed:
        given = {argument.split("=")[0] for argument in sys.argv[1:]}
        options.modes = options.modes if "--modes" in given else "stock,use"
        options.programs = options.programs if "--programs" in given else SPEED_PROGRAMS
        options.rounds = options.rounds or SPEED_ROUNDS
        options.processes = options.processes or 1
        options.features = options.budget = ""
    return options


def why_not_here(options):
    """Why no program can run on this machine, or None; then the batches fit its memory."""
    words = "import torch; print(torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else 'PyTorch finds no GPU')"
    asked = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    if asked.returncode != 0:
        return asked.stderr.strip().splitlines()[-1]
    if not asked.stdout.strip().isdigit():
        return asked.stdout.strip()
    share = min(1, int(asked.stdout) / SPEED_MEMORY)
    options.speed_times = {program: max(1, int(times * share)) for program, times in SPEED_TIMES.items()}
    return None


def command(options, mode, program, budget=""):
    """The words that run a program of programs/ in a mode."""
    path = os.path.join(PROGRAMS, program + ".py")
    if mode == "stock":
        return [sys.executable, path]
    stack = options.memory_stack if mode == "memory" else options.stack
    given = (["--stack", stack] if stack else []) + (["--budget", budget] if budget else [])
    if mode in ("use", "memory"):
        return [sys.executable, os.path.join(HERE, "launch_use.py"), *given, path]
    return [options.strata, "exec", *given, "--", sys.executable, path]


def environment(options, mode):
    values = dict(os.environ, PYTHONUNBUFFERED="1")
    values.setdefault("STRATA_LIBRARY", os.path.join(ROOT, "build", "release", "lib", "libstrata.so.0.1"))
    values["PYTHONPATH"] = os.pathsep.join(filter(None, [options.path, values.get("PYTHONPATH", "")]))
    if mode == "bare":
        values["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    return values


class Worker:
    """A process that takes turns: a line to it is a turn, a line of JSON from it is what the turn gave."""

    def __init__(self, options, mode, program, rounds, steps):
        words = command(options, mode, program) + ["--wait", "--turns", str(rounds + 1), "--steps", str(steps)]
        words += ["--times", str(options.times or options.speed_times.get(program, 1))]
        self.mode, self.program, self.turns, self.lines = mode, program, [], queue.Queue()
        self.errors, self.failure = [], None
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(options, mode)
        )
        self.readers = [
            threading.Thread(target=self.read_output, daemon=True),
            threading.Thread(target=self.read_errors, daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def read_output(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put(None)

    def read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line.rstrip())

    def answer(self, timeout):
        """The next answer, or None if the process has failed."""
        if self.failure:
            return None
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            self.failure = f"no answer in {timeout:g} s"
            self.process.kill()
            return None
        if line is None:
            self.process.wait()
            self.readers[1].join(5)
            self.failure = f"exit status {self.process.returncode}: " + " | ".join(self.errors[-3:])
            return None
        return json.loads(line)

    def turn(self, timeout):
        if self.failure:
            return
        try:
            self.process.stdin.write("turn\n")
            self.process.stdin.flush()
        except OSError:
            pass  # The missing answer says why.
        answer = self.answer(timeout)
        if answer:
            self.turns.append(answer)

    def end(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "killed, it did not end"
        if not self.failure and status != 0:
            self.failure = f"exit status {status} at the end: " + " | ".join(self.errors[-3:])

    def speeds(self):
        """Of the turns but the first, which loads kernels."""
        return [turn["steps"] / turn["seconds"] for turn in self.turns[1:]]


class Outcome:
    """What the processes of a program in a mode gave."""

    def __init__(self, workers):
        self.mode, self.program = workers[0].mode, workers[0].program
        self.failure = next((worker.failure for worker in workers if worker.failure), None)
        self.errors = [line for worker in workers for line in worker.errors[-20:]]
        self.processes = [worker.turns for worker in workers]
        self.speeds = [speed for worker in workers for speed in worker.speeds()]
        self.speed = statistics.median(self.speeds) if self.speeds else 0.0
        self.digests = [[turn["digest"] for turn in turns] for turns in self.processes]
        self.last = self.processes[-1][-1] if self.processes[-1] else None

    def median(self, value):
        """Of the turns but the first."""
        return statistics.median(value(turn) for turns in self.processes for turn in turns[1:])


def run_processes(options, modes, programs, rounds, steps):
    """One process for each program and mode; they take turns."""
    workers = [Worker(options, mode, program, rounds, steps[program]) for program in programs for mode in modes]
    for worker in workers:
        worker.answer(options.timeout)
    # The results of the first turn count, its time does not.
    for number in range(rounds + 1):
        for program in programs:
            ring = [worker for worker in workers if worker.program == program]
            first = number % len(ring)
            for worker in ring[first:] + ring[:first]:
                worker.turn(options.timeout)
    for worker in workers:
        worker.end()
    return workers


def run_programs(options, modes, programs, processes, rounds, steps):
    workers = []
    for together in programs:
        for _ in range(processes):
            workers += run_processes(options, modes, together, rounds, steps)
    return [
        Outcome([worker for worker in workers if (worker.program, worker.mode) == (program, mode)])
        for together in programs
        for program in together
        for mode in modes
    ]


def print_programs(outcomes):
    failed = False
    print(f"{'program':9} {'mode':7} {'steps/s':>9} {'ratio':>6} {'allocated':>10} {'reserved':>9} {'ratio':>6} {'results':8}")
    for outcome in outcomes:
        first = next(other for other in outcomes if other.program == outcome.program)
        if outcome.failure or not outcome.last:
            failed = True
            print(f"{outcome.program:9} {outcome.mode:7} FAILED: {outcome.failure}")
            continue
        equal = all(digests == first.digests[0] for digests in outcome.digests)
        failed = failed or not equal
        last, of_first = outcome.last, first.last
        ratio = outcome.speed / first.speed if first.speed else 0
        held = last["reserved"] / of_first["reserved"] if of_first and of_first["reserved"] else 0
        print(
            f"{outcome.program:9} {outcome.mode:7} {outcome.speed:9.2f} {ratio:6.3f} {last['allocated'] >> 20:6} MiB"
            f" {last['reserved'] >> 20:5} MiB {held:6.3f} {'equal' if equal else 'DIFFER'}"
        )
    return failed


def print_speeds(outcomes, tolerance):
    """The turns of each mode, and whether their median is at least that of the first mode."""
    failed = False
    print(f"{'program':9} {'mode':7} {'median':>8} {'ratio':>6}  steps/s by turns")
    for outcome in outcomes:
        first = next(other for other in outcomes if other.program == outcome.program)
        if outcome.failure or not first.speed:
            failed = True
            continue  # print_programs has told why
        ratio = outcome.speed / first.speed
        slow = ratio < 1 - tolerance / 100
        failed = failed or slow
        turns = " ".join(f"{speed:.2f}" for speed in outcome.speeds)
        ahead = outcome.median(lambda turn: 1 - turn["launched"] / turn["seconds"])
        host = outcome.median(lambda turn: turn["host"] / turn["steps"])
        of_first = first.median(lambda turn: turn["host"] / turn["steps"])
        print(f"{outcome.program:9} {outcome.mode:7} {outcome.speed:8.2f} {ratio:6.3f}  {turns}; all launched {100 * ahead:.0f} % before the end;"
              f" host {1000 * host:.2f} ms a step, {host / of_first:.3f}{'  SLOWER' if slow else ''}")
    return failed


def run_features(options, mode, names, budget=""):
    words = command(options, mode, "features", budget) + names
    words += (["--slow"] if options.slow else []) + (["--limit"] if budget else [])
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, env=environment(options, mode), timeout=options.timeout
        )
        output, errors, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output, errors, status = late.stdout or b"", late.stderr or b"", f"none in {options.timeout:g} s"
        output, errors = (text.decode() if isinstance(text, bytes) else text for text in (output, errors))
    checks = {line["check"]: line for line in map(json.loads, filter(lambda text: text.startswith("{"), output.splitlines()))}
    if status != 0:
        tail = " | ".join(errors.strip().splitlines()[-4:])
        checks["exit status"] = {"check": "exit status", "ok": False, "detail": f"{status}: {tail}"}
    return checks


def word(line):
    if line is None:
        return "-"
    return "skip" if line.get("skipped") else "ok" if line["ok"] else "FAIL"


def print_features(results, modes):
    failed = False
    names = []
    for checks in results.values():
        names += [name for name in checks if name not in names]
    print(f"{'feature':32} " + " ".join(f"{mode:7}" for mode in modes))
    notes = []
    for name in names:
        lines = [results[mode].get(name) for mode in modes]
        print(f"{name:32} " + " ".join(f"{word(line):7}" for line in lines))
        for mode, line in zip(modes, lines):
            if line and not line["ok"]:
                notes.append(f"  {mode}, {name}: {line['detail']}")
                # What stock PyTorch fails, too, is this machine's or the check's failure.
                failed = failed or len(modes) == 1 or (mode != modes[0] and word(lines[0]) != "FAIL")
    print("\n".join(notes))
    return failed


def main():
    options = parse()
    reason = why_not_here(options) if options.speed else None
    if reason:
        print(f"skipped: {reason}")
        return 0
    modes = options.modes.split(",")
    programs = [names.split("+") for names in options.programs.split(",") if names]
    steps = QUICK_STEPS if options.quick else SPEED_STEPS if options.speed and options.times != 1 else STEPS
    processes = options.processes or (1 if options.quick else 3)
    rounds = options.rounds or (1 if options.quick else 3)
    start = time.time()
    kept = {"modes": modes, "command": shlex.join(sys.argv)}
    failed = False
    if programs:
        outcomes = run_programs(options, modes, programs, processes, rounds, steps)
        failed = print_programs(outcomes) or failed
        if options.speed:
            failed = print_speeds(outcomes, options.tolerance) or failed
        kept["programs"] = [vars(outcome) for outcome in outcomes]
        print(f"[{time.time() - start:.0f} s]", flush=True)
    if options.features:
        names = [] if options.features == "all" else options.features.split(",")
        tried = [mode for mode in modes if mode != "memory" or len(modes) == 1]
        kept["features"] = {mode: run_features(options, mode, names) for mode in tried}
        failed = print_features(kept["features"], tried) or failed
        print(f"[{time.time() - start:.0f} s]", flush=True)
    limited = [mode for mode in modes if mode not in ("stock", "memory", "bare")]
    if options.budget and limited:
        print(f"with a budget of {options.budget}:")
        some = ["out_of_memory_and_on", "too_much", "graph", "snapshot_agrees_with_statistics"]
        kept["limited"] = {mode: run_features(options, mode, some, options.budget) for mode in limited}
        failed = print_features(kept["limited"], limited) or failed
    print(f"[{time.time() - start:.0f} s] " + ("FAILED" if failed else "passed"))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
