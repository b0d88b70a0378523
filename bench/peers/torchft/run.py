"""Runs torchft on the work of bench_recovery and bench_fault_tolerance_cost: a JSON line a figure, {"name", "value", "unit"}.

    run.py recovery|cost [--quick]        with the Python that bench/peers/setup torchft prints

recovery: SIGKILLs of one of three (and of two) groups at random instants, with torchft's default timeouts and with tuned ones.
cost: pairs of runs with torchft and with plain DistributedDataParallel, taken in turn, each pair begun by the other one.
"""

import json
import random
import signal
import statistics
import sys

from job import Job, Stuck

STEPS_WARM = 10  # not measured, as in our own benchmark
SEED = 1  # of the instants and victims


def say(name, value, unit):
    print(json.dumps({"name": f"torchft.{name}", "value": value, "unit": unit}), flush=True)


def recovery(groups, tuned, kills):
    name = f"{'tuned' if tuned else 'default'}.{groups}_groups"
    found, stuck = [], 0
    instants = random.Random(SEED)
    with Job(groups, tuned=tuned) as job:
        try:
            while len(found) < kills:
                found.append(job.kill_one(instants))
        except Stuck as why:
            stuck = 1
            print(f"torchft: {name}: {why} (seed {SEED}, kill {len(found) + 1}); the run ends here", file=sys.stderr, flush=True)
        say(f"{name}.unexpected_exits", job.unexpected_exits, "count")
    say(f"{name}.kills", len(found), "count")
    say(f"{name}.stuck", stuck, "count")
    for figure, key in (("kill_to_commit", "commit_ms"), ("spawn_to_rejoin", "rejoin_ms")):
        values = [one[key] for one in found]
        if values:
            say(f"{name}.{figure}.p50_ms", statistics.median(values), "ms")
            say(f"{name}.{figure}.max_ms", max(values), "ms")
    say(f"{name}.steps_discarded", sum(one["discarded"] for one in found), "count")


def step_ms(groups, with_torchft, steps):
    """The median time between two commits of group 0."""
    with Job(groups, with_torchft=with_torchft) as job:
        job.wait(job.is_whole, "all groups in one quorum")
        began = max(life.steps[-1]["step"] for life in job.lives) + STEPS_WARM
        job.wait(lambda: all(life.steps[-1]["step"] >= began + steps for life in job.lives), f"{steps} steps")
        instants = [step["at"] for step in job.lives[0].commits() if began <= step["step"] <= began + steps]
    return 1000 * statistics.median(after - before for before, after in zip(instants, instants[1:]))


def cost(groups, rounds, steps):
    name = f"{groups}_groups"
    found = {True: [], False: []}
    for turn in range(rounds):
        for with_torchft in (turn % 2 == 0, turn % 2 != 0):
            found[with_torchft].append(step_ms(groups, with_torchft, steps))
    differences = [one - other for one, other in zip(found[True], found[False])]
    percents = sorted(100 * (one / other - 1) for one, other in zip(found[True], found[False]))
    say(f"{name}.with.step_p50_ms", statistics.median(found[True]), "ms")
    say(f"{name}.without.step_p50_ms", statistics.median(found[False]), "ms")
    say(f"{name}.cost.median_percent", statistics.median(percents), "%")
    say(f"{name}.cost.min_percent", percents[0], "%")
    say(f"{name}.cost.max_percent", percents[-1], "%")
    say(f"{name}.cost.fixed_ms", statistics.median(differences), "ms")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the job and its folder
    quick = "--quick" in sys.argv
    if sys.argv[1] == "recovery":
        for tuned in (True, False):
            for groups in (3,) if quick else (3, 2):
                recovery(groups, tuned, 5 if quick else 15 if tuned else 10)
    else:
        for groups in (3, 2):
            cost(groups, 3 if quick else 7, 60 if quick else 150)


if __name__ == "__main__":
    main()
