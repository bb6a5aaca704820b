// Owns the asking of engines, the pricing of their answers and the price-driven cut.
#include "backend/choose.h"

#include <algorithm>

#include "backend/engines/list.h"
#include "backend/user_tuning.h"
#include "core/environment.h"
#include "core/fail.h"
#include "core/infer.h"
#include "heuristics/time_model.h"
#include "heuristics/tuning.h"

namespace fusor {

namespace {

bool contains(const std::vector<int>& ops, int op) { return std::ranges::find(ops, op) != ops.end(); }

// Asks engines about fusions of one graph.
class Chooser {
 public:
  Chooser(const Graph& graph, const FoldedGraph& folded, const DeviceInfo& device,
          const BuildOptions& options, std::vector<Decision>* decisions)
      : graph_(graph), folded_(folded), device_(device), options_(options), decisions_(decisions) {
    if (options.tuning == nullptr) users_tuning_ = user_tuning();
    for (const std::string& name : options.forbid) expect_engine(name, "forbid");
    if (auto forced = environment::engine()) {
      forced_ = *forced;
      expect_engine(forced_, "FUSOR_ENGINE");
    }
  }

  // The whole on the cheapest engine that takes it, or two parts where a refusal says so and the price
  // agrees.
  std::vector<Choice> decide(const std::vector<int>& ops) {
    Decision decision;
    std::vector<Refusal> refusals;
    Choice whole = ask(ops, decision, refusals);
    std::vector<Choice> parts;
    if (!is_forced(whole)) parts = cheapest_cut(ops, refusals, decision);
    decision.whole_seconds = whole.options.empty() ? 0 : whole.options.front().seconds;
    const bool forced_parts = std::ranges::any_of(parts, [this](const Choice& c) { return is_forced(c); });
    decision.cut = !parts.empty() &&
                   (whole.options.empty() || forced_parts || decision.parts_seconds < decision.whole_seconds);
    if (!decision.cut && whole.options.empty()) refuse(decision);
    if (decisions_ != nullptr) decisions_->push_back(decision);
    if (decision.cut) return parts;
    parts.clear();
    parts.push_back(std::move(whole));
    return parts;
  }

