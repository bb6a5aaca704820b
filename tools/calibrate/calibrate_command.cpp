// Owns `fusor calibrate`: the rates of this machine's GPU measured, as a profile that --device takes.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <memory>
#include <mutex>

#include "backend/executable.h"
#include "codegen/cuda_driver.h"
#include "core/environment.h"
#include "core/fail.h"
#include "core/parallel.h"
#include "heuristics/statistics.h"
#include "serialization/serialization.h"
#include "tools/calibrate/calibration.h"
#include "tools/commands.h"
#include "tools/measure.h"
#include "tools/print.h"
#include "tools/progress.h"
#include "tools/run_buffers.h"

namespace fusor::command {

namespace {

/// Times on the device itself; candidates in turn, between readings that empty the caches.
class DeviceStopwatch final : public Stopwatch {
 public:
  DeviceStopwatch(const DeviceInfo& device, const Options& options)
      : device_(device), options_(options), flush_(device, options.flush_mb << 20) {}

  std::vector<std::optional<double>> times(const Graph& graph,
                                           std::span<const Candidate> candidates) override {
    const std::vector<std::optional<Executable>> loaded = load_all(graph, candidates);
    std::vector<std::function<void()>> subjects;
    const RunBuffers buffers(graph, true, workspace_of(loaded), options_.seed);
    for (const std::optional<Executable>& each : loaded)
      if (each) subjects.emplace_back([&] { each->run(buffers.bindings(), buffers.workspace()); });
    const auto measured = measure_in_turn(subjects, flush_, {.runs = options_.calibrate_runs});
    std::vector<std::optional<double>> found;
    auto next = measured.begin();
    for (const std::optional<Executable>& each : loaded)
      found.push_back(each ? std::optional(summarise(*next++).median) : std::nullopt);
    return found;
  }

  double in_a_row(const Graph& graph, const Candidate& candidate, int runs) override {
    const std::vector<std::optional<Executable>> loaded = load_all(graph, {&candidate, 1});
    if (!loaded.front()) return 0;
    const RunBuffers buffers(graph, true, workspace_of(loaded), options_.seed);
    const std::function<void()> subject = [&] {
      for (int i = 0; i < runs; ++i) loaded.front()->run(buffers.bindings(), buffers.workspace());
    };
    constexpr int kRows = 31;  // short, and their difference is small
    const auto measured =
        measure_in_turn({&subject, 1}, flush_, {.runs = std::max(kRows, options_.calibrate_runs)});
    return summarise(measured.front()).median;
  }

 private:
  /// Compiled in parallel; nothing in the place of one that cannot be loaded.
  std::vector<std::optional<Executable>> load_all(const Graph& graph,
                                                  std::span<const Candidate> candidates) const {
    std::vector<std::optional<Executable>> loaded(candidates.size());
    parallel_for(std::ssize(candidates), environment::threads(), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      try {
        cuda::make_current();
        loaded[at] = load(fusor::build(graph, device_, candidates[at]));
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::missing) throw;
      }
    });
    return loaded;
  }
  static int64_t workspace_of(const std::vector<std::optional<Executable>>& loaded) {
    int64_t bytes = 0;
    for (const std::optional<Executable>& each : loaded)
      if (each) bytes = std::max(bytes, each->workspace_bytes());
    return bytes;
  }

  const DeviceInfo& device_;
  const Options& options_;
  const Flusher flush_;
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  ::gmtime_r(&now, &date);
  return fmt::format("{:04}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday);
}

Report report_of(const Calibration& calibration, const std::string& saved) {
  Report constants = Report::list();
  for (const MeasuredConstant& each : calibration.constants)
    constants.add(Report::object()
                      .set("name", each.name)
                      .set("before", each.before)
                      .set("after", each.after)
                      .set("how", each.how));
  Report report = Report::object()
                      .set("device", Report::object().set_fields(calibration.device))
                      .set("measured", std::move(constants))
                      .set("remarks", calibration.remarks);
  if (!saved.empty()) report.set("saved", saved);
  return report;
}

std::string text_of(const Calibration& calibration, const std::string& saved) {
  std::string text =
      fmt::format("{}\n{:<18} {:>10} {:>10}\n", calibration.device.name, "", "before", "measured");
  for (const MeasuredConstant& each : calibration.constants)
    text += fmt::format("{:<18} {:>10.4g} {:>10.4g}  {}\n", each.name, each.before, each.after, each.how);
  for (const std::string& remark : calibration.remarks) text += fmt::format("remark: {}\n", remark);
  if (!saved.empty()) text += fmt::format("saved as {}: --device {} plans with it\n", saved, saved);
  return text;
}

}  // namespace

int calibrate(const Options& options) {
  const bool asked = !options.device.empty();
  const DeviceInfo described = DeviceInfo::named(asked ? options.device : "current");
  if (asked && described.is_cpu()) fail("a CPU has no profile to be measured: calibrate measures a GPU");
  if (!cuda::available()) fail(ErrorKind::missing, "there is no GPU to be measured");
  cuda::make_current();
  Calibration calibration;
  {
    std::unique_ptr<ProgressBar> bar;
    DeviceStopwatch stopwatch(described, options);
    calibration = calibrate(described, stopwatch, [&](size_t done, size_t all, const std::string& what) {
      if (!bar) bar = std::make_unique<ProgressBar>(all);
      bar->show(done, 0, what);
    });
  }
  calibration.device.source = fmt::format("fusor calibrate, {}; the rest: {}", today(), described.source);
  if (!options.output.empty()) {
    std::ofstream file(options.output, std::ios::binary);
    file << to_json(calibration.device);
    file.close();
    if (!file) fail("{}: cannot be written", options.output);
  }
  if (options.json)
    print(report_of(calibration, options.output));
  else
    print(text_of(calibration, options.output));
  return 0;
}

}  // namespace fusor::command
