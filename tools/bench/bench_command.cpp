// Owns `fusor bench`: cases chosen, planned, checked and timed, one JSON line each.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "backend/executable.h"
#include "codegen/cuda_driver.h"
#include "codegen/text/expr_emitter.h"
#include "core/environment.h"
#include "core/fail.h"
#include "core/parallel.h"
#include "heuristics/statistics.h"
#include "serialization/bench_cases.h"
#include "tools/bench/attention_cases.h"
#include "tools/bench/case_graph.h"
#include "tools/bench/check_case.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/measure.h"
#include "tools/print.h"
#include "tools/progress.h"
#include "tools/run_buffers.h"

namespace fusor::command {

namespace {

namespace fs = std::filesystem;

// ---- which cases ----

bool names_a_file(const std::string& word) { return word == "-" || word.ends_with(".json"); }

/// A file of cases in the folder, by its name.
std::optional<std::string> named_in(const std::string& folder, const std::string& word) {
  const fs::path path = fs::path(folder) / (word + ".json");
  std::error_code error;
  return fs::exists(path, error) ? std::optional(path.string()) : std::nullopt;
}

/// Files that are read where they are named only: hundreds of layers that the suite does not name.
bool is_suite(const fs::path& file) {
  const std::string name = file.stem().string();
  return !name.starts_with("networks") && name != "sweeps" && name != "attention" && name != "quantised";
}

/// The files that were named, by their paths or else by their names in the folder; where none was, the
/// suite's in the folder, in the order of their names.
std::vector<std::string> case_files(const BenchOptions& options) {
  std::vector<std::string> files;
  std::ranges::copy_if(options.cases, std::back_inserter(files), names_a_file);
  if (!files.empty()) return files;
  for (const std::string& word : options.cases)
    if (const auto named = named_in(options.folder, word)) files.push_back(*named);
  if (!files.empty()) return files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(options.folder, error))
    if (names_a_file(entry.path().string()) && is_suite(entry.path())) files.push_back(entry.path().string());
  if (error)
    fail("{}: {}; run in fusor's source folder, or name the folder with --folder", options.folder,
         error.message());
  if (files.empty()) fail("{}: there is no file of cases (*.json)", options.folder);
  std::ranges::sort(files);
  return files;
}

/// A group, an id, or what ids begin with: "C2" means C2-dgrad too.
bool is_meant(const BenchCase& row, const std::string& word) {
  return row.group == word || row.id == word || row.id.starts_with(word + '-');
}

std::vector<BenchCase> chosen_cases(const BenchOptions& options) {
  std::vector<BenchCase> all;
  for (const std::string& file : case_files(options))
    for (BenchCase& row : read_bench_cases(input_path(file))) all.push_back(std::move(row));
  std::vector<std::string> words = options.cases;
  const bool has_paths = std::erase_if(words, names_a_file) > 0;
  if (!has_paths)
    std::erase_if(words, [&](const std::string& word) { return named_in(options.folder, word).has_value(); });
  for (const std::string& word : words)
    if (std::ranges::none_of(all, [&](const BenchCase& row) { return is_meant(row, word); }))
      fail("there is no case or group '{}'; see --list", word);
  if (!words.empty())
    std::erase_if(all, [&](const BenchCase& row) {
      return std::ranges::none_of(words, [&](const std::string& word) { return is_meant(row, word); });
    });
  return all;
}

// ---- one case ----

/// Held while runs are timed: several processes may compile at once and time one after another.
class TimingLock {
 public:
  explicit TimingLock(const std::string& path) {
    if (path.empty()) return;
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0 || ::flock(file_, LOCK_EX) != 0) fail("{}: cannot be locked", path);
  }
  ~TimingLock() {
    if (file_ >= 0) ::close(file_);
  }
  TimingLock(const TimingLock&) = delete;
  TimingLock& operator=(const TimingLock&) = delete;

 private:
  int file_ = -1;
};

