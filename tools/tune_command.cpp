// Owns `fusor tune`: every fusion of the graphs measured once, and the table that remembers it.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>

#include "backend/choose.h"
#include "backend/planner/planner.h"
#include "backend/user_tuning.h"
#include "core/environment.h"
#include "core/fail.h"
#include "core/parallel.h"
#include "core/words.h"
#include "heuristics/statistics.h"
#include "heuristics/tuning.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/measure.h"
#include "tools/print.h"
#include "tools/progress.h"
#include "tools/run_buffers.h"

namespace fusor::command {

namespace {

/// A fusion that the table does not know, as a graph of its own.
struct Task {
  std::string graph_name;
  std::string about;  ///< its ops
  std::string key;
  Graph graph;
  Choice choice;  ///< of that graph
};

/// What there is to do, and what is left out.
struct Job {
  std::vector<Task> tasks;
  size_t known = 0;  ///< fusions whose measurements stand in the table
  std::vector<std::string> remarks;
};

bool contains(const std::vector<Task>& tasks, const std::string& key) {
  return std::ranges::find(tasks, key, &Task::key) != tasks.end();
}

/// All of a graph as one fusion: estimates may cut what measured times had kept whole. Nothing where it can
/// be none: a result that leaves through a view is moved apart from it.
std::optional<Choice> uncut(const Choices& planned, const DeviceInfo& device, const BuildOptions& options) {
  std::vector<int> ops;
  for (const Choice& part : planned.fusions)
    ops.insert(ops.end(), part.fusion().ops.begin(), part.fusion().ops.end());
  std::ranges::sort(ops);
  try {
    return choose_one(planned, ops, device, {options});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    return std::nullopt;
  }
}

void collect(const Graph& graph, const DeviceInfo& device, const Options& options, Job& job) {
  const std::shared_ptr<const TuningTable> table = user_tuning();
  BuildOptions by_estimate = options.build;
  static const TuningTable kNothing;
  by_estimate.tuning = &kNothing;
  const Choices choices = choose(graph, device, {options.build});
  for (const Choice& choice : choices.fusions) {
    const std::string key = fusion_key(choice.fusion());
    const std::string about = fmt::format("{}", fmt::join(choice.fusion().op_names, " + "));
    if (!options.tune.again && table->find(device.name, key) != nullptr) {
      ++job.known;
      continue;
    }
    if (contains(job.tasks, key)) continue;
    const Graph alone = standalone(choices.graph, choices.folded, choice.fusion().ops);
    const Choices planned = choose(alone, device, {by_estimate});
    std::optional<Choice> whole = uncut(planned, device, by_estimate);
    if (!whole || whole->options.empty() || fusion_key(whole->fusion()) != key) {
      job.remarks.push_back(
          fmt::format("'{}': {} is not measured: it does not stand alone", graph.name, about));
      continue;
    }
    job.tasks.push_back({graph.name, about, key, planned.graph, std::move(*whole)});
  }
}

Job collect_all(const std::vector<Graph>& graphs, const DeviceInfo& device, const Options& options) {
  Job job;
  for (const Graph& graph : graphs) collect(graph, device, options, job);
  return job;
}

/// A configuration, loaded.
struct Contender {
  EngineConfig config;
  Executable executable;
};

/// The best by the model's estimate, compiled in parallel. One that cannot be loaded is told and left out.
std::vector<Contender> contenders(const Task& task, const DeviceInfo& device, const Options& options,
                                  std::vector<std::string>& remarks) {
  const auto count = static_cast<int64_t>(
      std::min(task.choice.options.size(), static_cast<size_t>(options.build.max_candidates)));
  std::vector<std::optional<Contender>> loaded(static_cast<size_t>(count));
  std::mutex mutex;
  parallel_for(count, environment::threads(), [&](int64_t i) {
    const EngineConfig& config = task.choice.options[static_cast<size_t>(i)].config;
    try {
      if (!device.is_cpu()) cuda::make_current();
      Candidate candidate;
      candidate.fusions = {{task.choice.fusion().ops, config}};
      loaded[static_cast<size_t>(i)] = {config,
                                        load(fusor::build(task.graph, device, candidate, options.build))};
    } catch (const Error& error) {
      const std::scoped_lock lock(mutex);
      remarks.push_back(
          fmt::format("'{}': {} with {}: {}", task.graph_name, task.about, to_string(config), error.what()));
    }
  });
  std::vector<Contender> found;
  for (std::optional<Contender>& each : loaded)
    if (each) found.push_back(std::move(*each));
  return found;
}

/// Enough is known when the fastest is told from all others, or they from each other as well as anyone could
/// ask.
bool is_decided(std::span<const std::vector<Seconds>> times) {
  constexpr double kSameWithin = 0.005;
  std::vector<Summary> summaries;
  for (const std::vector<Seconds>& each : times) summaries.push_back(summarise(each));
  const Summary& best = *std::ranges::min_element(summaries, {}, &Summary::median);
  return std::ranges::all_of(summaries, [&](const Summary& each) {
    return &each == &best || each.low > best.high || each.high - each.low < kSameWithin * best.median;
  });
}

TunedFusion measured(const Task& task, const std::vector<Contender>& contenders, const DeviceInfo& device,
                     const Flusher& flush, const MeasureOptions& measure_options, uint64_t seed) {
  int64_t workspace = 0;
  for (const Contender& each : contenders) workspace = std::max(workspace, each.executable.workspace_bytes());
  const RunBuffers buffers(task.graph, !device.is_cpu(), workspace, seed);
  std::vector<std::function<void()>> subjects;
  subjects.reserve(contenders.size());
  for (const Contender& each : contenders)
    subjects.emplace_back([&] { each.executable.run(buffers.bindings(), buffers.workspace()); });
  const auto times = measure_in_turn(subjects, flush, measure_options);
  TunedFusion tuned{device.name, task.key, fmt::format("{}: {}", task.graph_name, task.about), {}};
  for (size_t i = 0; i < contenders.size(); ++i) {
    const Summary summary = summarise(times[i]);
    tuned.configs.push_back({contenders[i].config, summary.median, summary.low, summary.high});
  }
  tuned.configs = ranked(std::move(tuned.configs));
  return tuned;
}

// ---- telling ----

Report tuned_report(const TunedFusion& tuned, const EngineOption& estimated) {
  Report configs = Report::list();
  for (const MeasuredConfig& each : tuned.configs)
    configs.add(Report::object()
                    .set("config", to_string(each.config))
                    .set("seconds", each.seconds)
                    .set("low", each.low)
                    .set("high", each.high));
  return Report::object()
      .set("fusion", tuned.about)
      .set("model", to_string(estimated.config))
      .set("model_seconds", estimated.seconds)
      .set("measured", std::move(configs));
}

std::string tuned_text(const TunedFusion& tuned, const EngineOption& estimated) {
  const MeasuredConfig& best = tuned.configs.front();
  std::string text = fmt::format("{}\n  {} with {}, best of {}\n", tuned.about, words::duration(best.seconds),
                                 to_string(best.config), tuned.configs.size());
  if (best.config == estimated.config) return text + "  the model's choice\n";
  const auto models = std::ranges::find(tuned.configs, estimated.config, &MeasuredConfig::config);
  return text +
         fmt::format("  the model's choice, {}, {}\n", to_string(estimated.config),
                     models == tuned.configs.end() ? "failed" : "takes " + words::duration(models->seconds));
}

class Tuner {
 public:
  Tuner(const Options& options, DeviceInfo device) : options_(options), device_(std::move(device)) {}

