#!/usr/bin/env bash
# Owns "all tests": sets the machine up, builds, runs every test.
# usage: tools/test.sh [--sanitize] [--all]     --sanitize: then, under ASan and UBSan, the tests of graphs, files, clients and
# random graphs again, and one plan on 16 threads under TSan.
# --all: compiles every kernel that tests know; without it a sample of them, always the same; and the wheel from its sources.
# With --sanitize, all tests are run again.
# Tests labelled gpu skip themselves where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitize=
for option in "$@"; do
  case "$option" in
    --sanitize) sanitize=1 ;;
    --all) export FUSOR_TEST_ALL=1 ;;
    *) sed -n '2,7s/^# //p' "$0"; exit 2 ;;
  esac
done
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
if [ -n "$sanitize" ]; then
  build_and_test "sanitize${FUSOR_TEST_ALL:+_all}"
  echo "[test] threads: one plan on 16 threads under TSan"
  tools/build.sh threads
  build-threads/tests/executable/executable_test --gtest_brief=1 --gtest_filter='Threads.*'
fi
