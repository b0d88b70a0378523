# ctest: parallel
"""The actor runtime on two machines with a line between them that is cut, one way or both, shortly or for long, or slow and lossy."""

import contextlib
import socket
import time

from harness import Skip, main
from namespaces import NEAR, Cable, SlowLine
from network import ROOM, Agent, Owner, all_at_once, nothing_is_left, wait_gone

HEARTBEAT = 0.5
SILENCE_MAX = 3 * HEARTBEAT + ROOM
# Six heartbeats, and what an orphan may take to clean up.
CUT_OFF_MAX = 6 * HEARTBEAT + 0.5 + ROOM
# An attempt of the agent to connect that the line has swallowed is repeated by the kernel within seconds.
RETURN_MAX = 10
PORT = 7000
TCP_RTO_MAX_MS = 44


@contextlib.contextmanager
def owner_and_far_agent(case, line, heartbeat=HEARTBEAT):
    mark = f"{case.folder}/{time.monotonic_ns()}"
    address = f"tcp:{NEAR}:{PORT}"
    with Owner(mark, heartbeat, line.on_near()) as owner:
        assert "error" not in owner.ask("listen", address, address)
        with Agent(address, line.on_far()):
            assert owner.join() == "far"
            yield owner
    nothing_is_left(mark)


def lost(owner, pids, began, waiting):
    """Told of by name and in time: the host, its processes, and the call that waits for rank 1. When, in seconds."""
    times = []
    told = [owner.event("exit", rank=rank) for rank in range(len(pids))]
    for rank, pid in enumerate(pids):
        assert f"rank {rank} (pid {pid}, host 'far') of mesh 'workers'" in told[rank]["error"], told[rank]
    told.append(owner.event("host_lost"))
    assert "host 'far'" in told[-1]["error"], told[-1]
    told.append(owner.reply(waiting))
    assert told[-1]["kind"] == "disconnected" and "rank 1" in told[-1]["error"] and "'far'" in told[-1]["error"], told[-1]
    for one in told:
        times.append(one["at"] - began)
        assert times[-1] < SILENCE_MAX, f"{times[-1]:.2f} s, at most {SILENCE_MAX:.2f}: {one}"
    return times


def say(what, times):
    print(f"  {what}: " + ", ".join(f"{one:.2f}" for one in times) + " s", flush=True)


def a_machine_that_cannot_be_reached_is_lost_in_time_ends_its_processes_and_comes_back(case):
    with Cable() as line, owner_and_far_agent(case, line) as owner:
        pids = owner.spawn(2, HEARTBEAT)
        waiting = owner.call("nap", 1, 30_000)
        began = time.monotonic()
        line.cut()
        say("line cut; ranks 0 and 1, the host, the call lost after", lost(owner, pids, began, waiting))
        ended = wait_gone(pids, CUT_OFF_MAX) - began
        say("the processes there have ended after", [ended])
        assert owner.ask("hosts", 1, 0).get("error"), "no host is there"
        joined = time.monotonic()
        line.join()
        owner.join(seconds=RETURN_MAX)
        say("line whole; the agent was back after", [time.monotonic() - joined])
        assert not set(owner.spawn(2, HEARTBEAT)) & set(pids)
        assert not owner.has("host_lost") and not owner.has("exit")


def a_line_that_is_dead_one_way_is_dead(case):
    def cut(sender):
        with Cable() as line, owner_and_far_agent(case, line) as owner:
            pids = owner.spawn(2, HEARTBEAT)
            waiting = owner.call("nap", 1, 30_000)
            began = time.monotonic()
            line.cut_one_way(sender)
            say(f"what {sender} sends is lost; ranks 0 and 1, the host, the call lost after", lost(owner, pids, began, waiting))
            say("the processes there have ended after", [wait_gone(pids, CUT_OFF_MAX) - began])
            joined = time.monotonic()
            line.join_one_way(sender)
            owner.join(seconds=RETURN_MAX)
            say("line whole; the agent was back after", [time.monotonic() - joined])
            owner.spawn(2, HEARTBEAT)

    all_at_once(cut, [("near",), ("far",)])


def a_short_cut_loses_nothing_and_repeats_nothing(case):
    with Cable() as line, owner_and_far_agent(case, line) as owner:
        owner.spawn(2, HEARTBEAT)
        counted = 0
        for attempt in range(3):
            line.cut()
            owner.ask("count", counted, counted + 500)
            counted += 500
            waiting = owner.call("add", 1, attempt)
            time.sleep(0.8 * HEARTBEAT)
            line.join()
            assert owner.reply(waiting).get("value") == attempt + 1
            for rank in range(2):
                assert owner.value("counted", rank) == counted
            # Another phase of the heartbeat each time.
            time.sleep(HEARTBEAT * (1 + 0.3 * attempt))
        time.sleep(2 * HEARTBEAT)
        assert not owner.has("exit") and not owner.has("host_lost"), owner.kept


def a_cut_of_one_and_a_half_heartbeats_kills_nobody(case):
    """A dead line is tried again after 0.2, 0.4, 0.8, … s: without a bound on that, the next time would come too late."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, 1000)
        except OSError:
            raise Skip("this kernel cannot be told how long to wait before it sends again (Linux 6.15 can)") from None
    with Cable() as line, owner_and_far_agent(case, line, 2) as owner:
        owner.spawn(2, 2)
        time.sleep(1.5)  # shortly before the next heartbeat
        line.cut()
        owner.ask("count", 0, 500)
        waiting = owner.call("add", 1, 1)
        time.sleep(3.2)
        line.join()
        assert owner.reply(waiting).get("value") == 2
        for rank in range(2):
            assert owner.value("counted", rank) == 500
        time.sleep(1)
        assert not owner.has("exit") and not owner.has("host_lost"), owner.kept


def a_slow_and_lossy_line_kills_nobody(case):
    with SlowLine(delay=0.05, loss=0.05) as line, owner_and_far_agent(case, line, 1) as owner:
        owner.spawn(2, 1)
        owner.ask("count", 0, 1000)
        large = owner.call("echo", 0, 500_000)
        times = []
        for _ in range(12):
            began = time.monotonic()
            assert owner.value("add", 1, 1) == 2
            times.append(time.monotonic() - began)
        assert owner.reply(large).get("value") is True
        for rank in range(2):
            assert owner.value("counted", rank) == 1000
        assert min(times) > 0.1, times
        assert line.lost > 10, (line.lost, line.carried)
        assert not owner.has("exit") and not owner.has("host_lost"), owner.kept
        say(f"{line.lost} of {line.lost + line.carried} packets lost; shortest and longest call", [min(times), max(times)])


if __name__ == "__main__":
    main(a_machine_that_cannot_be_reached_is_lost_in_time_ends_its_processes_and_comes_back, a_line_that_is_dead_one_way_is_dead,
         a_short_cut_loses_nothing_and_repeats_nothing, a_cut_of_one_and_a_half_heartbeats_kills_nobody, a_slow_and_lossy_line_kills_nobody)
