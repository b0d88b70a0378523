"""An owner, host agents and processes for tests of the network between them."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import threading
import time

from harness import TESON, wait_until

OWNER = pathlib.Path(os.environ.get("TESON_NETWORK_OWNER", TESON.with_name("teson_network_owner")))
SECRET = "the job's secret"
# What a machine that runs much else may add to a time that is promised.
ROOM = 0.5
PATIENCE = 30


def environment(secret=SECRET, **more):
    return {**os.environ, "TESON_JOB_SECRET": secret, **more}


def runs(pid):
    """A zombie runs no more."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def marked(mark):
    """The processes whose arguments hold this text, besides this one."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid() and mark.encode() in (entry / "cmdline").read_bytes():
                if runs(int(entry.name)):
                    found.append(int(entry.name))
    return found


class Program:
    """Started in a `with` block, ended with it. `prefix`: the command that runs it, for another namespace."""

    def __init__(self, command, prefix=(), **more):
        self.process = subprocess.Popen([*prefix, *map(str, command)], stdout=subprocess.PIPE, text=True, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Agent(Program):
    """`teson host --join`. What it says is in `lines`."""

    def __init__(self, address, prefix=()):
        super().__init__([TESON, "host", "--join", address], prefix, stderr=subprocess.STDOUT, env=environment())
        self.lines = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())


class Guest(Program):
    """A process that attaches by a ticket."""

    def __init__(self, ticket, mark, prefix=()):
        super().__init__([OWNER, mark], prefix, stderr=subprocess.DEVNULL, env=environment(TESON_PROC=ticket))


class Owner(Program):
    """The program of teson/actor/testing/network_owner.cpp. Events are kept until somebody waits for them."""

    def __init__(self, mark, host_heartbeat, prefix=()):
        self.mark = str(mark)
        super().__init__([OWNER, self.mark, int(1000 * host_heartbeat)], prefix, stdin=subprocess.PIPE, env=environment())
        self.arrived = queue.Queue()
        self.kept = []
        self.calls = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.arrived.put(json.loads(line))
        self.arrived.put({"event": "end"})

    def __exit__(self, *_):
        """Ends as its input does; nothing it has started outlives it."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        finally:
            super().__exit__()

    def event(self, name, seconds=PATIENCE, **fields):
        """The next event of this name and with these fields."""
        def matches(event):
            return event["event"] == name and all(event.get(field) == value for field, value in fields.items())
        end = time.monotonic() + seconds
        while True:
            for event in self.kept:
                if matches(event):
                    self.kept.remove(event)
                    return event
            try:
                self.kept.append(self.arrived.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"no {name} {fields} within {seconds} s; there were {self.kept}") from None
            assert self.kept[-1]["event"] != "end", f"the owner has ended; there were {self.kept}"

    def has(self, name):
        """Whether such an event is there now."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.kept.append(self.arrived.get_nowait())
        return any(event["event"] == name for event in self.kept)

    def ask(self, verb, *words, seconds=PATIENCE):
        self.process.stdin.write(" ".join(map(str, (verb, *words))) + "\n")
        self.process.stdin.flush()
        return self.event(verb, seconds)

    def call(self, method, rank=0, argument=0, seconds=20):
        """Begins a call; its reply is an event."""
        self.calls += 1
        self.ask("call", self.calls, method, rank, argument, seconds)
        return self.calls

    def reply(self, number, seconds=PATIENCE):
        return self.event("reply", seconds, number=number)

    def value(self, method, rank=0, argument=0, seconds=20):
        reply = self.reply(self.call(method, rank, argument, seconds), seconds + ROOM)
        assert "value" in reply, reply
        return reply["value"]

    def join(self, count=1, seconds=PATIENCE):
        joined = self.ask("hosts", count, seconds, seconds=seconds + PATIENCE)
        assert "error" not in joined, joined
        return joined["host"]

    def spawn(self, count, heartbeat):
        """So many processes on the host; each has answered."""
        started = self.ask("spawn", count, int(1000 * heartbeat))
        assert "error" not in started, started
        for rank in range(count):
            assert self.value("add", rank, 1) == 2
        return started["pids"]


def wait_gone(pids, seconds):
    wait_until(lambda: not any(map(runs, pids)), seconds, lambda: f"still there after {seconds} s: {[p for p in pids if runs(p)]}")
    return time.monotonic()


def all_at_once(function, arguments):
    """Calls it with each of these tuples, each in a thread."""
    with concurrent.futures.ThreadPoolExecutor(len(arguments)) as pool:
        for done in [pool.submit(function, *one) for one in arguments]:
            done.result()


def nothing_is_left(mark):
    wait_until(lambda: not marked(mark), 10, lambda: f"left behind: {marked(mark)}")
