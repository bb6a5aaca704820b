// Owns the asking of engines, the pricing of their answers and the price-driven cut.
#include "backend/choose.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "backend/engines/list.h"
#include "backend/planner/cut.h"
#include "backend/planner/limits.h"
#include "backend/planner/prices.h"
#include "backend/side_by_side.h"
#include "backend/user_tuning.h"
#include "codegen/kernel_cache.h"
#include "core/environment.h"
#include "core/fail.h"
#include "heuristics/time_model.h"
#include "heuristics/tuning.h"

namespace fusor {

namespace {

// How a set of ops is carried out, as far as that was found out: as one fusion, or in parts. Empty where no
// engine that may be used takes them; `decision` says why then, and wherever it was asked for.
struct Outcome {
  std::vector<std::shared_ptr<Choice>> fusions;  // shared by all sets that have it for a part
  double seconds = 0;
  Decision decision;
};

// Asks engines about fusions of one graph. Only carry_out() throws: a cut that is being priced may have parts
// that nobody takes.
class Chooser {
 public:
  Chooser(const Graph& graph, const FoldedGraph& folded, const DeviceInfo& device,
          const PlannerOptions& options, bool explains)
      : graph_(graph), folded_(folded), device_(device), options_(options), explains_(explains) {
    if (options.build.tuning == nullptr) users_tuning_ = user_tuning();
    for (const std::string& name : options.build.forbid) expect_engine(name, "forbid");
    if (auto forced = environment::engine()) {
      forced_ = *forced;
      expect_engine(forced_, "FUSOR_ENGINE");
    }
  }

  // The whole on the cheapest engine that takes it, or two parts where a refusal says so and the price
  // agrees.
  Outcome carry_out(const std::vector<int>& ops) {
    Outcome outcome = decide(ops);
    parts_.clear();
    if (outcome.fusions.empty()) refuse(ops);
    return outcome;
  }

  // Every option of every engine for one fusion; what they answered goes into `decision`, the places at which
  // they would have it cut into `cuts`.
  Choice ask(Fusion fusion, Decision& decision, std::vector<int>& cuts) {
    Choice choice{std::make_shared<PreparedFusion>(std::move(fusion), device_), {}};
    if (explains_)
      ask_in_words(choice, decision, cuts);
    else
      ask_for_prices(choice, cuts);
    prefer_forced(choice);
    std::ranges::stable_sort(choice.options, {}, &EngineOption::seconds);
    prefer_measured(choice);
    prefer_compiled(choice);
    if (!choice.options.empty()) mark_chosen(choice.options.front(), decision);
    return choice;
  }

 private:
  void expect_engine(const std::string& name, std::string_view where) const {
    const auto list = engine_list_of(options_);
    if (find_engine(list, name) != nullptr) return;
    std::vector<std::string_view> known;
    for (const Engine* engine : list) known.push_back(engine->name());
    fail("{}: there is no engine '{}'; there are {}", where, name, fmt::join(known, ", "));
  }

  bool is_forbidden(const Engine& engine) const {
    return std::ranges::find(options_.build.forbid, engine.name()) != options_.build.forbid.end();
  }

  // ---- Engines' answers ----

  void ask_for_prices(Choice& choice, std::vector<int>& cuts) const {
    const auto take = [&](const PricedAnswer& answer) {
      if (is_forbidden(*answer.engine)) return;
      for (const auto& [config, seconds] : answer.options)
        choice.options.push_back({answer.engine, config, seconds});
      if (answer.refused_at >= 0) cuts.push_back(choice.fusion().ops[static_cast<size_t>(answer.refused_at)]);
    };
    if (options_.engine_list.empty()) {
      // Held here: another thread may take the list out of the cache meanwhile.
      const auto answers = priced(*choice.prepared);
      for (const PricedAnswer& answer : *answers) take(answer);
    } else {
      for (const Engine* engine : options_.engine_list)
        if (!is_forbidden(*engine)) take(ask_engine(*engine, *choice.prepared));
    }
  }

  void ask_in_words(Choice& choice, Decision& decision, std::vector<int>& cuts) const {
    for (const Engine* engine : engine_list_of(options_)) {
      EngineAnswer answer{std::string(engine->name()), answer_of(*engine, choice), "", 0, false, false, {}};
      if (answer.support) {
        answer.notes = choice.prepared->by(*engine).notes();
        add_options(*engine, choice, answer);
      } else if (std::ranges::binary_search(choice.fusion().ops, answer.support.refusal->op)) {
        cuts.push_back(answer.support.refusal->op);
      }
      decision.answers.push_back(std::move(answer));
    }
  }

