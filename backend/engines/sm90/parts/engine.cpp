// Owns the wgmma_parts engine: matmuls and convolutions of fp32 on Hopper's tensor cores, without rounding
// their operands. A first launch writes both as three bf16 parts a number
// (codegen/device/sm90/parts/split.cuh), the wgmma engine sums the six products of parts that count, and
// where a number has no parts the mma engine's kernel sums everything anew.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/contraction/residue_classes.h"
#include "backend/engines/engine.h"
#include "backend/engines/list.h"
#include "backend/engines/reach.h"
#include "backend/engines/repack/copies.h"
#include "backend/engines/repack/rewrites/repacker.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/copy/batch_walk.h"
#include "backend/engines/sm90/copy/units.h"
#include "backend/engines/sm90/wgmma/prepare.h"
#include "backend/engines/tiled/tiling.h"
#include "codegen/text/parameters.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// Parts of a number, each of which is whole steps of the product long.
constexpr int64_t kParts = wgmma::kPartsOfNumber, kVector = 8, kThreads = 256;
// Where vectors are no neighbours in memory, a warp has so many that are, in so many vectors.
constexpr int64_t kNear = 8, kBeside = 4;
// Parts below the last leave out as much as fp32 rounds in one sum, which shows where it has few terms. Of
// more terms than the most, those that split_floats takes might overflow together.
constexpr int64_t kFewestTerms = 16, kMostTerms = int64_t{1} << 23;
// Blocks of an SM that split numbers; those of the launch run at once, and each leaves a flag.
constexpr int64_t kBlocks = 8, kFlagBytes = 4;

// An operand on its way into scratch: what it is, the axis along which its parts follow each other, the one
// whose neighbours are so in scratch, and all axes in the order in which threads walk them, the last one
// first.
struct SplitOperand {
  Expr site;
  int k_axis = 0, vector_axis = 0;
  Dims order;
  Access scratch;
  int64_t k = 0, padded_k = 0;

  int place_of(int axis) const {
    return static_cast<int>(std::ranges::find(order, int64_t{axis}) - order.begin());
  }
  // Whether neighbours in memory are others than those in scratch.
  bool is_apart() const { return order.back() != vector_axis; }
};

// Threads walk neighbours of memory, where scratch has others: planes of channels, say.
Dims walking_order(const Expr& site, const Dims& scratch_order) {
  Dims order = scratch_order;
  std::ranges::reverse(order);
  const Access* const source = primary_access(site);
  if (source == nullptr) return order;
  const auto step = [&](int64_t axis) {
    const auto i = static_cast<int>(axis);
    return site.domain[i] == 1 ? 0 : std::abs(source->strides[i]);
  };
  const auto is_closest = [&](int64_t axis) {
    return std::ranges::all_of(order,
                               [&](int64_t other) { return step(other) == 0 || step(axis) <= step(other); });
  };
  if (step(order.back()) == 0 || is_closest(order.back())) return order;
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return step(a) != 0 && step(b) != 0 ? step(a) > step(b) : step(a) == 0 && step(b) != 0;
  });
  return order;
}

// The axis that steps of k walk: of a convolution the channels of its first operand in each tap, of a weight
// gradient the images.
int step_axis(const Contraction& view, size_t index, int rank) {
  switch (view.op) {
    case ContractionOp::matmul:
      return index == 0 ? rank - 1 : rank - 2;
    case ContractionOp::fprop:
      return 1;
    case ContractionOp::dgrad:
      return index == 0 ? 1 : 0;
    case ContractionOp::wgrad:
      break;
  }
  return 0;
}

// Whole steps lie within each part: behind the positions of a weight gradient's images there are as many
// zeros.
int64_t padded_extent(const Contraction& view, int64_t extent) {
  if (view.op != ContractionOp::wgrad) return round_up(extent, kBoxLine);
  const int64_t positions = view.k / extent, left = round_up(view.k, kBoxLine) - view.k;
  return extent + ceil_div(left, positions);
}

