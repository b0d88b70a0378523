"""Many failures at random instants, of several kinds: no step lost, no bit different, nothing left behind. Minutes."""

from harness import main

SETS = ["batch.lanes=6", "cluster.replicas=3", "train.steps=1500", "checkpoint.every=100"]


def hundreds_of_random_faults(case):
    plain = case.train("plain", sets=SETS, seconds=600).summary()
    failures = 0
    for seed in range(5):
        run = case.train(f"seed-{seed}", sets=SETS, seconds=1200,
                         inject=[f"kill:every=1500ms,seed={seed}", f"stop:every=20s,seed={seed}", f"segfault:every=7s,seed={seed}"])
        summary = run.summary()
        failures += len(summary["failures"])
        print(f"    seed {seed}: {len(summary['failures'])} failures, {summary['seconds']:.0f} s", flush=True)
        assert summary["weights_sha256"] == plain["weights_sha256"], seed
        assert summary["steps_lost"] == 0 and summary["samples_used"] == summary["samples_planned"], summary
    assert failures > 50, failures


main(hundreds_of_random_faults)
