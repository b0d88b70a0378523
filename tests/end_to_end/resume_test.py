"""Stopping and coming back: at any moment, in any way, the history goes on as if never stopped."""

import os
import random
import signal
import time

from harness import main, processes_of, wait_until

SETS = ["train.steps=60", "batch.lanes=4", "cluster.replicas=2", "checkpoint.every=10"]


def kill_nine_of_everything_resumes_to_the_same_bits(case):
    plain = case.train("plain", sets=SETS).summary()
    run = case.start("hit", sets=SETS)
    run.wait_step(25)
    for pid in list(run.processes()) + [run.process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    run.process.wait()
    wait_until(lambda: not processes_of(run.folder), 1, lambda: f"left: {processes_of(run.folder)}")
    again = case.train("hit", sets=SETS).summary()
    assert again["weights_sha256"] == plain["weights_sha256"]
    assert again["samples_used"] == again["samples_planned"] == plain["samples_planned"]


def the_controllers_death_ends_all(case):
    run = case.start(sets=SETS + ["train.steps=100000"])
    run.wait_step(3)
    assert len(run.processes()) >= 3
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    wait_until(lambda: not processes_of(run.folder), 1.5, lambda: f"left: {processes_of(run.folder)}")


def ctrl_c_ends_with_a_checkpoint_and_resumes(case):
    plain = case.train("plain", sets=SETS).summary()
    run = case.start("hit", sets=SETS)
    run.wait_step(7)
    run.process.send_signal(signal.SIGINT)
    run.wait(20)
    assert run.status == 130, (run.status, run.text())
    stopped = run.summary()
    assert stopped["status"] == "stopped" and 7 <= stopped["steps"] < 60, stopped
    resumed = case.train("hit", sets=SETS)
    again = resumed.summary()
    assert again["steps_lost"] == 0, again
    assert again["weights_sha256"] == plain["weights_sha256"]
    # An ordinary resume says where from, and nothing that alarms.
    assert f"resumed from step {stopped['steps']} ({run.folder}/checkpoints/" in resumed.text(), resumed.text()
    assert "lighthouse:" not in resumed.text(), resumed.text()
    events = resumed.lines("events.jsonl")
    assert [line["cause"] for line in events if line["kind"] == "started"] == ["new", "resumed"], events
    assert [line["step"] for line in events if line["kind"] == "resumed"] == [stopped["steps"]], events


def a_stopped_run_tells_the_validation_loss_measured_last(case):
    run = case.start(sets=SETS + ["train.steps=100000", "train.evaluate_every=5"])
    run.wait_step(12)
    run.process.send_signal(signal.SIGINT)
    assert run.wait(20).status == 130, run.text()
    measured = {line["step"]: line["loss"] for line in run.lines("events.jsonl") if line["kind"] == "evaluation"}
    summary = run.summary()
    assert summary["val_loss_step"] == max(measured) and summary["val_loss"] == measured[max(measured)], (summary, measured)
    assert f"{summary['val_loss']:.4f} after step {summary['val_loss_step']}" in run.text(), run.text()


def the_last_evaluation_is_told_like_the_others(case):
    run = case.train(sets=SETS + ["train.evaluate_every=40"])
    measured = {line["step"]: line["loss"] for line in run.lines("events.jsonl") if line["kind"] == "evaluation"}
    assert list(measured) == [40, 60] and run.summary()["val_loss"] == measured[60], (measured, run.summary())
    assert run.summary()["val_loss_step"] == 60 and "step 60: validation loss" in run.text(), run.text()


def a_second_ctrl_c_ends_at_once(case):
    run = case.start(sets=SETS + ["train.steps=100000", "batch.microbatches=40"])
    run.wait_step(1)
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    run.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    run.wait(10)
    assert run.status == 130 and time.monotonic() - began < 3, (run.status, run.text())
    assert "interrupted twice" in run.text(), run.text()


def sigterm_keeps_to_the_grace_time(case):
    run = case.start(sets=SETS + ["train.steps=100000", "batch.microbatches=40", "cluster.grace_seconds=0.2"])
    run.wait_step(1)
    began = time.monotonic()
    run.process.send_signal(signal.SIGTERM)
    run.wait(20)
    assert run.status == 130 and time.monotonic() - began < 12, (run.status, run.text())


def sigterm_within_evaluations_and_saves_loses_nothing(case):
    # Evaluating and saving are most of each step here, so that most signals fall into them.
    sets = SETS + ["checkpoint.every=1", "train.evaluate_every=1", "train.evaluate_batches=8"]
    plain = case.train("plain", sets=sets).summary()
    moments = random.Random(4)
    step = 0
    for _ in range(5):
        run = case.start("hit", sets=sets)
        run.wait_step(step + 2)
        time.sleep(moments.uniform(0, 0.1))
        run.process.send_signal(signal.SIGTERM)
        assert run.wait().status == 130, run.text()[-2000:]
        assert run.step() >= step + 2, run.text()[-2000:]
        step = run.step()
    again = case.train("hit", sets=sets).summary()
    assert again["weights_sha256"] == plain["weights_sha256"] and again["steps_lost"] == 0, again


def a_stop_before_the_first_step_leaves_nothing_and_waits_for_nobody(case):
    for number, (what, pause) in enumerate(((signal.SIGTERM, 0.15), (signal.SIGINT, 1), (signal.SIGTERM, 1))):
        run = case.start(f"run{number}", sets=SETS + ["batch.microbatches=40"])
        time.sleep(pause)
        workers = [pid for pid, name in run.processes().items() if name == "teson-worker"]
        if what == signal.SIGTERM and workers:
            os.kill(workers[0], signal.SIGKILL)
        run.process.send_signal(what)
        began = time.monotonic()
        run.wait(20)
        assert run.status == 130 and time.monotonic() - began < 3, (run.status, time.monotonic() - began, run.text())


def sighup_ends_with_a_checkpoint(case):
    run = case.start(sets=SETS + ["train.steps=100000"])
    run.wait_step(7)
    run.process.send_signal(signal.SIGHUP)
    run.wait(20)
    assert run.status == 130 and run.summary()["status"] == "stopped", run.text()
    names = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
    assert names[-1].endswith(f"{run.summary()['steps']:012}"), names


def the_controllers_death_ends_workers_that_are_loading(case):
    run = case.start(sets=SETS)
    wait_until(lambda: len(run.processes()) >= 4, 20, run.text)
    run.process.kill()
    run.process.wait()
    wait_until(lambda: not processes_of(run.folder), 0.3, lambda: f"left: {processes_of(run.folder)}")


def another_number_of_replicas_may_resume(case):
    plain = case.train("plain", sets=SETS).summary()
    run = case.start("hit", sets=SETS)
    run.wait_step(12)
    run.process.send_signal(signal.SIGINT)
    run.wait(20)
    again = case.train("hit", sets=SETS[:2] + ["cluster.replicas=4", "checkpoint.every=10"]).summary()
    assert again["weights_sha256"] == plain["weights_sha256"]


def a_finished_run_may_be_started_again(case):
    first = case.train(sets=SETS).summary()
    again = case.train(sets=SETS)
    assert "this run has done its 60 steps" in again.text() and "--start-anew" in again.text(), again.text()
    assert again.summary() == first, again.summary()
    # Where its summary was lost, it is told anew from the checkpoint.
    (again.folder / "summary.json").unlink()
    told = case.train(sets=SETS).summary()
    assert told["weights_sha256"] == first["weights_sha256"] and told["steps"] == 60, told
    assert told["val_loss"] == first["val_loss"], told


def a_finished_run_may_be_extended(case):
    sets = SETS + ["optimizer.schedule=wsd"]
    case.train(sets=sets)
    assert "raise train.steps" in case.train(sets=sets).text()
    run = case.train(sets=sets + ["train.steps=80"])
    assert run.summary()["steps"] == 80 and run.summary()["status"] == "completed", run.summary()


def sigusr1_takes_a_checkpoint_and_goes_on(case):
    run = case.start(sets=SETS[:3] + ["train.steps=150", "checkpoint.every=0"])
    run.wait_step(10)
    run.process.send_signal(signal.SIGUSR1)
    assert run.wait().status == 0, run.text()[-2000:]
    steps = [line["step"] for line in run.lines("events.jsonl") if line["kind"] == "checkpoint"]
    assert len(steps) == 2 and 10 < steps[0] < 150 and steps[1] == 150, steps
    assert f"checkpoint of step {steps[0]}: {run.folder}/checkpoints/" in run.text(), run.text()
    assert "checkpoint of step 150" not in run.text(), run.text()


def a_checkpoint_of_another_run_is_refused(case):
    shared = f'checkpoint.dir="{case.folder / "shared"}"'
    case.train("first", sets=SETS + [shared])
    run = case.train("second", status=2, sets=SETS + [shared, "train.seed=2"])
    assert "is of another run: train.seed is 1 there and 2 here" in run.text(), run.text()[-2000:]
    run = case.train("first", status=2, sets=SETS + [shared], arguments=["--start-anew"])
    assert "checkpoint.dir" in run.text(), run.text()[-2000:]


def checkpoints_stay_newest_when_the_record_is_lost(case):
    sets = SETS + ["checkpoint.keep=2"]
    run = case.start(sets=sets, inject=["kill:replica=0,step=25", "kill:replica=1,step=25"])
    run.wait_step(40)
    run.process.kill()
    run.process.wait()
    wait_until(lambda: not processes_of(run.folder), 5, lambda: "processes are left")
    (run.folder / "lighthouse.record").unlink()
    again = case.train(sets=sets)
    names = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
    assert names[-1].endswith("step-000000000060"), names
    assert again.summary()["steps"] == 60, again.summary()


def a_kill_while_checkpoints_are_written_and_removed(case):
    plain = case.train("plain", sets=SETS).summary()
    sets = SETS[:3] + ["checkpoint.every=1", "checkpoint.keep=1"]
    for round_number in range(3):
        run = case.start("hit", sets=sets)
        run.wait_step(10 * (round_number + 1))
        for pid in list(run.processes()) + [run.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        run.process.wait()
    again = case.train("hit", sets=sets).summary()
    assert again["weights_sha256"] == plain["weights_sha256"]


def killed_after(case, step, sets):
    run = case.start(sets=sets)
    run.wait_step(step)
    run.process.kill()
    run.process.wait()
    wait_until(lambda: not processes_of(run.folder), 5, lambda: "processes are left")
    return run.folder / "checkpoints"


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def a_damaged_checkpoint_is_told_kept_and_passed_over(case):
    plain = case.train("plain", sets=SETS).summary()
    sets = SETS + ["checkpoint.keep=2"]
    checkpoints = killed_after(case, 25, sets)
    newest = sorted(checkpoints.iterdir())[-1]
    flip_a_byte(newest / "weights-00000.bin")
    again = case.train(sets=sets)
    told = f"checkpoint '{newest.name}' is damaged and passed over"
    assert again.text().count(told) == 1, again.text()[-2000:]
    assert [line for line in again.lines("events.jsonl") if line["kind"] == "warning" and told in line["cause"]]
    assert (checkpoints / f"damaged-{newest.name}" / "manifest.json").exists(), list(checkpoints.iterdir())
    assert again.summary()["weights_sha256"] == plain["weights_sha256"], again.summary()


def a_checkpoint_damaged_meanwhile_is_told_by_the_workers(case):
    plain = case.train("plain", sets=SETS + ["train.steps=200"]).summary()
    run = case.start(sets=SETS + ["train.steps=200"], inject=["kill:replica=0,step=80", "kill:replica=1,step=80"])
    run.wait_step(72)
    damaged = next(path for path in (run.folder / "checkpoints").iterdir() if path.name.endswith("70"))
    flip_a_byte(damaged / "adam_v-00000.bin")
    assert run.wait().status == 0, run.text()[-2000:]
    assert run.text().count(f"'{damaged.name}' is damaged and passed over") == 1, run.text()[-2000:]
    assert run.summary()["weights_sha256"] == plain["weights_sha256"], run.summary()


def checkpoints_none_of_which_can_be_read_end_the_run_before_it_trains(case):
    checkpoints = killed_after(case, 25, SETS)
    names = sorted(path.name for path in checkpoints.iterdir())
    records = (checkpoints.parent / "metrics.jsonl").read_bytes()

    def refused(status, *words):
        run = case.train(status=status, sets=SETS)
        lines = [line for line in run.text().splitlines() if line.startswith("teson:")]
        assert len(lines) == 1 and all(word in lines[0] for word in (*words, "--start-anew")), lines
        assert sorted(path.name for path in checkpoints.iterdir()) == names
        assert (checkpoints.parent / "metrics.jsonl").read_bytes() == records

    # The file is there, its disk is not: no reason to take an older one.
    manifest = checkpoints / names[-1] / "manifest.json"
    manifest.rename(case.folder / "manifest.json")
    manifest.symlink_to("/nowhere/at/all")
    refused(1, str(manifest), "No such file")
    (case.folder / "manifest.json").rename(manifest)
    whole = {name: (checkpoints / name / "manifest.json").read_bytes() for name in names}
    for name in names:
        (checkpoints / name / "manifest.json").write_bytes(b"")
    refused(2, names[-1], "is whole")
    for name in names:
        (checkpoints / name / "manifest.json").write_bytes(whole[name])
    assert case.train(sets=SETS).summary()["steps"] == 60


main(a_damaged_checkpoint_is_told_kept_and_passed_over, a_checkpoint_damaged_meanwhile_is_told_by_the_workers,
     checkpoints_none_of_which_can_be_read_end_the_run_before_it_trains,
     kill_nine_of_everything_resumes_to_the_same_bits, the_controllers_death_ends_all, ctrl_c_ends_with_a_checkpoint_and_resumes,
     a_stopped_run_tells_the_validation_loss_measured_last, the_last_evaluation_is_told_like_the_others,
     a_second_ctrl_c_ends_at_once, sigterm_keeps_to_the_grace_time, sigterm_within_evaluations_and_saves_loses_nothing,
     a_stop_before_the_first_step_leaves_nothing_and_waits_for_nobody, sighup_ends_with_a_checkpoint,
     the_controllers_death_ends_workers_that_are_loading,
     another_number_of_replicas_may_resume, a_finished_run_may_be_started_again, a_finished_run_may_be_extended, sigusr1_takes_a_checkpoint_and_goes_on,
     a_checkpoint_of_another_run_is_refused, checkpoints_stay_newest_when_the_record_is_lost, a_kill_while_checkpoints_are_written_and_removed)
