"""Exact mode: failures and the number of replica groups do not change a bit of the result."""

import hashlib
import struct

from harness import main

SETS = ["train.steps=30", "batch.lanes=4"]


def sha_of(run):
    summary = run.summary()
    assert summary["status"] == "completed", summary
    return summary["weights_sha256"]


def number_of_replica_groups_does_not_matter(case):
    shas = {r: sha_of(case.train(f"r{r}", sets=SETS + [f"cluster.replicas={r}"])) for r in (1, 2, 3, 4)}
    assert len(set(shas.values())) == 1, shas


def three_kills_do_not_matter(case):
    plain = case.train("plain", sets=SETS + ["cluster.replicas=2"])
    killed = case.train("killed", sets=SETS + ["cluster.replicas=3", "train.steps=30"],
                        inject=["kill:replica=1,step=5", "kill:replica=0,step=12,phase=reduce", "kill:replica=2,step=20,phase=vote"])
    assert len(killed.summary()["failures"]) == 3, killed.summary()["failures"]
    assert sha_of(plain) == sha_of(killed)
    losses = [[line["loss"] for line in run.lines("metrics.jsonl")] for run in (plain, killed)]
    assert losses[0] == losses[1]


def every_phase_and_the_last_step_can_be_hit(case):
    plain = sha_of(case.train("plain", sets=SETS + ["cluster.replicas=2"]))
    for phase in ("compute", "reduce", "vote", "apply"):
        run = case.train(f"kill-{phase}", sets=SETS + ["cluster.replicas=2"],
                         inject=[f"kill:replica=0,step=9,phase={phase}", f"kill:replica=1,step=30,phase={phase}"])
        assert sha_of(run) == plain, phase


def fixed_membership_gives_the_same_bits(case):
    shas = {sha_of(case.train(f"ft-{ft}", sets=SETS + ["cluster.replicas=2", f"cluster.fault_tolerance={ft}"]))
            for ft in ("true", "false")}
    assert len(shas) == 1, shas


def every_sample_is_used_once_under_kills(case):
    run = case.train(sets=SETS + ["cluster.replicas=3"],
                     inject=["kill:replica=1,step=4", "kill:replica=2,step=4,phase=reduce", "kill:replica=0,step=15,phase=apply",
                             "kill:replica=2,step=22,phase=vote"])
    summary = run.summary()
    assert summary["samples_used"] == summary["samples_planned"] > 0, summary
    # The ledger itself, read without the program's help: 30 steps, each lane once in each.
    lanes = {}
    for line in run.lines("ledger.jsonl"):
        lanes[line["step"]] = sorted(lane["lane"] for lane in line["lanes"])
    assert lanes == {step: [0, 1, 2, 3] for step in range(1, 31)}, lanes


def reported_sha_is_that_of_the_checkpoint(case):
    """weights_sha256 again, from the checkpoint's own files (docs/formats/checkpoint.md) and nothing else."""
    import checkpoint_file
    run = case.train(sets=SETS)
    manifest, weights = checkpoint_file.newest(run.folder / "checkpoints")
    digest = hashlib.sha256()
    for parameter in sorted(manifest["parameters"], key=lambda entry: entry["name"]):
        begin = parameter["offset"] * 4
        digest.update(weights[begin:begin + parameter["elements"] * 4])
    assert digest.hexdigest() == sha_of(run)
    assert all(abs(x) < 1e3 for x in struct.unpack("<16f", weights[:64]))


main(number_of_replica_groups_does_not_matter, three_kills_do_not_matter, every_phase_and_the_last_step_can_be_hit,
     fixed_membership_gives_the_same_bits, every_sample_is_used_once_under_kills, reported_sha_is_that_of_the_checkpoint)
