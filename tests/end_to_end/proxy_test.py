# ctest: parallel
"""The actor runtime over connections that misbehave: a proxy between an owner, its agents and its processes."""

import contextlib
import time

from harness import main, wait_until
from network import PATIENCE, ROOM, Agent, Guest, Owner, all_at_once, nothing_is_left, wait_gone
from proxy import Proxy, cut_within, flipped, swapped, twice

HEARTBEAT = 0.5
# An owner has lost what is silent in under three heartbeats; an end needs one more sign, which is not waited for long.
SILENCE_MAX = 3 * HEARTBEAT + 0.2 + ROOM
# What is cut off from its owner ends itself in under six.
CUT_OFF_MAX = 6 * HEARTBEAT + ROOM
# An agent tries again every second.
RETURN_MAX = 1 + ROOM
# What is cut and cannot be resumed is given up.
WINDOW = 0.5
GIVEN_UP_MAX = 1


class Setting:
    """An owner, an agent that joins it through the proxy `agents`, and processes that attach through `procs`."""

    def __init__(self, owner, agents, procs, agent):
        self.owner, self.agents, self.procs, self.agent = owner, agents, procs, agent
        self.pids = []

    def spawn(self, count=2, heartbeat=HEARTBEAT):
        self.pids = self.owner.spawn(count, heartbeat)

    def silence(self, how, ways=("up", "down")):
        for proxy in (self.agents, self.procs):
            for way in ways:
                setattr(getattr(proxy, way), how, True)

    def undisturbed(self):
        """All is as it was, and works."""
        for rank in range(len(self.pids)):
            assert self.owner.value("add", rank, 1) == 2
        time.sleep(WINDOW + 2 * HEARTBEAT)
        assert not self.owner.has("host_lost") and not self.owner.has("exit"), self.owner.kept

    def heal(self):
        self.agents.heal()
        self.procs.heal()

    def lost(self, began, bound=SILENCE_MAX):
        """Each process is told of by its name, within the bound."""
        for rank, pid in enumerate(self.pids):
            told = self.owner.event("exit", rank=rank)
            names(told["error"], f"rank {rank} (pid {pid}, host '", "mesh 'workers'")
            assert told["at"] - began < bound, f"{told['at'] - began:.2f} s, at most {bound:.2f}: {told['error']}"

    def host_lost(self, began, bound=SILENCE_MAX):
        told = self.owner.event("host_lost")
        names(told["error"], "host '", "pid ")
        assert told["at"] - began < bound, f"{told['at'] - began:.2f} s, at most {bound:.2f}: {told['error']}"

    def works_anew(self, joins_again=True):
        if joins_again:
            self.owner.join(seconds=CUT_OFF_MAX + RETURN_MAX)
        assert not set(self.owner.spawn(2, HEARTBEAT)) & set(self.pids)
        assert not self.owner.has("host_lost") and not self.owner.has("exit"), self.owner.kept


@contextlib.contextmanager
def setting(case, host_heartbeat=HEARTBEAT, agent=True):
    mark = f"{case.folder}/{time.monotonic_ns()}"
    with Proxy() as agents, Proxy() as procs, Owner(mark, host_heartbeat) as owner:
        agents.target = procs.target = owner.ask("listen", "tcp:127.0.0.1:0", f"tcp:127.0.0.1:{procs.port}")["port"]
        with Agent(f"tcp:127.0.0.1:{agents.port}") if agent else contextlib.nullcontext() as joining:
            here = Setting(owner, agents, procs, joining)
            if agent:
                owner.join()
            yield here
            here.heal()
    nothing_is_left(mark)


def names(text, *parts):
    for part in parts:
        assert part in text, f"expected '{part}' in: {text}"


def a_cut_in_the_middle_of_a_message_loses_nothing(case):
    def cut(how, way):
        with setting(case) as here:
            here.spawn()
            here.procs.cut_how = how
            getattr(here.procs, way).change_next(cut_within, 2000)
            began = time.monotonic()
            reply = here.owner.reply(here.owner.call("echo", 0, 500_000))
            assert reply.get("value") is True, reply
            assert reply["at"] - began < WINDOW + ROOM, reply
            here.undisturbed()

    all_at_once(cut, [(how, way) for how in ("fin", "rst") for way in ("up", "down")])


