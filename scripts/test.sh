#!/usr/bin/env bash
# Installs everything the tests need, then checks the form and runs all tests. Arguments go to pytest.
set -euo pipefail
unset CDPATH PYTHONHOME

case "${1:-}" in
  -h | --help)
    echo "Usage: bash scripts/test.sh [pytest arguments]"
    echo "Makes .venv, installs the test packages and a Chromium if there is none, then checks the form (scripts/form.sh) and runs pytest."
    echo "建立 .venv，安装测试依赖；没有 Chromium 时装一个；然后检查格式并运行 pytest。"
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
if [ $# -gt 0 ]; then
  exec "$VENV/bin/python" -m pytest "$@"
fi

# All of them, in four heaps side by side: pages, routes and what is long mostly wait, the engine mostly computes. Half the time on two cores.
# They share the cores: a second thread of a product would spin until it gets one.
export OMP_NUM_THREADS=1
PAGES="tests/faults tests/browser"
LONG="tests/api/test_soak.py tests/api/test_openapi.py tests/client tests/hostile tests/engine/test_scripts_cosyvoice.py tests/engine/test_builtin_words.py tests/engine/test_check_golden.py tests/engine/test_hosted_contract.py tests/engine/test_hosted_faults.py tests/engine/test_cosyvoice_graphs_flow.py tests/engine/test_cosyvoice_graphs_vocoder.py"
ROUTES="tests/api tests/unit tests/test_docs.py tests/test_layers.py tests/test_lines.py $(echo tests/engine/test_cosyvoice3*.py)"
heaps=$(mktemp -d)
trap 'rm -rf "$heaps"' EXIT
heap() { # how far it gives way, name, what pytest is given
  local way=$1 name=$2
  shift 2
  nice -n "$way" "$VENV/bin/python" -m pytest --durations=8 "$@" >"$heaps/$name" 2>&1
}
without() { # each name as one that another heap has
  printf -- "--ignore=%s " "$@"
}
# Somebody at a page, or whose engine was killed, waits: what takes a second there is late, elsewhere it is only slow.
heap 0 pages $PAGES &
pages=$!
heap 4 routes $ROUTES $(without $LONG) &
routes=$!
heap 4 long $LONG &
long=$!
status=0
nice -n 4 "$VENV/bin/python" -m pytest --durations=8 $(without $PAGES $LONG $ROUTES) || status=$?
wait "$pages" || status=$?
wait "$routes" || status=$?
wait "$long" || status=$?
cat "$heaps/pages" "$heaps/routes" "$heaps/long"
exit "$status"
