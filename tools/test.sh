#!/usr/bin/env bash
# Owns "all tests": sets the machine up, builds, runs every test, then again under ASan + UBSan.
# FUSOR_SKIP_SANITIZE=1 leaves the second half out. Tests labelled gpu skip themselves where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh

# Both builds' tests compile the same kernels: what the compiler said is kept for the second.
FUSOR_TEST_KERNELS=$(mktemp -d)
export FUSOR_TEST_KERNELS
trap 'rm -rf "$FUSOR_TEST_KERNELS"' EXIT

# build_and_test PRESET
build_and_test() {
  echo "[test] $1: build"
  tools/build.sh "$1"
  echo "[test] $1: ctest"
  ctest --preset "$1"
}

build_and_test release
if [ -z "${FUSOR_SKIP_SANITIZE:-}" ]; then
  build_and_test sanitize
fi