def cuts_while_messages_pass_lose_and_repeat_nothing(case):
    with setting(case) as here:
        here.spawn()
        for i in range(20):
            here.owner.ask("count", 100 * i, 100 * (i + 1))
            time.sleep(0.01 * (i % 4))
            here.procs.cut("rst" if i % 2 else "fin", sides=("client",) if i % 3 == 0 else ("client", "server"))
        for rank in range(2):
            assert here.owner.value("counted", rank) == 2000
        here.undisturbed()


def an_agent_that_is_cut_goes_on(case):
    def cut(how, *sides):
        with setting(case) as here:
            here.spawn()
            here.agents.cut(how, sides)
            here.undisturbed()
            here.owner.ask("stop")
            assert not set(here.owner.spawn(2, HEARTBEAT)) & set(here.pids)

    all_at_once(cut, [("fin", "client", "server"), ("rst", "client", "server"), ("rst", "client")])


def an_agent_that_is_cut_off_comes_back(case):
    def cut(how):
        with setting(case) as here:
            here.spawn()
            waiting = here.owner.call("nap", 1, 20_000)
            began = time.monotonic()
            here.agents.shut = True
            here.agents.cut(how)
            here.host_lost(began, GIVEN_UP_MAX)
            here.lost(began, GIVEN_UP_MAX)
            names(here.owner.reply(waiting)["error"], "rank 1", "the agent of host '")
            wait_gone(here.pids, 2)
            here.heal()
            here.works_anew()

    all_at_once(cut, [("fin",), ("rst",)])


def the_ranks_of_a_host_come_back_with_its_agent(case):
    with setting(case) as here:
        here.spawn()
        here.owner.ask("supervise")
        began = time.monotonic()
        here.agents.shut = True
        here.agents.cut("rst")
        here.host_lost(began, GIVEN_UP_MAX)
        here.lost(began, GIVEN_UP_MAX)
        here.heal()
        restarted = [here.owner.event("restart", RETURN_MAX)["ranks"] for _ in range(2)]
        assert sorted(restarted) == [[0], [1]], restarted
        for rank in range(2):
            assert here.owner.value("add", rank, 1) == 2


def silence_is_an_end_and_what_was_cut_off_comes_back(case):
    def silence(how, *ways):
        with setting(case) as here:
            here.spawn()
            waiting = here.owner.call("nap", 0, 20_000)
            began = time.monotonic()
            here.silence(how, ways)
            here.lost(began)
            here.host_lost(began)
            reply = here.owner.reply(waiting)
            names(reply["error"], "rank 0", "host '")
            assert reply["at"] - began < SILENCE_MAX
            assert wait_gone(here.pids, CUT_OFF_MAX + 0.5) - began < CUT_OFF_MAX + 0.5
            here.heal()
            here.works_anew()

    all_at_once(silence, [("dropped", "up", "down"), ("dropped", "up"), ("dropped", "down"), ("held", "up", "down")])


def a_process_is_lost_in_time_though_its_agent_cannot_be_asked(case):
    with setting(case, host_heartbeat=5) as here:
        here.spawn()
        waiting = here.owner.call("nap", 0, 20_000)
        began = time.monotonic()
        here.silence("held")
        here.lost(began)
        assert here.owner.reply(waiting)["at"] - began < 3 * HEARTBEAT + ROOM
        assert not here.owner.has("host_lost")
        here.heal()
        wait_gone(here.pids, 2)
        here.works_anew(joins_again=False)


def an_agent_that_comes_back_before_it_was_missed_takes_the_place_of_itself(case):
    with setting(case, host_heartbeat=5) as here:
        here.spawn()
        began = time.monotonic()
        here.agents.shut = True
        here.agents.cut("rst", sides=("client",))
        time.sleep(2 * WINDOW)
        here.heal()
        here.host_lost(began, 2 * WINDOW + RETURN_MAX)
        here.lost(began, 2 * WINDOW + RETURN_MAX)
        here.works_anew()


