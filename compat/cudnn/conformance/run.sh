#!/usr/bin/env bash
# Owns the conformance run: builds the tests and samples of a checkout of cudnn-frontend against fusor's libcudnn, and
# runs them. Unmodified sources; a GPU is needed for most of legacy_samples and samples.
# usage: compat/cudnn/conformance/run.sh CHECKOUT CATCH2 [BUILD_FOLDER]
#   CHECKOUT  of github.com/NVIDIA/cudnn-frontend    CATCH2  a checkout of github.com/catchorg/Catch2 (v3)
# FUSOR_CUDNN_LIB (default build/cudnn/lib) and CUDA_ROOT (default /usr/local/cuda) say where things are; BUILD_ONLY=1
# stops before the runs.
set -euo pipefail
if [[ $# -lt 2 ]]; then sed -n '2,7p' "$0"; exit 2; fi
root=$(cd "$(dirname "$0")/../../.." && pwd)
checkout=$(cd "$1" && pwd)
catch2=$(cd "$2" && pwd)
work=$(mkdir -p "${3:-$root/build/conformance}" && cd "${3:-$root/build/conformance}" && pwd)
lib=${FUSOR_CUDNN_LIB:-$root/build/cudnn/lib}
cuda=${CUDA_ROOT:-/usr/local/cuda}

# Catch2 as one file, so that nothing of its build is needed.
amalgamated=$catch2/extras
if [[ ! -f $work/catch.o ]]; then
  g++ -std=c++20 -O1 -I"$amalgamated" -c "$amalgamated/catch_amalgamated.cpp" -o "$work/catch.o"
fi
mkdir -p "$work/include/catch2"
for name in catch_test_macros catch_all; do
  printf '#include "%s/catch_amalgamated.hpp"\n' "$amalgamated" >"$work/include/catch2/$name.hpp"
done

flags=(-std=c++20 -O0 -w -include cudnn.h -I"$work/include" -I"$root/compat/cudnn/include" -I"$checkout/include" -I"$cuda/include")
link=(-L"$lib" -lcudnn -L"$cuda/lib64" -lcudart -lcublasLt -lnvrtc -L"$cuda/lib64/stubs" -lcuda -ldl -lpthread)

# One program for each folder; files that do not compile are named and left out.
build() {
  local name=$1 objects=() file object
  shift
  mkdir -p "$work/$name"
  for file in "$@"; do
    object=$work/$name/$(basename "${file%.cpp}").o
    if [[ ! -f $object ]] && ! g++ "${flags[@]}" -I"$(dirname "$file")" -I"$(dirname "$file")/.." -c "$file" \
        -o "$object" 2>"$object.log"; then
      echo "does not compile: ${file#"$checkout"/} (see $object.log)"
      continue
    fi
    objects+=("$object")
  done
  g++ "${objects[@]}" "$work/catch.o" "${link[@]}" -Wl,--unresolved-symbols=ignore-in-shared-libs -o "$work/$name.run"
  echo "built: $work/$name.run"
}

mapfile -t tests < <(find "$checkout/test/cpp" -name '*.cpp' | sort)
mapfile -t legacy < <(find "$checkout/samples/legacy_samples" -name '*.cpp' | sort)
mapfile -t samples < <(find "$checkout/samples/cpp" -name '*.cpp' | sort)
build test_cpp "${tests[@]}"
build legacy_samples "${legacy[@]}"
build samples "${samples[@]}"
[[ -n ${BUILD_ONLY:-} ]] && exit 0

export LD_LIBRARY_PATH=$lib:$cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for name in test_cpp legacy_samples samples; do
  echo "== $name"
  "$work/$name.run" --reporter compact 2>&1 | tail -n 3 || true
done
