# ctest: timeout=300
"""The runtime as another project uses it: installed, found, and a program built with it."""

import pathlib
import subprocess
import sys
import tempfile

CONSUMER = """cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(teson REQUIRED)
add_executable(hello hello.cpp)
target_compile_options(hello PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(hello PRIVATE teson::runtime)
"""


def run(*command, **more):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def main():
    source, build = map(pathlib.Path, sys.argv[1:])
    cache = (build / "CMakeCache.txt").read_text()
    if "TESON_SANITIZE:STRING=\n" not in cache:
        print("skipped: a library with sanitizers needs them in its users")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        prefix, consumer = pathlib.Path(folder, "prefix"), pathlib.Path(folder, "consumer")
        run("cmake", "--install", build, "--component", "runtime", "--prefix", prefix)
        consumer.mkdir()
        (consumer / "CMakeLists.txt").write_text(CONSUMER)
        (consumer / "hello.cpp").write_text((source / "examples/hello_mesh.cpp").read_text())
        run("cmake", "-G", "Ninja", "-S", consumer, "-B", consumer / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", consumer / "build")
        said = run(consumer / "build/hello", timeout=60)
        # The last two lines stand as their answers came: in either order.
        here = run(build / "bin/example_hello_mesh", timeout=60)
        assert sorted(said.splitlines()) == sorted(here.splitlines()), f"installed:\n{said}\nhere:\n{here}"
        assert said.count("hello") == 8, said


main()