  Support answer_of(const Engine& engine, const Choice& choice) const {
    if (is_forbidden(engine))
      return Support::no(
          {"forbidden", "", "", "an engine that the options allow", "it is forbidden", "", -1});
    const Refusal* const refusal = choice.prepared->refusal_of(engine);
    return refusal == nullptr ? Support::yes() : Support::no(*refusal);
  }

  void add_options(const Engine& engine, Choice& choice, EngineAnswer& answer) const {
    for (EngineCandidate& candidate : choice.prepared->by(engine).candidates()) {
      const double seconds = estimate_seconds(candidate.work, device_);
      if (answer.config.empty() || seconds < answer.seconds) {
        answer.config = to_string(candidate.config);
        answer.seconds = seconds;
      }
      choice.options.push_back({&engine, std::move(candidate.config), seconds});
    }
  }

  bool is_forced(const Choice& choice) const {
    return !forced_.empty() && !choice.options.empty() && choice.options.front().engine->name() == forced_;
  }

  void prefer_forced(Choice& choice) const {
    const auto is_other = [&](const EngineOption& option) { return option.engine->name() != forced_; };
    if (forced_.empty() || std::ranges::all_of(choice.options, is_other)) return;
    std::erase_if(choice.options, is_other);
  }

  // Options that the tuning table knows go first, in its order; what it names and no engine offers is passed
  // over.
  void prefer_measured(Choice& choice) const {
    const TuningTable& table = options_.build.tuning != nullptr ? *options_.build.tuning : *users_tuning_;
    if (table.empty()) return;
    const TunedFusion* tuned = table.find(device_.name, fusion_key(choice.fusion()));
    if (tuned == nullptr) return;
    auto place = choice.options.begin();
    for (const MeasuredConfig& measured : tuned->configs) {
      const auto found =
          std::ranges::find(place, choice.options.end(), measured.config, &EngineOption::config);
      if (found == choice.options.end()) continue;
      found->seconds = measured.seconds;
      found->measured = true;
      std::rotate(place, found, std::next(found));
      ++place;
    }
  }

  static bool is_compiled(const Choice& choice, const EngineOption& option) {
    return std::ranges::all_of(choice.by(option).lower(option.config).steps, [](const Step& step) {
      const auto* const launch = std::get_if<Launch>(&step);
      return launch == nullptr || fusor::is_compiled(*launch->source);
    });
  }

  // Options whose kernels are in the cache, the cheapest of them first: where they cost little more than the
  // cheapest of all, or alone.
  void prefer_compiled(Choice& choice) const {
    constexpr double kLittle = 1.10;
    const KernelChoice kernels = options_.build.kernels;
    if (kernels == KernelChoice::best || device_.is_cpu() || choice.options.empty()) return;
    if (kernels == KernelChoice::only_compiled) {
      std::erase_if(choice.options, [&](const EngineOption& option) { return !is_compiled(choice, option); });
      return;
    }
    const double most = kLittle * choice.options.front().seconds;
    const auto found = std::ranges::find_if(choice.options, [&](const EngineOption& option) {
      return option.seconds <= most && is_compiled(choice, option);
    });
    if (found != choice.options.end()) std::rotate(choice.options.begin(), found, std::next(found));
  }

  static void mark_chosen(const EngineOption& best, Decision& decision) {
    for (EngineAnswer& answer : decision.answers) {
      answer.chosen = answer.engine == best.engine->name();
      if (!answer.chosen) continue;
      answer.config = to_string(best.config);
      answer.seconds = best.seconds;
      answer.measured = best.measured;
    }
  }

  // ---- Wholes and parts ----

  Outcome decide(const std::vector<int>& ops) {
    Outcome outcome;
    std::vector<int> cuts;
    Choice whole = ask_whole(ops, outcome.decision, cuts);
    if (!whole.options.empty()) outcome.decision.whole_seconds = whole.options.front().seconds;
    Outcome parts;
    if (!is_forced(whole)) {
      parts = cheapest_cut(ops, cuts, outcome.decision);
      keep_cheaper(parts, cut_behind_stored(graph_, folded_, ops), outcome.decision);
    }
    if (whole.options.empty())
      keep_cheaper(parts, cut_behind_operands(graph_, folded_, ops), outcome.decision);
    if (parts.fusions.empty() && whole.options.empty()) parts = in_halves(ops, outcome.decision);
    const bool forced_parts =
        std::ranges::any_of(parts.fusions, [this](const auto& choice) { return is_forced(*choice); });
    outcome.decision.cut = !parts.fusions.empty() && (whole.options.empty() || forced_parts ||
                                                      parts.seconds < whole.options.front().seconds);
    if (outcome.decision.cut) {
      outcome.fusions = std::move(parts.fusions);
      outcome.seconds = parts.seconds;
    } else if (!whole.options.empty()) {
      outcome.seconds = whole.options.front().seconds;
      outcome.fusions.push_back(std::make_shared<Choice>(std::move(whole)));
    }
    return outcome;
  }