LARGE = 1_000_000
LARGE_SUM = sum((i + 1) * (i * i % 251) for i in range(LARGE))


def a_large_call_to_the_processes_of_a_host_crosses_the_line_once(case):
    with setting(case) as here:
        here.spawn(4)
        before = here.agents.down.bytes, here.procs.down.bytes
        assert here.owner.value("sum", 0, LARGE) == 4 * [LARGE_SUM]
        by_agent, to_procs = here.agents.down.bytes - before[0], here.procs.down.bytes - before[1]
        assert LARGE <= by_agent < 1.05 * LARGE, by_agent
        assert to_procs < 0.05 * LARGE, to_procs
        here.undisturbed()


def an_agent_that_is_cut_while_it_is_given_a_large_call_loses_nothing(case):
    def cut(how):
        with setting(case) as here:
            here.spawn(3)
            here.agents.cut_how = how
            here.agents.down.change_next(cut_within, 2000)
            began = time.monotonic()
            reply = here.owner.reply(here.owner.call("sum", 0, LARGE))
            assert reply.get("value") == 3 * [LARGE_SUM], reply
            assert reply["at"] - began < WINDOW + ROOM, reply
            here.undisturbed()

    all_at_once(cut, [("fin",), ("rst",)])


def what_is_on_its_way_through_an_agent_that_is_lost_ends_with_it(case):
    def lose(how):
        with setting(case) as here:
            here.spawn(3)
            began = time.monotonic()
            setattr(here.agents.down, how, True)
            reply = here.owner.reply(here.owner.call("sum", 0, LARGE))
            names(reply["error"], "rank 0", "the agent of host '")
            assert reply["at"] - began < SILENCE_MAX, reply
            here.host_lost(began)
            here.lost(began)
            here.heal()
            here.works_anew()

    all_at_once(lose, [("held",), ("dropped",)])


def damage_is_noticed_and_repaired(case):
    def damage(change, way, size):
        with setting(case) as here:
            here.spawn()
            getattr(here.procs, way).change_next(change, size)
            if size > 1:
                reply = here.owner.reply(here.owner.call("echo", 0, 500_000))
                assert reply.get("value") is True, reply
            wait_until(lambda: here.procs.accepted > 2, PATIENCE, lambda: "the damaged connection was not replaced")
            here.undisturbed()

    # Large: the payload of a message. Small: a heartbeat, all of it header.
    for way in ("up", "down"):
        all_at_once(damage, [(flipped, way, 2000), (swapped, way, 2000), (twice, way, 2000), (flipped, way, 1),
                             (twice, way, 1)])


def nobody_waits_for_long_for_who_cannot_be_reached(case):
    def ends(verb, *words):
        with setting(case) as here:
            if verb == "stop":
                here.spawn()
            began = time.monotonic()
            here.silence("held")
            answer = here.owner.ask(verb, *words)
            assert answer["at"] - began < SILENCE_MAX, answer
            if verb == "spawn":
                names(answer["error"], "rank 0", "mesh 'workers'", "host '")

    all_at_once(ends, [("stop",), ("spawn", 2, 500)])


def a_damaged_handshake_lets_nobody_in(case):
    with setting(case, agent=False) as here:
        here.agents.up.change_next(flipped)
        with Agent(f"tcp:127.0.0.1:{here.agents.port}") as agent:
            here.owner.join()
            assert here.agents.accepted >= 2
            assert any("no owner yet" in line for line in agent.lines), agent.lines
            here.procs.up.change_next(flipped)
            started = here.owner.ask("spawn", 2, int(1000 * HEARTBEAT))
            here.pids = started["pids"]
            told = here.owner.event("exit")
            names(told["error"], f"rank {told['rank']} (pid {here.pids[told['rank']]}, host '", "mesh 'workers'", "exit code 1")
            assert here.owner.value("add", 1 - told["rank"], 1) == 2
            here.works_anew(joins_again=False)