// Matrices that entries of the batch share are split once; unless TMA cannot walk a batch of what is left.
Dims own_extents(const Expr& site) {
  const uint32_t varies = varying_axes(site)[static_cast<size_t>(yielded(site))];
  const int batch_axes = site.domain.rank() - 2;
  Dims own = site.domain;
  for (int axis = 0; axis < batch_axes; ++axis)
    if ((varies & 1U << axis) == 0) own[axis] = 1;
  Strides strides = packed_strides(own);
  for (int axis = 0; axis < batch_axes; ++axis)
    if (own[axis] != site.domain[axis]) strides[axis] = 0;
  const copy_rules::WalkedAxes batch{copy_rules::slice(site.domain, 0, batch_axes),
                                     copy_rules::slice(strides, 0, batch_axes)};
  return batch_walk(batch) ? own : site.domain;
}

SplitOperand split(Repacker& repacker, const Contraction& view, size_t index) {
  SplitOperand operand;
  operand.site = repacker.operand(index);
  Expr& site = operand.site;
  const Dims whole = site.domain;
  if (!view.is_convolution()) site.domain = own_extents(site);
  operand.k_axis = step_axis(view, index, site.domain.rank());
  operand.k = site.domain[operand.k_axis];
  operand.padded_k = padded_extent(view, operand.k);
  Dims parts = site.domain, terms = whole;
  parts[operand.k_axis] = terms[operand.k_axis] = kParts * operand.padded_k;
  const Dims order = repacker.operand_order(site, index, DataType::bf16);
  operand.vector_axis = static_cast<int>(order[0]);
  operand.order = walking_order(site, order);
  operand.scratch = repacker.add_scratch(site, parts, order, DataType::bf16);
  Access from = operand.scratch;
  for (int axis = 0; axis < whole.rank(); ++axis)
    if (site.domain[axis] != whole[axis]) from.strides[axis] = 0;
  repacker.operand(index) = loaded(terms, DataType::bf16, from);
  return operand;
}

KernelSite kernel_site(const Fusion& fusion, const SplitOperand& operand, const char* name) {
  const int axis = operand.place_of(operand.vector_axis);
  KernelSite site{name, select_axes(operand.site, operand.order), axis};
  mark_whole_vectors(fusion, site.expr, axis, kVector);
  return site;
}

// Extents of the coordinates that a number of a vector is taken apart into: vectors, with the zeros along k,
// or the warps that have them.
Dims counted_extents(const SplitOperand& operand, const Expr& site) {
  Dims extents = site.domain;
  extents[operand.place_of(operand.k_axis)] = operand.padded_k;
  int64_t& across = extents[operand.place_of(operand.vector_axis)];
  across = ceil_div(across, kVector);
  if (!operand.is_apart()) return extents;
  across = ceil_div(across, kBeside);
  int64_t& near = extents[extents.rank() - 1];
  near = ceil_div(near, kNear);
  return extents;
}

int64_t vectors_of(const SplitOperand& operand, const Expr& site) {
  return element_count(counted_extents(operand, site)) * (operand.is_apart() ? kNear * kBeside : 1);
}

int64_t chunks_of(const SplitOperand& operand, const Expr& site) {
  return ceil_div(vectors_of(operand, site), kThreads);
}

int64_t most_blocks(const DeviceInfo& device) { return kBlocks * device.sm_count; }

int index_bits(const SplitOperand& operand, const Expr& site) {
  return std::max(reach(site), chunks_of(operand, site) * kThreads * kVector) > kMaxIndex32 ? 64 : 32;
}

// The members of a SplitOperand of codegen/device/sm90/parts/operand.cuh.
void append(Parameters& p, const SplitOperand& operand, const Expr& site, int to) {
  std::vector<int64_t> strides;
  for (const int64_t axis : operand.order) strides.push_back(operand.scratch.strides[static_cast<int>(axis)]);
  p.scratch("to", "u16", to);
  p.wide("vectors", vectors_of(operand, site));
  p.wide("k", operand.k);
  p.wide("extent", site.domain[operand.place_of(operand.vector_axis)]);
  const int last = site.domain.rank() - 1;
  p.wide("last", operand.place_of(operand.k_axis) == last ? operand.padded_k : site.domain[last]);
  p.wide("part", operand.padded_k * operand.scratch.strides[operand.k_axis]);
  p.wide("strides", strides);
  p.divisors("extents", counted_extents(operand, site));
}

