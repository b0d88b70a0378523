"""The host agent as a program: who it lets in, what strangers cost it, how it ends."""

import os
import signal
import socket
import struct
import subprocess
import time

from harness import TESON, main, wait_until

DESCRIPTORS = 50
GROWTH_MB_MAX = 50
# Of a connection that proves nothing, with room for a slow machine.
SILENCE_SECONDS_MAX = 20


class Agent:
    """`teson host`, until the end of the test."""

    def __init__(self, *arguments, secret="the job's secret"):
        environment = dict(os.environ, TESON_JOB_SECRET=secret)
        if secret is None:
            del environment["TESON_JOB_SECRET"]
        self.process = subprocess.Popen([TESON, "host", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def address(self):
        """From its first line, which says where it waits."""
        line = self.process.stdout.readline()
        assert "waiting for an owner at tcp:" in line, line
        host, _, port = line.strip().rpartition("tcp:")[2].rpartition(":")
        return host, int(port)

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def hello(job=b"teson", purpose=b"actor", body=b"", claimed=None, magic=0x484E5354):
    """The first message of a handshake (docs/formats/frame.md); `claimed`: lengths that it lies about."""
    lengths = claimed or (len(job), len(purpose), len(body))
    return struct.pack("<IHBBHHIQQ", magic, 1, 0, 1, *lengths, 1, 2) + job + purpose + body


def is_closed(connection):
    """By the other side."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def strangers_are_dropped_and_cost_nothing(case):
    with Agent("--listen", "tcp:127.0.0.1:0") as agent:
        address = agent.address()
        before = agent.resident_mb()
        rubbish = [
            b"GET / HTTP/1.1\r\n\r\n",
            os.urandom(100_000),
            hello(magic=1),
            hello(claimed=(0xFFFF, 0xFFFF, 0xFFFFFFFF)),
            hello(claimed=(5, 5, 2**31)),
            hello()[:17],
            hello() + os.urandom(32),
            hello(job=b"another"),
            hello() + os.urandom(32) + struct.pack("<QQQQ", 2**63, 2**64 - 1, 2**31, 7) * 1000,
            b"",
        ]
        connections = []
        for round_number in range(30):
            for text in rubbish:
                connection = socket.create_connection(address, timeout=10)
                connections.append(connection)
                try:
                    connection.sendall(text)
                except ConnectionError:
                    pass
        began = time.monotonic()
        wait_until(lambda: all(is_closed(connection) for connection in connections), SILENCE_SECONDS_MAX,
                   lambda: f"{sum(not is_closed(c) for c in connections)} of {len(connections)} strangers are still there")
        assert agent.process.poll() is None, agent.process.stdout.read()
        assert agent.resident_mb() - before < GROWTH_MB_MAX, (before, agent.resident_mb())
        wait_until(lambda: agent.descriptors() < DESCRIPTORS, 10, lambda: f"{agent.descriptors()} descriptors are open")
        assert time.monotonic() - began < SILENCE_SECONDS_MAX


def nobody_is_waited_for_without_a_secret_where_strangers_could_come(case):
    done = subprocess.run([TESON, "host", "--listen", "tcp:0.0.0.0:0"], capture_output=True, text=True, timeout=20,
                          env={k: v for k, v in os.environ.items() if k != "TESON_JOB_SECRET"}, check=False)
    assert done.returncode == 2, done
    assert "secret" in done.stderr and "0.0.0.0" in done.stderr, done.stderr


def a_socket_file_is_for_its_user_alone_and_goes_with_the_agent(case):
    path = case.folder / "agent.sock"
    with Agent("--listen", f"unix:{path}") as agent:
        agent.process.stdout.readline()  # says that it listens
        assert path.stat().st_mode & 0o077 == 0, oct(path.stat().st_mode)
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(10) == 0
        assert not path.exists()


def an_agent_without_an_owner_says_so_once_and_waits(case):
    with Agent("--join", "tcp:127.0.0.1:1") as agent:
        line = agent.process.stdout.readline()
        assert "no owner yet" in line and "tcp:127.0.0.1:1" in line, line
        time.sleep(2.5)
        agent.process.send_signal(signal.SIGINT)
        rest, _ = agent.process.communicate(timeout=10)
        assert rest.count("no owner yet") == 0, rest
        assert agent.process.returncode == 0


def what_is_asked_for_must_make_sense(case):
    for arguments, expected in [(["--join", "nowhere"], "--join"), (["--listen", "tcp:127.0.0.1:99999"], "--listen"),
                                ([], "--join"), (["--join", "tcp:a:1", "--listen", "tcp:b:1"], "--listen")]:
        done = subprocess.run([TESON, "host", *arguments], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 2 and expected in done.stderr, (arguments, done)


if __name__ == "__main__":
    main(strangers_are_dropped_and_cost_nothing, nobody_is_waited_for_without_a_secret_where_strangers_could_come,
         a_socket_file_is_for_its_user_alone_and_goes_with_the_agent, an_agent_without_an_owner_says_so_once_and_waits,
         what_is_asked_for_must_make_sense)
