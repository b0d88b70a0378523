"""Runs Monarch on the work of bench_actor, with its defaults: a JSON line a figure, {"name", "value", "unit"}, under the same names.

    run.py actors [--quick]        with the Python that bench/peers/setup monarch prints

What has no counterpart here (the floor, memcpy) is left out.
"""

import asyncio
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import monarch.actor
from monarch.actor import Actor, enable_transport, endpoint, this_host, this_proc

CASTS, CAST_BYTES = 200_000, 16
PAYLOAD_BYTES = 64 << 20
SEED = 1
KILLS_AT_ONCE = 10  # meshes whose kills are waited for together
# Deaths are found by a poll each 10 s, so a kill must come at any instant of it; rarely, 30 s more are needed.
KILL_SPREAD_SECONDS, HANDLER_SECONDS_MAX = 10, 60


class Target(Actor):
    def __init__(self):
        self.count = 0

    @endpoint
    def nothing(self):
        return None

    @endpoint
    def take(self, _):
        self.count += 1

    @endpoint
    def taken(self):
        return self.count

    @endpoint
    def pid(self):
        return os.getpid()


def say(name, value, unit):
    print(json.dumps({"name": name, "value": value, "unit": unit}), flush=True)


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def seconds_of(rounds, function):
    """Of each round; as many as a tenth of them run first, unmeasured."""
    times = []
    for turn in range(-rounds // 10, rounds):
        began = time.perf_counter()
        function()
        if turn >= 0:
            times.append(time.perf_counter() - began)
    return times


def start(procs=1):
    return this_host().spawn_procs(per_host={"gpus": procs})


def call_times(mesh, rounds):
    target = mesh.spawn("target", Target)
    return [1e6 * t for t in seconds_of(rounds, lambda: target.nothing.call_one().get())]


def calls(quick):
    rounds = 1000 if quick else 5000
    times = call_times(this_proc(), rounds)
    say("call.same_proc.p50_us", quantile(times, 0.5), "us")
    say("call.same_proc.p99_us", quantile(times, 0.99), "us")
    mesh = start()
    times = call_times(mesh, rounds)
    mesh.stop().get()
    for percent in (50, 90, 99):
        say(f"call.same_host.unix.p{percent}_us", quantile(times, percent / 100), "us")


def calls_tcp(quick):
    """The transport belongs to the process: this runs in one of its own."""
    from monarch._rust_bindings.monarch_hyperactor.channel import ChannelTransport

    enable_transport(ChannelTransport.TcpWithLocalhost)
    mesh = start()
    say("call.same_host.tcp.p50_us", quantile(call_times(mesh, 1000 if quick else 5000), 0.5), "us")
    mesh.stop().get()


def resident_mb():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def casts():
    mesh = start()
    target = mesh.spawn("target", Target)
    target.nothing.call_one().get()
    payload, before, began = bytes(CAST_BYTES), resident_mb(), time.perf_counter()
    for _ in range(CASTS):
        target.take.broadcast(payload)
    after = resident_mb()
    taken = target.taken.call_one().get()
    seconds = time.perf_counter() - began
    if taken != CASTS:
        sys.exit(f"monarch: expected {CASTS} messages to arrive, found {taken}")
    say("cast.messages_per_s", CASTS / seconds, "1/s")
    say("cast.sender_growth_MB", max(0.0, after - before), "MB")
    mesh.stop().get()


def call_all(procs, quick):
    mesh = start(procs)
    target = mesh.spawn("target", Target)
    times = seconds_of(100 if quick else 500, lambda: target.nothing.call().get())
    say(f"call_all.{procs}_procs.p50_us", 1e6 * quantile(times, 0.5), "us")
    mesh.stop().get()


def spawn_and_stop(quick):
    spawned, stopped = [], []
    for _ in range(3 if quick else 10):
        began = time.perf_counter()
        mesh = start(8)
        mesh.spawn("target", Target).nothing.call().get()
        spawned.append(time.perf_counter() - began)
        asked = time.perf_counter()
        mesh.stop().get()
        stopped.append(time.perf_counter() - asked)
    say("spawn.8_procs.ms", 1e3 * statistics.median(spawned), "ms")
    say("stop.8_procs.ms", 1e3 * statistics.median(stopped), "ms")


def payload(quick):
    mesh = start()
    target = mesh.spawn("target", Target)
    data = os.urandom(PAYLOAD_BYTES)
    times = seconds_of(5 if quick else 20, lambda: target.take.call_one(data).get())
    say("payload.64MiB.unix.GBps", PAYLOAD_BYTES / 1e9 / quantile(times, 0.5), "GB/s")
    mesh.stop().get()


async def kills(batches):
    """From the signal to the fault hook of the process that owns the mesh."""
    told, instants, times = {}, random.Random(SEED), []

    def on_fault(failure):
        at = time.monotonic()
        for name in re.findall(r"victim_\d+", failure.report()):
            told.setdefault(name, at)

    monarch.actor.unhandled_fault_hook = on_fault

    async def one(name, pid):
        await asyncio.sleep(0.3 + instants.uniform(0, KILL_SPREAD_SECONDS))
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        while name not in told:
            if time.monotonic() > killed + HANDLER_SECONDS_MAX:
                sys.exit(f"monarch: the hook was not called in {HANDLER_SECONDS_MAX} s (seed {SEED})")
            await asyncio.sleep(0.01)
        times.append(told[name] - killed)

    for batch in range(batches):
        victims = []
        for index in range(KILLS_AT_ONCE):
            name = f"victim_{batch * KILLS_AT_ONCE + index}"
            victims.append(one(name, await start().spawn(name, Target).pid.call_one()))
        await asyncio.gather(*victims)
    say("kill_to_handler.p50_ms", 1e3 * quantile(times, 0.5), "ms")
    say("kill_to_handler.p99_ms", 1e3 * quantile(times, 0.99), "ms")


def main():
    quick = "--quick" in sys.argv
    if sys.argv[1] == "calls_tcp":
        return calls_tcp(quick)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="teson-peer-") as folder:
        os.environ["TMPDIR"] = folder  # a process that ends hard, as this one does, leaves its sockets there
        calls(quick)
        subprocess.run([sys.executable, __file__, "calls_tcp", *sys.argv[2:]], check=True)
        casts()
        call_all(8, quick)
        call_all(16, quick)
        spawn_and_stop(quick)
        payload(quick)
        asyncio.run(kills(1 if quick else 10))
    os._exit(0)  # meshes with a dead process are not waited for


if __name__ == "__main__":
    main()
