"""What users run into: one clear message each, an exit status that says whose fault it was, and nothing lost."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import time

import harness
from harness import main, wait_until

SETS = ["train.steps=20", "cluster.replicas=2"]


def refused(case, status, *words, **arguments):
    run = case.train(status=status, **arguments)
    text = run.text()
    missing = [word for word in words if word not in text]
    assert not missing, f"not in the message: {missing}\n{text[-1500:]}"
    return run


def teson(*arguments, cwd=None):
    done = subprocess.run([harness.TESON.absolute(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                          timeout=20, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def lighthouse(case, port, secret, job="tiny"):
    process = subprocess.Popen([harness.TESON, "lighthouse", "--job-bind", f"tcp:127.0.0.1:{port}", "--job", job, "--replicas", "2",
                                "--record", case.folder / "lighthouse.record"], env={"TESON_JOB_SECRET": secret}, stdin=subprocess.DEVNULL)
    try:
        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0
        wait_until(listens, 10, lambda: "the lighthouse does not listen")
        yield
    finally:
        process.terminate()
        process.wait()


def an_unknown_key_is_named_with_its_place_and_the_nearest(case):
    config = case.folder / "bad.toml"
    config.write_text("[train]\nstpes = 10\n")
    refused(case, 2, "bad.toml:2:1", "stpes", "steps", config=config)
    refused(case, 2, "train.stpes", "train.steps", sets=["train.stpes=10"])


def a_missing_configuration_is_named(case):
    refused(case, 2, "missing.toml", config=case.folder / "missing.toml")


def a_run_folder_that_is_used_is_refused(case):
    run = case.start(sets=["train.steps=100000"])
    run.wait_step(2)
    refused(case, 1, "pid", str(run.process.pid), sets=["train.steps=100000"])
    assert run.process.poll() is None


def another_configuration_is_refused_and_the_difference_named(case):
    first = case.train(sets=SETS)
    refused(case, 2, "train.seed", "--start-anew", sets=SETS + ["train.seed=5"])
    assert first.summary()["steps"] == 20
    anew = case.train(sets=SETS + ["train.seed=5"], arguments=["--start-anew"])
    assert anew.summary()["steps"] == 20 and (anew.folder / "previous-1").is_dir()


def a_folder_that_cannot_be_written_is_named(case):
    blocked = case.folder / "file"
    blocked.write_text("in the way")
    refused(case, 2, "file", name="file", sets=SETS)


def names_with_spaces_and_other_scripts_work(case):
    text = case.folder / "Träume und Мир" / "größe 1.txt"
    text.parent.mkdir()
    sentences = "\f".join(f"the river number {i} runs to the sea by way of {i * 7 % 101} hills." * 20 for i in range(200))
    text.write_text(sentences)
    run = case.train(name="ein Lauf 跑", sets=SETS + [f'data.corpus=["{text.parent}"]', "train.evaluate_batches=1"])
    assert run.summary()["status"] == "completed"


def bad_corpora_are_named(case):
    def corpus(name, data):
        path = case.folder / name
        path.write_bytes(data)
        return SETS + [f'data.corpus=["{path}"]']
    refused(case, 2, "empty.txt", name="empty", sets=corpus("empty.txt", b""))
    refused(case, 2, "binary.txt", name="binary", sets=corpus("binary.txt", b"text\0more" * 100))
    refused(case, 2, "latin.txt", "UTF-8", name="latin", sets=corpus("latin.txt", b"caf\xe9 " * 100))
    refused(case, 2, "tokens", name="small", sets=corpus("small.txt", b"too little text to fill a step\n"))
    refused(case, 2, "bad.jsonl", name="bad", sets=corpus("bad.jsonl", b'{"text": "fine"}\n{"text": \n'))
    refused(case, 2, "nowhere", name="nowhere", sets=SETS + ['data.corpus=["/nowhere/at/all"]'])


def a_port_in_use_is_named(case):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, text = teson("lighthouse", "--bind", f"127.0.0.1:{port}")
        assert status == 1 and str(port) in text, (status, text)


def an_unreachable_lighthouse_is_told_and_one_ctrl_c_ends_at_once(case):
    run = case.start(sets=SETS + [f"cluster.lighthouse=tcp:127.0.0.1:{free_port()}"])
    told = "cannot reach the lighthouse at tcp:127.0.0.1:"
    wait_until(lambda: told in run.text(), 10, run.text)
    assert "connection refused" in run.text() and run.text().count(told) == 1, run.text()
    assert any(told in line.get("cause", "") for line in run.lines("events.jsonl")), run.lines("events.jsonl")
    began = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    run.wait(10)
    assert run.status == 130 and time.monotonic() - began < 3, (run.status, run.text())


def a_lighthouse_may_come_later(case):
    port = free_port()
    run = case.start(sets=SETS + [f"cluster.lighthouse=tcp:127.0.0.1:{port}"], env={"TESON_JOB_SECRET": "a" * 64})
    wait_until(lambda: "cannot reach the lighthouse" in run.text(), 10, run.text)
    with lighthouse(case, port, "a" * 64):
        assert run.wait().status == 0, run.text()
    assert f"reached the lighthouse at tcp:127.0.0.1:{port}" in run.text(), run.text()
    assert (run.folder / "secret").read_text() == "a" * 64


def a_lighthouse_of_another_job_or_secret_ends_the_run(case):
    port = free_port()
    sets = SETS + [f"cluster.lighthouse=tcp:127.0.0.1:{port}"]
    with lighthouse(case, port, "a" * 64):
        refused(case, 2, "secret differs", name="secret", sets=sets, env={"TESON_JOB_SECRET": "b" * 64})
        run = refused(case, 2, "job id differs", name="job", sets=sets + ["run.name=other"], env={"TESON_JOB_SECRET": "a" * 64})
        assert [line["kind"] for line in run.lines("events.jsonl")] == ["started", "refused", "finished"], run.lines("events.jsonl")
        refused(case, 2, "64 hexadecimal digits", name="short", sets=sets, env={"TESON_JOB_SECRET": "b"})


def output_that_is_lost_is_a_failure(case):
    with open("/dev/full", "w") as full:
        def status(*arguments):
            done = subprocess.run([harness.TESON, *arguments], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            assert "No space left" in done.stderr or "standard output" in done.stderr, (arguments, done.stderr)
            return done.returncode
        assert status("config") == status("--help") == status("config", "--markdown") == 1
        run = case.train(sets=SETS)
        assert status("generate", run.folder, "--prompt", "the ", "--tokens", "4") == 1
        sets = [word for each in SETS for word in ("--set", each)]
        assert status("train", harness.TINY, "--run-dir", run.folder, *sets) == 1


def words_that_lead_nowhere_are_refused(case):
    def said(expected, *arguments):
        status, text = teson(*arguments)
        assert status == 2 and expected in text, (arguments, status, text)
    said("there is no command 'trian'; the nearest is train", "trian", str(harness.TINY))
    said("excludes", "config", "--explain", "--set", "train.steps=3")
    said("no key or table", "config", "--explain", str(harness.TINY))
    said("expected above 0 to 1", "generate", ".", "--top-p", "0")
    said("--min-replicas: expected 1 to 100000, found 0", "lighthouse", "--min-replicas", "0")
    said("--inject kill:replica=7,step=3: there is no replica 7", "train", str(harness.TINY), "--inject", "kill:replica=7,step=3")
    status, text = teson("config", "--set", "train.steps=30", "--set", "batch.lanes=8", str(harness.TINY))
    assert status == 0 and "steps = 30\n" in text and "lanes = 8\n" in text, text


def shared_tokens_of_another_corpus_are_kept(case):
    shared = SETS + ["data.prepared=shared"]
    first = case.train("first", sets=shared)
    refused(case, 2, "shared", "a vocabulary of 512 tokens, and 400 are asked for", name="second", sets=shared + ["data.vocabulary=400"])
    # The name was relative to the folder that the run was started from.
    status, text = teson("generate", str(first.folder), "--prompt", "the ", "--tokens", "4", cwd="/")
    assert status == 0 and text.startswith("the "), (status, text)
    assert "has done its 20 steps" in case.train("first", sets=shared).text()


def what_is_left_out_of_a_corpus_is_told(case):
    folder = case.folder / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("\f".join(f"word{i} and word{i + 1}" * 9 for i in range(200)))
    (folder / "scan.pdf").write_text("no text")
    sets = SETS + [f'data.corpus=["{folder}"]', "data.vocabulary=100000", "train.evaluate_batches=1"]
    run = case.train(sets=sets)
    assert "corpus: 1 file taken, 1 skipped that is no text by name, such as '" + str(folder / "scan.pdf") in run.text(), run.text()
    assert "tokens, not the 100000 of data.vocabulary: the training text has nothing left to merge" in run.text(), run.text()


def a_full_disk_is_named(case):
    small = case.folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True).returncode != 0:
        raise harness.Skip("cannot mount a small file system here")
    try:
        refused(case, 1, "space", name="small/run", sets=SETS)
    finally:
        subprocess.run(["umount", "-l", small], check=False)


def too_few_descriptors_are_named(case):
    if harness.SANITIZED:
        raise harness.Skip("the sanitizer needs descriptors itself")

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
    done = subprocess.run([harness.TESON, "train", harness.TINY, "--run-dir", case.folder / "few"], preexec_fn=limit,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "open files" in done.stderr, (done.returncode, done.stderr[-1000:])


def output_that_is_no_terminal_has_plain_lines(case):
    run = case.train(sets=SETS)
    assert "\x1b" not in run.text() and "\r" not in run.text()


def a_quorum_id_file_that_holds_something_else_is_named(case):
    path = case.folder / "id"
    path.write_text("seven")
    status, text = teson("lighthouse", "--bind", "127.0.0.1:0", "--quorum-id-file", path)
    assert status == 2 and str(path) in text, (status, text)
    assert path.read_text() == "seven"


def a_lighthouse_that_others_could_reach_needs_a_secret(case):
    done = subprocess.run([harness.TESON, "lighthouse", "--job-bind", "tcp:0.0.0.0:0", "--record", case.folder / "record"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert done.returncode != 0 and "secret" in done.stderr, done.stderr


def generate_continues_a_text(case):
    run = case.train(sets=SETS)
    status, text = teson("generate", str(run.folder), "--prompt", "the ", "--tokens", "12", "--temperature", "0")
    assert status == 0 and text.startswith("the ") and len(text) > 8, (status, text)
    assert teson("generate", str(run.folder), "--prompt", "the ", "--tokens", "12", "--temperature", "0")[1] == text
    status, text = teson("generate", str(case.folder))
    assert status == 2 and "checkpoint" in text, (status, text)


def generate_finds_checkpoints_that_lie_elsewhere(case):
    elsewhere = case.folder / "elsewhere"
    run = case.train(sets=SETS + [f'checkpoint.dir="{elsewhere}"'])
    status, text = teson("generate", str(run.folder), "--prompt", "the ", "--tokens", "4")
    assert status == 0 and text.startswith("the "), (status, text)
    newest = sorted(elsewhere.iterdir())[-1]
    (newest / "manifest.json").write_text("{")
    status, text = teson("generate", str(newest), "--prompt", "the ", "--tokens", "4")
    assert status == 2 and "manifest.json" in text, (status, text)


def elastic_mode_drops_what_a_dead_group_was_computing(case):
    run = case.train(sets=["train.steps=60", "cluster.replicas=2", 'train.mode="elastic"'], inject=["kill:replica=1,step=10"])
    summary = run.summary()
    assert summary["status"] == "completed" and len(summary["failures"]) == 1, summary
    assert summary["samples_used"] < summary["samples_planned"], summary
    alone = [line for line in run.lines("metrics.jsonl") if line["replicas"] == 1]
    assert alone, "no step was committed by the survivor alone"


def in_its_place(path, make):
    """Puts something else in a file's place; the file comes back."""
    class Place:
        def __enter__(self):
            path.rename(str(path) + ".kept")
            make(path)
        def __exit__(self, *_):
            path.rmdir() if path.is_dir() else path.unlink()
            os.rename(str(path) + ".kept", path)
    return Place()


