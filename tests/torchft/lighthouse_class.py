"""torchft's LighthouseServer class, with the program in TESON_LIGHTHOUSE behind it.

As a pytest plugin (-p lighthouse_class) it takes the place of the original before torchft's test modules import the name.
"""

import os
import re
import subprocess
import threading

import torchft._torchft
import torchft.coordination


class LighthouseServer:
    """A lighthouse in a process of its own.

    Args:
        bind: the address to listen on, "host:port"
        min_replicas: the least members of a quorum
        join_timeout_ms: how long to wait for heartbeating members that did not ask
        quorum_tick_ms: how often a pending quorum is looked at
        heartbeat_timeout_ms: how long a silent member counts
    """

    started = 0

    def __init__(self, bind, min_replicas, join_timeout_ms=100, quorum_tick_ms=100, heartbeat_timeout_ms=5000):
        flags = {"bind": bind, "min-replicas": min_replicas, "join-timeout-ms": join_timeout_ms,
                 "quorum-tick-ms": quorum_tick_ms, "heartbeat-timeout-ms": heartbeat_timeout_ms}
        command = ["setpriv", "--pdeathsig", "TERM", os.environ["TESON_LIGHTHOUSE"], "lighthouse"]
        for flag, value in flags.items():
            command += ["--" + flag, str(value)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines = []
        for line in self._process.stdout:
            self._lines.append(line)
            if found := re.search(r"http://\S+:\d+", line):
                self._address = found.group()
                break
        else:
            raise RuntimeError(f"no address from {command}, but: {''.join(self._lines)!r}")
        LighthouseServer.started += 1
        threading.Thread(target=lambda: self._lines.extend(self._process.stdout), daemon=True).start()

    def address(self):
        """The URL for clients.

        Args: none
        """
        return self._address

    def shutdown(self):
        """Ends the process.

        Args: none
        """
        self._process.terminate()
        self._process.wait(10)

    def __del__(self):
        if getattr(self, "_process", None) and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


torchft._torchft.LighthouseServer = LighthouseServer
torchft.coordination.LighthouseServer = LighthouseServer


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"lighthouses of ours: {LighthouseServer.started}")
