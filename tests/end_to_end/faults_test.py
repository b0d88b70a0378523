"""Each kind of fault, alone: the run goes on, and says what happened."""

import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import harness
from harness import main

SETS = ["train.steps=30", "batch.lanes=4", "cluster.replicas=2"]


def plain_sha(case):
    return case.train("plain", sets=SETS).summary()["weights_sha256"]


def one_failure(run):
    failures = run.summary()["failures"]
    assert len(failures) == 1, failures
    return failures[0]


def a_killed_worker_is_replaced_and_every_phase_is_stamped(case):
    run = case.train(sets=SETS + ["train.steps=200"], inject=["kill:replica=1,step=20"])
    failure = one_failure(run)
    assert failure["replica"] == 1 and failure["cause"] == "SIGKILL" and failure["injected"], failure
    for phase in ("detect_ms", "reconfigure_ms", "commit_ms", "rejoin_ms"):
        assert failure[phase] is not None and 0 <= failure[phase] < 10000, failure
    assert "replica 1 failed after step 19: SIGKILL\n" in run.text(), run.text()
    events = run.lines("events.jsonl")
    assert [line["cause"] for line in events if line["kind"] == "failure"] == ["SIGKILL"], events
    offsets = [datetime.datetime.fromisoformat(line["time"][:-1] + "+00:00").timestamp() * 1e3 - line["monotonic_ns"] / 1e6 for line in events]
    assert max(offsets) - min(offsets) < 20, f"time and monotonic_ns are of different instants: {offsets}"


def a_stopped_worker_is_expelled_and_replaced(case):
    sha = plain_sha(case)
    run = case.train("stop", sets=SETS, inject=["stop:replica=1,step=10"])
    assert one_failure(run)["cause"] == "silent", run.summary()
    assert run.summary()["weights_sha256"] == sha


def a_hanging_worker_is_expelled_and_replaced(case):
    sha = plain_sha(case)
    run = case.train("hang", sets=SETS, inject=["hang:replica=0,step=10"])
    assert one_failure(run)["cause"] == "hang", run.summary()
    assert run.summary()["weights_sha256"] == sha


def a_crash_in_native_code_is_named(case):
    run = case.train(sets=SETS, inject=["segfault:replica=1,step=10"])
    assert one_failure(run)["cause"] == "SIGSEGV", run.summary()


def an_exception_is_quoted(case):
    run = case.train(sets=SETS, inject=["exception:replica=1,step=10"])
    assert "injected exception at step 10" in one_failure(run)["cause"], run.summary()


def a_nan_is_skipped_counted_and_seen(case):
    run = case.train(sets=SETS, inject=["nan:replica=1,step=10"])
    summary = run.summary()
    assert summary["steps_skipped"] == 1 and summary["failures"] == [], summary
    injected = [line for line in run.lines("events.jsonl") if line["kind"] == "injected"]
    assert [line["cause"] for line in injected] == ["nan-replica1-step10-compute"], injected
    line = run.lines("metrics.jsonl")[9]
    assert line["step"] == 10 and line["skipped"] and line["gradient_norm"] is None, line


def faults_that_did_not_fire_are_named(case):
    # It dies at step 10 of its first life, and is not there for the second fault.
    faults = ["kill:replica=1,step=10", "kill:replica=1,step=11,phase=checkpoint"]
    run = case.train(sets=SETS, inject=faults)
    told = f"planned, but not put in: {faults[1]}\n"
    assert told in run.text() and run.summary()["faults_unfired"] == faults[1:], run.text()
    assert told in case.train(sets=SETS, inject=faults).text()


def fixed_members_are_counted_as_alive(case):
    run = case.train(sets=SETS + ["cluster.fault_tolerance=false"])
    assert "replicas 2/2" in run.text() and "replicas 0/2" not in run.text(), run.text()


def a_loss_that_stays_nan_ends_the_run_and_says_where_it_began(case):
    run = case.train(status=1, sets=SETS + ["train.nan_limit=3"], inject=[f"nan:replica=1,step={step}" for step in (10, 11, 12)])
    summary = run.summary()
    assert summary["status"] == "failed" and "from step 10 on" in summary["reason"], summary
    for line in (run.folder / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)


def refuse(name):
    raise AssertionError(f"{name} is not JSON")


def a_corpus_cut_short_ends_the_run_and_is_named(case):
    run = case.start(sets=SETS + ["train.steps=100000"])
    run.wait_step(2)
    shards = list((run.folder / "data").glob("train-*.tokens"))
    assert shards
    for shard in shards:
        os.truncate(shard, 100)
    run.wait(60)
    assert run.status == 1, run.status
    assert "train-00000.tokens" in run.text(), run.text()[-2000:]