/// A case made ready: every candidate that is to be timed, loaded, over the same buffers.
class LoadedCase {
 public:
  LoadedCase(const BenchCase& row, const DeviceInfo& device, const Options& options)
      : row_(row), graph_(graph_of(row)), device_(device), options_(options) {
    BuildOptions build_options = options.build;
    if (row.max_workspace >= 0) build_options.max_workspace = row.max_workspace;
    if (options.bench.all_candidates) {
      static const TuningTable kNothing;  // the estimates shall be the model's
      build_options.tuning = &kNothing;
      load_all(fusor::candidates(graph_, device, build_options), build_options);
    } else {
      executables_.push_back(load(fusor::build(graph_, device, build_options)));
    }
    int64_t workspace = 0;
    for (const Executable& executable : executables_)
      workspace = std::max(workspace, executable.workspace_bytes());
    buffers_ = std::make_unique<RunBuffers>(graph_, !device.is_cpu(), workspace, options.seed);
    if (row.is_attention())
      for (size_t i = 0; i < graph_.tensors.size(); ++i)
        if (fill_attention_input(row, graph_, i, buffers_->host()[i])) buffers_->send(i);
  }

  const BenchCase& row() const { return row_; }
  /// How much longer the model's choice took than the best candidate, when they were last timed: a factor.
  double choice_over_best() const { return medians_.front() / std::ranges::min(medians_); }

  /// One report for each candidate; `wrong` counts those that failed their check.
  std::vector<Report> report(const Flusher& flush, int runs, bool check, int& wrong) {
    std::vector<VerifyReport> checks(executables_.size());
    if (check)
      for (size_t i = 0; i < executables_.size(); ++i) checks[i] = checked(executables_[i]);
    const std::vector<std::vector<Seconds>> times = measured(flush, runs);
    medians_.clear();
    for (const std::vector<Seconds>& each : times) medians_.push_back(summarise(each).median);
    std::vector<Report> reports;
    for (size_t i = 0; i < executables_.size(); ++i) {
      Report line = timed_report(executables_[i].plan(), summarise(times[i]));
      if (options_.bench.all_candidates) line.set("candidate", numbers_[i]);
      if (check) add_check(line, checks[i]);
      wrong += checks[i].passed() ? 0 : 1;
      reports.push_back(std::move(line));
    }
    return reports;
  }

