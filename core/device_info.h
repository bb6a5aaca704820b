// Owns DeviceInfo: what planning needs to know of a device, as a value; no driver is needed to have one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api.h"

namespace fusor {

enum class DeviceKind : uint8_t { cpu, cuda };

/// One device. Rates are per second, sizes in bytes.
struct FUSOR_API DeviceInfo {
  std::string name;  ///< "H200"
  DeviceKind kind = DeviceKind::cuda;
  std::string architecture;      ///< "Hopper"
  int compute_capability = 0;    ///< 90 for sm_90; 0 for a CPU
  int sm_count = 1;              ///< multiprocessors; cores for a CPU
  int64_t shared_per_block = 0;  ///< the opt-in limit
  int64_t shared_per_sm = 0;
  int64_t registers_per_sm = 65536;
  int max_threads_per_sm = 2048;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  double clock_hz = 0;          ///< boost clock that the rates below stand for
  double dram_bytes_per_s = 0;  ///< reachable read + write rate
  double l2_bytes_per_s = 0;
  double fp32_flops = 0;
  double fp64_flops = 0;
  double tensor_flops_16 = 0;  ///< dense fp16 / bf16; 0 without tensor cores
  double launch_s = 2.5e-6;    ///< device time that one more kernel costs
  /// Relative cost, for TMA and L2, of a 128-byte line that starts at an odd multiple of 16, 32, 64 bytes;
  /// 1 = aligned.
  double line_cost_16 = 1, line_cost_32 = 1, line_cost_64 = 1;
  std::string source;  ///< "measured ..." or "data sheet ..."

  /// The CPU of this machine.
  static DeviceInfo cpu();
  /// The GPU of the current CUDA context (device 0 where there is none), or the CPU where there is no usable
  /// GPU.
  static DeviceInfo current();
  /// A profile by name ("H200"), by architecture ("hopper": its first profile), by target ("sm_90"), "cpu",
  /// "current", or from a JSON file's path. Throws Error that lists what there is.
  static DeviceInfo named(std::string_view name);
  /// Every built-in profile.
  static std::vector<DeviceInfo> profiles();

  bool is_cpu() const { return kind == DeviceKind::cpu; }
  /// NVRTC's architecture: "sm_90a" where kernels may use that generation's own instructions, else "sm_80".
  std::string target() const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("name", self.name);
    field("kind", self.kind);
    field("architecture", self.architecture);
    field("compute_capability", self.compute_capability);
    field("sm_count", self.sm_count);
    field("shared_per_block", self.shared_per_block);
    field("shared_per_sm", self.shared_per_sm);
    field("registers_per_sm", self.registers_per_sm);
    field("max_threads_per_sm", self.max_threads_per_sm);
    field("l2_bytes", self.l2_bytes);
    field("memory_bytes", self.memory_bytes);
    field("clock_hz", self.clock_hz);
    field("dram_bytes_per_s", self.dram_bytes_per_s);
    field("l2_bytes_per_s", self.l2_bytes_per_s);
    field("fp32_flops", self.fp32_flops);
    field("fp64_flops", self.fp64_flops);
    field("tensor_flops_16", self.tensor_flops_16);
    field("launch_s", self.launch_s);
    field("line_cost_16", self.line_cost_16);
    field("line_cost_32", self.line_cost_32);
    field("line_cost_64", self.line_cost_64);
    field("source", self.source);
  }
  friend bool operator==(const DeviceInfo&, const DeviceInfo&) = default;
};

/// A field that is that of no device, as "sm_count", and why: "expected 1 to 65536, got 0".
struct DeviceProblem {
  std::string key, why;
};
/// The first field that planning could not work with, or nothing.
FUSOR_API std::optional<DeviceProblem> problem_with(const DeviceInfo& device);

}  // namespace fusor
