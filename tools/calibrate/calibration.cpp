// Owns the steps of a calibration. What cannot be timed alone - the rate at which L2 feeds multiprocessors,
// what lines cost that straddle its own - is fitted: the constant under which the time model explains the
// times of many settings of one matmul best.
#include "tools/calibrate/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "frontend/graph_builder.h"

namespace fusor::command {

namespace {

/// Configurations of a candidate's fusions, as text.
std::string key_of(const Candidate& candidate) {
  std::string key;
  for (const PlannedFusion& fusion : candidate.fusions) key += to_string(fusion.config) + ';';
  return key;
}

Graph copy_graph(int64_t elements) {
  GraphBuilder g("copy");
  g.output(g.pointwise(PointwiseMode::neg, {g.input("x", {elements}, DataType::f32)}), {.name = "y"});
  return g.finish();
}

Graph matmul_graph(int64_t m, int64_t n, int64_t k) {
  GraphBuilder g(fmt::format("matmul {} x {} x {}", m, n, k));
  g.output(g.matmul(g.input("a", {m, k}, DataType::f16), g.input("b", {k, n}, DataType::f16)),
           {.name = "y", .type = DataType::f16});
  return g.finish();
}

std::vector<Candidate> all_candidates(const Graph& graph, const DeviceInfo& device) {
  constexpr int kAll = 500;
  static const TuningTable kNothing;
  return candidates(graph, device, {.max_candidates = kAll, .compile = false, .tuning = &kNothing});
}

/// Settings of a matmul, and how long each took.
struct Sample {
  Graph graph;
  std::map<std::string, double> seconds;
};

/// The mean of |log(estimate / time)|: how far the model under this device's constants is off.
double error_of(const Sample& sample, const DeviceInfo& device) {
  double sum = 0;
  int count = 0;
  for (const Candidate& candidate : all_candidates(sample.graph, device)) {
    const auto found = sample.seconds.find(key_of(candidate));
    if (found == sample.seconds.end() || !(candidate.seconds > 0)) continue;
    sum += std::abs(std::log(candidate.seconds / found->second));
    ++count;
  }
  return count > 0 ? sum / count : INFINITY;
}

class Calibrator {
 public:
  Calibrator(const DeviceInfo& described, Stopwatch& stopwatch, StepTold told)
      : stopwatch_(stopwatch), told_(std::move(told)) {
    result_.device = described;
  }

  Calibration run() {
    const bool has_tensor_cores = device().tensor_flops_16 > 0;
    const bool has_copies = device().target() == "sm_90a";
    steps_ = 2 + (has_tensor_cores ? 2 : 0) + (has_copies ? 3 : 0);
    measure_launch();
    measure_copy();
    if (has_tensor_cores) {
      measure_tensor_cores();
      fit("l2_bytes_per_s", &DeviceInfo::l2_bytes_per_s, 2048, 0, "settings of a matmul of 2048");
    }
    if (has_copies) {
      // Lines of these lengths in 16 bits begin on odd multiples of 64, 32 and 16 bytes. Shorter products
      // have a model of their own, in which L2 counts for less.
      fit("line_cost_64", &DeviceInfo::line_cost_64, 4064, 1, "settings of a matmul of 4064");
      fit("line_cost_32", &DeviceInfo::line_cost_32, 4048, 1, "settings of a matmul of 4048");
      fit("line_cost_16", &DeviceInfo::line_cost_16, 4056, 1, "settings of a matmul of 4056");
    }
    return std::move(result_);
  }

 private:
  DeviceInfo& device() { return result_.device; }

  void tell(const std::string& what) {
    if (told_) told_(done_, steps_, what);
    ++done_;
  }

  void keep(const std::string& name, double DeviceInfo::*constant, double value, const std::string& how) {
    if (!std::isfinite(value) || value <= 0) {
      result_.remarks.push_back(fmt::format("{} stays as it was: {} gave no time", name, how));
      return;
    }
    result_.constants.push_back({name, device().*constant, value, how});
    device().*constant = value;
  }

  // One more launch behind others: the difference between a row of them and one.
  void measure_launch() {
    constexpr int kRow = 9;
    tell("a launch");
    const Graph graph = copy_graph(1024);
    const std::vector<Candidate> found = all_candidates(graph, device());
    const double one = stopwatch_.in_a_row(graph, found.front(), 1),
                 row = stopwatch_.in_a_row(graph, found.front(), kRow);
    keep("launch_s", &DeviceInfo::launch_s, (row - one) / (kRow - 1),
         fmt::format("{} runs of a small kernel in a row, less one", kRow));
  }

