"""What each program loads: `teson` never libtorch, `teson-worker` never gRPC or protobuf, directly or through another library."""

import pathlib
import re
import subprocess
import sys

BUILD = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "build/release")
FORBIDDEN = {"teson": r"lib(torch|c10|gomp)", "teson-worker": r"lib(grpc|gpr|protobuf|protoc|absl)"}


def loaded(program):
    """Names of all libraries the loader would map, from ldd, which follows them recursively."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in done.stdout.splitlines() if line.strip()]


def main():
    faults, looked_at = [], 0
    for name, pattern in FORBIDDEN.items():
        program = BUILD / "bin" / name
        if not program.exists():
            continue
        looked_at += 1
        libraries = loaded(program)
        wrong = sorted(library for library in libraries if re.match(pattern, library))
        if wrong:
            faults.append(f"{name} loads {', '.join(wrong)}")
        else:
            print(f"{name}: {len(libraries)} libraries, none of them forbidden")
    if faults:
        sys.exit("\n".join(faults))
    sys.exit(0 if looked_at else 77)


if __name__ == "__main__":
    main()
