// Owns the wgmma_repacked engine: contractions whose operands or results do not lie as the wgmma engine wants
// them (NCHW, filters KCRS, channels or rows that are no multiples of 16 bytes, groups of few channels),
// carried out by it between copies through scratch, as one of the rewrites of repack/repack.h.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/pointwise_convolution.h"
#include "backend/engines/engine.h"
#include "backend/engines/list.h"
#include "backend/engines/repack/copies.h"
#include "backend/engines/repack/repack.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/copy/tensor_maps.h"

namespace fusor {

namespace {

// A pointwise convolution as a matmul where only its filter is packed then; any other fusion as it is.
Fusion with_plain_operands(const Fusion& fusion) {
  const auto convolution = contraction_of(fusion);
  if (!convolution || !convolution->is_pointwise() || convolution->op == ContractionOp::wgrad) return fusion;
  auto matmul = as_matmul(fusion);
  const auto view = matmul ? contraction_of(*matmul) : std::nullopt;
  if (!view) return fusion;
  const Access* const filter = primary_access(operand_site(fusion, 0, 1));
  const Access* const left = primary_access(operand_site(*matmul, 0, 0));
  const bool filter_is_right = left == nullptr || filter == nullptr || left->operand != filter->operand;
  const bool packs_pixels = refuse_copies(*matmul, *view, !filter_is_right).has_value();
  return packs_pixels || !refuse_copies(*matmul, *view, filter_is_right) ? fusion : *std::move(matmul);
}

// A rewrite as it was chosen, with its fusions and what the wgmma engine prepared of the core.
struct Way {
  const Rewrite* rewrite;
  int64_t value;  // of its knob
  ResultPath out;
  std::unique_ptr<const Repacked> repacked;
  std::unique_ptr<const Prepared> core;
};

// Facts of the fusion.
struct Problem {
  Fusion fusion;  // a matmul where its operands need no copy then
  Contraction view;
  const DeviceInfo& device;
  std::vector<Way> ways;  // those whose contraction the wgmma engine takes

  std::vector<ResultPath> result_paths(const Rewrite& rewrite, int64_t value) const {
    return rewrite.result_paths(fusion, view, value);
  }
};

const Rewrite& plain_rewrite() { return *rewrites().front(); }

// A refusal is the wgmma engine's.
std::variant<Refusal, Way> way_of(const Problem& problem, const Rewrite& rewrite, int64_t value,
                                  ResultPath out) {
  auto repacked =
      std::make_unique<const Repacked>(rewrite.rewritten(problem.fusion, problem.view, value, out));
  PreparedOr core = wgmma_engine().prepare(repacked->core, problem.device);
  if (auto* const refusal = std::get_if<Refusal>(&core)) return std::move(*refusal);
  return Way{&rewrite, value, out, std::move(repacked),
             std::get<std::unique_ptr<const Prepared>>(std::move(core))};
}

void add_ways(Problem& problem, const Rewrite& rewrite) {
  for (const int64_t value : rewrite.values())
    for (const ResultPath out : problem.result_paths(rewrite, value)) {
      auto way = way_of(problem, rewrite, value, out);
      if (auto* const found = std::get_if<Way>(&way)) problem.ways.push_back(std::move(*found));
    }
}

// Without any but the plain rewrite. The copy that finishes a product could reduce, but no engine is asked
// to.
std::optional<Refusal> refuse_plain(const Problem& problem) {
  if (problem.ways.empty()) {
    const std::vector<ResultPath> outs = problem.result_paths(plain_rewrite(), 0);
    auto way = way_of(problem, plain_rewrite(), 0, outs.empty() ? ResultPath::direct : outs.front());
    if (auto* const refusal = std::get_if<Refusal>(&way)) return std::move(*refusal);
  }
  if (auto refusal = refuse_epilogue_reductions(problem.fusion)) return refusal;
  if (!problem.ways.empty()) return std::nullopt;
  return Refusal{"something-to-repack",
                 problem.fusion.op_name(problem.fusion.anchors[0].op),
                 "",
                 "an operand or a result that TMA cannot walk",
                 "none",
                 "use wgmma",
                 -1};
}

Lowered lower(const Problem& problem, const Way& way, const EngineConfig& config) {
  return between_copies(*way.repacked, way.core->lower(config), problem.device);
}

class PreparedRepack final : public Prepared {
 public:
  explicit PreparedRepack(Problem problem) : problem_(std::move(problem)) {}

