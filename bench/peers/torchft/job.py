"""A job of torchft: its lighthouse and replica groups as processes, whose steps are collected as they come."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# Of the lighthouse: the defaults are a join timeout of 60 s, a heartbeat timeout of 5 s and a tick of 100 ms.
LIGHTHOUSE_TUNED = ["--join_timeout_ms", "200", "--heartbeat_timeout_ms", "500", "--quorum_tick_ms", "10"]
WHOLE_SECONDS_MAX = 150  # to start, and to be whole again after a kill: more than any of the timeouts above
POLL_SECONDS = 0.005


class Stuck(Exception):
    """What was waited for did not come in time."""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Life:
    """One process of one group, from its start to its end."""

    def __init__(self, command, log, environment):
        self.began = time.monotonic()
        self.steps = []  # as train.py prints them; appended to by the reader
        self.log = log
        with open(log, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdout=subprocess.PIPE, stderr=errors, text=True,
                                            env=environment)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.steps.append(json.loads(line))

    def commits(self):
        return [step for step in self.steps if step["committed"]]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Job:
    """`with_torchft`: else plain data parallel, which nothing survives. A context manager: leaving it ends all processes."""

    def __init__(self, groups, with_torchft=True, tuned=False):
        self.groups, self.with_torchft, self.tuned = groups, with_torchft, tuned
        self.unexpected_exits = 0

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="teson-peer-")
        port = free_port()
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                             "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
        self._lighthouse = self._start_lighthouse(port) if self.with_torchft else None
        self._count = 0
        self.lives = [self.spawn(group) for group in range(self.groups)]
        return self

    def __exit__(self, *_):
        for life in self.lives:
            life.kill()
        if self._lighthouse:
            self._lighthouse.kill()
            self._lighthouse.wait()
        self._folder.cleanup()

    def _start_lighthouse(self, port):
        command = [pathlib.Path(sys.executable).with_name("torchft_lighthouse"), "--bind", f"127.0.0.1:{port}", "--min_replicas", "1"]
        with open(f"{self._folder.name}/lighthouse.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command, *(LIGHTHOUSE_TUNED if self.tuned else [])],
                                       stdout=log, stderr=log)
        until = time.monotonic() + WHOLE_SECONDS_MAX
        while time.monotonic() < until and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return process
            except OSError:
                time.sleep(POLL_SECONDS)
        process.kill()
        raise Stuck(f"the lighthouse does not listen: {pathlib.Path(log.name).read_text(encoding='utf-8')[-500:]}")

    def spawn(self, group):
        self._count += 1
        mode = ["with", str(group), *(["--tuned"] if self.tuned else [])] if self.with_torchft else ["without", str(group), str(self.groups)]
        return Life([sys.executable, str(HERE / "train.py"), *mode], f"{self._folder.name}/{self._count}.log", self._environment)

    def replace_ended(self):
        """A group that ended by itself is started again, as after a kill."""
        for group, life in enumerate(self.lives):
            if life.process.poll() is None:
                continue
            last = pathlib.Path(life.log).read_text(encoding="utf-8").strip().rsplit("\n", 1)[-1]
            print(f"torchft: group {group} ended by itself with {life.process.returncode}: {last[:300]}", file=sys.stderr)
            self.unexpected_exits += 1
            if not self.with_torchft:
                raise Stuck("plain data parallel has lost a rank")
            self.lives[group] = self.spawn(group)

    def is_whole(self):
        """The last step of each group was committed by all of them, in one quorum."""
        last = [life.steps[-1] if life.steps else None for life in self.lives]
        return all(step and step["committed"] and step["members"] == self.groups for step in last) and len({s["quorum"] for s in last}) == 1

    def wait(self, condition, what):
        until = time.monotonic() + WHOLE_SECONDS_MAX
        while not condition():
            if time.monotonic() > until:
                raise Stuck(f"{what}: not in {WHOLE_SECONDS_MAX} s")
            self.replace_ended()
            time.sleep(POLL_SECONDS)

    def kill_one(self, instants: random.Random):
        """Kills a random group of a whole job at a random instant, starts it again at once, and waits until the job is whole. Returns
        {"commit_ms": from the kill to the last survivor's first commit in a quorum that was formed after it, "rejoin_ms": from the start of
        the replacement to its first commit, "discarded": steps that the survivors computed in vain}."""
        self.wait(self.is_whole, "all groups in one quorum")
        time.sleep(instants.uniform(1, 4))
        group = instants.randrange(self.groups)
        survivors = [life for other, life in enumerate(self.lives) if other != group]
        quorum = max(life.steps[-1]["quorum"] for life in self.lives)
        killed = time.monotonic()
        self.lives[group].kill()
        self.lives[group] = self.spawn(group)

        def first_without(life):
            return next((s for s in life.commits() if s["at"] > killed and s["quorum"] > quorum), None)

        self.wait(lambda: all(first_without(life) or life.process.returncode is not None for life in survivors), "a commit after a kill")
        self.wait(self.is_whole, "all groups in one quorum again")
        commits = [first_without(life) for life in survivors]
        if not all(commits):
            raise Stuck("a survivor ended by itself")
        fresh = self.lives[group]
        return {"commit_ms": 1000 * max(commit["at"] - killed for commit in commits),
                "rejoin_ms": 1000 * (fresh.commits()[0]["at"] - fresh.began),
                "discarded": sum(not s["committed"] and killed < s["at"] for life in survivors for s in life.steps)}
