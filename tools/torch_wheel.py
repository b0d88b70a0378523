"""Installs the torch wheel into the environment that runs this; first says what will be downloaded and how much.

A CPU build is taken where the index offers one (pip ranks a local version such as 2.13.0+cpu first). Of torch only headers and
libraries are used, so none of its Python dependencies are installed, unless the index has only a GPU build: that one needs
the GPU libraries it was linked with.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

LARGE_MB = 50


def pip(*arguments):
    """Runs pip install; what it says is shown only when it fails."""
    index = os.environ.get("TESON_TORCH_INDEX")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--index-url", index] if index else []
    done = subprocess.run(command + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
    return done.returncode


def planned(requirement, *options):
    """What pip would fetch: a list of (name, version, url). Reads metadata only, where the index allows it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        dry = ["--dry-run", "--ignore-installed", "--use-feature=fast-deps", "--report", report.name]
        if pip(*dry, *options, requirement) != 0:
            sys.exit(f"setup: no wheel for {requirement} (Python {sys.version_info.major}.{sys.version_info.minor}). Name an index "
                     "that has one in TESON_TORCH_INDEX, or a libtorch folder in TESON_TORCH_DIR.")
        items = json.load(open(report.name, encoding="utf-8"))["install"]
    return [(i["metadata"]["name"], i["metadata"]["version"], i["download_info"]["url"]) for i in items]


def megabytes(url):
    """The size of what lies at `url`; None if it does not say."""
    parts = urllib.parse.urlsplit(url)
    try:
        if parts.scheme == "file":
            return os.path.getsize(urllib.request.url2pathname(parts.path)) / 1e6
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.headers["Content-Length"]) / 1e6
    except (OSError, TypeError, ValueError):
        return None


def announce(items):
    sizes = [(name, version, megabytes(url)) for name, version, url in items]
    total = sum(size or 0 for _, _, size in sizes)
    unknown = sum(size is None for _, _, size in sizes)
    name, version, _ = sizes[0]
    text = f"{total:,.0f} MB" if total else "size unknown"
    if total and unknown:
        text += f" and {unknown} files of unknown size"
    others = f" with {len(sizes) - 1} packages it needs" if len(sizes) > 1 else ""
    print(f"setup: fetching {name} {version}{others}: {text}", flush=True)
    for other, release, size in sizes[1:]:
        if (size or 0) >= LARGE_MB:
            print(f"setup:   {other} {release}: {size:,.0f} MB", flush=True)


def needs_gpu_libraries(items):
    return any(name.startswith(("nvidia-", "cuda-", "triton", "pytorch-triton")) for name, _, _ in items)


def main():
    requirement = f"torch=={sys.argv[1]}"
    alone = planned(requirement, "--no-deps")
    options = ["--no-deps"]
    if "+cpu" not in alone[0][1]:
        everything = planned(requirement)
        if needs_gpu_libraries(everything):
            everything.sort(key=lambda item: item[0] != "torch")
            alone, options = everything, []
            print("setup: this index offers torch only as a GPU build; for a smaller one stop here and set "
                  "TESON_TORCH_INDEX to an index of CPU builds", flush=True)
    announce(alone)
    sys.exit(pip(*options, requirement))


if __name__ == "__main__":
    main()
