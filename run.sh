#!/usr/bin/env bash
# Sets up the studio on the first start and whenever the requirements change, then starts it. Works from any folder.
set -euo pipefail
unset CDPATH PYTHONHOME

usage() {
  cat <<'TEXT'
Usage: ./run.sh [options]          Kaikou 开口: the voice-cloning studio / 声音克隆工作室

Sets up .venv beside this file on the first start, then serves the page at http://127.0.0.1:7860.
首次启动时在本文件旁建立 .venv，然后在 http://127.0.0.1:7860 打开页面。

  --host HOST            address to listen on (default 127.0.0.1) / 监听地址
  --port PORT            port (default 7860) / 端口
  --grpc-port PORT       also speak gRPC on this port / gRPC 端口
  --grpc-cert FILE       its TLS certificate chain, PEM / gRPC 的 TLS 证书
  --grpc-key FILE        the key of that / 证书的私钥
  --root-path PATH       path below which a reverse proxy serves the studio, e.g. /voice / 反向代理的子路径
  --engine ENGINE        auto, builtin, cosyvoice1, cosyvoice2, cosyvoice3, or ray://HOST:PORT, a fleet (default auto) / 语音引擎，或语音集群
  --shared-cache URL     redis://HOST:PORT in which studios and replicas share prompts / 共享音色缓存的 Redis
  --model-dir DIR        one model's folder, or one that holds several / 模型目录
  --model NAME           the model below it to begin with / 先用其中哪个模型
  --profile PROFILE      ttfa, balanced, throughput or lite (default balanced) / 侧重
  --data-dir DIR         where voices and takes are kept / 数据目录
  --auth USER:PASSWORD   ask for this login; may be given more than once / 登录账号，可重复
  --share                also open a public link (needs --auth or an API key) / 公网分享链接
  --lang LANG            zh or en (default: the browser's language) / 界面语言
  --help                 this text / 显示本说明
TEXT
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage; exit 0 ;; esac
done

here=$0
while [ -L "$here" ]; do # a link to run.sh, from anywhere
  target=$(readlink "$here")
  case "$target" in /*) here=$target ;; *) here=$(dirname "$here")/$target ;; esac
done
ROOT=$(cd -- "$(dirname "$here")" && pwd -P)

# shellcheck source=scripts/setup_venv.sh
. "$ROOT/scripts/setup_venv.sh"
setup_venv requirements.txt
setup_natural

# -P keeps the folder the user is in out of the import path; relative options still mean that folder.
export PYTHONPATH="$ROOT"
exec "$VENV/bin/python" -P -m webui "$@"
