"""Lengths of files and functions, words and checks that do not belong in the tree, pages that are referred to and missing."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
CODE = {".h", ".cpp", ".py", ".proto"}
FILE_LINES_WARN, FILE_LINES_MAX = 500, 800
FUNCTION_LINES_MAX, TEST_LINES_MAX = 70, 100
FORMAT_PAGES = ["frame", "checkpoint", "tokens", "run_folder", "lighthouse"]

# Written in pieces, so that this file passes its own test.
WORDS = {
    r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b": "unfinished work is not committed",
    r"(?<![\w.~])/(work|root|home|Users)/\w": "a path of one machine",
    r"\b[Ii]ss" r"ue #?\d": "the number of a task",
    r"^(<{7}|>{7}) ": "a conflict left in",
    r"\b(EXPECT|ASSERT)_\w+\(([^,()]+), \2\)|^\s*assert True\b": "a check that cannot fail",
}
HEAD = re.compile(r"^( {0,4})(?! )(?!namespace\b|class\b|struct\b|enum\b|union\b|if\b|for\b|while\b|switch\b|else\b|do\b|try\b|return\b"
                  r"|extern \"C\" \{|#|//|/\*|:|,|case\b|default\b|public:|private:|protected:)(?=.*\().*")


def files():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=False)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    return [p for p in ROOT.rglob("*") if p.is_file() and p.relative_to(ROOT).parts[0] not in ("build", "runs", ".git")]


def long_functions(path, lines):
    """Definitions as our formatter writes them: the head begins a line, the closing brace stands alone under it."""
    start = 0
    while start < len(lines):
        head = HEAD.match(lines[start])
        opening = start
        while head and opening < min(start + 8, len(lines)) and not lines[opening].rstrip().endswith(("{", ";", "}")):
            opening += 1
        if head and opening < len(lines) and lines[opening].rstrip().endswith("{"):
            closing = re.compile("^" + head.group(1) + r"\}[;)]*$")
            end = next((n for n in range(opening + 1, len(lines)) if closing.match(lines[n])), None)
            limit = TEST_LINES_MAX if path.stem.endswith("_test") else FUNCTION_LINES_MAX
            if end is not None and end - start + 1 > limit:
                yield f"{start + 1}: a function of {end - start + 1} lines, at most {limit}"
        start += 1


def faults_of(path):
    relative = path.relative_to(ROOT)
    if relative.parts[:3] == ("tests", "fuzz", "corpus"):
        return  # what a decoder may meet
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        yield f"{relative}: not UTF-8"
        return
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        for pattern, why in WORDS.items():
            if re.search(pattern, line):
                yield f"{relative}:{number}: {why}: {line.strip()[:100]}"
    if path.suffix in CODE:
        if len(lines) > FILE_LINES_MAX:
            yield f"{relative}: {len(lines)} lines, at most {FILE_LINES_MAX}"
        elif len(lines) > FILE_LINES_WARN:
            print(f"note: {relative} has {len(lines)} lines; over {FILE_LINES_WARN} a file wants to be two")
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{relative}: no #pragma once"
    if path.suffix in (".h", ".cpp"):
        yield from (f"{relative}:{fault}" for fault in long_functions(path, lines))
    if path.suffix in (".h", ".cpp", ".md", ".cmake", ".toml"):
        for name in re.findall(r"\bdocs/[\w/]+\.md\b", text):
            if not (ROOT / name).exists():
                yield f"{relative}: refers to {name}, which is not there"
    if path.suffix == ".md":
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for link in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", prose):
            if not (path.parent / link).exists():
                yield f"{relative}: links to {link}, which is not there"


def main():
    faults = [fault for path in sorted(files()) for fault in faults_of(path)]
    faults += [f"docs/formats/{page}.md: every file of ours and every frame has its page"
               for page in FORMAT_PAGES if not (ROOT / "docs/formats" / f"{page}.md").exists()]
    print("\n".join(faults) or "no faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
