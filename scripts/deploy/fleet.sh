#!/usr/bin/env bash
# A fleet on a Ray cluster of its own that survives the end of Ray's head: started with an address of
# Redis in RAY_REDIS_ADDRESS and its password in REDIS_PASSWORD. Arguments are those of
# python -m webui.cluster serve.
set -euo pipefail

case "${1:-}" in
  -h | --help)
    echo "Usage: bash scripts/deploy/fleet.sh [options of python -m webui.cluster serve]"
    echo "用法：bash scripts/deploy/fleet.sh [python -m webui.cluster serve 的选项]"
    exit 0
    ;;
esac
# Ray asks whoever joins for a token; here nobody does but the program below
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=${RAY_AUTH_TOKEN:-$(python -c "import secrets; print(secrets.token_hex(32))")}
export RAY_AUTH_TOKEN
ray start --head --disable-usage-stats --include-dashboard=false --redis-password="${REDIS_PASSWORD:-}"
exec python -P -m webui.cluster serve --address auto --host 0.0.0.0 --port 8000 "$@"