std::string split_type(const Expr& site) { return fmt::format("SplitOperand<{}>", site.domain.rank()); }

// Writes the parts of both operands to scratch 0 and 1, and a flag of each block.
Launch launch_of_splits(const Fusion& fusion, const std::array<SplitOperand, 2>& operands, int flags,
                        const DeviceInfo& device) {
  const KernelSite first = kernel_site(fusion, operands[0], "First"),
                   second = kernel_site(fusion, operands[1], "Second");
  const int bits = std::max(index_bits(operands[0], first.expr), index_bits(operands[1], second.expr));
  KernelSource source{.root = "sm90/parts/split.cuh",
                      .sites = {first, second},
                      .config = {{"index_bits", bits},
                                 {"blocks", kBlocks},
                                 {"threads", kThreads},
                                 {"first_step_axis", operands[0].place_of(operands[0].k_axis)},
                                 {"second_step_axis", operands[1].place_of(operands[1].k_axis)},
                                 {"first_vector_axis", operands[0].place_of(operands[0].vector_axis)},
                                 {"second_vector_axis", operands[1].place_of(operands[1].vector_axis)}},
                      .target = device.target(),
                      .types = {"sm90/parts/operand.cuh"}};
  const int64_t first_chunks = chunks_of(operands[0], first.expr);
  const int64_t chunks = first_chunks + chunks_of(operands[1], second.expr);
  Parameters p(bits);
  p.group("first", split_type(first.expr), [&] { append(p, operands[0], first.expr, 0); });
  p.group("second", split_type(second.expr), [&] { append(p, operands[1], second.expr, 1); });
  p.scratch("flags", "u32", flags);
  p.wide("first_chunks", first_chunks);
  p.wide("chunks", chunks);
  p.site("first_site", first, fusion);
  p.site("second_site", second, fusion);
  Launch launch;
  launch.entry = "split_floats";
  set_grid(launch, std::min(chunks, most_blocks(device)), kThreads);
  p.move_to(std::move(source), launch);
  return launch;
}

// The launch does nothing unless one of the flags is set.
void guard_by_flags(Launch& launch, int flags, int64_t count) {
  KernelSource source = *launch.source;
  const auto guarded = std::ranges::find(source.config, "guarded", &ConfigValue::name);
  guarded->value = true;
  const auto end = [&] { return static_cast<int>(launch.arguments.bytes().size()); };
  source.parameters.push_back({.path = "guard", .type = "const u32*", .at = end()});
  launch.arguments.put_pointer(Patch::Kind::scratch, flags);
  source.parameters.push_back({.path = "guards", .type = "i64", .at = end()});
  launch.arguments.put_int(count);
  launch.source = std::make_shared<const KernelSource>(std::move(source));
}

// Results that the product would store one by one: of a filter whose taps lie between its channels, or of a
// class of pixels.
bool leave_one_by_one(const Contraction& view) {
  return (view.op == ContractionOp::wgrad && view.taps() > 1) || residue_class_count(view) > 0;
}

// Bytes of the parts, written, and of the operands, read; and copies of results.
Work cost_of_splits(const std::array<SplitOperand, 2>& operands, const Repacked& repacked,
                    const DeviceInfo& device) {
  Work work = cost_of_copies(repacked, device);
  // The launch for numbers without parts ends as soon as the product.
  ++work.launches;
  work.scratch_bytes += most_blocks(device) * kFlagBytes;
  for (size_t i = 0; i < operands.size(); ++i)
    work.serial_dram_bytes += static_cast<double>(repacked.scratch[i]);
  for (const SplitOperand& operand : operands)
    work.serial_dram_bytes += 4.0 * static_cast<double>(element_count(operand.site.domain));
  return work;
}

class PreparedParts final : public Prepared {
 public:
  PreparedParts(const Fusion& fusion, const DeviceInfo& device, std::array<SplitOperand, 2> operands,
                std::unique_ptr<const Repacked> repacked, std::unique_ptr<const Prepared> core,
                std::unique_ptr<const Prepared> otherwise)
      : fusion_(fusion),
        device_(device),
        operands_(std::move(operands)),
        repacked_(std::move(repacked)),
        core_(std::move(core)),
        otherwise_(std::move(otherwise)) {}

