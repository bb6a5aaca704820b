#!/usr/bin/env bash
# Owns the style and static checks: clang-format over every file, clang-tidy over every source.
# usage: tools/lint.sh [--changed]     --changed: clang-tidy only for what differs from main
# Both tools are Debian 12's (version 14); another clang-format may want other line breaks.
set -euo pipefail
cd "$(dirname "$0")/.."

tracked() { git ls-files --cached --others --exclude-standard -- "$@"; }

# The commit that the change is measured against; empty where there is none (a shallow clone).
base_commit() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse -q --verify HEAD)" ]; then
    base=$(git rev-parse -q --verify HEAD~1 || true)
  fi
  echo "$base"
}

# The source by which a file is checked: itself, a header's source of the same name, or one that includes it.
source_of() {
  local own="${1%.*}.cpp"
  if [ -f "$own" ]; then
    echo "$own"
  else
    { git grep -l "#include \"$1\"" -- '*.cpp' || true; } | sed -n 1p
  fi
}

# Sources to check: all, or those that changed or whose headers did.
sources() {
  local base=""
  [ "${1:-}" != --changed ] || base=$(base_commit)
  if [ -z "$base" ]; then
    tracked '*.cpp'
  else
    { git diff --name-only --diff-filter=d "$base" -- '*.cpp' '*.h'
      git ls-files --others --exclude-standard -- '*.cpp' '*.h'
    } | while read -r file; do source_of "$file"; done | sort -u
  fi
}

echo "[lint] clang-format"
tracked '*.cpp' '*.h' '*.cuh' | xargs -r clang-format --dry-run -Werror

# clang-tidy needs the compile commands, one for each file, and the generated tables, not the build.
cmake --preset release -B build-lint -DFUSOR_UNITY_BUILD=OFF -DFUSOR_PRECOMPILED_HEADERS=OFF >/dev/null
cmake --build build-lint --target fusor_embed_device_files fusor_embed_profiles fusor_embed_pages \
  fusor_embed_text_writers fusor_headers >/dev/null
# The install test's projects are built against an installed fusor and have no entry in compile_commands.json.
mapfile -t files < <(sources "$@" | grep -v '^tests/install/' || true)
echo "[lint] clang-tidy over ${#files[@]} files"
# The compile commands are g++'s: clang need not know every warning that they switch off.
printf '%s\n' "${files[@]}" | xargs -r -n 1 -P "$(nproc)" \
  clang-tidy -p build-lint --quiet --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings\? generated' >&2)
echo "[lint] clean"
