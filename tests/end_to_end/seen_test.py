"""What is seen of a run from outside: teson ps, teson logs, teson trace and the admin endpoint."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time

from harness import TESON, main, wait_until

STEPS_MANY = "train.steps=100000"


def teson(*arguments, status=0):
    done = subprocess.run([TESON, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, (arguments, done)
    return done


def snapshot(run):
    return json.loads(teson("ps", run.folder, "--json").stdout)


def mesh_of(seen, name):
    return next(mesh for mesh in seen["meshes"] if mesh["name"] == name)


def program_of(pid):
    return os.readlink(f"/proc/{pid}/exe").split("/")[-1]


def a_running_run_shows_its_processes_actors_and_messages(case):
    run = case.start(sets=[STEPS_MANY])
    run.wait_step(3)

    seen = snapshot(run)
    assert program_of(seen["pid"]) == "teson" and seen["pid"] == run.process.pid, seen
    observer = next(actor for actor in seen["actors"] if actor["name"] == "observer")
    assert observer["class"] == "RunObserver" and observer["handled"] >= 3, observer
    workers = mesh_of(seen, "workers")["procs"]
    assert len(workers) == 2, workers
    for rank, worker in enumerate(workers):
        assert worker["rank"] == rank and worker["state"] == "running" and worker["incarnation"] == 0, worker
        assert program_of(worker["pid"]) == "teson-worker", worker
        assert worker["exit"] is None and worker["no_answer"] is None, worker
        (control,) = worker["actors"]
        assert control["class"] == "WorkerControl" and control["handled"] == 1 and control["state"] == "idle", control
    (lighthouse,) = mesh_of(seen, "lighthouse")["procs"]
    assert program_of(lighthouse["pid"]) == "teson" and lighthouse["state"] == "running", lighthouse

    text = teson("ps", run.folder).stdout
    for expected in ("host ", "observer RunObserver", "workers rank 1 (replica=1, shard=0)", f"pid {workers[1]['pid']}"):
        assert expected in text, (expected, text)

    # A replaced worker is another process of the same rank.
    os.kill(workers[1]["pid"], signal.SIGKILL)
    def replaced():
        worker = mesh_of(snapshot(run), "workers")["procs"][1]
        return worker["incarnation"] == 1 and worker["state"] == "running"
    wait_until(replaced, 30, lambda: f"rank 1 was not replaced: {snapshot(run)}")
    run.wait_step(run.step() + 5)

    # The controller asks both workers for a checkpoint while the trace is taken.
    output = case.folder / "trace.json"
    tracing = subprocess.Popen([TESON, "trace", run.folder, "--seconds", "3", "-o", output], stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    run.process.send_signal(signal.SIGUSR1)
    said, _ = tracing.communicate(timeout=60)
    assert tracing.returncode == 0 and "trace.json" in said and "perfetto" in said, said
    check_trace(json.loads(output.read_text()), [worker["pid"] for worker in mesh_of(snapshot(run), "workers")["procs"]],
                run.process.pid)

    run.process.send_signal(signal.SIGTERM)
    run.wait()


def check_trace(trace, workers, controller):
    events = trace["traceEvents"]
    assert trace["otherData"] == {"events_lost": 0, "no_answer": []}, trace["otherData"]
    for event in events:
        assert event["ph"] in "MXsf" and isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        assert event["ph"] == "M" or event["ts"] > 0, event
    slices = [event for event in events if event["ph"] == "X"]
    for pid in workers:
        assert any(s["pid"] == pid and s["name"] == "WorkerControl::checkpoint_now" for s in slices), (pid, slices[:5])
        assert any(s["pid"] == pid and s["name"] == "cast RunObserver::step_committed" for s in slices), (pid, slices[:5])
    heard = [s for s in slices if s["pid"] == controller and s["name"] == "RunObserver::step_committed"]
    assert len(heard) >= 2, slices[:5]
    # Arrows: one begin and one end each, of the same trace, forwards in time.
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begins and begins.keys() == ends.keys(), (len(begins), len(ends))
    for number, begin in begins.items():
        assert begin["args"]["trace"] == ends[number]["args"]["trace"] and begin["ts"] <= ends[number]["ts"], (begin, ends[number])
    # Slices of a row do not overlap.
    rows = {}
    for s in sorted(slices, key=lambda s: s["ts"]):
        end = rows.get((s["pid"], s["tid"]), 0)
        assert s["ts"] >= end - 0.002, s
        rows[(s["pid"], s["tid"])] = s["ts"] + s["dur"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"observer", "control"} <= names, names


def watching_and_following_end_with_the_run(case):
    run = case.start(sets=[STEPS_MANY])
    run.wait_step(1)
    watching = subprocess.Popen([TESON, "ps", run.folder, "--watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    following = subprocess.Popen([TESON, "logs", run.folder, "--follow"], stdout=subprocess.PIPE, text=True)
    time.sleep(2.5)
    assert watching.poll() is None and following.poll() is None
    run.process.send_signal(signal.SIGTERM)
    run.wait()
    seen, said = watching.communicate(timeout=20)
    assert watching.returncode == 0 and seen.count("owner, pid") >= 2, (seen, said)
    assert "has ended" in said and "teson logs" in said, said
    lines, _ = following.communicate(timeout=20)
    assert following.returncode == 0 and "lighthouse | " in lines, lines
    assert teson("logs", run.folder).stdout == lines, "what was followed is what is there"


def a_run_that_has_ended_or_never_was_is_told_so(case):
    run = case.train(sets=["train.steps=20"])
    for command in ("ps", "trace"):
        told = teson(command, run.folder, status=1).stderr
        assert "has ended" in told and "teson logs" in told, told
        told = teson(command, case.folder / "nowhere", status=2).stderr
        assert "there is no run at" in told, told
        assert "--help" in teson(command, "--help").stdout
    assert "there is no run at" in teson("logs", case.folder / "nowhere", status=2).stderr
    told = teson("logs", run.folder, "--rank", 7, status=2).stderr
    assert "no log of rank 7" in told and "0, 1" in told, told
    assert "lighthouse" in teson("logs", run.folder).stdout
    assert "lighthouse" not in teson("logs", run.folder, "--rank", 0, "--rank", 1).stdout
    # Killed at once, it leaves its socket.
    run = case.start("killed", sets=[STEPS_MANY])
    run.wait_step(1)
    run.process.kill()
    run.process.wait()
    assert "has ended" in teson("ps", run.folder, status=1).stderr


def logs_are_merged_by_time_with_ranks_before_them(case):
    folder = case.folder / "run"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "worker-0.log").write_text("12:00:00.100 I worker 0  a: one\n  more of it\n23:59:59.900 I late\n00:00:00.100 I next day\n")
    (folder / "logs" / "worker-10.log").write_text("no time yet\n12:00:00.050 I first\n12:00:00.200 I third\n00:00:00.050 I over midnight")
    (folder / "logs" / "worker-2.log").write_text("x" * 100_000 + "\n\xff\n")
    (folder / "logs" / "other.log").write_text("12:00:00.150 W second\n")
    (folder / "logs" / "notes.txt").write_text("no log\n")
    lines = teson("logs", folder, "--rank", 0, "--rank", 10).stdout.splitlines()
    assert lines == ["10 | no time yet", "10 | 12:00:00.050 I first", " 0 | 12:00:00.100 I worker 0  a: one", " 0 |   more of it",
                     "10 | 12:00:00.200 I third", " 0 | 23:59:59.900 I late", "10 | 00:00:00.050 I over midnight",
                     " 0 | 00:00:00.100 I next day"], lines
    everything = teson("logs", folder).stdout.splitlines()
    assert "other | 12:00:00.150 W second" in everything and "no log" not in "\n".join(everything), everything[-5:]
    assert sum(len(line.split(" | ")[1]) for line in everything if line.startswith("    2 | x")) == 100_000
    assert teson("logs", folder, "--rank", 0, "--rank", 10, "--tail", 2).stdout.splitlines() == lines[-2:]
    assert teson("logs", folder, "--tail", 0).stdout == ""


def the_admin_endpoint_of_a_run_survives_rubbish(case):
    run = case.start(sets=[STEPS_MANY])
    run.wait_step(1)
    path = (run.folder / "sockets").read_text() + "/s/admin"
    assert pathlib.Path(path).stat().st_mode & 0o777 == 0o600
    for text in (b"rubbish\n", b"\0" * 70_000, b'{"what": "ps"', b'{"what": "everything"}\n'):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(path)
            try:
                connection.sendall(text)
                answer = b""
                while part := connection.recv(65536):
                    answer += part
            except ConnectionError:
                continue
            assert "error" in json.loads(answer), answer
    assert snapshot(run)["pid"] == run.process.pid
    run.process.send_signal(signal.SIGTERM)
    run.wait()


if __name__ == "__main__":
    main(a_running_run_shows_its_processes_actors_and_messages, watching_and_following_end_with_the_run,
         a_run_that_has_ended_or_never_was_is_told_so, logs_are_merged_by_time_with_ranks_before_them,
         the_admin_endpoint_of_a_run_survives_rubbish)
