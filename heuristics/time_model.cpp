// Owns the time model.
#include "heuristics/time_model.h"

#include <algorithm>
#include <cmath>

namespace fusor {

namespace {

double ratio(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

// Special-function units give 16 results a clock and SM.
double special_rate(const DeviceInfo& device) { return 16.0 * device.sm_count * device.clock_hz; }

}  // namespace

double estimate_seconds(const Work& work, const DeviceInfo& device) {
  const double on_chip = std::max({
      ratio(work.tensor_flops, device.tensor_flops_16),
      ratio(work.fp32_flops, device.fp32_flops),
      ratio(work.fp64_flops, device.fp64_flops),
      device.is_cpu() ? 0 : ratio(work.special, special_rate(device)),
      ratio(work.l2_bytes, device.l2_bytes_per_s),
  });
  // A last wave that is not full costs a whole one; DRAM does not care which SM asks.
  const double slots = static_cast<double>(device.sm_count) * std::max(1, work.tiles_per_sm);
  const double waves = static_cast<double>(work.tiles) * work.split / slots;
  const double stretch = waves > 0 ? std::ceil(waves) / waves : 1;
  const double busy = on_chip * stretch / std::max(work.efficiency, 1e-3);
  const double dram = ratio(work.dram_bytes, device.dram_bytes_per_s);
  const double fill = work.k_steps > 0 ? busy * (work.stages - 1.0) / (work.stages - 1.0 + work.k_steps) : 0;
  return std::max(busy + fill, dram) + work.launches * device.launch_s + work.fills * 0.4 * device.launch_s;
}

}  // namespace fusor