  /// Whether something was measured, and there is time for more.
  bool measure(Job job) {
    if (!known_) known_ = job.known;
    for (std::string& remark : job.remarks) remark_once(std::move(remark));
    if (job.tasks.empty()) return false;
    const size_t before = measured_;
    measure_all(job.tasks);
    return measured_ > before && left_ == 0;
  }

  void close() {
    if (options_.json)
      print(Report::object()
                .set("device", device_.name)
                .set("table", user_tuning_path())
                .set("known", static_cast<int64_t>(known_.value_or(0)))
                .set("measured", std::move(reports_))
                .set("left", static_cast<int64_t>(left_))
                .set("remarks", remarks_));
    else
      print(closing_text());
  }

 private:
  Seconds elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  // The time that is left is shared among what is left; what a fusion does not need is the others'.
  void measure_all(const std::vector<Task>& tasks) {
    const Flusher flush(device_, options_.flush_mb << 20);
    const ProgressBar progress(tasks.size());
    for (size_t i = 0; i < tasks.size(); ++i) {
      const Seconds remaining = options_.tune.budget - elapsed();
      if (remaining <= 0 && i > 0) {
        left_ = tasks.size() - i;
        return;
      }
      const Task& task = tasks[i];
      progress.show(i, 0, task.about);
      const std::vector<Contender> ready = contenders(task, device_, options_, remarks_);
      if (ready.empty()) continue;
      MeasureOptions measure_options;
      measure_options.runs = options_.runs;
      measure_options.budget = remaining / static_cast<double>(tasks.size() - i);
      measure_options.on_gpu = !device_.is_cpu();
      measure_options.done = is_decided;
      int round = 0;
      measure_options.after_round = [&] {
        progress.show(i, static_cast<double>(++round) / options_.runs, task.about);
      };
      const TunedFusion tuned = measured(task, ready, device_, flush, measure_options, options_.seed);
      record_tuning(tuned);
      tell(tuned, task.choice.options.front(), progress);
    }
  }

