#!/usr/bin/env bash
# The entry of the images: opens as many files as listeners need (OPEN_FILES, else 65535), then becomes
# the program it is given.
set -euo pipefail

FILES=${OPEN_FILES:-65535}
case "${1:-}" in
  "" | -h | --help)
    echo "Usage: bash scripts/deploy/start.sh COMMAND ...    runs it with $FILES open files at most"
    echo "用法：bash scripts/deploy/start.sh 命令 ...        以最多 $FILES 个打开的文件运行它"
    exit 0
    ;;
esac
if ! ulimit -n "$FILES" 2>/dev/null; then
  printf '%s\n%s\n' \
    "Only $(ulimit -Hn) open files are allowed here: raise the limit (docker: --ulimit nofile=$FILES, containerd: LimitNOFILE=$FILES)." \
    "这里最多只能打开 $(ulimit -Hn) 个文件：请提高上限（docker：--ulimit nofile=$FILES，containerd：LimitNOFILE=$FILES）。" >&2
  exit 2
fi
exec "$@"
