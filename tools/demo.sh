#!/usr/bin/env bash
# Owns the demonstration: sets the machine up, builds, and shows one convolution and one ResNet-50 block from the graph to
# a verified run, then a second process that compiles nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
tools/build.sh release fusor_command libfusor.so samples/all

fusor=build/fusor
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
# A cache of its own, so that compile times are shown even where an earlier run has filled the user's.
export FUSOR_CACHE_DIR=$here/cache

title() { printf '\n== %s\n' "$*"; }

title "This machine"
$fusor doctor || true

title "First sample: conv + bias + relu, explained, run and verified"
build/samples/sample_conv_bias_relu

if found=$($fusor doctor --json) && [[ $found == *'"gpu": true'* ]]; then
  graph=samples/graphs/resnet50_bottleneck_n32.json device=current
else
  graph=samples/graphs/resnet50_bottleneck_n1.json device=cpu
fi
title "ResNet-50 bottleneck on $device: the fusions chosen, and why"
$fusor explain "$graph" --device "$device"
title "ResNet-50 bottleneck on $device: run and verified"
$fusor run "$graph" --device "$device" --verify

title "The same block at N = 32 for an H200, which need not be here: kernels, compile times"
n32=samples/graphs/resnet50_bottleneck_n32.json
plan=$here/bottleneck.plan.json
status=0
$fusor plan "$n32" --device H200 -o "$plan" || status=$?
if [ "$status" = 0 ]; then
  title "A second process: the saved plan is read, and its kernels come from the cache"
  $fusor plan "$plan" | tee "$here/second"
  if grep -q 'compiled now' "$here/second"; then echo "something was compiled again"; exit 1; fi
  echo "nothing was compiled"
elif [ "$status" = 3 ]; then
  echo "left out: there is no NVRTC here"
else
  exit "$status"
fi

title "Save on $device, and run the saved plan in a second process"
$fusor plan "$graph" --device "$device" -o "$plan" >/dev/null
$fusor run "$plan" --verify