  void tell(const TunedFusion& tuned, const EngineOption& estimated, const ProgressBar& progress) {
    ++measured_;
    if (options_.json) {
      reports_.add(tuned_report(tuned, estimated));
      return;
    }
    progress.clear();
    print(tuned_text(tuned, estimated));
  }

  void remark_once(std::string remark) {
    if (std::ranges::find(remarks_, remark) == remarks_.end()) remarks_.push_back(std::move(remark));
  }

  std::string closing_text() const {
    std::string text;
    for (const std::string& remark : remarks_) text += fmt::format("remark: {}\n", remark);
    if (left_ > 0)
      text += fmt::format("the time is up: {} left for another run\n", words::count(left_, "fusion"));
    const size_t known = known_.value_or(0);
    if (measured_ == 0)
      return text + fmt::format("nothing was measured: {} known already, in {}\n",
                                words::count(known, "fusion"), user_tuning_path());
    return text + fmt::format("{} measured, {} known already; the table: {}\n",
                              words::count(measured_, "fusion"), known, user_tuning_path());
  }

  const Options& options_;
  DeviceInfo device_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Report reports_ = Report::list();
  std::vector<std::string> remarks_;
  std::optional<size_t> known_;  ///< before anything was measured
  size_t measured_ = 0, left_ = 0;
};

}  // namespace

int tune(const Options& options) {
  if (user_tuning_path().empty())
    fail("there is no folder to keep measurements in: FUSOR_CACHE_DIR is empty, or there is no HOME");
  const DeviceInfo device = measured_device(options);
  std::vector<Graph> graphs;
  Options one = options;
  one.device = options.device.empty() ? "current" : options.device;
  for (const std::string& file : options.tune.graphs) {
    one.file = file;
    graphs.push_back(read_input(one).graph);
  }
  Tuner tuner(options, device);
  // Measured times may move a cut; then its parts are measured, too.
  while (tuner.measure(collect_all(graphs, device, options)) && !options.tune.again) continue;
  tuner.close();
  return 0;
}

}  // namespace fusor::command