def a_worker_that_crashes_at_every_start_ends_the_run_with_a_diagnosis(case):
    programs = case.folder / "programs"
    programs.mkdir()
    shutil.copy(harness.TESON, programs / "teson")
    (programs / "teson-worker").write_text("#!/bin/sh\necho the library libbroken.so is missing\nexit 3\n")
    (programs / "teson-worker").chmod(0o755)
    run = case.train(status=1, sets=SETS, program=programs / "teson")
    text = run.text()
    assert "libbroken.so" in text and "exit code 3" in text and "worker-" in text, text[-2000:]


def two_at_once_of_three(case):
    plain = case.train("plain", sets=SETS).summary()["weights_sha256"]
    run = case.train("two", sets=SETS[:2] + ["cluster.replicas=3"], inject=["kill:replica=1,step=10", "kill:replica=2,step=10"])
    assert run.summary()["weights_sha256"] == plain
    assert len(run.summary()["failures"]) == 2


def all_workers_killed_come_back_from_the_checkpoint(case):
    plain = case.train("plain", sets=SETS).summary()["weights_sha256"]
    run = case.train("all", sets=SETS + ["checkpoint.every=5"], inject=["kill:replica=0,step=17", "kill:replica=1,step=17"])
    summary = run.summary()
    assert summary["weights_sha256"] == plain, summary
    # Step 16 was committed after the checkpoint of step 15 and is done twice: said, and used once in the end.
    assert 1 <= summary["steps_lost"] <= 6, summary
    assert summary["samples_used"] == summary["samples_planned"] and summary["steps"] == 30, summary


def a_kill_while_a_checkpoint_begins(case):
    plain = plain_sha(case)
    run = case.train("hit", sets=SETS + ["checkpoint.every=10"], inject=["kill:replica=0,step=20,phase=checkpoint"])
    assert one_failure(run)["injected"], run.summary()
    assert run.summary()["weights_sha256"] == plain


def with_less_than_the_minimum_training_waits_for_the_replacement(case):
    plain = plain_sha(case)
    run = case.train("hit", sets=SETS + ["cluster.min_replicas=2"], inject=["kill:replica=1,step=10"])
    assert "1 of at least 2 replicas are there" in run.text(), run.text()[-2000:]
    assert all(line["replicas"] == 2 for line in run.lines("metrics.jsonl"))
    assert run.summary()["weights_sha256"] == plain


def a_last_checkpoint_that_cannot_be_written_fails_the_run(case):
    small = case.folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True).returncode != 0:
        raise harness.Skip("cannot mount a small file system here")
    try:
        run = case.train(status=1, sets=SETS + [f'checkpoint.dir="{small}"'])
        assert "step, 30, was not written" in run.text() and run.summary()["status"] == "failed", run.text()[-2000:]
    finally:
        subprocess.run(["umount", "-l", small], check=False)


def the_lighthouse_may_die(case):
    plain = case.train("plain", sets=SETS + ["train.steps=200"]).summary()["weights_sha256"]
    run = case.start("dark", sets=SETS + ["train.steps=200"])
    run.wait_step(20)
    lighthouse = [pid for pid, name in run.processes().items() if name == "teson" and pid != run.process.pid]
    assert len(lighthouse) == 1, run.processes()
    os.kill(lighthouse[0], signal.SIGKILL)
    run.wait()
    assert run.status == 0, run.text()
    assert run.summary()["weights_sha256"] == plain and run.summary()["failures"] == [], run.summary()


def random_kills(case):
    plain = case.train("plain", sets=SETS + ["train.steps=300"]).summary()["weights_sha256"]
    run = case.train("random", sets=SETS[:2] + ["cluster.replicas=3", "train.steps=300"], inject=["kill:every=1500ms,seed=3"])
    summary = run.summary()
    assert summary["weights_sha256"] == plain
    assert len(summary["failures"]) >= 2, summary["failures"]
    assert summary["samples_used"] == summary["samples_planned"], summary


def worker_of(run, replica):
    for pid, name in run.processes().items():
        if name == "teson-worker" and f"worker-{replica}.log" in os.readlink(f"/proc/{pid}/fd/1"):
            return pid
    raise AssertionError(f"no worker of replica {replica}: {run.processes()}")


def a_removed_folder_of_sockets_is_made_again(case):
    sets = SETS + ["train.steps=80"]
    plain = case.train("plain", sets=sets).summary()["weights_sha256"]
    run = case.start("hit", sets=sets)
    run.wait_step(20)
    shutil.rmtree((run.folder / "sockets").read_text())
    os.kill(worker_of(run, 0), signal.SIGKILL)
    assert run.wait().status == 0, run.text()[-3000:]
    assert "was removed; it is made again" in run.text() and "replica 0 is back" in run.text(), run.text()[-3000:]
    assert run.summary()["weights_sha256"] == plain, run.summary()