  std::vector<Knob> knobs() const override {
    std::vector<Knob> all;
    for (const Way& way : problem_.ways) {
      for (const Knob& knob : way.core->knobs()) add_knob(all, knob);
      add_knob(all, {"repack_y", {static_cast<int64_t>(way.out)}});
      for (const Rewrite* const rewrite : rewrites().subspan(1))
        add_knob(all, {std::string(rewrite->knob()), {rewrite == way.rewrite ? way.value : 0}});
    }
    return all;
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> all;
    for (const Way& way : problem_.ways) add_candidates(all, way);
    return all;
  }

  Notes notes() const override { return problem_.ways.front().core->notes(); }

  // Where no knob asks for a rewrite that can be, the plain one, or else the first that there is: plans need
  // not set every knob, and values that go with one rewrite do not go with another.
  Lowered lower(const EngineConfig& config) const override {
    const auto out = static_cast<ResultPath>(config.knob("repack_y", 0));
    for (const Rewrite* const rewrite : rewrites().subspan(1))
      if (const int64_t value = config.knob(rewrite->knob(), 0); value != 0)
        if (const Way* const way = find(*rewrite, value, out)) return fusor::lower(problem_, *way, config);
    if (const Way* const way = find(plain_rewrite(), 0, out)) return fusor::lower(problem_, *way, config);
    auto nothing_repacked = way_of(problem_, plain_rewrite(), 0, ResultPath::direct);
    const Way* const plain = std::get_if<Way>(&nothing_repacked);
    return fusor::lower(problem_, plain != nullptr ? *plain : problem_.ways.front(), config);
  }

 private:
  // Its values beside those of the same knob.
  static void add_knob(std::vector<Knob>& all, const Knob& knob) {
    const auto known = std::ranges::find(all, knob.name, &Knob::name);
    if (known == all.end()) {
      all.push_back(knob);
      return;
    }
    for (const int64_t value : knob.values)
      if (std::ranges::find(known->values, value) == known->values.end()) known->values.push_back(value);
    std::ranges::sort(known->values);
  }

  void add_candidates(std::vector<EngineCandidate>& all, const Way& way) const {
    const Work copies = cost_of_copies(*way.repacked, problem_.device);
    for (EngineCandidate& candidate : way.core->candidates()) {
      add_copies(candidate.work, copies);
      candidate.config.engine = wgmma_repacked_engine().name();
      candidate.config.set("repack_y", static_cast<int64_t>(way.out));
      if (!way.rewrite->knob().empty()) candidate.config.set(way.rewrite->knob(), way.value);
      all.push_back(std::move(candidate));
    }
  }

  // With the way out that is asked for, or else the first.
  const Way* find(const Rewrite& rewrite, int64_t value, ResultPath out) const {
    const Way* found = nullptr;
    for (const Way& way : problem_.ways)
      if (way.rewrite == &rewrite && way.value == value && (found == nullptr || way.out == out)) found = &way;
    return found;
  }

  Problem problem_;
};

class WgmmaRepackedEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma_repacked"; }
  int number() const override { return 31; }
  int revision() const override { return wgmma_engine().revision(); }
  Notes notes() const override { return wgmma_engine().notes(); }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_phases(fusion)) return std::move(*refusal);
    if (auto refusal = refuse_pair(fusion)) return std::move(*refusal);
    Fusion form = with_plain_operands(fusion);
    const auto view = contraction_of(form);
    if (!view) return wgmma_engine().prepare(fusion, device);
    Problem problem{std::move(form), *view, device, {}};
    for (const Rewrite* const rewrite : rewrites()) add_ways(problem, *rewrite);
    const auto is_plain = [](const Way& way) { return way.rewrite == &plain_rewrite(); };
    if (std::ranges::all_of(problem.ways, is_plain))
      if (auto refusal = refuse_plain(problem)) return std::move(*refusal);
    return std::make_unique<const PreparedRepack>(std::move(problem));
  }
};

}  // namespace

const Engine& wgmma_repacked_engine() {
  static const WgmmaRepackedEngine engine;
  return engine;
}

}  // namespace fusor