 private:
  /// Compiled in parallel. A candidate that cannot be loaded is told, and the others are measured.
  void load_all(const std::vector<Candidate>& candidates, const BuildOptions& build_options) {
    std::vector<std::optional<Executable>> loaded(candidates.size());
    std::vector<std::string> errors(candidates.size());
    parallel_for(std::ssize(candidates), environment::threads(), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      try {
        if (!device_.is_cpu()) cuda::make_current();
        loaded[at] = load(fusor::build(graph_, device_, candidates[at], build_options));
      } catch (const Error& error) {
        errors[at] = error.what();
      }
    });
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (loaded[i]) {
        executables_.push_back(std::move(*loaded[i]));
        numbers_.push_back(static_cast<int64_t>(i));
      } else {
        print(to_json_line(Report::object()
                               .set("id", row_.id)
                               .set("candidate", static_cast<int64_t>(i))
                               .set("error", errors[i])));
      }
    }
    if (executables_.empty()) fail(ErrorKind::internal, "no candidate can be loaded");
  }

  VerifyReport checked(const Executable& executable) {
    buffers_->poison_outputs();
    executable.run(buffers_->bindings(), buffers_->workspace());
    buffers_->fetch_outputs();
    return check_case(graph_, buffers_->host(), options_.seed, executable.plan().notes);
  }

  std::vector<std::vector<Seconds>> measured(const Flusher& flush, int runs) const {
    const TimingLock lock(options_.bench.lock);
    std::vector<std::function<void()>> subjects;
    for (const Executable& executable : executables_)
      subjects.emplace_back([&] { executable.run(buffers_->bindings(), buffers_->workspace()); });
    MeasureOptions measure;
    measure.runs = runs;
    measure.budget = options_.bench.seconds;
    measure.on_gpu = !device_.is_cpu();
    return measure_in_turn(subjects, flush, measure);
  }

  Report timed_report(const Plan& plan, const Summary& times) const {
    const CaseCost cost = cost_of(row_, graph_);
    const double floor = floor_seconds(row_, cost, device_);
    Report configs = Report::list();
    for (const PlannedFusion& fusion : plan.fusions) configs.add(to_string(fusion.config));
    double compile_ms = 0;
    const std::vector<ShownKernel> kernels = shown_kernels(plan, true);
    for (const ShownKernel& kernel : kernels) compile_ms += kernel.compiled->compile_ms;
    return Report::object()
        .set("id", row_.id)
        .set("group", row_.group)
        .set("device", plan.device.name)
        .set("seconds", times.median)
        .set("low", times.low)
        .set("high", times.high)
        .set("min", times.least)
        .set("p10", times.p10)
        .set("p90", times.p90)
        .set("runs", times.runs)
        .set("tflops", cost.flops / times.median * 1e-12)
        .set("tb_per_s", cost.bytes / times.median * 1e-12)
        .set("floor_seconds", floor)
        .set("of_floor", floor / times.median)
        .set("estimated_seconds", plan.seconds)
        .set("configs", std::move(configs))
        .set("kernels", static_cast<int64_t>(kernels.size()))
        .set("compile_ms", compile_ms)
        .set("workspace_bytes", plan.workspace_bytes);
  }

  /// What was compared, and the largest error as a part of what is allowed there.
  void add_check(Report& line, const VerifyReport& verified) const {
    std::vector<std::string> outputs;
    double worst = 0;
    for (const OutputCheck& check : verified.outputs) {
      outputs.push_back(fmt::format("{}: {} of {}{}", check.tensor, check.checked,
                                    check.elements - check.unwritten,
                                    check.wrong == 0 ? "" : fmt::format(", {} WRONG", check.wrong)));
      worst = std::max(worst, check.of_tolerance);
    }
    line.set("verified_against", "float64 oracle")
        .set("checked", outputs)
        .set("error_of_tolerance", worst)
        .set("passed", verified.passed());
  }

  BenchCase row_;
  Graph graph_;
  DeviceInfo device_;
  const Options& options_;
  std::vector<Executable> executables_;
  std::vector<int64_t> numbers_;  ///< of all candidates: which of them were loaded
  std::vector<Seconds> medians_;  ///< of the last report
  std::unique_ptr<RunBuffers> buffers_;
};

void print_error(const std::string& id, const Error& error) {
  print(to_json_line(Report::object().set("id", id).set("error", error.what())));
}

// ---- the forms of the command ----

int list(const std::vector<BenchCase>& cases, const DeviceInfo& device) {
  for (const BenchCase& row : cases) {
    const CaseCost cost = cost_of(row, graph_of(row));
    print(to_json_line(Report::object()
                           .set("id", row.id)
                           .set("group", row.group)
                           .set("about", row.about)
                           .set("gflop", cost.flops * 1e-9)
                           .set("mb", cost.bytes * 1e-6)
                           .set("floor_seconds", floor_seconds(row, cost, device))));
  }
  return 0;
}

/// Distinct kernels over all variants of all cases. Compiles nothing and needs no GPU.
int count_cubins(const std::vector<BenchCase>& cases, const DeviceInfo& device, const Options& options) {
  BuildOptions build_options = options.build;
  build_options.compile = false;
  std::set<std::string> all;
  for (const BenchCase& row : cases) {
    std::set<std::string> of_case;
    for (int variant = 0; variant < kVariants; ++variant) {
      const Graph graph = graph_of(variant_of(row, variant));
      for (const PlannedKernel& kernel : kernels(fusor::build(graph, device, build_options)))
        of_case.insert(structure_hash(*kernel.launch.source) + kernel.launch.source->root);
    }
    all.insert(of_case.begin(), of_case.end());
    print(to_json_line(Report::object()
                           .set("id", row.id)
                           .set("shapes", kVariants)
                           .set("cubins", static_cast<int64_t>(of_case.size()))));
  }
  print(to_json_line(Report::object()
                         .set("cases", static_cast<int64_t>(cases.size()))
                         .set("shapes", static_cast<int64_t>(cases.size()) * kVariants)
                         .set("cubins", static_cast<int64_t>(all.size()))));
  return 0;
}

