"""Two machines in one: network namespaces, and a line between them that a test can cut, one way or both, or make slow and lossy."""

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import re
import select
import shutil
import struct
import subprocess
import threading
import time

from harness import Skip

NEAR, FAR = "10.97.53.1", "10.97.53.2"
NOBODY = "02:00:00:00:00:99"
numbers = itertools.count()


def remove_leftovers():
    """Of tests that were killed."""
    for name in re.findall(r"^(teson-(\d+)-\S+)", ip("netns", "list"), re.M):
        if not os.path.exists(f"/proc/{name[1]}"):
            ip("netns", "delete", name[0])


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Machines:
    """The namespaces `near` and `far`, without a line between them yet. Skips the test where they cannot be had."""

    def __init__(self):
        number = next(numbers)
        self.near, self.far = (f"teson-{os.getpid()}-{number}-{side}" for side in ("near", "far"))
        self.made = []

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        if not shutil.which("ip"):
            raise Skip("network namespaces need the program ip (package iproute2)")
        try:
            remove_leftovers()
            for name in (self.near, self.far):
                ip("netns", "add", name)
                self.made.append(name)
                ip("-n", name, "link", "set", "lo", "up")
        except OSError as error:
            self.__exit__()
            raise Skip(f"no network namespaces here: {error}") from None
        return self

    def __exit__(self, *_):
        for name in self.made:
            with contextlib.suppress(OSError):
                ip("netns", "delete", name)

    def on_near(self):
        """The start of a command that runs there."""
        return ["ip", "netns", "exec", self.near]

    def on_far(self):
        """The same, and the machine's name is `far`."""
        return ["ip", "netns", "exec", self.far, "unshare", "--uts", "sh", "-c", 'hostname far; exec "$0" "$@"']


class Cable(Machines):
    """A pair of veth interfaces."""

    def __enter__(self):
        super().__enter__()
        try:
            ip("-n", self.near, "link", "add", "line", "type", "veth", "peer", "name", "line", "netns", self.far)
            for name, address in ((self.near, NEAR), (self.far, FAR)):
                ip("-n", name, "address", "add", f"{address}/30", "dev", "line")
                ip("-n", name, "link", "set", "line", "up")
        except OSError as error:
            self.__exit__()
            raise Skip(f"no veth interfaces here: {error}") from None
        return self

    def cut(self):
        ip("-n", self.near, "link", "set", "line", "down")

    def join(self):
        ip("-n", self.near, "link", "set", "line", "up")

    def cut_one_way(self, sender):
        """What one side sends goes to nobody; it notices nothing."""
        name, address = {"near": (self.near, FAR), "far": (self.far, NEAR)}[sender]
        ip("-n", name, "neighbour", "replace", address, "lladdr", NOBODY, "dev", "line", "nud", "permanent")

    def join_one_way(self, sender):
        name, address = {"near": (self.near, FAR), "far": (self.far, NEAR)}[sender]
        ip("-n", name, "neighbour", "delete", address, "dev", "line")


class SlowLine(Machines):
    """TUN interfaces, between which this process carries each packet `delay` seconds late and loses a share of them."""

    SET_INTERFACE, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
    PACKET_BYTES_MAX = 65536

    def __init__(self, delay, loss, seed=1):
        super().__init__()
        self.delay, self.loss, self.random = delay, loss, random.Random(seed)
        self.carried = self.lost = 0
        self.ends = []
        self.ending = threading.Event()

    def __enter__(self):
        super().__enter__()
        try:
            for name, own, other in ((self.near, NEAR, FAR), (self.far, FAR, NEAR)):
                end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                self.ends.append(end)
                interface = f"teson{next(numbers)}p{os.getpid() % 100000}"
                fcntl.ioctl(end, self.SET_INTERFACE, struct.pack("16sH14x", interface.encode(), self.TUN_WITHOUT_HEADER))
                ip("link", "set", interface, "netns", name)
                ip("-n", name, "address", "add", own, "peer", other, "dev", interface)
                ip("-n", name, "link", "set", interface, "up")
        except OSError as error:
            self.__exit__()
            raise Skip(f"no TUN interfaces here: {error}") from None
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        if hasattr(self, "thread"):
            self.thread.join()
        for end in self.ends:
            os.close(end)
        super().__exit__()

    def carry(self):
        late = []
        count = 0
        while not self.ending.is_set():
            wait = min(0.1, max(0.0, late[0][0] - time.monotonic())) if late else 0.1
            for end in select.select(self.ends, [], [], wait)[0]:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        packet = os.read(end, self.PACKET_BYTES_MAX)
                        count += 1
                        if self.random.random() < self.loss:
                            self.lost += 1
                        else:
                            heapq.heappush(late, (time.monotonic() + self.delay, count, self.ends[end == self.ends[0]], packet))
            while late and late[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(late)
                self.carried += 1
                with contextlib.suppress(OSError):
                    os.write(end, packet)