def another_run_leaves_the_sockets_of_a_living_one(case):
    run = case.start(sets=SETS + ["train.steps=100000"])
    run.wait_step(5)
    sockets = pathlib.Path((run.folder / "sockets").read_text())
    for path in sockets.iterdir():
        if path.is_file():
            path.unlink()
    os.utime(sockets, (0, 0))
    case.train("other", sets=SETS)
    assert sockets.is_dir() and (sockets / "s" / "lighthouse").is_socket()
    run.process.send_signal(signal.SIGINT)
    assert run.wait().status == 130, run.text()[-2000:]


def a_replica_that_cannot_start_ends_the_run_with_a_checkpoint(case):
    programs = case.folder / "programs"
    programs.mkdir()
    shutil.copy(harness.TESON, programs / "teson")
    worker = programs / "teson-worker"
    worker.symlink_to(harness.TESON.resolve().parent / "teson-worker")
    run = case.start(sets=SETS + ["train.steps=100000", "checkpoint.every=0"], program=programs / "teson")
    run.wait_step(10)
    worker.unlink()
    worker.write_text("#!/bin/sh\nexit 3\n")
    worker.chmod(0o755)
    os.kill(worker_of(run, 1), signal.SIGKILL)
    run.wait()
    assert run.status == 1 and run.summary()["status"] == "failed", run.text()[-2000:]
    assert "before it trained" in run.summary()["reason"], run.summary()
    saved = [line["step"] for line in run.lines("events.jsonl") if line["kind"] == "checkpoint"]
    assert saved == [run.summary()["steps"]], (saved, run.text()[-2000:])


def a_moved_run_folder_is_noticed(case):
    run = case.start(sets=SETS + ["train.steps=100000"])
    run.wait_step(5)
    moved = case.folder / "moved"
    run.folder.rename(moved)
    run.wait(20)
    assert run.status == 1 and "was moved or removed" in run.text(), run.text()[-2000:]
    assert not (run.folder / "summary.json").exists()


def evaluations_are_told_once_after_a_pause_of_the_controller(case):
    run = case.start(sets=SETS + ["train.steps=150", "train.evaluate_every=5", "train.evaluate_batches=1"])
    run.wait_step(10)
    run.process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    run.process.send_signal(signal.SIGCONT)
    assert run.wait().status == 0, run.text()[-2000:]
    steps = [line["step"] for line in run.lines("events.jsonl") if line["kind"] == "evaluation"]
    assert steps == list(range(5, 151, 5)), steps


def records_that_found_no_room_are_written_later(case):
    small = case.folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", small], capture_output=True).returncode != 0:
        raise harness.Skip("cannot mount a small file system here")
    try:
        run = case.start("small/run", sets=SETS + ["train.steps=200"])
        run.wait_step(10)
        filler = os.open(small / "filler", os.O_CREAT | os.O_WRONLY)
        try:
            while True:
                os.write(filler, b"x" * 4096)
        except OSError:
            os.close(filler)
        harness.wait_until(lambda: "No space left" in run.text(), 20, run.text)
        (small / "filler").unlink()
        assert run.wait().status == 0, run.text()[-2000:]
        assert "the records are written again" in run.text(), run.text()[-2000:]
        summary = run.summary()
        assert summary["samples_used"] == summary["samples_planned"] and summary["steps"] == 200, summary
    finally:
        subprocess.run(["umount", "-l", small], check=False)


main(a_removed_folder_of_sockets_is_made_again, another_run_leaves_the_sockets_of_a_living_one,
     a_replica_that_cannot_start_ends_the_run_with_a_checkpoint, a_moved_run_folder_is_noticed,
     evaluations_are_told_once_after_a_pause_of_the_controller, records_that_found_no_room_are_written_later,
     a_killed_worker_is_replaced_and_every_phase_is_stamped, a_stopped_worker_is_expelled_and_replaced,
     a_hanging_worker_is_expelled_and_replaced, a_crash_in_native_code_is_named, an_exception_is_quoted,
     a_nan_is_skipped_counted_and_seen, faults_that_did_not_fire_are_named,
     fixed_members_are_counted_as_alive, a_loss_that_stays_nan_ends_the_run_and_says_where_it_began,
     a_corpus_cut_short_ends_the_run_and_is_named,
     a_worker_that_crashes_at_every_start_ends_the_run_with_a_diagnosis, two_at_once_of_three,
     all_workers_killed_come_back_from_the_checkpoint, a_kill_while_a_checkpoint_begins,
     with_less_than_the_minimum_training_waits_for_the_replacement, a_last_checkpoint_that_cannot_be_written_fails_the_run, the_lighthouse_may_die, random_kills)
