#!/usr/bin/env bash
# Compares exported forms through other people's programs, in environments of their own: packages
# that the studio does not need.
set -euo pipefail
unset CDPATH PYTHONHOME

case "${1:-}" in
  -h | --help | "")
    echo "Usage: bash scripts/export_checks.sh ENVIRONMENTS MODEL_DIR OUT"
    echo "Makes environments in the folder ENVIRONMENTS when they are not there, writes the forms of" \
      "MODEL_DIR to OUT and compares them through transformers."
    echo "在 ENVIRONMENTS 中建立所需的环境，把 MODEL_DIR 导出到 OUT，并用 transformers 检查。"
    exit 0
    ;;
esac

ROOT=$(cd -- "$(dirname "$0")/.." && pwd -P)
STUDIO="$ROOT/.venv/bin/python"
mkdir -p "$1" "$3"
environments=$(cd -- "$1" && pwd -P)

# need NAME: an environment that sees the studio's packages behind those of its own list.
need() {
  local at="$environments/$1" list="$ROOT/scripts/export_formats/$1.txt"
  cmp -s "$list" "$at/installed.txt" && return 0
  "$STUDIO" -m venv --clear "$at"
  "$STUDIO" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$at/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/studio.pth"
  "$at/bin/python" -m pip install -q --disable-pip-version-check -r "$list"
  cp "$list" "$at/installed.txt"
}

need transformers
"$environments/transformers/bin/python" "$ROOT/scripts/export.py" qwen2 "$2" "$3/qwen2" --transformers
