#!/bin/sh
# run.sh LIGHTHOUSE VENV_DIR [PYTHON]: unmodified torchft clients, of the release and of a nightly, against our lighthouse.
#   LIGHTHOUSE  a program started as "LIGHTHOUSE lighthouse --bind ADDR --min-replicas N ..." that prints its http:// address
#   VENV_DIR    where the two virtual environments live; kept for the next time
#   PYTHON      a Python whose environment has torch, to save its download (python3)
#   TORCHFT_OWN_TESTS=1  runs the tests that torchft brings, too: minutes, and sensitive to a loaded machine
# One line a check. Exit status: 0 all passed, 1 some failed, 77 skipped because torchft or torch cannot be installed here.
# TESON_TORCH_INDEX: another package index for torch.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ]; then
  sed -n '2,8s/^# //p' "$0" >&2
  exit 2
fi
lighthouse=$(realpath "$1") venvs=$2 python=${3:-python3}
mkdir -p "$venvs" && venvs=$(cd "$venvs" && pwd) || exit 2
PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_DISABLE_PIP_VERSION_CHECK

# Makes $venvs/NAME with the package, once. What PYTHON has is seen from inside, and taken where it fits.
prepare() {
  venv=$venvs/$1
  [ "$(cat "$venv/complete" 2>/dev/null)" = "$2" ] && return 0
  rm -rf "$venv"
  "$python" -m venv "$venv" >"$venvs/$1.log" 2>&1 || return 1
  outside=$("$python" -c 'import importlib.util as u, os; s = u.find_spec("torch"); print(os.path.dirname(os.path.dirname(s.origin)) if s else "")')
  if [ -z "$outside" ] && [ -z "${TESON_TORCH_INDEX:-}" ]; then
    echo "$python has no torch, and without TESON_TORCH_INDEX pip might take a CUDA build of several GB" >>"$venvs/$1.log"
    return 1
  fi
  if [ -n "$outside" ]; then
    echo "$outside" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch_from_outside.pth"
  fi
  "$venv/bin/pip" install ${TESON_TORCH_INDEX:+--extra-index-url "$TESON_TORCH_INDEX"} \
    "$2" pytest pytest-timeout parameterized expecttest numpy >>"$venvs/$1.log" 2>&1 || return 1
  "$venv/bin/python" -c 'import torchft.coordination' >>"$venvs/$1.log" 2>&1 || return 1
  echo "$2" >"$venv/complete"
}

skipped=0 failed=0
check() {
  name=$1 package=$2
  if ! prepare "$name" "$package"; then
    echo "skipped $name: $package cannot be installed with $python; $venvs/$name.log says why"
    skipped=1
    return
  fi
  run="env PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 TESON_LIGHTHOUSE=$lighthouse RUST_LOG=error $venvs/$name/bin/python"
  for program in check_clients check_training; do
    timeout 300 $run "$here/$program.py" 2>"$venvs/$name.$program.log" | sed "s/^\([a-zA-Z]*\) /\1 $name: /"
    [ "$(tail -n 1 "$venvs/$name.$program.log")" = "all passed" ] || { echo "FAILED $name: $program, see $venvs/$name.$program.log"; failed=1; }
  done
  [ "${TORCHFT_OWN_TESTS:-0}" = 1 ] || return
  # The tests that torchft brings, which start a lighthouse by its own class: lighthouse_class.py puts ours in its place.
  # Without test_ddp_skip_init_sync: its threads draw inputs and initial weights from one generator at the same time, so its groups may start apart.
  if timeout 600 $run -m pytest -q -p lighthouse_class -p no:cacheprovider --timeout 120 --timeout-method thread -k 'not test_ddp_skip_init_sync' --pyargs \
    torchft.lighthouse_test torchft.coordination_test torchft.manager_integ_test >"$venvs/$name.own_tests.log" 2>&1; then
    echo "ok $name: torchft's own tests: $(tail -n 1 "$venvs/$name.own_tests.log" | tr -d =), $(grep '^lighthouses of ours' "$venvs/$name.own_tests.log")"
  else
    echo "FAILED $name: torchft's own tests, see $venvs/$name.own_tests.log"
    failed=1
  fi
}

check release torchft==0.2.0
check nightly torchft-nightly==2026.10.26
[ $failed -eq 1 ] && exit 1
[ $skipped -eq 1 ] && exit 77
exit 0
