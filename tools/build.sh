#!/usr/bin/env bash
# Owns one build: configures a preset and builds it, quiet when all is well, through ccache where it is installed.
# usage: tools/build.sh [PRESET [TARGET...]]     release (default) or sanitize, see CMakePresets.json; all targets
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
targets=("${@:2}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT

launcher=()
if [ -z "${CCACHE_DISABLE:-}" ] && command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake --preset "$preset" "${launcher[@]}" >"$log" 2>&1 || { cat "$log"; exit 1; }
grep 'fusor:' "$log" || true
cmake --build --preset "$preset" ${targets[0]+--target "${targets[@]}"} >"$log" 2>&1 || { cat "$log"; exit 1; }
tail -n 1 "$log"
