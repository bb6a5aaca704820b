// Owns the elementwise engine: any fusion without an anchor, as one kernel per Expr (two where a reduction is
// split).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include "backend/engines/elementwise/launch.h"
#include "backend/engines/elementwise/simplify.h"
#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/picks.h"
#include "backend/engines/rules.h"
#include "codegen/text/word_facts.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

using Variant = ElementwiseSchedule::Variant;

using Problem = ElementwiseProblem;

// One for each site.
using Schedule = std::vector<ElementwiseSchedule>;

Schedule schedule_of(const Problem& problem, const ElementwiseKnobs& knobs) {
  Schedule all;
  for (size_t i = 0; i < problem.sites.size(); ++i) all.push_back(schedule_elementwise(problem, i, knobs));
  return all;
}

Lowered lower(const Problem& problem, const Schedule& schedule) {
  Lowered lowered;
  for (const ElementwiseSchedule& s : schedule) append_launches(lowered, problem, s);
  return lowered;
}

// ---- Cost ----

double visited(const Dims& domain, const Access& access) {
  double elements = 1;
  for (int axis = 0; axis < domain.rank(); ++axis)
    if (access.strides[axis] != 0) elements *= static_cast<double>(domain[axis]);
  return elements;
}

// Memory moves in sectors of 32 bytes: what an element costs where neighbours lie `step` elements apart.
int64_t sector_bytes(int64_t step, int64_t size) {
  return std::min(step * size, std::max<int64_t>(32, size));
}

// How far neighbours along the vector axis lie apart. Between those of a pair lies what else it moves.
int64_t step_of(const KernelSite& site, const Access& access) {
  return access.whole_vectors ? 1 : access.strides[site.vector_axis];
}

// Bytes that DRAM moves for an access, in sectors that the axis with the closest neighbours shares.
double dram_bytes(const Dims& domain, const Access& access, DataType type) {
  int64_t closest = access.whole_vectors ? 1 : 0;
  for (const int64_t stride : access.strides)
    if (stride != 0 && (closest == 0 || stride < closest)) closest = stride;
  const int64_t size = byte_size(type);
  return visited(domain, access) * static_cast<double>(sector_bytes(std::max<int64_t>(closest, 1), size)) /
         static_cast<double>(elements_per_byte(type));
}

// Elements taken through an index lie anywhere: a sector for as many as lie side by side.
double gathered_bytes(const Dims& domain, const Node& load, uint32_t axes) {
  double elements = 1;
  for (int axis = 0; axis < domain.rank(); ++axis)
    if (axes >> axis & 1) elements *= static_cast<double>(domain[axis]);
  int64_t closest = load.access.indexed[0].stride;
  for (int axis = 0; axis < domain.rank(); ++axis)
    if (const int64_t stride = load.access.strides[axis]; stride != 0 && domain[axis] > 1)
      closest = std::min(closest, stride);
  const int64_t size = byte_size(load.type);
  return elements * static_cast<double>(sector_bytes(std::max<int64_t>(closest, 1), size));
}

bool same_elements(const Node& a, const Node& b) {
  if (a.access.is_indexed() || b.access.is_indexed()) return false;
  return a.access.operand == b.access.operand && a.access.offset == b.access.offset &&
         a.access.strides == b.access.strides;
}

void add_loads(Work& work, const KernelSite& site, double elements) {
  const std::vector<Node>& nodes = site.expr.nodes;
  const std::vector<uint32_t> axes = varying_axes(site.expr);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind != Node::Kind::load) continue;
    if (nodes[i].access.is_indexed()) {
      const double bytes = gathered_bytes(site.expr.domain, nodes[i], axes[i]);
      work.l2_bytes += bytes;
      work.dram_bytes += bytes;
      continue;
    }
    const int64_t step = step_of(site, nodes[i].access);
    work.l2_bytes += elements * static_cast<double>(sector_bytes(step, byte_size(nodes[i].type)));
    work.fp32_flops += step != 0 && !is_compute_type(nodes[i].type) ? 2 * elements : 0;
    const auto read_before = [&](const Node& other) {
      return other.kind == Node::Kind::load && same_elements(other, nodes[i]);
    };
    if (std::none_of(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(i), read_before))
      work.dram_bytes += dram_bytes(site.expr.domain, nodes[i].access, nodes[i].type);
  }
}

// Times that a node is computed for each element: neighbours in a vector may share a block of random words.
double times_of(const ElementwiseSchedule& s, const Node& node) {
  constexpr int64_t kWordsOfBlock = 4;
  const int64_t step = word_steps(s.y, node).step;
  if (step == 0) return 1;
  return static_cast<double>(ceil_div(s.vector * step, kWordsOfBlock)) / static_cast<double>(s.vector);
}

