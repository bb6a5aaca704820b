// Owns where DeviceInfo values come from: built-in profiles, files, the driver, this machine's CPU.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "codegen/cuda_driver.h"
#include "core/environment.h"
#include "core/fail.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

struct EmbeddedProfile {
  std::string_view name, text;
};

using namespace std::string_view_literals;  // the included rows end in ""sv

constexpr std::array kProfiles = std::to_array<EmbeddedProfile>({
#include "embedded_profiles.inc"
});

/// Letters and digits in lower case: "RTX 4090", "rtx_4090" and "RTX-4090" are one name.
std::string folded(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

/// In order of compute capability, then of name: an architecture's first profile is its first generation's.
const std::vector<DeviceInfo>& all_profiles() {
  static const std::vector<DeviceInfo> profiles = [] {
    std::vector<DeviceInfo> read;
    read.reserve(kProfiles.size());
    for (const EmbeddedProfile& file : kProfiles) read.push_back(device_from_json(file.text));
    std::ranges::sort(
        read, {}, [](const DeviceInfo& device) { return std::pair(device.compute_capability, device.name); });
    return read;
  }();
  return profiles;
}

/// Every word that names a device, for the message to one who used another.
std::string known_names() {
  std::string names, architectures, targets;
  const auto add_once = [](std::string& list, const std::string& word) {
    if (list.find(word) == std::string::npos) list += (list.empty() ? "" : ", ") + word;
  };
  for (const DeviceInfo& profile : all_profiles()) {
    names += ", " + profile.name;
    add_once(architectures, profile.architecture);
    add_once(targets, fmt::format("sm_{}", profile.compute_capability));
  }
  return fmt::format("cpu, current{}; architectures {}; targets {}; or the path of a JSON file", names,
                     architectures, targets);
}

const DeviceInfo* find_profile(std::string_view asked) {
  const std::string name = folded(asked);
  const auto with = [&](auto matches) -> const DeviceInfo* {
    const auto found = std::ranges::find_if(all_profiles(), matches);
    return found == all_profiles().end() ? nullptr : &*found;
  };
  if (const auto* found = with([&](const DeviceInfo& device) { return folded(device.name) == name; }))
    return found;
  if (const auto* found = with([&](const DeviceInfo& device) { return folded(device.architecture) == name; }))
    return found;
  return with([&](const DeviceInfo& device) {
    return name == fmt::format("sm{}", device.compute_capability) || name == folded(device.target());
  });
}

/// The profile that the driver's name means ("NVIDIA A100-SXM4-80GB"): the longest that fits, of the same
/// generation.
const DeviceInfo* profile_of(const DeviceInfo& described) {
  const std::string name = folded(described.name);
  const DeviceInfo* best = nullptr;
  for (const DeviceInfo& profile : all_profiles()) {
    const bool fits = profile.compute_capability == described.compute_capability &&
                      name.find(folded(profile.name)) != std::string::npos;
    if (fits && (best == nullptr || profile.name.size() > best->name.size())) best = &profile;
  }
  return best;
}

/// The profile whose generation is nearest from below, else the first.
const DeviceInfo& nearest_profile(int compute_capability) {
  const DeviceInfo* best = &all_profiles().front();
  for (const DeviceInfo& profile : all_profiles())
    if (profile.compute_capability <= compute_capability) best = &profile;
  return *best;
}

/// The driver's description with the rates that only a profile knows.
DeviceInfo with_rates(DeviceInfo device) {
  const DeviceInfo* same = profile_of(device);
  const DeviceInfo& profile = same != nullptr ? *same : nearest_profile(device.compute_capability);
  double compute_scale = 1, memory_scale = 1;
  if (same == nullptr) {
    if (device.clock_hz <= 0) device.clock_hz = profile.clock_hz;
    memory_scale = static_cast<double>(device.sm_count) / profile.sm_count;
    compute_scale = memory_scale * device.clock_hz / profile.clock_hz;
    device.source = fmt::format("driver; rates of {} scaled by multiprocessors and clock", profile.name);
  } else {
    device.clock_hz = profile.clock_hz;
    device.source = fmt::format("driver; rates of {}: {}", profile.name, profile.source);
  }
  device.architecture = profile.architecture;
  device.dram_bytes_per_s = profile.dram_bytes_per_s * memory_scale;
  device.l2_bytes_per_s = profile.l2_bytes_per_s * compute_scale;
  device.fp32_flops = profile.fp32_flops * compute_scale;
  device.fp64_flops = profile.fp64_flops * compute_scale;
  device.tensor_flops_16 = profile.tensor_flops_16 * compute_scale;
  device.launch_s = profile.launch_s;
  device.line_cost_16 = profile.line_cost_16;
  device.line_cost_32 = profile.line_cost_32;
  device.line_cost_64 = profile.line_cost_64;
  return device;
}

int64_t system_value(int name, int64_t otherwise) {
  const long value = ::sysconf(name);
  return value > 0 ? value : otherwise;
}

}  // namespace

DeviceInfo DeviceInfo::cpu() {
  // Nothing is measured, so that the value is the same in every process: a core of 2.5 GHz that does 8 fp32
  // operations a cycle and streams 8 GB/s, all cores together at most 80 GB/s.
  constexpr double kClock = 2.5e9, kFlopsPerCycle = 8, kBytesPerCore = 8e9, kBytesTogether = 80e9;
  const int cores = environment::threads();
  DeviceInfo device;
  device.name = "CPU";
  device.kind = DeviceKind::cpu;
#if defined(__x86_64__)
  device.architecture = "x86-64";
#elif defined(__aarch64__)
  device.architecture = "aarch64";
#else
  device.architecture = "CPU";
#endif
  device.sm_count = cores;
  device.registers_per_sm = 0;
  device.max_threads_per_sm = 1;
  device.l2_bytes = system_value(_SC_LEVEL2_CACHE_SIZE, int64_t{1} << 20);
  device.memory_bytes = system_value(_SC_PHYS_PAGES, 1 << 20) * system_value(_SC_PAGESIZE, 4096);
  device.clock_hz = kClock;
  device.dram_bytes_per_s = std::min(cores * kBytesPerCore, kBytesTogether);
  device.l2_bytes_per_s = cores * kClock * 16;
  device.fp32_flops = cores * kClock * kFlopsPerCycle;
  device.fp64_flops = device.fp32_flops / 2;
  device.launch_s = 2e-6;
  device.source = "estimate, not measured: 2.5 GHz, 8 fp32 operations a cycle and 8 GB/s a core";
  return device;
}

DeviceInfo DeviceInfo::current() {
  if (!cuda::available()) return cpu();
  return with_rates(cuda::describe(cuda::current_device()));
}

DeviceInfo DeviceInfo::named(std::string_view name) {
  if (folded(name) == "cpu") return cpu();
  if (folded(name) == "current") return current();
  if (name.find('/') != std::string_view::npos || name.ends_with(".json"))
    return read_device(std::string(name));
  if (const DeviceInfo* profile = find_profile(name)) return *profile;
  fail("unknown device '{}'; known: {}", name, known_names());
}

std::vector<DeviceInfo> DeviceInfo::profiles() { return all_profiles(); }

}  // namespace fusor