  // No options where the ops form no fusion, or one that no kernel has room for.
  Choice ask_whole(const std::vector<int>& ops, Decision& decision, std::vector<int>& cuts) {
    if (explains_)
      for (const int op : ops) decision.ops.push_back(graph_.ops[op].name);
    std::optional<Fusion> fusion;
    try {
      fusion = make_fusion(graph_, folded_, ops);
    } catch (const Error& error) {
      decision.no_fusion = error.what();
      return {};
    }
    const int64_t bytes = device_.is_cpu() ? 0 : argument_bytes(*fusion);
    if (bytes <= max_argument_bytes(device_) || ops.size() == 1)
      return ask(std::move(*fusion), decision, cuts);
    decision.no_fusion = fmt::format("its kernel's arguments take up to {} bytes, {} takes {}", bytes,
                                     device_.name, max_argument_bytes(device_));
    return {};
  }

  // Prices a cut or two per refusal and keeps the cheapest. A set of n ops may have 2^n parts: once many were
  // priced, totals are parted first, and the first cut whose parts somebody takes is kept.
  Outcome cheapest_cut(const std::vector<int>& ops, const std::vector<int>& places, Decision& decision) {
    constexpr size_t kManyParts = 1024;
    const bool is_late = parts_.size() > kManyParts;
    Outcome best;
    std::vector<int> tried;
    for (const int place : places) {
      if (std::ranges::find(tried, place) != tried.end()) continue;
      tried.push_back(place);
      for (const bool at_reductions : {is_late, !is_late}) {
        const Cut cut = (at_reductions ? cut_at_reductions : cut_at)(graph_, folded_, ops, place);
        keep_cheaper(best, cut, decision, graph_.ops[place].name);
        if (is_late && !best.fusions.empty()) return best;
      }
    }
    return best;
  }

  // The last resort.
  Outcome in_halves(const std::vector<int>& ops, Decision& decision) {
    Outcome parts;
    if (ops.size() == 1) return parts;
    keep_cheaper(parts, cut_in_half(graph_, folded_, ops), decision);
    return parts;
  }

  // at: what is named as the place of the cut; else the second part's first op is.
  void keep_cheaper(Outcome& best, const Cut& cut, Decision& decision, const std::string& at = {}) {
    if (cut.first.empty() || cut.second.empty()) return;
    const Outcome& first = decided(cut.first);
    if (first.fusions.empty()) return;
    const Outcome& second = decided(cut.second);
    if (second.fusions.empty()) return;
    double seconds = 0;
    for (const Outcome* part : {&first, &second})
      for (const auto& choice : part->fusions) seconds += choice->options.front().seconds;
    if (!best.fusions.empty() && seconds >= best.seconds) return;
    best.seconds = decision.parts_seconds = seconds;
    best.fusions = first.fusions;
    best.fusions.insert(best.fusions.end(), second.fusions.begin(), second.fusions.end());
    if (!explains_) return;
    decision.cut_at = at.empty() ? graph_.ops[cut.second.front()].name : at;
    decision.parts = {first.decision, second.decision};
  }

  // Cuts at several places often share a part.
  const Outcome& decided(const std::vector<int>& ops) {
    if (const auto known = parts_.find(ops); known != parts_.end()) return known->second;
    Outcome outcome = decide(ops);
    return parts_.emplace(ops, std::move(outcome)).first->second;
  }

