"""network_soak.py [SECONDS [SEED]]: a supervised mesh on a host behind a network that misbehaves at random.

Each call ends by its deadline with a value or an error, whatever happens; in the end every rank answers again and nothing is
left behind.
"""

import collections
import contextlib
import pathlib
import random
import sys
import tempfile
import time
import types

from network import ROOM
from proxy import cut_within, flipped, swapped, twice
from proxy_test import setting

RANKS = 3
# What a machine that runs much else may add to a deadline.
LATE_MAX = 1.0
BACK_MAX = 30


def spoil(random_, here):
    """Something happens to one way of one of the proxies. What it was, in a word."""
    proxy = random_.choice([here.agents, here.procs, here.procs])
    way = random_.choice([proxy.up, proxy.down])
    size = random_.choice([1, 1000])
    faults = {
        "cut": lambda: proxy.cut(random_.choice(["rst", "fin"])),
        "cut on one side": lambda: proxy.cut(random_.choice(["rst", "fin"]), [random_.choice(["client", "server"])]),
        "dropped": lambda: setattr(way, "dropped", True),
        "held": lambda: setattr(way, "held", True),
        "delayed": lambda: setattr(way, "delay", 0.3 * random_.random()),
        "slow": lambda: setattr(way, "bytes_per_second", 300_000),
        **{change.__name__: lambda change=change: way.change_next(change, size) for change in (flipped, swapped, twice, cut_within)},
    }
    name = random_.choice(list(faults))
    faults[name]()
    return name


def begin_call(random_, owner, rank):
    method, argument = random_.choice([("add", 1), ("nap", 1), ("nap", 1000), ("echo", 100), ("echo", 100_000)])
    seconds = random_.choice([0.3, 1, 2])
    return owner.call(method, rank, argument, seconds), time.monotonic() + seconds


def end_due(owner, waiting, tally):
    """Takes the replies of those whose deadline is over."""
    while waiting and waiting[0][1] + LATE_MAX < time.monotonic():
        number, deadline = waiting.pop(0)
        reply = owner.reply(number, ROOM)
        assert reply["at"] < deadline + LATE_MAX, f"{reply['at'] - deadline:.2f} s after its deadline: {reply}"
        tally[reply.get("kind", "value")] += 1


def soak(seconds, seed):
    print(f"seed {seed}", flush=True)
    random_ = random.Random(seed)
    tally = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="teson-test-") as folder:
        case = types.SimpleNamespace(folder=pathlib.Path(folder))
        with setting(case) as here:
            here.spawn(RANKS)
            here.owner.ask("supervise")
            waiting = []
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                waiting += [begin_call(random_, here.owner, rank) for rank in range(RANKS)]
                waiting.sort(key=lambda one: one[1])
                time.sleep(0.3 * random_.random())
                if random_.random() < 0.2:
                    tally[spoil(random_, here)] += 1
                if random_.random() < 0.3:
                    here.heal()
                end_due(here.owner, waiting, tally)
            here.heal()
            come_back(here.owner)
            for event in ("exit", "host_lost"):
                with contextlib.suppress(AssertionError):
                    while here.owner.event(event, 0):
                        tally[event] += 1
    print(", ".join(f"{count} {name}" for name, count in sorted(tally.items())))


def come_back(owner):
    end = time.monotonic() + BACK_MAX
    for rank in range(RANKS):
        while "value" not in (reply := owner.reply(owner.call("add", rank, 1, 2))):
            assert time.monotonic() < end, f"rank {rank} has not come back in {BACK_MAX} s: {reply}"
            time.sleep(0.1)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    soak(float(arguments[0]) if arguments else 300, int(arguments[1]) if len(arguments) > 1 else time.time_ns() % 1_000_000)