  // Bytes read and written, less the launch.
  void measure_copy() {
    constexpr int64_t kMost = 1 << 26;  // elements
    tell("a copy");
    const int64_t elements = std::min(kMost, std::max<int64_t>(device().memory_bytes / 64, 1 << 20));
    const std::optional<double> seconds = fastest(copy_graph(elements), 4);
    keep("dram_bytes_per_s", &DeviceInfo::dram_bytes_per_s,
         seconds ? 8.0 * static_cast<double>(elements) / (*seconds - device().launch_s) : NAN,
         fmt::format("{} MiB read and written", elements >> 17));
  }

  void measure_tensor_cores() {
    constexpr int64_t kM = 8192, kN = 8192, kK = 4096;
    tell("tensor cores");
    const std::optional<double> seconds = fastest(matmul_graph(kM, kN, kK), 6);
    keep("tensor_flops_16", &DeviceInfo::tensor_flops_16,
         seconds ? 2.0 * kM * kN * kK / (*seconds - device().launch_s) : NAN,
         fmt::format("the fastest setting of a matmul of {} x {} x {}", kM, kN, kK));
  }

  /// The fastest of the first settings by estimate.
  std::optional<double> fastest(const Graph& graph, size_t most) {
    std::vector<Candidate> found = all_candidates(graph, device());
    if (found.size() > most) found.resize(most);
    std::optional<double> best;
    for (const std::optional<double>& seconds : stopwatch_.times(graph, found))
      if (seconds && (!best || *seconds < *best)) best = seconds;
    return best;
  }

  /// The settings whose estimates depend on the constant most, of those that are not far from the best.
  Sample sample_of(int64_t extent, double DeviceInfo::*constant) {
    constexpr size_t kSettings = 14;
    constexpr double kMove = 1.5, kFar = 5;
    Sample sample{matmul_graph(extent, extent, extent), {}};
    std::vector<Candidate> found = all_candidates(sample.graph, device());
    std::erase_if(
        found, [best = found.front().seconds](const Candidate& each) { return each.seconds > kFar * best; });
    std::map<std::string, double> moves;
    for (const double factor : {kMove, 1 / kMove}) {
      DeviceInfo moved = device();
      moved.*constant *= factor;
      for (const Candidate& each : all_candidates(sample.graph, moved))
        moves[key_of(each)] += factor > 1 ? std::log(each.seconds) : -std::log(each.seconds);
    }
    std::ranges::stable_sort(found, std::greater(),
                             [&](const Candidate& each) { return std::abs(moves[key_of(each)]); });
    if (found.size() > kSettings) found.resize(kSettings);
    const std::vector<std::optional<double>> times = stopwatch_.times(sample.graph, found);
    for (size_t i = 0; i < times.size(); ++i)
      if (times[i]) sample.seconds[key_of(found[i])] = *times[i];
    return sample;
  }

  // The value under which the model explains the sample best, no less than `least`: the best of a few on both
  // sides of the present one, then of closer ones around that.
  void fit(const std::string& name, double DeviceInfo::*constant, int64_t extent, double least,
           const std::string& how) {
    constexpr int kSteps = 6, kRounds = 4;
    tell(how);
    const Sample sample = sample_of(extent, constant);
    DeviceInfo tried = device();
    const auto error_at = [&](double value) {
      tried.*constant = value;
      return error_of(sample, tried);
    };
    double best = std::max(device().*constant, least), error = error_at(best), width = std::log(6.0);
    for (int round = 0; round < kRounds; ++round, width /= kSteps / 2.0) {
      const double middle = best;
      for (int i = -kSteps; i <= kSteps; ++i) {
        const double value = std::max(middle * std::exp(width * i / kSteps), least);
        const double there = error_at(value);
        if (there < error) std::tie(error, best) = std::pair(there, value);
      }
    }
    keep(name, constant, std::isfinite(error) ? best : NAN,
         fmt::format("{}; the model is off by {:.0f} % in the mean", how, 100 * std::expm1(error)));
  }

  Calibration result_;
  Stopwatch& stopwatch_;
  StepTold told_;
  size_t done_ = 0, steps_ = 0;
};

}  // namespace

Calibration calibrate(const DeviceInfo& described, Stopwatch& stopwatch, const StepTold& told) {
  return Calibrator(described, stopwatch, told).run();
}

}  // namespace fusor::command
