#!/usr/bin/env bash
# Owns the conformance run: builds the tests and samples of a checkout of cudnn-frontend against fusor's libcudnn, and
# runs them, each in a process of its own, with a line for each; then its Python tests. Unmodified sources; a GPU is needed
# for most of it.
# usage: compat/cudnn/conformance/run.sh CHECKOUT CATCH2 [BUILD_FOLDER]
#   CHECKOUT  of github.com/NVIDIA/cudnn-frontend    CATCH2  a checkout of github.com/catchorg/Catch2 (v3)
# FUSOR_CUDNN_LIB (default build/cudnn/lib) and CUDA_ROOT (default /usr/local/cuda) say where things are; BUILD_ONLY=1
# stops before the runs. WHEELS is a folder with the wheels of nvidia-cudnn-frontend and looseversion: with it, and with
# PyTorch, pytest, pytest-xdist and pytest-timeout in PYTHON (default python3), the Python tests of level L0 run. JOBS is
# how many processes run at a time (default: all cores to build, 4 to run), LIMIT the seconds of one test (60).
set -euo pipefail
if [[ $# -lt 2 ]]; then sed -n '2,13p' "$0"; exit 2; fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
checkout=$(cd "$1" && pwd)
catch2=$(cd "$2" && pwd)/extras
work=$(mkdir -p "${3:-$root/build/conformance}" && cd "${3:-$root/build/conformance}" && pwd)
lib=${FUSOR_CUDNN_LIB:-$root/build/cudnn/lib}
cuda=${CUDA_ROOT:-/usr/local/cuda}

# Catch2 as one file, under every name by which it is included.
grep -rhoE 'catch2/[a-z_/]+\.hpp' "$checkout/test/cpp" "$checkout/samples" | sort -u | while read -r header; do
  mkdir -p "$work/include/$(dirname "$header")"
  printf '#pragma once\n#include "%s/catch_amalgamated.hpp"\n' "$catch2" >"$work/include/$header"
done
[[ -f $work/catch.o ]] || g++ -std=c++20 -O1 -I"$catch2" -c "$catch2/catch_amalgamated.cpp" -o "$work/catch.o"

flags="-std=c++20 -O0 -w -include cudnn.h -I$work/include -I$root/compat/cudnn/include -I$checkout/include -I$cuda/include"
link=(-L"$lib" -lcudnn -L"$cuda/lib64" -lcudart -lcublasLt -lnvrtc -L"$cuda/lib64/stubs" -lcuda -ldl -lpthread)

# Compiles one file beside its log; one that does not compile is named and left out.
compile() {
  local file=$1 object=$2
  [[ -f $object ]] && return
  # shellcheck disable=SC2086
  g++ $flags -I"$(dirname "$file")" -I"$(dirname "$file")/.." -c "$file" -o "$object" 2>"$object.log" ||
    echo "does not compile: $file (see $object.log)"
}
export -f compile
export flags

# One program for each folder.
build() {
  local name=$1 folder=$2
  mkdir -p "$work/$name"
  find "$folder" -name '*.cpp' | sort | while read -r file; do
    printf '%s\n%s\n' "$file" "$work/$name/$(tr / _ <<<"${file#"$folder"/}").o"
  done | xargs -d '\n' -n 2 -P "${JOBS:-$(nproc)}" bash -c 'compile "$@"' _
  g++ "$work/$name"/*.o "$work/catch.o" "${link[@]}" -Wl,--unresolved-symbols=ignore-in-shared-libs -o "$work/$name.run"
  echo "built: $work/$name.run"
}

build test_cpp "$checkout/test/cpp"
build legacy_samples "$checkout/samples/legacy_samples"
build samples "$checkout/samples/cpp"
[[ -n ${BUILD_ONLY:-} ]] && exit 0

export LD_LIBRARY_PATH=$lib:$cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CUDNN_LOGLEVEL_DBG=1 CUDNN_LOGDEST_DBG=stderr LIMIT=${LIMIT:-60}

# Runs one test case; prints its verdict, and of one that failed what the library and the test said.
run_one() {
  local name=$2 output code=0
  output=$(timeout "$LIMIT" "$1" "$(sed 's/[],\\[]/\\&/g' <<<"$name")" 2>&1) || code=$?
  case $code in
    0) echo "pass  $name" ;;
    4) echo "skip  $name" ;;
    *) echo "fail  $name ($code): $(grep -E '^E! fusor|FAILED|rror' <<<"$output" | cut -c1-300 | head -n 6 | tr '\n' '|')" ;;
  esac
}
export -f run_one
for name in test_cpp legacy_samples samples; do
  # Benchmarks repeat what the samples show.
  "$work/$name.run" --list-tests --verbosity quiet | sed 's/^ *//' | { grep -vi benchmark || true; } |
    while read -r test; do printf '%s\n%s\n' "$work/$name.run" "$test"; done |
    xargs -d '\n' -n 2 -P "${JOBS:-4}" bash -c 'run_one "$@"' _ >"$work/$name.txt"
  echo "== $name: $(cut -c1-4 "$work/$name.txt" | sort | uniq -c | tr '\n' ' ')"
  grep '^fail' "$work/$name.txt" || true
done

[[ -z ${WHEELS:-} ]] && exit 0
python=${PYTHON:-python3}
"$python" -m pip install -q --no-index --no-deps --upgrade --target "$work/site" "$WHEELS"/*.whl
cd "$checkout/test/python"
FUSOR_CUDNN=$lib/libcudnn.so.9 LD_PRELOAD=$lib/libcudnn.so.9 PYTHONPATH=$work/site:$here PYTEST_PLUGINS=fusor_in_place \
  "$python" -m pytest -q -n "${JOBS:-4}" --timeout "$LIMIT" -m L0 --ignore=fe_api --ignore=test_mhas.py . || true