  std::vector<Knob> knobs() const override { return core_->knobs(); }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> all = core_->candidates();
    const Work splits = cost_of_splits(operands_, *repacked_, device_);
    for (EngineCandidate& candidate : all) {
      add_copies(candidate.work, splits);
      candidate.config.engine = wgmma_parts_engine().name();
    }
    return all;
  }

  Notes notes() const override {
    Notes notes = core_->notes();
    notes.split_operands = true;
    return notes;
  }

  Lowered lower(const EngineConfig& config) const override {
    Lowered core = core_->lower(config);
    Lowered lowered = between_copies(*repacked_, std::move(core), device_);
    const int flags = static_cast<int>(lowered.scratch.size());
    const Launch splits = launch_of_splits(fusion_, operands_, flags, device_);
    const int64_t count = splits.grid[0];
    lowered.scratch.push_back(count * kFlagBytes);
    lowered.steps.insert(lowered.steps.begin(), splits);
    append_part(lowered, *repacked_, otherwise_->lower(config_of_otherwise()));
    guard_by_flags(std::get<Launch>(lowered.steps.back()), flags, count);
    return lowered;
  }

 private:
  // One launch, of blocks that do not wait for each other.
  EngineConfig config_of_otherwise() const {
    for (const EngineCandidate& candidate : otherwise_->candidates())
      if (candidate.config.knob("split", 1) == 1 && candidate.config.knob("cluster", 1) == 1)
        return candidate.config;
    return {std::string(mma_engine().name()), mma_engine().revision(), {}};
  }

  const Fusion& fusion_;
  const DeviceInfo& device_;
  const std::array<SplitOperand, 2> operands_;
  const std::unique_ptr<const Repacked> repacked_;
  const std::unique_ptr<const Prepared> core_, otherwise_;
};

class WgmmaPartsEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma_parts"; }
  int number() const override { return 43; }
  int revision() const override { return wgmma_engine().revision(); }
  Notes notes() const override { return {.tensor_cores = true, .split_operands = true}; }

  // The mma engine says whether numbers must be split; any other refusal is the wgmma engine's, of the
  // copies.
  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    PreparedOr otherwise = mma_engine().prepare(fusion, device);
    if (std::holds_alternative<Refusal>(otherwise)) return otherwise;
    auto& by_mma = std::get<std::unique_ptr<const Prepared>>(otherwise);
    if (!by_mma->notes().split_operands)
      return refusal_at_anchor(fusion, "numbers-in-parts", "fp32 operands that may not be rounded",
                               "operands that tensor cores multiply as they are", "use wgmma or mma");
    const Contraction view = contraction_of(fusion).value();
    if (view.is_convolution() && view.entries > 1)
      return refusal_at_anchor(fusion, "one-group", "a matmul, or a convolution of one group",
                               fmt::format("{} groups", view.entries));
    if (view.k < kFewestTerms || view.k > kMostTerms)
      return refusal_at_anchor(fusion, "terms-of-a-sum",
                               fmt::format("sums of {} to {} terms", kFewestTerms, kMostTerms),
                               fmt::format("{}", view.k));
    for (const Site& site : operand_sites(fusion))
      if (yielded_node(site.expr).type != DataType::f32)
        return refusal_at_anchor(fusion, "numbers-in-parts", "two operands of fp32",
                                 std::string(to_string(yielded_node(site.expr).type)));
    Repacker repacker(fusion, view);
    std::array<SplitOperand, 2> operands{split(repacker, view, 0), split(repacker, view, 1)};
    if (leave_one_by_one(view)) repacker.leave(ResultPath::copied);
    auto repacked = std::make_unique<const Repacked>(repacker.take());
    PreparedOr core = wgmma::prepare(repacked->core, device, true);
    if (std::holds_alternative<Refusal>(core)) return core;
    return std::make_unique<const PreparedParts>(fusion, device, std::move(operands), std::move(repacked),
                                                 std::get<std::unique_ptr<const Prepared>>(std::move(core)),
                                                 std::move(by_mma));
  }
};

}  // namespace

const Engine& wgmma_parts_engine() {
  static const WgmmaPartsEngine engine;
  return engine;
}

}  // namespace fusor