def whatever_stands_in_a_files_place_is_named_at_once(case):
    run = case.train(sets=SETS)
    (run.folder / "summary.json").unlink()
    shard = next((run.folder / "data").glob("train-*.tokens"))
    for make in (os.mkfifo, os.mkdir):
        for name in ("config.toml", "metrics.jsonl", "ledger.jsonl", "events.jsonl"):
            with in_its_place(run.folder / name, make):
                refused(case, 2, name, sets=SETS, seconds=10)
    with in_its_place(run.folder / "secret", os.mkdir):
        refused(case, 2, "secret", "a folder is in its place", sets=SETS, seconds=10)
    with in_its_place(shard, os.mkdir):
        refused(case, 2, shard.name, "a folder is in its place", sets=SETS, seconds=10)
    os.mkfifo(run.folder / "summary.json")
    assert case.train(sets=SETS).summary()["steps"] == 20


def a_configuration_may_come_from_a_pipe(case):
    done = subprocess.run([harness.TESON, "config", "/dev/stdin"], input="[train]\nsteps = 7\n", capture_output=True, text=True, timeout=10)
    assert done.returncode == 0 and "steps = 7" in done.stdout, (done.returncode, done.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):
        waiting = subprocess.Popen([harness.TESON, "train", "/dev/stdin"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=case.folder)
        time.sleep(0.3)
        waiting.send_signal(number)
        assert waiting.wait(5) == -number


def a_damaged_ledger_is_said_before_anything_runs(case):
    run = case.train(sets=SETS)
    (run.folder / "summary.json").unlink()
    ledger = run.folder / "ledger.jsonl"
    lines = ledger.read_text().splitlines()
    ledger.write_text("\n".join(lines[:4] + ["rubbish"] + lines[5:]) + "\n")
    refused(case, 2, "ledger.jsonl:5", "--start-anew", sets=SETS)
    # Without its line a step is missing: the run goes on, and says so.
    ledger.write_text("\n".join(lines[:4] + lines[5:]) + "\n")
    again = refused(case, 0, "the ledger accounts for", "steps 5 to 5", sets=SETS)
    assert again.summary()["samples_used"] < again.summary()["samples_planned"]


def a_damaged_record_of_the_lighthouse_ends_the_run_at_once(case):
    run = case.train(sets=SETS)
    (run.folder / "summary.json").unlink()
    (run.folder / "lighthouse.record").write_bytes(b"rubbish" * 1000)
    again = refused(case, 2, "lighthouse.record", "remove it", sets=SETS, seconds=10)
    assert again.text().count("lighthouse.record") <= 2, again.text()


def limits_of_the_shell_are_named(case):
    if harness.SANITIZED:
        raise harness.Skip("the sanitizer needs descriptors, and memory, itself")

    def start(what, value):
        began = time.monotonic()
        done = subprocess.run([harness.TESON, "train", harness.TINY, "--run-dir", case.folder / "limits"],
                              preexec_fn=lambda: resource.setrlimit(what, (value, value)), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1, (done.returncode, done.stderr[-2000:])
        assert time.monotonic() - began < 20
        return done.stderr
    text = start(resource.RLIMIT_NOFILE, 6)
    assert "living job" not in text and "ulimit -n" in text, text
    for megabytes in (200, 320):
        text = start(resource.RLIMIT_AS, megabytes << 20)
        assert "ulimit -v" in text and len([line for line in text.splitlines() if line.startswith("teson:")]) == 1, text


def a_run_folder_that_cannot_be_named_is_refused(case):
    status, text = teson("train", str(harness.TINY), "--run-dir", "")
    assert status == 2 and "--run-dir" in text, (status, text)
    long = case.folder.joinpath(*["d" * 200] * 6)
    status, text = teson("train", str(harness.TINY), "--run-dir", str(long))
    assert status == 2 and "run.dir" in text and not long.exists(), (status, text[-500:])
    (case.folder / "loop").symlink_to("loop")
    status, text = teson("train", str(harness.TINY), "--run-dir", str(case.folder / "loop"))
    assert status == 2 and "loop" in text, (status, text[-500:])


main(whatever_stands_in_a_files_place_is_named_at_once, a_configuration_may_come_from_a_pipe,
     a_damaged_ledger_is_said_before_anything_runs, a_damaged_record_of_the_lighthouse_ends_the_run_at_once,
     limits_of_the_shell_are_named, a_run_folder_that_cannot_be_named_is_refused,
     an_unreachable_lighthouse_is_told_and_one_ctrl_c_ends_at_once, a_lighthouse_may_come_later,
     a_lighthouse_of_another_job_or_secret_ends_the_run, output_that_is_lost_is_a_failure, words_that_lead_nowhere_are_refused,
     shared_tokens_of_another_corpus_are_kept, what_is_left_out_of_a_corpus_is_told,
     an_unknown_key_is_named_with_its_place_and_the_nearest, a_missing_configuration_is_named, a_run_folder_that_is_used_is_refused,
     another_configuration_is_refused_and_the_difference_named, a_folder_that_cannot_be_written_is_named,
     names_with_spaces_and_other_scripts_work, bad_corpora_are_named, a_port_in_use_is_named, a_full_disk_is_named,
     too_few_descriptors_are_named, output_that_is_no_terminal_has_plain_lines,
     a_quorum_id_file_that_holds_something_else_is_named,
     a_lighthouse_that_others_could_reach_needs_a_secret, generate_continues_a_text, generate_finds_checkpoints_that_lie_elsewhere,
     elastic_mode_drops_what_a_dead_group_was_computing)
