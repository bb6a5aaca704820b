#!/usr/bin/env bash
# Owns the machine's side of a build: finds what is missing and installs only that. Touches no network otherwise.
# usage: tools/setup.sh [--ci]     --ci: also what checks the style, a browser for the test of explain's pages, and MkDocs
# FUSOR_NO_SYSTEM_CUDA=1 overlooks installed CUDA toolkits, FUSOR_NO_CUDA=1 builds without the GPU device.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '[setup] %s\n' "$*"; }
stop() { say "$*"; exit 3; }

# at_least VERSION LEAST
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
gxx_is_new() { at_least "$("${CXX:-g++}" -dumpfullversion 2>/dev/null || echo 0)" 12; }
cmake_is_new() { at_least "$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p')" 3.25; }
has_command() { command -v "$1" >/dev/null; }
has_library() { has_command pkg-config && pkg-config --exists "$1"; }

# Python's headers and virtual environments; whoever has another Python first on PATH has both there.
has_python() { python3 -c 'import os, sysconfig; open(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null; }
has_python_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }

# One row each: Debian package, then what shows that it is there.
requirements() {
  cat <<ROWS
g++ gxx_is_new
cmake cmake_is_new
ninja-build has_command ninja
pkg-config has_command pkg-config
libfmt-dev has_library fmt
nlohmann-json3-dev has_library nlohmann_json
libcli11-dev has_library CLI11
libeigen3-dev has_library eigen3
libgtest-dev has_library gtest
libgmock-dev has_library gmock
libbenchmark-dev has_library benchmark
python3-dev has_python
python3-venv has_python_venv
ROWS
  if [ "${1:-}" = --ci ]; then
    echo "git has_command git"
    echo "clang-format has_command clang-format"
    echo "clang-tidy has_command clang-tidy"
  fi
}

missing_packages() {
  local package check
  requirements "$@" | while read -r package check; do $check || echo "$package"; done | xargs
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif has_command sudo; then sudo "$@"
  else stop "not root and no sudo; as root, run: $*"
  fi
}

# install_packages PACKAGE...: quiet unless it fails.
install_packages() {
  local log
  has_command apt-get || stop "missing: $* (Debian names); there is no apt-get here, please install them"
  say "installing $*"
  log=$(mktemp)
  as_root apt-get update -qq >"$log" 2>&1 || { cat "$log"; stop "apt-get update failed (no network?). Missing: $*"; }
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends --no-upgrade "$@" \
    >"$log" 2>&1 </dev/null || { cat "$log"; stop "apt-get install failed. Missing: $*"; }
  rm -f "$log"
}

# The folder that has CUDA's headers, as the build will find it; empty where there is none.
cuda_headers() { cmake -P cmake/FusorCuda.cmake 2>&1 | sed -n 's/.*CUDA headers: //p'; }

# NVRTC and the headers as wheels, unpacked into .cuda/: no toolkit, nothing system-wide.
fetch_cuda_wheels() {
  local wheels=('nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-runtime==13.0.*')
  if ! python3 -m pip --version >/dev/null 2>&1; then
    (install_packages python3 python3-pip) || return 1
  fi
  say "no CUDA toolkit >= 12.8: fetching ${wheels[*]} into .cuda/"
  rm -rf .cuda.partial
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --no-deps --only-binary :all: \
    --disable-pip-version-check --retries 1 --target .cuda.partial "${wheels[@]}" || { rm -rf .cuda.partial; return 1; }
  rm -rf .cuda
  mv .cuda.partial .cuda
}

set_up_cuda() {
  [ -z "${FUSOR_NO_CUDA:-}" ] || { say "FUSOR_NO_CUDA is set: building without the GPU device"; return; }
  [ -n "$(cuda_headers)" ] || fetch_cuda_wheels || true
  local found
  found=$(cuda_headers)
  if [ -n "$found" ]; then say "CUDA headers: $found"
  else say "no CUDA >= 12.8 and no wheels: building without the GPU device (the CPU device has everything)"
  fi
}

# What the Python package is built and tested with, in .venv/: nothing system-wide.
set_up_python() {
  local packages=('nanobind>=2.4' 'scikit-build-core>=0.10' numpy)
  if [ -x .venv/bin/python ] && .venv/bin/python -c 'import nanobind, numpy, scikit_build_core' 2>/dev/null; then
    say "Python: .venv"
    return
  fi
  say "fetching ${packages[*]} into .venv/"
  if ! { python3 -m venv .venv && .venv/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 \
    "${packages[@]}"; }; then
    say "no Python packages: building without the Python package"
  fi
}

# Without one, the test that opens pages skips itself.
set_up_browser() {
  has_command chromium || (install_packages chromium) || say "no Chromium: the pages of explain are not opened"
}

# In .venv/, as Python's other packages. Without it, the test of the site compares its lists and builds nothing.
set_up_mkdocs() {
  [ ! -x .venv/bin/mkdocs ] && ! has_command mkdocs || return 0
  say "fetching mkdocs into .venv/"
  { [ -x .venv/bin/python ] && .venv/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 mkdocs; } ||
    say "no MkDocs: the site is not built"
}

missing=$(missing_packages "$@")
if [ -n "$missing" ]; then
  # shellcheck disable=SC2086  # a list of packages
  install_packages $missing
  missing=$(missing_packages "$@")
  [ -z "$missing" ] || stop "still missing or too old after installing: $missing (g++ >= 12, cmake >= 3.25)"
fi
say "compiler and libraries: all there"
[ "${1:-}" != --ci ] || set_up_browser
set_up_cuda
set_up_python
[ "${1:-}" != --ci ] || set_up_mkdocs