void add_arithmetic(Work& work, const ElementwiseSchedule& s, double elements) {
  const Expr& expr = s.y.expr;
  for (const Node& node : expr.nodes) {
    if (node.kind != Node::Kind::pointwise) continue;
    const PointwiseInfo& row = info(node.pointwise.mode);
    const bool wide = node.pointwise.compute == DataType::f64 || node.pointwise.compute == DataType::i64;
    (wide ? work.fp64_flops : work.fp32_flops) += 2 * elements * row.alu * times_of(s, node);
    work.special += elements * row.sfu;
    if (!is_compute_type(node.type)) work.fp32_flops += 2 * elements;
  }
  for (const Store& result : expr.stores)
    if (const Node* const total = reduction_of(expr, result))
      (total->reduction.compute == DataType::f64 ? work.fp64_flops : work.fp32_flops) += 2 * elements;
}

// Turns of L2 for a store, counted by one access a thread: two accesses leave gaps between those of
// neighbours and cost four times as much.
double turns_of_store(const ElementwiseSchedule& s, const Store& result) {
  constexpr double kTurnsOfGaps = 4;
  const bool has_gaps = s.variant == Variant::plain && result.access.whole_vectors &&
                        s.vector * byte_size(result.type) > kMaxAccessBytes;
  return has_gaps ? kTurnsOfGaps : 1;
}

// A vector of elements that an index says is found once: 64-bit arithmetic and bounds, whatever its width.
double instructions_of_places(const ElementwiseSchedule& s, double elements) {
  constexpr double kInstructions = 40;
  const auto loads = std::ranges::count_if(s.y.expr.nodes, [](const Node& node) {
    return node.kind == Node::Kind::load && node.access.is_indexed();
  });
  return kInstructions * static_cast<double>(loads) * elements / static_cast<double>(s.vector);
}

void add_work(Work& work, const ElementwiseSchedule& s) {
  const Dims& domain = s.domain();
  const double elements = static_cast<double>(element_count(domain));
  work.fp32_flops += 2 * instructions_of_places(s, elements);
  add_loads(work, s.y, elements);
  for (const KernelSite& site : s.staged) {
    add_loads(work, site, elements);
    const double bytes = static_cast<double>(byte_size(site.expr.nodes.front().type));
    work.shared_bytes += 2 * elements * bytes;
  }
  add_arithmetic(work, s, elements);
  for (const Store& result : s.y.expr.stores) {
    if (result.access.is_indexed()) {
      work.dram_bytes += elements * static_cast<double>(byte_size(result.type));
      work.l2_bytes += elements * static_cast<double>(byte_size(result.type));
      continue;
    }
    work.dram_bytes += dram_bytes(domain, result.access, result.type);
    if (!reduction_of(s.y.expr, result))
      work.l2_bytes += elements * turns_of_store(s, result) *
                       static_cast<double>(sector_bytes(step_of(s.y, result.access), byte_size(result.type)));
  }
  const int64_t scratch = scratch_bytes(s);
  work.scratch_bytes += scratch;
  work.dram_bytes += 2 * static_cast<double>(scratch);
  work.launches += s.splits > 1 ? 2 : 1;
}

Work cost(const Problem& problem, const Schedule& schedule) {
  Work work;
  work.launches = 0;
  work.tiles = 0;
  for (const ElementwiseSchedule& s : schedule) {
    add_work(work, s);
    work.tiles += s.blocks() * s.splits;
    work.tiles_per_sm = std::max(1, problem.device.max_threads_per_sm / static_cast<int>(s.threads));
  }
  return work;
}

// ---- Choices ----

int64_t stage_of(const ElementwiseSchedule& s) {
  return s.variant == Variant::planes ? 2 : s.variant == Variant::transpose ? 1 : 0;
}

// The knobs as they stand in a schedule.
ElementwiseKnobs settled(const ElementwiseSchedule& s) {
  ElementwiseKnobs knobs{.vector = s.vector, .threads = s.threads};
  if (!s.stages()) knobs.unroll = s.unroll;
  if (s.can_stage) knobs.stage = stage_of(s);
  // Rounding to whole chunks may leave fewer splits than were asked for.
  if (s.reduces()) knobs.splits = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(s.splits)));
  return knobs;
}

std::vector<int64_t> powers_of_two(int64_t first, int64_t last) {
  std::vector<int64_t> values;
  for (int64_t value = first; value <= last; value *= 2) values.push_back(value);
  return values;
}

// Each with one knob turned.
std::vector<ElementwiseKnobs> variations(const ElementwiseSchedule& s) {
  std::vector<ElementwiseKnobs> all;
  const auto add = [&](std::optional<int64_t> ElementwiseKnobs::*knob, int64_t value) {
    all.push_back(settled(s));
    all.back().*knob = value;
  };
  for (const int64_t stage : {0, 1, 2})
    if (s.can_stage && stage != stage_of(s) && (stage != 2 || s.has_planes))
      add(&ElementwiseKnobs::stage, stage);
  if (s.vector > 1) add(&ElementwiseKnobs::vector, s.vector / 2);
  if (!s.stages() && !s.reduces()) add(&ElementwiseKnobs::vector, s.vector * 2);
  for (const int64_t threads : {128, 256, 512}) add(&ElementwiseKnobs::threads, threads);
  if (!s.stages())
    for (const int64_t unroll : {1, 2, 4}) add(&ElementwiseKnobs::unroll, unroll);
  // No splits leave the choice to the schedule.
  if (s.reduces()) {
    add(&ElementwiseKnobs::splits, s.splits / 2);
    if (s.splits < 2) all.back().splits.reset();
    add(&ElementwiseKnobs::splits, s.splits * 2);
  }
  return all;
}