  [[noreturn]] void refuse(const std::vector<int>& ops) {
    explains_ = true;
    const Outcome outcome = decide(ops);
    const Decision& decision = outcome.decision;
    std::string reasons;
    if (!decision.no_fusion.empty()) reasons = "\n  " + decision.no_fusion;
    const bool needs_kernels = options_.build.kernels == KernelChoice::only_compiled;
    const auto takes = [](const EngineAnswer& answer) { return static_cast<bool>(answer.support); };
    if (needs_kernels && std::ranges::any_of(decision.answers, takes)) {
      for (const EngineAnswer& answer : decision.answers)
        if (takes(answer))
          reasons += fmt::format("\n  {} takes it, and has no compiled kernel", answer.engine);
      reasons += "\n  a build with KernelChoice::best (--kernels best) compiles them";
    } else {
      for (const EngineAnswer& answer : decision.answers)
        if (!takes(answer))
          reasons += fmt::format("\n  {} refuses: {}", answer.engine, to_string(*answer.support.refusal));
    }
    fail("no engine that may be used carries out {} on {}{}:{}", fmt::join(decision.ops, " + "), device_.name,
         needs_kernels ? " with kernels that are compiled already" : "", reasons);
  }

  const Graph& graph_;
  const FoldedGraph& folded_;
  const DeviceInfo& device_;
  const PlannerOptions& options_;
  bool explains_;
  std::string forced_;
  std::shared_ptr<const TuningTable> users_tuning_;
  std::map<std::vector<int>, Outcome> parts_;  // of the set that is being decided
};

}  // namespace

void choose_fusions(Choices& choices, const std::vector<std::vector<int>>& groups, const DeviceInfo& device,
                    const PlannerOptions& options, bool keep_decisions) {
  Chooser chooser(choices.graph, choices.folded, device, options, keep_decisions);
  for (const std::vector<int>& ops : groups) {
    Outcome outcome = chooser.carry_out(ops);
    for (const auto& choice : outcome.fusions) choices.fusions.push_back(std::move(*choice));
    if (keep_decisions) choices.decisions.push_back(std::move(outcome.decision));
  }
}

namespace {

// Whether the fusion may move to the front: it writes little, and nothing of the user's, whose tensors an
// order of reads and writes allows to share memory.
bool may_run_early(const Graph& graph, const FoldedGraph& folded, const Fusion& fusion) {
  int64_t bytes = 0;
  for (const int op : fusion.ops)
    for (const int output : graph.ops[static_cast<size_t>(op)].outputs) {
      // A part of a concatenation lies in the whole.
      const int buffer = folded.placements[static_cast<size_t>(output)].buffer;
      if (std::ranges::find(fusion.operands, buffer, &Operand::tensor) == fusion.operands.end()) continue;
      if (!graph.tensors[static_cast<size_t>(buffer)].is_virtual()) return false;
      bytes += graph.tensors[static_cast<size_t>(output)].bytes();
    }
  return bytes <= kMostBytesBeside;
}

}  // namespace

void order_fusions(Choices& choices) {
  std::vector<std::vector<int>> groups;
  groups.reserve(choices.fusions.size());
  for (const Choice& choice : choices.fusions) groups.push_back(choice.fusion().ops);
  std::vector<size_t> place(choices.graph.ops.size());
  std::vector<std::vector<int>> ordered = in_run_order(choices.folded, std::move(groups));
  if (choices.overlap) {
    std::map<int, bool> is_early;
    for (const Choice& choice : choices.fusions)
      is_early[choice.fusion().ops.front()] = may_run_early(choices.graph, choices.folded, choice.fusion());
    ordered = side_by_side(choices.folded, std::move(ordered),
                           [&](const std::vector<int>& ops) { return is_early.at(ops.front()); });
  }
  for (size_t i = 0; i < ordered.size(); ++i) place[ordered[i].front()] = i;
  std::ranges::sort(choices.fusions, {}, [&](const Choice& c) { return place[c.fusion().ops.front()]; });
}

std::span<const Engine* const> engine_list_of(const PlannerOptions& options) {
  return options.engine_list.empty() ? engines() : options.engine_list;
}

bool is_allowed(const Engine& engine, const PlannerOptions& options) {
  const std::string name(engine.name());
  const auto forced = environment::engine();
  return find_engine(engine_list_of(options), name) != nullptr &&
         std::ranges::find(options.build.forbid, name) == options.build.forbid.end() &&
         (!forced || *forced == name);
}

Choice choose_one(const Choices& choices, std::span<const int> ops, const DeviceInfo& device,
                  const PlannerOptions& options, Decision* decision) {
  Chooser chooser(choices.graph, choices.folded, device, options, decision != nullptr);
  Decision unasked;
  std::vector<int> cuts;
  return chooser.ask(make_fusion(choices.graph, choices.folded, ops),
                     decision != nullptr ? *decision : unasked, cuts);
}

}  // namespace fusor
