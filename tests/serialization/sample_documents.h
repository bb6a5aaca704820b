// Owns the documents that the tests of this folder read, change and break.
#pragma once

#include <string>

#include <stdexcept>

#include "core/error.h"
#include "serialization/serialization.h"

namespace fusor::samples {

/// conv + bias + relu, written as a person would.
inline const std::string kConvGraph = R"({
  "format": 1, "kind": "graph", "name": "conv block",
  "tensors": [
    {"name": "x", "uid": 7, "type": "fp16", "dims": [2, 8, 5, 5], "strides": "nhwc"},
    {"name": "w", "type": "fp16", "dims": [4, 8, 3, 3], "strides": "nhwc"},
    {"name": "b", "type": "fp16", "dims": [1, 4, 1, 1]},
    {"name": "t", "type": "fp32", "dims": [2, 4, 5, 5], "memory": "workspace"},
    {"name": "u", "type": "fp32", "dims": [2, 4, 5, 5], "memory": "workspace"},
    {"name": "y", "type": "fp16", "dims": [2, 4, 5, 5], "strides": [100, 1, 20, 4], "alignment": 8}
  ],
  "ops": [
    {"name": "c1", "op": "conv_fprop", "pre_padding": [1, 1], "post_padding": [1, 1], "inputs": ["x", "w"], "outputs": ["t"]},
    {"name": "add1", "op": "pointwise", "mode": "add", "inputs": ["t", "b"], "outputs": ["u"]},
    {"name": "relu1", "op": "pointwise", "mode": "relu", "inputs": ["u"], "outputs": ["y"]}
  ]
})";

/// Two matmuls with a transpose between them, a host scalar, a constant and a reduction.
inline const std::string kMatmulGraph = R"({
  "format": 1, "kind": "graph", "name": "matmuls",
  "tensors": [
    {"name": "a", "type": "bf16", "dims": [6, 4]},
    {"name": "at", "type": "bf16", "dims": [4, 6], "memory": "workspace"},
    {"name": "b", "type": "bf16", "dims": [6, 3]},
    {"name": "c", "type": "fp32", "dims": [4, 3], "memory": "workspace"},
    {"name": "s", "type": "fp32", "dims": [1, 1], "memory": "host", "alignment": 4},
    {"name": "cap", "type": "fp32", "dims": [1, 1], "memory": "constant", "value": "inf"},
    {"name": "d", "type": "fp32", "dims": [4, 3], "memory": "workspace"},
    {"name": "e", "type": "fp32", "dims": [4, 3]},
    {"name": "r", "type": "fp32", "dims": [1, 3]}
  ],
  "ops": [
    {"name": "tr", "op": "transpose", "permutation": [1, 0], "inputs": ["a"], "outputs": ["at"]},
    {"name": "mm", "op": "matmul", "inputs": ["at", "b"], "outputs": ["c"]},
    {"name": "scale", "op": "pointwise", "mode": "mul", "inputs": ["c", "s"], "outputs": ["d"]},
    {"name": "clip", "op": "pointwise", "mode": "min", "inputs": ["d", "cap"], "outputs": ["e"]},
    {"name": "sum", "op": "reduction", "mode": "amax", "inputs": ["e"], "outputs": ["r"]}
  ]
})";

inline DeviceInfo small_gpu() {
  DeviceInfo device;
  device.name = "small";
  device.architecture = "Hopper";
  device.compute_capability = 90;
  device.sm_count = 3;
  device.shared_per_block = 1 << 16;
  device.shared_per_sm = 1 << 17;
  device.l2_bytes = 1 << 20;
  device.memory_bytes = int64_t{1} << 33;
  device.clock_hz = 1.1e9;
  device.dram_bytes_per_s = 1e12 / 3;
  device.l2_bytes_per_s = 2e12;
  device.fp32_flops = 3e12;
  device.source = "made up \"here\"";
  return device;
}

inline Plan conv_plan() {
  Plan plan;
  plan.graph = graph_from_json(kConvGraph);
  plan.device = small_gpu();
  plan.fusions = {{{0, 1}, {"direct", 2, {{"tile_m", 64}, {"tile_n", -1}}}}, {{2}, {"elementwise", 1, {}}}};
  plan.workspace_bytes = 4096;
  plan.seconds = 1.0 / 3;
  plan.notes.tensor_cores = true;
  plan.remarks = {"'direct' revision 1 is gone", "second"};
  return plan;
}

/// `text` with its only `from` turned into `to`.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos || text.find(from, at + 1) != std::string::npos)
    throw std::logic_error("'" + from + "' is not there exactly once");
  return text.replace(at, from.size(), to);
}

/// The message with which reading fails; empty where it does not.
template <class Read>
std::string error_of(Read read) {
  try {
    read();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::bad_input ? error.what() : std::string("another kind: ") + error.what();
  }
  return "";
}

}  // namespace fusor::samples
