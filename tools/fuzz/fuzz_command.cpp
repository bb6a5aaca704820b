// Owns `fusor fuzz`: the handing out of graphs to workers, the tally, and what is told of failures.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "serialization/serialization.h"
#include "tools/commands.h"
#include "tools/fuzz/random_graph.h"
#include "tools/fuzz/replay.h"
#include "tools/fuzz/shrink.h"
#include "tools/print.h"

namespace fusor::command {

namespace {

using Clock = std::chrono::steady_clock;
using fuzz::Verdict;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Alike refusals after this many are counted and named, not shrunk. Wrong results and crashes look alike and
/// are not.
constexpr int kShrunkOfAKind = 4;

/// Key of a crash that only comes after other graphs.
constexpr const char* kAfterOthers = "crashed after others";

const char* word(Verdict::Kind kind) {
  switch (kind) {
    case Verdict::Kind::passed:
      return "passed";
    case Verdict::Kind::wrong:
      return "wrong";
    case Verdict::Kind::refused:
      return "refused";
    case Verdict::Kind::crashed:
      return "crashed";
  }
  return "";
}

/// Asked for in a child: a process that has used a driver must not fork.
DeviceInfo device_named(const std::string& name, bool runs) {
  fuzz::Worker worker([&](const std::string& asked) -> std::string {
    try {
      const DeviceInfo device = DeviceInfo::named(asked);
      if (runs && !device.is_cpu() && DeviceInfo::current().is_cpu())
        return fmt::format("!there is no GPU here to run on {}; add --plan-only, --compile or --on-cpu",
                           device.name);
      return to_json(device);
    } catch (const std::exception& error) {
      return std::string("!") + error.what();
    }
  });
  std::string answer;
  if (!worker.ask(name, 60, answer)) fail(ErrorKind::missing, "looking for device '{}': {}", name, answer);
  if (answer.starts_with('!')) fail("{}", answer.substr(1));
  return device_from_json(answer);
}

class Campaign {
 public:
  explicit Campaign(const Options& options)
      : options_(options),
        fuzz_(options.fuzz),
        job_{device_named(options.device.empty() ? "current" : options.device,
                          !fuzz_.plan_only && !fuzz_.compile && !fuzz_.on_cpu),
             fuzz_.plan_only, fuzz_.compile, fuzz_.on_cpu},
        limits_{.ops = fuzz_.ops, .elements = fuzz_.elements} {}

  int run() {
    if (fuzz_.files.empty())
      check_random();
    else
      check_files();
    summarise();
    return wrong_ + refused_ + crashed_ == 0 ? 0 : kWrongResult;
  }

 private:
  struct Busy {
    fuzz::Worker worker;
    int64_t index = -1;
    int64_t first = -1;  ///< that this process has checked
    Clock::time_point since = {};
  };

  void check_files() {
    fuzz::Worker worker = fuzz::checking_worker(job_, options_.seed, limits_);
    const fuzz::Variant variant{fuzz_.candidate, options_.build.forbid, fuzz_.inputs};
    for (size_t i = 0; i < fuzz_.files.size(); ++i) {
      const Graph graph = read_graph(fuzz_.files[i]);
      std::string answer;
      const bool answered = worker.ask(fuzz::request_for(graph, variant), fuzz_.timeout, answer);
      take(static_cast<int64_t>(i), graph, variant, fuzz::verdict_of(answered, answer),
           fuzz::replay_command(job_, fuzz_.files[i], variant));
    }
  }

  void check_random() {
    std::vector<Busy> workers;
    workers.reserve(static_cast<size_t>(fuzz_.threads));
    for (int i = 0; i < fuzz_.threads; ++i)
      workers.push_back({fuzz::checking_worker(job_, options_.seed, limits_)});
    int64_t next = fuzz_.index;
    const int64_t end = fuzz_.index + fuzz_.runs;
    const auto hand_out = [&](Busy& busy) {
      const bool over = fuzz_.seconds > 0 && seconds_since(start_) > fuzz_.seconds;
      busy.index = -1;
      if (next >= end || over) return;
      busy.index = next++;
      if (busy.first < 0) busy.first = busy.index;
      busy.since = Clock::now();
      busy.worker.send(fuzz::request_for(busy.index));
    };
    for (Busy& busy : workers) hand_out(busy);
    while (std::ranges::any_of(workers, [](const Busy& busy) { return busy.index >= 0; })) {
      wait_for_any(workers);
      for (Busy& busy : workers)
        if (busy.index >= 0 && is_done(busy)) hand_out(busy);
      show_progress();
    }
    clear_progress();
  }

  static void wait_for_any(const std::vector<Busy>& workers) {
    std::vector<pollfd> waiting;
    for (const Busy& busy : workers)
      if (busy.index >= 0) waiting.push_back({busy.worker.descriptor(), POLLIN, 0});
    ::poll(waiting.data(), waiting.size(), 100);
  }

  /// Takes the worker's answer, or ends it where it hangs.
  bool is_done(Busy& busy) {
    pollfd waiting{busy.worker.descriptor(), POLLIN, 0};
    std::string answer;
    bool answered = false;
    if (::poll(&waiting, 1, 0) > 0) {
      answered = busy.worker.receive(answer);
    } else if (seconds_since(busy.since) > fuzz_.timeout) {
      busy.worker.end();
      answer = fmt::format("no answer within {} s", fuzz_.timeout);
    } else {
      return false;
    }
    Verdict verdict = fuzz::verdict_of(answered, answer);
    if (!answered) verdict = seen_alone(verdict, busy);
    if (verdict.kind == Verdict::Kind::passed) {
      ++checked_;
      return true;
    }
    take(busy.index, fuzz::random_graph(options_.seed, busy.index, limits_),
         fuzz::random_variant(options_.seed, busy.index, job_.device), verdict,
         fuzz::replay_command(job_, options_.seed, busy.index, limits_));
    return true;
  }

