// Owns the rules of the attention_mma engine, and what a setting of its knobs settles.
#include "backend/engines/tiled/attention/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/reach.h"
#include "backend/engines/rules.h"
#include "backend/engines/tiled/tiling.h"
#include "core/chosen_load.h"

namespace fusor::tiled_attention {

namespace {

using attention::refuse_attention;

constexpr int64_t kMostRegisters = 255, kRegistersOfSm = 65536;

bool is_16_bits(DataType type) { return type == DataType::f16 || type == DataType::bf16; }

// Entries of the scores that share one of the operand, by batch axis; nothing where they do not divide
// evenly.
std::optional<std::vector<int64_t>> sharing_of(const Dims& batch, const Expr& site) {
  std::vector<int64_t> sharing;
  for (int axis = 0; axis < batch.rank(); ++axis) {
    if (batch[axis] % site.domain[axis] != 0) return std::nullopt;
    sharing.push_back(batch[axis] / site.domain[axis]);
  }
  return sharing;
}

int64_t index_bits_of(const Problem& problem) {
  const Expr& y = result_site(problem.fusion);
  for (const Expr* expr : {&problem.q.expr, &problem.k.expr, &problem.v.expr, &problem.scores.score, &y})
    if (reach(*expr) > kMaxIndex32) return 64;
  return 32;
}

std::optional<Refusal> refuse_sizes(const Problem& problem, int64_t most_head) {
  const Fusion& fusion = problem.fusion;
  if (problem.head > most_head || problem.value > most_head)
    return refuse_attention(fusion, "head-elements", "", fmt::format("at most {} elements a head", most_head),
                            fmt::format("{} and {}", problem.head, problem.value));
  const int64_t reached = std::max({problem.queries, problem.keys, problem.entries() * problem.queries});
  return refuse_wide_coordinates(fusion, "queries of all heads", reached);
}

std::optional<Refusal> refuse_device(const DeviceInfo& device) {
  if (auto refusal = refuse_cpu(device)) return refusal;
  if (device.compute_capability >= 80) return std::nullopt;
  return Refusal{"sm-80", "", "", "an Ampere GPU (sm_80) or later", device.name, "plan for one", -1};
}

// Elements of a swizzled line (line_of in the kernel).
int64_t line_of(int64_t elements) {
  return elements <= 16 ? 16 : elements <= 32 ? 32 : round_up(elements, 64);
}

// The loads that give the operand's elements as they are: one, or two of which each row has one; none where
// ops are between.
std::vector<const Access*> plain_loads(const Fusion& fusion, const Expr& site, int head_axis) {
  const auto is_plain = [&](const Node& load) {
    return fusion.operands[static_cast<size_t>(load.access.operand)].type == load.type;
  };
  const Node& value = yielded_node(site);
  if (value.kind == Node::Kind::load && is_plain(value)) return {&value.access};
  const auto chosen = chosen_load(site);
  if (!chosen) return {};
  const std::vector<uint32_t> varying = varying_axes(site);
  const auto is_of_row = [&](int at) {
    return at < 0 || (varying[static_cast<size_t>(at)] >> head_axis & 1) == 0;
  };
  std::vector<const Access*> loads;
  for (const int at : {chosen->first, chosen->second}) {
    const Node& load = site.node(at);
    if (!is_plain(load) || load.access.strides[head_axis] != 1 || !std::ranges::all_of(load.args, is_of_row))
      return {};
    loads.push_back(&load.access);
  }
  return is_of_row(chosen->condition) ? loads : std::vector<const Access*>();
}

}  // namespace

std::variant<OperandLoad, Refusal> load_of(const Fusion& fusion, const Expr& site, int row_axis,
                                           int head_axis) {
  const Node& value = yielded_node(site);
  if (!is_16_bits(value.type))
    return refuse_attention(fusion, "16-bit-operands", "", "fp16 or bf16", std::string(to_string(value.type)),
                            "declare the operand fp16 or bf16");
  OperandLoad load{.expr = site, .vector_axis = head_axis};
  const std::vector<const Access*> loads = plain_loads(fusion, site, head_axis);
  load.plain = !loads.empty();
  const Access* const access = load.plain ? loads[0] : primary_access(site);
  if (access == nullptr) return load;
  const bool head_adjacent = access->strides[head_axis] == 1, row_adjacent = access->strides[row_axis] == 1;
  load.along_head = head_adjacent || !row_adjacent;
  load.vector_axis = load.along_head ? head_axis : row_axis;
  const auto moves_vectors = [&](const Access& each, int64_t width) {
    const Operand& operand = fusion.operands[static_cast<size_t>(each.operand)];
    return moves_whole_vectors(each, operand, operand.type, load.vector_axis, width);
  };
  for (const int64_t width : {8, 4, 2})
    if (load.width == 1 && site.domain[load.vector_axis] % width == 0 && moves_vectors(*access, width) &&
        std::ranges::all_of(loads, [&](const Access* each) { return moves_vectors(*each, width); }))
      load.width = width;
  mark_whole_vectors(fusion, load.expr, load.vector_axis, load.width);
  return load;
}

namespace {

std::optional<Refusal> refuse_scattered(const Fusion& fusion) {
  for (const Site& site : fusion.sites)
    for (const Store& store : site.expr.stores) {
      if (store.index < 0) continue;
      Refusal refusal = refuse_attention(fusion, "stores-in-place", fusion.name_of(store.access.operand),
                                         "results that are stored where rows and heads say",
                                         "elements scattered by an index", "scatter them behind it");
      refusal.op = store.op;
      return refusal;
    }
  return std::nullopt;
}

}  // namespace

std::variant<Problem, Refusal> problem_of(const Fusion& fusion, const DeviceInfo& device, int64_t most_head) {
  if (auto refusal = refuse_device(device)) return std::move(*refusal);
  if (auto refusal = attention::refuse_attention_form(fusion)) return std::move(*refusal);
  if (auto refusal = refuse_scattered(fusion)) return std::move(*refusal);
  const Expr &between = operand_site(fusion, 1, 0), &v = operand_site(fusion, 1, 1);
  const Expr &q = operand_site(fusion, 0, 0), &k = operand_site(fusion, 0, 1);
  const int rank = between.domain.rank();
  if (q.domain.rank() != rank || k.domain.rank() != rank || v.domain.rank() != rank)
    return refuse_attention(fusion, "equal-ranks", "", "operands of one rank", "broadcast ones");
  auto scores = attention::take_apart(fusion, between, {.plain_chains = true});
  if (auto* refusal = std::get_if<Refusal>(&scores)) return std::move(*refusal);
  Problem problem{.fusion = fusion,
                  .device = device,
                  .scores = std::move(std::get<attention::Scores>(scores)),
                  .q = {},
                  .k = {},
                  .v = {}};
  for (int axis = 0; axis + 2 < rank; ++axis) problem.batch.push_back(between.domain[axis]);
  struct Place {
    OperandLoad& load;
    const Expr& site;
    int row_axis, head_axis;
  };
  for (const Place& place : {Place{problem.q, q, rank - 2, rank - 1},
                             {problem.k, k, rank - 1, rank - 2},
                             {problem.v, v, rank - 2, rank - 1}}) {
    auto load = load_of(fusion, place.site, place.row_axis, place.head_axis);
    if (auto* refusal = std::get_if<Refusal>(&load)) return std::move(*refusal);
    place.load = std::move(std::get<OperandLoad>(load));
    auto sharing = sharing_of(problem.batch, place.site);
    if (!sharing)
      return refuse_attention(fusion, "shared-heads", "", "keys and values that whole groups of heads share",
                              "other sharing");
    place.load.sharing = std::move(*sharing);
  }
  if (std::ranges::any_of(problem.q.sharing, [](int64_t share) { return share != 1; }))
    return refuse_attention(fusion, "own-queries", "", "queries of each head", "shared ones");
  problem.type = yielded_node(between).type;
  for (const Expr* site : {&q, &k, &v})
    if (yielded_node(*site).type != problem.type)
      return refuse_attention(fusion, "one-type", "", "q, k, v and probabilities of one type", "several");
  problem.queries = between.domain[rank - 2];
  problem.keys = between.domain[rank - 1];
  problem.head = q.domain[rank - 1];
  problem.value = v.domain[rank - 1];
  problem.index_bits = index_bits_of(problem);
  if (auto refusal = refuse_sizes(problem, most_head)) return std::move(*refusal);
  return problem;
}

int64_t tile_bytes(int64_t rows, int64_t elements) { return 2 * rows * line_of(elements); }

int64_t Schedule::shared_bytes() const {
  return tile_bytes(tile_q() + knobs.tile_k, problem.padded_head()) +
         tile_bytes(knobs.tile_k, problem.padded_value());
}

// Scores and sums; rows, addresses and the running softmax; addresses within the head; masks, lines across
// the head, and ops on scores (ptxas, sm_80 and sm_90a: no setting that fits spills).
int64_t Schedule::registers() const {
  const int64_t values = knobs.row_blocks * (knobs.tile_k / 2 + problem.padded_value() / 2);
  const attention::Bounds& bounds = problem.scores.bounds;
  const int64_t masks = bounds.lower.empty() && bounds.upper.empty() ? 0 : 4;
  const int64_t across = (problem.k.along_head ? 0 : 4) + (problem.v.along_head ? 0 : 4);
  // Addresses of many keys are held at once.
  const int64_t wide = knobs.tile_k < 128 || problem.scores.is_plain() ? 0 : 48;
  return values + 48 + problem.padded_head() / 16 + masks + across + wide +
         (problem.scores.is_plain() ? 0 : 24);
}

// As many as registers and shared memory allow, two at most: that keeps the tensor cores busy.
int64_t Schedule::blocks_per_sm() const {
  const bool two = registers() * threads() * 2 <= kRegistersOfSm &&
                   2 * (shared_bytes() + kReservedBytes) <= problem.device.shared_per_sm;
  return two ? 2 : 1;
}

bool Schedule::fits() const {
  return shared_bytes() <= problem.device.shared_per_block &&
         registers() <= std::min(kMostRegisters, kRegistersOfSm / threads());
}

}  // namespace fusor::tiled_attention
