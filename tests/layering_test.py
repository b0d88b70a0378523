"""A folder of teson/ includes only itself and folders above it; libtorch stays in the training half; headers stay light."""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
ORDER = ["base", "net", "actor", "comm", "quorum", "job", "torchft", "http", "cluster", "sim", "graph", "shard", "model",
         "data", "checkpoint", "train"]
TORCH_FOLDERS = {"graph", "shard", "model", "train"}
# The two programs, and who may use what: `teson` never loads libtorch, `teson-worker` never gRPC or protobuf.
NOT_IN_PROGRAM = {"apps/teson": TORCH_FOLDERS, "apps/worker": {"torchft", "http"}}

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
GRPC = re.compile(r"^(grpc|grpcpp|google/protobuf|absl)/|\.pb\.h$")
HEAVY = re.compile(r"^(torch/torch\.h|boost/asio|spdlog/|nlohmann/json\.hpp|toml\+\+/|toml\.hpp|CLI/|httplib\.h|grpc|google/protobuf"
                   r"|gtest/|gmock/|rapidcheck)")
# Headers that only tests include may use a test library.
FOR_TESTS = re.compile(r"(^|_)(testing|test_support|test_util)\.h$")


def includes(path):
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(2)


def folder_of(path):
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "teson" and len(parts) > 2 else None


def reached_from(header, includers):
    """Every file that includes `header`, directly or through others."""
    reached, pending = set(), [header]
    while pending:
        fresh = includers.get(pending.pop(), set()) - reached
        reached |= fresh
        pending += fresh
    return reached


def faults_of(path, includers):
    folder = folder_of(path)
    relative = path.relative_to(ROOT).as_posix()
    program = next((p for p in NOT_IN_PROGRAM if relative.startswith(p + "/")), None)
    torch_allowed = folder in TORCH_FOLDERS or relative.startswith(("apps/worker/", "examples/", "bench/"))
    for number, name in includes(path):
        where = f"{relative}:{number}: "
        target = name.split("/")[1] if name.startswith("teson/") and name.count("/") >= 2 else None
        if target and target not in ORDER:
            yield where + f"'{name}': no folder of the architecture"
        elif target and folder and ORDER.index(target) > ORDER.index(folder):
            yield where + f"{folder}/ may not include {target}/, which stands below it"
        elif target and program and target in NOT_IN_PROGRAM[program]:
            yield where + f"{program} may not use {target}/"
        if TORCH.match(name) and not torch_allowed:
            yield where + f"'{name}': libtorch belongs to {', '.join(sorted(TORCH_FOLDERS))}, apps/worker and examples"
        if name == "torch/torch.h" and not (folder == "model" and path.suffix == ".cpp" or relative.startswith("examples/")):
            yield where + "torch/torch.h takes 25 s to compile: only sources of model/ and examples may include it"
        if GRPC.search(name) and not (folder == "torchft" or relative.startswith(("apps/teson/", "tests/torchft/", "bench/bench_torchft"))):
            yield where + f"'{name}': gRPC and protobuf belong to torchft/"
        if path.suffix == ".h" and HEAVY.match(name) and not FOR_TESTS.search(path.name):
            outside = sorted(r for r in reached_from(relative, includers) if not r.startswith(f"{path.parent.relative_to(ROOT)}/"))
            if outside:
                yield where + f"'{name}' is heavy and reaches {outside[0]}: include it in sources and private headers only"


def main():
    files = [path for top in ("teson", "apps", "bench", "examples", "tests") for path in sorted((ROOT / top).rglob("*"))
             if path.suffix in (".h", ".cpp")]
    includers = {}
    for path in files:
        for _, name in includes(path):
            includers.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    faults = [fault for path in files for fault in faults_of(path, includers)]
    for folder in sorted(p.name for p in (ROOT / "teson").iterdir() if p.is_dir()):
        if folder not in ORDER:
            faults.append(f"teson/{folder}/: not in the architecture's list of folders")
    print("\n".join(faults) or f"{len(files)} files include only what they may")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