class PreparedElementwise final : public Prepared {
 public:
  PreparedElementwise(const Fusion& fusion, std::optional<Fusion> picked, const DeviceInfo& device)
      : picked_(std::move(picked)), problem_(picked_ ? *picked_ : fusion, device) {}

  // Every knob of every fusion: the same lists, so that a saved setting stays one of them.
  std::vector<Knob> knobs() const override {
    const ElementwiseSchedule s = schedule_elementwise(problem_, 0, {});
    std::vector<Knob> all = {{"vector", powers_of_two(1, 16)}, {"threads", powers_of_two(32, 1024)}};
    all.push_back({"unroll", powers_of_two(1, 8)});
    if (s.can_stage)
      all.push_back({"stage", s.has_planes ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 1}});
    if (s.reduces()) all.push_back({"splits", powers_of_two(1, 4096)});
    return all;
  }

  std::vector<EngineCandidate> candidates() const override {
    const ElementwiseSchedule first = schedule_elementwise(problem_, 0, {});
    std::vector<EngineCandidate> all;
    add_candidate(all, settled(first));
    for (const ElementwiseKnobs& other : variations(first)) add_candidate(all, other);
    return all;
  }

  Notes notes() const override { return {.deterministic = !scatters_may_meet(problem_.fusion)}; }

  Lowered lower(const EngineConfig& config) const override {
    return fusor::lower(problem_, schedule_of(problem_, knobs_of<ElementwiseKnobs>(config)));
  }

 private:
  // Where the knobs change anything.
  void add_candidate(std::vector<EngineCandidate>& all, const ElementwiseKnobs& asked) const {
    const Schedule schedule = schedule_of(problem_, asked);
    EngineConfig had = config_of(elementwise_engine(), settled(schedule.front()));
    if (std::ranges::find(all, had, &EngineCandidate::config) == all.end())
      all.push_back({std::move(had), cost(problem_, schedule)});
  }

  const std::optional<Fusion> picked_;  ///< carried out in the place of the fusion that was given
  const Problem problem_;
};

class ElementwiseEngine final : public Engine {
 public:
  std::string_view name() const override { return "elementwise"; }
  int number() const override { return 10; }

  PackedAccess packed_access() const override { return {.loads = true, .stores = true}; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (device.is_cpu())
      return Refusal{"cuda-device", "", "", "a CUDA device", device.name, "build for a CUDA device", -1};
    if (!fusion.anchors.empty()) {
      const Anchor& anchor = fusion.anchors.front();
      return Refusal{"no-anchor",
                     fusion.op_name(anchor.op),
                     "",
                     "pointwise ops, reductions and copies only",
                     std::string(kind_name(anchor.attributes)),
                     "use direct or mma",
                     anchor.op};
    }
    std::optional<Fusion> picked = with_picked_elements(fusion);
    if (auto refusal = refuse_form(picked ? *picked : fusion)) return std::move(*refusal);
    return std::make_unique<const PreparedElementwise>(fusion, std::move(picked), device);
  }

 private:
  static std::optional<Refusal> refuse_form(const Fusion& fusion) {
    if (auto refusal = refuse_phases(fusion)) return refusal;
    for (const Site& site : fusion.sites) {
      for (const Store& store : site.expr.stores)
        if (is_packed(store.type) && store.index < 0) return refuse_packed_store(fusion, store);
      int differing = -1;
      if (!shared_reduction_mask(site.expr, &differing))
        return refuse_mask(fusion, site.expr.stores[static_cast<size_t>(differing)]);
    }
    return std::nullopt;
  }

  // Packed elements that are scattered are merged into their bytes; all others are stored by whole bytes.
  static Refusal refuse_packed_store(const Fusion& fusion, const Store& result) {
    return {"whole-byte-stores",
            fusion.op_name(result.op),
            fusion.name_of(result.access.operand),
            "results whose elements have addresses, or are scattered",
            fmt::format("{}, {} elements a byte", to_string(result.type), elements_per_byte(result.type)),
            "a fusion of its own for the op: engine 'packed' stores packed elements",
            result.op};
  }
  static Refusal refuse_mask(const Fusion& fusion, const Store& result) {
    return {"one-reduction-mask",
            fusion.op_name(result.op),
            fusion.name_of(result.access.operand),
            "reductions over the same axes",
            "a reduction over others",
            "carry out the reductions in fusions of their own",
            result.op};
  }
};

}  // namespace

const Engine& elementwise_engine() {
  static const ElementwiseEngine engine;
  return engine;
}

}  // namespace fusor
