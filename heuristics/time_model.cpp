// Owns the time model.
#include "heuristics/time_model.h"

#include <algorithm>
#include <cmath>

namespace fusor {

namespace {

double ratio(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

// Special-function units give 16 results a clock and SM.
double special_rate(const DeviceInfo& device) { return 16.0 * device.sm_count * device.clock_hz; }

// A clock that a loaded device keeps, against the one that it states.
constexpr double kSustained = 0.86;
// The share of 128 bytes a clock and SM that is reached, by the fit that bench/HISTORY.md describes.
constexpr double kSharedShare = 0.98;

double shared_rate(const DeviceInfo& device) {
  return 128.0 * device.sm_count * device.clock_hz * kSustained * kSharedShare;
}

// Seconds on the SMs: whole rounds of tiles. A last round that is not full costs as much as the others.
double busy_seconds(const Work& work, const DeviceInfo& device, double on_chip) {
  const double items = static_cast<double>(work.tiles) * work.split;
  if (items <= 0) return on_chip / std::max(work.efficiency, 1e-3);
  const double sms = device.sm_count, in_flight = std::max(1, work.tiles_per_sm);
  const double rounds = std::ceil(items / (sms * in_flight));
  const double resident = std::min(in_flight, std::ceil(items / sms));
  // The time of one tile that has an SM for itself.
  const double alone = on_chip * sms / items / std::max(work.efficiency, 1e-3);
  const double finish = ratio(work.finish_cycles, device.clock_hz * kSustained);
  if (!work.finish_overlaps) return rounds * std::max(resident * alone, alone + finish);
  return rounds * std::max(alone, (alone + finish) / 2) + finish;
}

// A few busy SMs do not saturate DRAM: half of them do.
double dram_seconds(const Work& work, const DeviceInfo& device) {
  const bool has_blocks = !device.is_cpu() && work.tiles > 0;
  const double share = has_blocks ? dram_share(static_cast<double>(work.tiles) * work.split, device) : 1;
  return ratio(work.dram_bytes, share * device.dram_bytes_per_s);
}

}  // namespace

double dram_share(double blocks, const DeviceInfo& device) {
  return std::min(1.0, 2 * blocks / device.sm_count);
}

bool launches_overlap(const DeviceInfo& device) { return device.compute_capability >= 90; }

double seconds_in_turn(double sum, size_t fusions, const DeviceInfo& device) {
  // In whole networks on an H200, a launch behind another one costs 0.7 to 1.2 launch_s less than it does
  // alone.
  constexpr double kHidden = 0.8;
  const double behind = fusions > 1 && launches_overlap(device) ? static_cast<double>(fusions - 1) : 0;
  return std::max(sum - behind * kHidden * device.launch_s, 0.0);
}

double estimate_seconds(const Work& work, const DeviceInfo& device) {
  const double on_chip = std::max({
      ratio(work.tensor_flops, device.tensor_flops_16),
      ratio(work.fp32_flops, device.fp32_flops),
      ratio(work.fp64_flops, device.fp64_flops),
      device.is_cpu() ? 0 : ratio(work.special, special_rate(device)),
      ratio(work.l2_bytes, device.l2_bytes_per_s),
      device.is_cpu() ? 0 : ratio(work.shared_bytes, shared_rate(device)),
  });
  const double busy = busy_seconds(work, device, on_chip);
  const double fill = work.k_steps > 0 ? busy * (work.stages - 1.0) / (work.stages - 1.0 + work.k_steps) : 0;
  const double on_sms = busy + fill + work.start_s, memory = dram_seconds(work, device);
  // The lesser of the two is not hidden altogether: it decides between candidates that memory bounds alike.
  return std::max(on_sms, memory) + 0.15 * std::min(on_sms, memory) +
         ratio(work.serial_dram_bytes, device.dram_bytes_per_s) + work.launches * device.launch_s +
         work.fills * 0.4 * device.launch_s;
}

}  // namespace fusor