/// What the time model says of every candidate. Compiles nothing and needs no GPU.
int estimate_all(const std::vector<BenchCase>& cases, const DeviceInfo& device, const Options& options) {
  static const TuningTable kNothing;
  BuildOptions build_options = options.build;
  build_options.tuning = &kNothing;
  for (const BenchCase& row : cases) {
    const std::vector<Candidate> all = fusor::candidates(graph_of(row), device, build_options);
    for (size_t i = 0; i < all.size(); ++i) {
      Report configs = Report::list();
      for (const PlannedFusion& fusion : all[i].fusions) configs.add(to_string(fusion.config));
      print(to_json_line(Report::object()
                             .set("id", row.id)
                             .set("candidate", static_cast<int64_t>(i))
                             .set("estimated_seconds", all[i].seconds)
                             .set("configs", std::move(configs))));
    }
  }
  return 0;
}

/// What the time model's choices cost, over all cases.
class Regret {
 public:
  void add(const LoadedCase& loaded) {
    const double factor = loaded.choice_over_best();
    logarithms_ += std::log(factor);
    worst_ = std::max(worst_, factor);
    ++cases_;
    print(to_json_line(Report::object().set("id", loaded.row().id).set("choice_over_best", factor)));
  }
  void close() const {
    if (cases_ == 0) return;
    print(to_json_line(
        Report::object()
            .set("cases", cases_)
            .set("geometric_mean_of_choice_over_best", std::exp(logarithms_ / static_cast<double>(cases_)))
            .set("worst_choice_over_best", worst_)));
  }

 private:
  int64_t cases_ = 0;
  double logarithms_ = 0, worst_ = 1;
};

int measure_all(const std::vector<BenchCase>& cases, const DeviceInfo& device, const Options& options) {
  const Flusher flush(device, options.flush_mb << 20);
  int wrong = 0;
  Regret regret;
  for (const BenchCase& row : cases) {
    try {
      std::optional<Busy> busy(std::in_place, fmt::format("{}: planning and compiling", row.id));
      LoadedCase loaded(row, device, options);
      busy->now(fmt::format("{}: checking and timing", row.id));
      const std::vector<Report> lines = loaded.report(flush, options.runs, options.bench.verify, wrong);
      busy.reset();
      for (const Report& line : lines) print(to_json_line(line));
      if (options.bench.all_candidates) regret.add(loaded);
    } catch (const Error& error) {
      ++wrong;
      print_error(row.id, error);
    }
  }
  regret.close();
  return wrong > 0 ? kWrongResult : 0;
}

/// Answers "ID [RUNS]" lines on standard input with one block of runs each, until the input ends. The case
/// that was asked for last stays loaded; it is checked when it is loaded.
int serve(const std::vector<BenchCase>& cases, const DeviceInfo& device, const Options& options) {
  const Flusher flush(device, options.flush_mb << 20);
  std::unique_ptr<LoadedCase> loaded;
  int wrong = 0;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string id;
    int runs = options.runs;
    if (!(words >> id)) continue;
    if (int asked = 0; words >> asked) runs = std::max(1, asked);
    try {
      const auto row = std::ranges::find(cases, id, &BenchCase::id);
      if (row == cases.end()) fail("there is no case '{}'", id);
      const bool fresh = !loaded || loaded->row().id != id;
      if (fresh) {
        loaded.reset();
        loaded = std::make_unique<LoadedCase>(*row, device, options);
      }
      for (const Report& each : loaded->report(flush, runs, fresh && options.bench.verify, wrong))
        print(to_json_line(each));
    } catch (const Error& error) {
      print_error(id, error);
    }
  }
  return wrong > 0 ? kWrongResult : 0;
}

}  // namespace

int bench(const Options& options) {
  const std::vector<BenchCase> cases = chosen_cases(options.bench);
  if (options.bench.list)
    return list(cases, DeviceInfo::named(options.device.empty() ? "current" : options.device));
  const DeviceInfo device = measured_device(options);
  if (options.bench.estimates) return estimate_all(cases, device, options);
  if (options.bench.cubins) return count_cubins(cases, device, options);
  if (options.bench.serve) return serve(cases, device, options);
  return measure_all(cases, device, options);
}

}  // namespace fusor::command