  /// What the graph of a process that died does in a fresh one: an earlier graph may have damaged the memory.
  Verdict seen_alone(const Verdict& died, Busy& busy) {
    const int64_t first = std::exchange(busy.first, -1);
    fuzz::Worker worker = fuzz::checking_worker(job_, options_.seed, limits_);
    std::string answer;
    const bool answered = worker.ask(fuzz::request_for(busy.index), fuzz_.timeout, answer);
    Verdict alone = fuzz::verdict_of(answered, answer);
    if (alone.kind != Verdict::Kind::passed) return alone;
    return {
        Verdict::Kind::crashed,
        fmt::format("{}; alone it passes, so one of the graphs {} to {} damaged the memory of their process",
                    died.text, first, busy.index),
        kAfterOthers};
  }

  void take(int64_t index, const Graph& graph, const fuzz::Variant& variant, const Verdict& verdict,
            const std::string& replay) {
    ++checked_;
    if (verdict.kind == Verdict::Kind::passed) return;
    (verdict.kind == Verdict::Kind::wrong     ? wrong_
     : verdict.kind == Verdict::Kind::refused ? refused_
                                              : crashed_)++;
    clear_progress();
    const bool known = ++seen_[verdict.key] > kShrunkOfAKind && verdict.kind == Verdict::Kind::refused;
    const bool shrinks = fuzz_.shrink && !known && verdict.key != kAfterOthers;
    const Graph least = !shrinks ? graph : shrunk(graph, variant, verdict);
    const std::string file = kept_file(index);
    if (!fuzz_.keep.empty()) save(least, file);
    Report failure = Report::object();
    failure.set("index", index)
        .set("kind", word(verdict.kind))
        .set("text", verdict.text)
        .set("replay", replay)
        .set("replay_shrunk", fuzz::replay_command(job_, file, variant))
        .set("graph", to_json(least));
    failures_.add(std::move(failure));
    if (options_.json) return;
    std::string text =
        fmt::format("graph {}: {}\n{}\nreplay: {}\n", index, word(verdict.kind), verdict.text, replay);
    if (!known)
      text += fmt::format("{}{} ops:\n{}replay, saved as {}: {}\n\n", shrinks ? "shrunk to " : "",
                          least.ops.size(), to_json(least), file, fuzz::replay_command(job_, file, variant));
    print(text);
  }

  Graph shrunk(const Graph& graph, const fuzz::Variant& variant, const Verdict& verdict) {
    fuzz::Worker worker = fuzz::checking_worker(job_, options_.seed, limits_);
    const Clock::time_point start = Clock::now();
    const double limit = std::min(fuzz_.timeout, 10.0);
    return fuzz::shrink(graph, [&](const Graph& next) {
      if (seconds_since(start) > fuzz_.shrink_seconds) return false;
      std::string answer;
      const bool answered = worker.ask(fuzz::request_for(next, variant), limit, answer);
      const Verdict now = fuzz::verdict_of(answered, answer);
      // Memory that one graph damaged must not make the next one crash.
      if (verdict.kind == Verdict::Kind::crashed) worker.end();
      return now.kind == verdict.kind && (now.key == verdict.key || now.kind == Verdict::Kind::crashed);
    });
  }

  std::string kept_file(int64_t index) const {
    std::string name = fmt::format("fuzz_{}_{}.json", options_.seed, index);
    if (fuzz_.keep.empty()) return name;
    std::filesystem::create_directories(fuzz_.keep);
    return (std::filesystem::path(fuzz_.keep) / name).string();
  }

  std::string tally() const {
    return fmt::format("{} graphs, {} wrong, {} refused, {} crashed", checked_, wrong_, refused_, crashed_);
  }

  void show_progress() {
    const bool terminal = ::isatty(STDERR_FILENO) == 1;
    if (seconds_since(start_) < 2 || seconds_since(shown_) < (terminal ? 0.5 : 30)) return;
    shown_ = Clock::now();
    fmt::print(stderr, "{}{} in {:.0f} s{}", terminal ? "\r" : "", tally(), seconds_since(start_),
               terminal ? "" : "\n");
    std::fflush(stderr);
    in_line_ = terminal;
  }

  void clear_progress() {
    if (in_line_) fmt::print(stderr, "\r\033[K");
    in_line_ = false;
  }

  void summarise() {
    if (!options_.json) return print(tally() + "\n");
    print(Report::object()
              .set("device", job_.device.name)
              .set("seed", static_cast<int64_t>(options_.seed))
              .set("graphs", checked_)
              .set("wrong", wrong_)
              .set("refused", refused_)
              .set("crashed", crashed_)
              .set("seconds", seconds_since(start_))
              .set("failures", failures_));
  }

  const Options& options_;
  const FuzzOptions& fuzz_;
  fuzz::Job job_;
  fuzz::Limits limits_;
  int64_t checked_ = 0, wrong_ = 0, refused_ = 0, crashed_ = 0;
  std::map<std::string, int> seen_;  ///< failures by key
  Report failures_ = Report::list();
  Clock::time_point start_ = Clock::now(), shown_ = start_;
  bool in_line_ = false;
};

}  // namespace

int fuzz(const Options& options) { return Campaign(options).run(); }

}  // namespace fusor::command
