"""Runs clang-tidy over our sources, several at once, and remembers what passed: a file is looked at again only when it, a
header of ours or the rules have changed.

    tools/tidy.py BUILD_FOLDER STATE_FOLDER [-j N] [file…]
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ("_test", "_fuzz")  # and programs in folders named testing/
NOT_FOR_TESTS = (
    "-clang-analyzer-*",  # every path of theirs runs under the sanitizers; to follow all takes most of the time
    "-bugprone-throwing-static-initialization",  # ends the test, as it should
    "-bugprone-random-generator-seed",  # the same numbers each time, as it should be
    "-bugprone-unchecked-string-to-number-conversion",  # what they read they have written
    "-cppcoreguidelines-virtual-class-destructor",  # of fixtures, which GoogleTest makes and ends
)
INCLUDE = re.compile(r'^\s*#include "(teson/[^"]+)"', re.M)


def plain_command(entry, state):
    """The compile command as clang understands it: no launcher, no GCC precompiled header, no flag of GCC alone."""
    words = shlex.split(entry["command"])
    while not words[0].endswith(("c++", "g++", "clang++")):
        words.pop(0)
    kept, skip = [], False
    for position, word in enumerate(words):
        if skip:
            skip = False
        elif word == "-include" and "cmake_pch" in words[position + 1]:
            kept += ["-include", str(plain_header(pathlib.Path(words[position + 1]), state))]
            skip = True
        elif word not in ("-Winvalid-pch", "-Wno-tsan") and not word.startswith("-fvect-cost"):
            kept.append(word)
    return shlex.join([*kept, "-Wno-deprecated-declarations"])


def plain_header(header, state):
    """A copy of a precompiled header's source, beside which clang finds nothing that GCC compiled."""
    copy = state / f"header-{hashlib.sha256(str(header).encode()).hexdigest()[:12]}.h"
    text = header.read_text()
    if not copy.exists() or copy.read_text() != text:
        copy.write_text(text)
    return copy


def contents_hash(path, seen=None):
    """Of a file and of every header of ours that it reaches."""
    seen = {} if seen is None else seen
    if path in seen or not path.exists():
        return seen
    text = path.read_text(errors="replace")
    seen[path] = hashlib.sha256(text.encode()).hexdigest()
    for name in INCLUDE.findall(text):
        contents_hash(ROOT / name, seen)
    return seen


def stamp_of(path, rules):
    digest = hashlib.sha256(rules)
    for name, value in sorted(contents_hash(path).items()):
        digest.update(f"{name} {value}".encode())
    return digest.hexdigest()


def run_one(tidy, database, path):
    command = [tidy, "-p", str(database), "--quiet", "--warnings-as-errors=*", str(path)]
    if path.stem.endswith(TESTS) or path.parent.name == "testing":
        command.insert(1, "--checks=" + ",".join(NOT_FOR_TESTS))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + ("" if done.returncode == 0 else done.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("state", type=pathlib.Path)
    parser.add_argument("-j", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_intermixed_args()
    state = arguments.state.resolve()
    state.mkdir(parents=True, exist_ok=True)
    tidy = str(ROOT / "build/venv/bin/clang-tidy")

    entries = json.loads((arguments.build / "compile_commands.json").read_text())
    entries = [e for e in entries if pathlib.Path(e["file"]).is_relative_to(ROOT)
               and not pathlib.Path(e["file"]).is_relative_to(ROOT / "build")]
    for entry in entries:
        entry["command"] = plain_command(entry, state)
    (state / "compile_commands.json").write_text(json.dumps(entries))

    wanted = {path.resolve() for path in arguments.files}
    rules = (ROOT / ".clang-tidy").read_bytes()
    work = []
    for path in sorted({pathlib.Path(e["file"]) for e in entries}):
        stamp = state / (hashlib.sha256(str(path).encode()).hexdigest()[:16] + ".passed")
        value = stamp_of(path, rules)
        if (not wanted or path in wanted) and not (stamp.exists() and stamp.read_text() == value):
            work.append((path, stamp, value))

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        futures = {pool.submit(run_one, tidy, state, path): (path, stamp, value) for path, stamp, value in work}
        for future in concurrent.futures.as_completed(futures):
            path, stamp, value = futures[future]
            code, text = future.result()
            if code == 0:
                stamp.write_text(value)
            else:
                failures += 1
                print(f"{path.relative_to(ROOT)}\n{text}", flush=True)
    print(f"clang-tidy: {len(work)} files looked at, {failures} with findings")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