  // Every option of every engine for the fusion of `ops`; what they answered goes into `decision`.
  Choice ask(const std::vector<int>& ops, Decision& decision, std::vector<Refusal>& refusals) {
    Choice choice{make_fusion(graph_, folded_, ops), {}};
    decision.ops = choice.fusion.op_names;
    for (const Engine* engine : engine_list_of(options_)) {
      EngineAnswer answer{
          std::string(engine->name()), answer_of(*engine, choice.fusion), "", 0, false, false, {}};
      if (answer.support) {
        answer.notes = engine->notes_on(choice.fusion);
        add_options(*engine, choice, answer);
      } else {
        refusals.push_back(*answer.support.refusal);
      }
      decision.answers.push_back(std::move(answer));
    }
    prefer_forced(choice);
    std::ranges::stable_sort(choice.options, {}, &EngineOption::seconds);
    prefer_measured(choice);
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

  Support answer_of(const Engine& engine, const Fusion& fusion) const {
    if (std::ranges::find(options_.forbid, engine.name()) != options_.forbid.end())
      return Support::no(
          {"forbidden", "", "", "an engine that the options allow", "it is forbidden", "", -1});
    return engine.supports(fusion, device_);
  }

  void add_options(const Engine& engine, Choice& choice, EngineAnswer& answer) const {
    for (EngineCandidate& candidate : engine.candidates(choice.fusion, device_)) {
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
    const TuningTable& table = options_.tuning != nullptr ? *options_.tuning : *users_tuning_;
    if (table.empty()) return;
    const TunedFusion* tuned = table.find(device_.name, fusion_key(choice.fusion));
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

  static void mark_chosen(const EngineOption& best, Decision& decision) {
    for (EngineAnswer& answer : decision.answers) {
      answer.chosen = answer.engine == best.engine->name();
      if (!answer.chosen) continue;
      answer.config = to_string(best.config);
      answer.seconds = best.seconds;
      answer.measured = best.measured;
    }
  }

  // Prices one cut per refusal and keeps the cheapest.
  std::vector<Choice> cheapest_cut(const std::vector<int>& ops, const std::vector<Refusal>& refusals,
                                   Decision& decision) {
    std::vector<Choice> best;
    std::vector<int> tried;
    for (const Refusal& refusal : refusals) {
      if (refusal.op < 0 || !contains(ops, refusal.op) || contains(tried, refusal.op)) continue;
      tried.push_back(refusal.op);
      auto [first, second] = cut_at(ops, refusal.op);
      if (first.empty() || second.empty()) continue;
      std::vector<Choice> parts = decide(first);
      for (Choice& part : decide(second)) parts.push_back(std::move(part));
      double seconds = 0;
      for (const Choice& part : parts) seconds += part.options.front().seconds;
      if (!best.empty() && seconds >= decision.parts_seconds) continue;
      best = std::move(parts);
      decision.parts_seconds = seconds;
      decision.cut_at = graph_.ops[refusal.op].name;
    }
    return best;
  }

  bool depends_on(int op, int on, const std::vector<int>& within) const {
    if (op == on) return true;
    return std::ranges::any_of(dependencies(graph_, folded_, op), [&](int wait) {
      return contains(within, wait) && depends_on(wait, on, within);
    });
  }

  int anchor_in(const std::vector<int>& ops) const {
    for (const int op : ops)
      if (is_contraction(graph_.ops[op].attributes)) return op;
    return -1;
  }

  // An op after the anchor goes with all that waits for it; an op before the anchor with all that it waits
  // for.
  std::pair<std::vector<int>, std::vector<int>> cut_at(const std::vector<int>& ops, int at) const {
    const int anchor = anchor_in(ops);
    const bool before_anchor = anchor >= 0 && anchor != at && depends_on(anchor, at, ops);
    std::vector<int> first;
    std::vector<int> second;
    for (const int op : ops) {
      const bool is_first = before_anchor ? depends_on(at, op, ops) : !depends_on(op, at, ops);
      (is_first ? first : second).push_back(op);
    }
    keep_operands_with_anchors(first, second);
    keep_other_shapes_with_readers(first, second);
    return {first, second};
  }

  // What only contractions of the second part wait for is no part of the first: cut at one of two siblings,
  // its operand goes with it.
  void keep_operands_with_anchors(std::vector<int>& first, std::vector<int>& second) const {
    const auto is_operand_of = [&](int op, const std::vector<int>& part, const std::vector<int>& within) {
      return std::ranges::any_of(part, [&](int anchor) {
        return op != anchor && is_contraction(graph_.ops[anchor].attributes) &&
               depends_on(anchor, op, within);
      });
    };
    std::vector<int> all = first;
    all.insert(all.end(), second.begin(), second.end());
    const auto is_moved = [&](int op) {
      return anchor_in(first) >= 0 && is_operand_of(op, second, all) && !is_operand_of(op, first, all);
    };
    std::vector<int> kept;
    for (const int op : first) (is_moved(op) ? second : kept).push_back(op);
    first = std::move(kept);
    std::ranges::sort(second);
  }

  // A value of another shape than the largest is not stored by the fusion that computes it along the way: it
  // moves to its reader.
  void keep_other_shapes_with_readers(std::vector<int>& first, std::vector<int>& second) const {
    const auto dims = [&](int op) -> const Dims& { return graph_.tensors[graph_.ops[op].outputs[0]].dims; };
    Dims largest;
    for (const int op : first)
      if (largest.empty() || element_count(dims(op)) > element_count(largest)) largest = dims(op);
    for (auto op = first.rbegin(); op != first.rend();) {
      const auto read_by_second = [&](int reader) { return contains(second, reader); };
      const bool moves = std::holds_alternative<Pointwise>(graph_.ops[*op].attributes) &&
                         dims(*op) != largest &&
                         std::ranges::any_of(graph_.consumers(graph_.ops[*op].outputs[0]), read_by_second);
      if (!moves) {
        ++op;
        continue;
      }
      second.push_back(*op);
      op = std::make_reverse_iterator(first.erase(std::next(op).base()));
    }
    std::ranges::sort(second);
  }

  [[noreturn]] void refuse(const Decision& decision) const {
    std::string reasons;
    for (const EngineAnswer& answer : decision.answers)
      reasons += fmt::format("\n  {} refuses: {}", answer.engine, to_string(*answer.support.refusal));
    fail("no engine that may be used carries out {} on {}:{}", fmt::join(decision.ops, " + "), device_.name,
         reasons);
  }

  const Graph& graph_;
  const FoldedGraph& folded_;
  const DeviceInfo& device_;
  const BuildOptions& options_;
  std::vector<Decision>* decisions_;
  std::string forced_;
  std::shared_ptr<const TuningTable> users_tuning_;
};

std::vector<Choice> in_run_order(const Choices& choices, std::vector<Choice> fusions) {
  std::vector<std::vector<int>> groups;
  groups.reserve(fusions.size());
  for (const Choice& choice : fusions) groups.push_back(choice.fusion.ops);
  std::vector<Choice> ordered;
  for (const std::vector<int>& ops : in_run_order(choices.graph, choices.folded, std::move(groups)))
    for (Choice& choice : fusions)
      if (choice.fusion.ops == ops) ordered.push_back(std::move(choice));
  return ordered;
}

}  // namespace

std::span<const Engine* const> engine_list_of(const BuildOptions& options) {
  return options.engine_list.empty() ? engines() : options.engine_list;
}

Choices choose(const Graph& graph, const DeviceInfo& device, const BuildOptions& options,
               bool keep_decisions) {
  validate(graph);
  Choices choices;
  choices.graph = expand(graph);
  choices.folded = fold_views(choices.graph);
  Chooser chooser(choices.graph, choices.folded, device, options,
                  keep_decisions ? &choices.decisions : nullptr);
  std::vector<Choice> fusions;
  for (const std::vector<int>& ops : partition(choices.graph, choices.folded))
    for (Choice& choice : chooser.decide(ops)) fusions.push_back(std::move(choice));
  choices.fusions = in_run_order(choices, std::move(fusions));
  return choices;
}

Choice choose_one(const Choices& choices, std::span<const int> ops, const DeviceInfo& device,
                  const BuildOptions& options) {
  Chooser chooser(choices.graph, choices.folded, device, options, nullptr);
  Decision decision;
  std::vector<Refusal> refusals;
  return chooser.ask({ops.begin(), ops.end()}, decision, refusals);
}

}  // namespace fusor
