"""Runs the real programs for the end-to-end tests: real processes, real signals, files as users find them.

A test file calls main(test, …) with functions of one argument, a Case. Each is named after the behaviour it shows; the file
prints one line a test and exits with 0, 1, or 77 when nothing was tried because the machine lacks a part of what it takes.
`--list` prints the names; names as arguments run those tests alone.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TESON = pathlib.Path(os.environ.get("TESON", "build/release/bin/teson"))
SOURCE = pathlib.Path(__file__).resolve().parents[2]
TINY = SOURCE / "configs" / "tiny.toml"


# How much longer things may take than usual: more than 1 under a sanitizer, whose programs are slow.
PATIENCE = float(os.environ.get("TESON_TEST_PATIENCE", "1"))
SANITIZED = PATIENCE > 1


class Skip(Exception):
    """The machine lacks what the test needs; the text says what."""


class Run:
    """One `teson train` that was started."""

    def __init__(self, process, folder, output):
        self.process, self.folder, self.output = process, folder, output

    def wait(self, seconds=90):
        try:
            self.status = self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"still running after {seconds} s\n{self.text()[-3000:]}")
        return self

    def text(self):
        return self.output.read_text(errors="replace")

    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())

    def lines(self, name):
        path = self.folder / name
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def step(self):
        lines = self.lines("metrics.jsonl")
        return lines[-1]["step"] if lines else 0

    def wait_step(self, step, seconds=60):
        wait_until(lambda: self.step() >= step, seconds, lambda: f"step {step} was not reached\n{self.text()[-3000:]}")

    def processes(self):
        """Processes of this run by pid, found by the run folder in what they have open or were started with."""
        return processes_of(self.folder)


def processes_of(folder):
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            name = os.readlink(entry / "exe").split("/")[-1].replace(" (deleted)", "")
            if name not in ("teson", "teson-worker"):
                continue
            out = os.readlink(entry / "fd" / "1")
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
            if str(folder) in out or str(folder) in arguments:
                found[int(entry.name)] = name
        except OSError:
            continue
    return found


def wait_until(condition, seconds, complain):
    end = time.monotonic() + seconds * PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(complain())
        time.sleep(0.02)


class Case:
    """A folder of one test, and what it starts there."""

    def __init__(self, folder):
        self.folder = folder
        self.runs = []

    def start(self, name="run", config=TINY, sets=(), inject=(), arguments=(), env=None, program=TESON):
        folder = self.folder / name
        output = self.folder / f"{name}-{len(self.runs)}.txt"
        command = [str(program), "train", str(config), "--run-dir", str(folder)]
        for value in sets:
            command += ["--set", value]
        for value in inject:
            command += ["--inject", value]
        with output.open("w") as out:
            process = subprocess.Popen(command + list(arguments), stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
                                       env={**os.environ, **(env or {})})
        run = Run(process, folder, output)
        self.runs.append(run)
        return run

    def train(self, name="run", status=0, seconds=90, **arguments):
        run = self.start(name, **arguments).wait(seconds)
        assert run.status == status, f"exit status {run.status}, expected {status}\n{run.text()[-3000:]}"
        return run

    def end(self):
        for run in self.runs:
            if run.process.poll() is None:
                run.process.kill()
        left = {}
        for run in self.runs:
            def none_left():
                left.clear()
                left.update(processes_of(run.folder))
                return not left
            try:
                wait_until(none_left, 2, lambda: "")
            except AssertionError:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"processes were left behind: {left}")


def main(*tests):
    wanted = sys.argv[1:]
    if wanted == ["--list"]:
        print("\n".join(test.__name__ for test in tests))
        sys.exit(0)
    unknown = set(wanted) - {test.__name__ for test in tests}
    if unknown:
        sys.exit(f"no such test: {', '.join(sorted(unknown))}")
    outcomes = []
    for test in tests:
        if wanted and test.__name__ not in wanted:
            continue
        folder = pathlib.Path(tempfile.mkdtemp(prefix="teson-test-"))
        case = Case(folder)
        began = time.monotonic()
        try:
            try:
                test(case)
            finally:
                case.end()
            outcome = "ok"
        except Skip as reason:
            outcome = f"skipped: {reason}"
        except Exception as error:  # a failed test must not hide the others
            outcome = f"FAILED: {type(error).__name__}: {error}"
        outcomes.append(outcome.split(":")[0])
        print(f"{test.__name__}: {outcome} ({time.monotonic() - began:.1f} s)", flush=True)
        if not outcome.startswith("FAILED"):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"    its files: {folder}", flush=True)
    sys.exit(1 if "FAILED" in outcomes else 0 if "ok" in outcomes else 77)
