#!/usr/bin/env bash
# Compares exported forms through other people's programs, in environments of their own: packages
# that the studio does not need.
set -euo pipefail
unset CDPATH PYTHONHOME

case "${1:-}" in
  -h | --help | "")
    echo "Usage: bash scripts/export_checks.sh ENVIRONMENTS MODEL_DIR OUT"
    echo "Makes environments in the folder ENVIRONMENTS when they are not there, writes forms of" \
      "MODEL_DIR (CosyVoice2) to OUT and compares them through transformers and a Triton server."
    echo "The server needs a system with libpython of the studio's version of Python (Debian: libpython3.11)."
    echo "在 ENVIRONMENTS 中建立所需的环境，把 MODEL_DIR 导出到 OUT，并用 transformers 和 Triton 服务器检查。"
    exit 0
    ;;
esac

ROOT=$(cd -- "$(dirname "$0")/.." && pwd -P)
STUDIO="$ROOT/.venv/bin/python"
mkdir -p "$1" "$3"
environments=$(cd -- "$1" && pwd -P)

packages_of() { # a Python's folder of packages
  "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}
see_studio() { # an environment that finds the studio's packages behind its own
  printf '%s\n' "$(packages_of "$STUDIO")" "$ROOT" >"$(packages_of "$environments/$1/bin/python")/studio.pth"
}
fill() { # an environment with what its list names
  local at="$environments/$1" list="$ROOT/scripts/export_formats/$1.txt"
  cmp -s "$list" "$at/installed.txt" && return 0
  "$STUDIO" -m venv --clear "$at"
  [ "$2" = apart ] || see_studio "$1"
  "$at/bin/python" -m pip install -q --disable-pip-version-check -r "$list"
  cp "$list" "$at/installed.txt"
}

fill transformers beside
fill triton apart # its numpy and protobuf are older than the studio's
version() {
  "$1" -c 'import sys; print(*sys.version_info[:2])'
}
if [ "$(version "$STUDIO")" != "$(version /usr/bin/python3)" ]; then
  echo "The system's Python is not of the version of .venv: Triton's backend could not load its packages." >&2
  echo "系统的 Python 与 .venv 版本不同：Triton 的后端无法加载其中的软件包。" >&2
  exit 2
fi
# Triton's backend loads the system's libpython: its Python must be that one, not the studio's.
/usr/bin/python3 -m venv --clear --without-pip "$environments/backend"
see_studio backend
"$STUDIO" "$ROOT/scripts/export.py" triton "$3/triton" --engine cosyvoice2 --model-dir "$2" \
  --server "$environments"
"$environments/transformers/bin/python" "$ROOT/scripts/export.py" qwen2 "$2" "$3/qwen2" --transformers