def a_handshake_that_gets_no_answer_is_tried_again(case):
    with setting(case, agent=False) as here:
        here.silence("dropped")
        with Agent(f"tcp:127.0.0.1:{here.agents.port}"):
            wait_until(lambda: here.agents.accepted > 0, PATIENCE, lambda: "the agent has not connected")
            time.sleep(0.5)
            here.heal()
            here.owner.join(seconds=6 + ROOM)
            here.works_anew(joins_again=False)


def a_line_that_is_late_and_slow_kills_nobody(case):
    with setting(case) as here:
        here.spawn()
        for way in (here.procs.up, here.procs.down):
            way.delay, way.bytes_per_second = 0.05, 300_000
        began = time.monotonic()
        large = here.owner.call("echo", 0, 450_000)
        while time.monotonic() - began < 1:
            assert here.owner.value("add", 1, 1) == 2
        reply = here.owner.reply(large)
        assert reply.get("value") is True, reply
        took = time.monotonic() - began
        assert took > 5 * HEARTBEAT, f"{took:.1f} s: it was not slow"
        assert not here.owner.has("exit")


def a_silence_of_less_than_two_heartbeats_loses_and_repeats_nothing(case):
    with setting(case) as here:
        here.spawn()
        here.owner.ask("count", 0, 1000)
        here.silence("held")
        here.owner.ask("count", 1000, 2000)
        waiting = here.owner.call("add", 1, 1)
        time.sleep(1.5 * HEARTBEAT)
        here.heal()
        here.owner.ask("count", 2000, 3000)
        assert here.owner.reply(waiting)["value"] == 2
        for rank in range(2):
            assert here.owner.value("counted", rank) == 3000
        time.sleep(2 * HEARTBEAT)
        assert not here.owner.has("exit") and not here.owner.has("host_lost")


def a_process_with_a_ticket_is_kept_and_lost_as_any(case):
    def disturb(how, lasting):
        with setting(case, agent=False) as here:
            tickets = here.owner.ask("expect", 2, int(1000 * HEARTBEAT))["tickets"]
            with Guest(tickets[0], here.owner.mark) as zero, Guest(tickets[1], here.owner.mark) as one:
                here.pids = [zero.process.pid, one.process.pid]
                if not lasting:
                    here.procs.cut(how)
                    return here.undisturbed()
                for rank in range(2):
                    assert here.owner.value("add", rank, 1) == 2
                waiting = here.owner.call("nap", 0, 20_000)
                began = time.monotonic()
                if how == "held":
                    here.silence(how)
                else:
                    here.procs.shut = True
                    here.procs.cut(how)
                here.lost(began, SILENCE_MAX if how == "held" else GIVEN_UP_MAX)
                names(here.owner.reply(waiting)["error"], "rank 0", "host '")
                wait_gone(here.pids, CUT_OFF_MAX + 0.5)

    all_at_once(disturb, [("fin", True), ("rst", True), ("held", True), ("fin", False), ("rst", False)])


if __name__ == "__main__":
    main(a_cut_in_the_middle_of_a_message_loses_nothing, cuts_while_messages_pass_lose_and_repeat_nothing,
         an_agent_that_is_cut_goes_on, an_agent_that_is_cut_off_comes_back, the_ranks_of_a_host_come_back_with_its_agent,
         silence_is_an_end_and_what_was_cut_off_comes_back, a_process_is_lost_in_time_though_its_agent_cannot_be_asked,
         an_agent_that_comes_back_before_it_was_missed_takes_the_place_of_itself,
         a_large_call_to_the_processes_of_a_host_crosses_the_line_once,
         an_agent_that_is_cut_while_it_is_given_a_large_call_loses_nothing,
         what_is_on_its_way_through_an_agent_that_is_lost_ends_with_it, damage_is_noticed_and_repaired,
         nobody_waits_for_long_for_who_cannot_be_reached, a_damaged_handshake_lets_nobody_in,
         a_handshake_that_gets_no_answer_is_tried_again,
         a_line_that_is_late_and_slow_kills_nobody, a_silence_of_less_than_two_heartbeats_loses_and_repeats_nothing,
         a_process_with_a_ticket_is_kept_and_lost_as_any)
