// Owns the rules of the backward engine, and what a setting of its knobs settles.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/engines/attention/form.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/attention/backward.h"

namespace fusor::attention::backward {

namespace {

constexpr int64_t kMostHead = 256;
constexpr int64_t kSpilledRows = 64;  // codegen/device/sm90/attention/spilled.cuh
constexpr int64_t kShortHead = 128;   // whose sums leave room for three consumers
constexpr int64_t kBarrierBytes = 256;
// Beside products and sums: rows, bounds, addresses; and what computed scores need.
constexpr int64_t kOtherRegisters = 28, kScoreRegisters = 44, kDropoutRegisters = 4, kMaskRegisters = 4;
constexpr int64_t kTileSlots = 4;  // codegen/device/sm90/attention/order.cuh

// --- The form ---

// An anchor behind the site between: which yield it takes, and whether transposed.
struct Back {
  int yield = 0;
  bool transposed = false;
  const Expr* operand = nullptr;  // the other one
  const Expr* result = nullptr;
};

struct Shape {
  int between = -1;  // site
  std::vector<Back> backs;
};

Refusal other_form(const Fusion& fusion, std::string actual) {
  return {"gradients-of-products",
          fusion.op_names.empty() ? "" : fusion.op_names.front(),
          "",
          "two matmuls, what becomes of both, and up to three matmuls of that",
          std::move(actual),
          "",
          -1};
}

bool takes_anchor(const Site& site, size_t input, int anchor) {
  const Input& from = site.inputs[input];
  return from.from == Input::From::anchor && from.at == anchor && from.whole.empty();
}

// Whether the axes leave batches alone and exchange the two of the matrix.
bool exchanges_last(const Dims& axes) {
  for (int axis = 0; axis < axes.rank() - 2; ++axis)
    if (axes[axis] != axis) return false;
  return axes[axes.rank() - 2] == axes.rank() - 1 && axes[axes.rank() - 1] == axes.rank() - 2;
}

std::variant<Shape, Refusal> shape_of(const Fusion& fusion) {
  if (form_of(fusion) != Form::chain) return other_form(fusion, std::string(to_string(form_of(fusion))));
  if (fusion.anchors.size() < 3 || fusion.anchors.size() > 5)
    return other_form(fusion, fmt::format("{} contractions", fusion.anchors.size()));
  Shape shape{fusion.anchors[2].operands[0].site, {}};
  const Site& between = fusion.sites[static_cast<size_t>(shape.between)];
  if (between.inputs.size() != 2 || !takes_anchor(between, 0, 0) || !takes_anchor(between, 1, 1))
    return other_form(fusion, "other connections");
  for (const Anchor& anchor : fusion.anchors) {
    const auto* const matmul = std::get_if<Matmul>(&anchor.attributes);
    if (matmul == nullptr) return other_form(fusion, "a convolution");
    if (matmul->compute != DataType::f32)
      return refuse_attention(fusion, "fp32-sums", "", "compute type fp32",
                              std::string(to_string(matmul->compute)));
  }
  for (size_t i = 2; i < fusion.anchors.size(); ++i) {
    const Port& port = fusion.anchors[i].operands[0];
    if (port.site != shape.between || (!port.axes.empty() && !exchanges_last(port.axes)))
      return other_form(fusion, "operands whose axes change places in another way");
    const auto takes = [&](const Site& site) {
      return site.inputs.size() == 1 && takes_anchor(site, 0, static_cast<int>(i));
    };
    const auto result = std::ranges::find_if(fusion.sites, takes);
    if (result == fusion.sites.end()) return other_form(fusion, "other connections");
    shape.backs.push_back({port.yield, !port.axes.empty(), &operand_site(fusion, i, 1), &result->expr});
  }
  return shape;
}

// --- Who is who ---

bool depends_on(const Expr& expr, int at, int input) {
  const Node& node = expr.node(at);
  if (node.kind == Node::Kind::input) return node.input == input;
  return std::ranges::any_of(node.args, [&](int arg) { return arg >= 0 && depends_on(expr, arg, input); });
}

// Whether two sites load the same matrices, one of them transposed where asked.
bool same_rows(const Expr& a, const Expr& b, bool transposed) {
  const Node &first = yielded_node(a), &second = yielded_node(b);
  const int rank = a.domain.rank();
  // Both read results of ops of one tensor: equal where their extents are.
  const auto same_extents = [&] {
    for (int axis = 0; axis < rank; ++axis) {
      const int other = !transposed || axis < rank - 2 ? axis : axis == rank - 2 ? rank - 1 : rank - 2;
      if (a.domain[axis] != b.domain[other]) return false;
    }
    return true;
  };
  if (a.nodes.size() > 1 && a.nodes.size() == b.nodes.size() && first.op >= 0 && first.op == second.op)
    return b.domain.rank() == rank && same_extents();
  if (first.kind != Node::Kind::load || second.kind != Node::Kind::load || b.domain.rank() != rank ||
      first.type != second.type || first.access.operand != second.access.operand ||
      first.access.offset != second.access.offset)
    return false;
  for (int axis = 0; axis < rank; ++axis) {
    const int other = !transposed || axis < rank - 2 ? axis : axis == rank - 2 ? rank - 1 : rank - 2;
    if (a.domain[axis] != b.domain[other]) return false;
    if (a.domain[axis] > 1 && first.access.strides[axis] != second.access.strides[other]) return false;
  }
  return true;
}

// Which of the products is that of queries and keys: what is not made of both is a probability.
std::optional<int> score_input(const Fusion& fusion, const Shape& shape, const Expr& between) {
  for (const Back& back : shape.backs) {
    const int at = between.yields[static_cast<size_t>(back.yield)];
    for (const int input : {0, 1})
      if (!depends_on(between, at, 1 - input)) return input;
    for (const int input : {0, 1})
      if (same_rows(*back.operand, operand_site(fusion, static_cast<size_t>(input), back.transposed ? 0 : 1),
                    !back.transposed))
        return input;
  }
  return std::nullopt;
}

std::optional<Refusal> find_roles(const Fusion& fusion, const Shape& shape, Problem& problem) {
  const Expr& between = fusion.sites[static_cast<size_t>(shape.between)].expr;
  const auto scores = score_input(fusion, shape, between);
  if (!scores) return other_form(fusion, "operands that are not those of the products in front");
  problem.roles.scores = *scores;
  const auto front = static_cast<size_t>(*scores);
  for (const Back& back : shape.backs) {
    const bool of_both = depends_on(between, between.yields[static_cast<size_t>(back.yield)], 1 - *scores);
    int& yield = of_both ? problem.roles.gradients : problem.roles.probabilities;
    std::optional<Expr>& result = !of_both ? problem.dv : back.transposed ? problem.dk : problem.dq;
    const Expr& expected = back.transposed ? operand_site(fusion, of_both ? front : 1 - front, 0)
                                           : operand_site(fusion, front, 1);
    if ((yield >= 0 && yield != back.yield) || result || (!of_both && !back.transposed) ||
        !same_rows(*back.operand, expected, !back.transposed))
      return other_form(fusion, "operands that are not those of the products in front");
    yield = back.yield;
    result = *back.result;
  }
  if (problem.dk.has_value() != problem.dv.has_value())
    return other_form(fusion, "the gradient of keys or of values alone");
  return std::nullopt;
}

// --- Results ---

// A sum over axes in front of the matrices that the kernel makes itself: scaling comes before or after it.
std::optional<Refusal> take_sum(const Fusion& fusion, Expr& y, uint32_t& over) {
  const auto sum = std::ranges::find(y.nodes, Node::Kind::reduce, &Node::kind);
  if (sum == y.nodes.end()) return std::nullopt;
  const auto refuse_sum = [&](const char* actual) {
    return Refusal{"sum-of-heads",
                   sum->op < 0 ? "" : fusion.op_name(sum->op),
                   "",
                   "a sum of products, scaled at most, over the heads that share keys",
                   actual,
                   "",
                   sum->op};
  };
  if (sum->reduction.mode != ReductionMode::add || sum->reduction.compute != DataType::f32)
    return refuse_sum("another reduction");
  for (int at = sum->args[0]; y.node(at).kind != Node::Kind::input;) {
    const Node& node = y.node(at);
    const bool scales = is_pointwise(node, PointwiseMode::mul) || is_pointwise(node, PointwiseMode::identity);
    if (node.type != DataType::f32 || !scales) return refuse_sum("other ops in front of it");
    const bool first = node.args[1] < 0 || y.node(node.args[1]).kind == Node::Kind::scalar;
    if (!first && y.node(node.args[0]).kind != Node::Kind::scalar)
      return refuse_sum("other ops in front of it");
    at = first ? node.args[0] : node.args[1];
  }
  for (const Node& node : y.nodes)
    if (node.kind == Node::Kind::input && node.type != DataType::f32) return refuse_sum("rounded products");
  over = sum->over;
  sum->kind = Node::Kind::pointwise;
  sum->pointwise = {};
  sum->over = 0;
  for (int axis = 0; axis < y.domain.rank(); ++axis)
    if (over >> axis & 1) y.domain[axis] = 1;
  if (y.has_reduction()) return refuse_sum("more than one");
  return std::nullopt;
}

// The result of a product that is multiplied by a scalar first, in fp32.
Expr with_scaled_input(const Expr& y, const Node& scalar) {
  Expr scaled = y;
  scaled.nodes.clear();
  std::vector<int> places;
  for (Node node : y.nodes) {
    for (int& argument : node.args)
      if (argument >= 0) argument = places[static_cast<size_t>(argument)];
    const bool is_product = node.kind == Node::Kind::input;
    const DataType type = node.type;
    if (is_product) node.type = DataType::f32;
    scaled.nodes.push_back(node);
    if (is_product) {
      Node product;
      product.kind = Node::Kind::pointwise;
      product.type = type;
      product.pointwise = {.mode = PointwiseMode::mul};
      product.args = {static_cast<int>(scaled.nodes.size()) - 1, static_cast<int>(scaled.nodes.size()), -1};
      product.op = node.op;
      scaled.nodes.push_back(scalar);
      scaled.nodes.push_back(product);
    }
    places.push_back(static_cast<int>(scaled.nodes.size()) - 1);
  }
  for (Store& store : scaled.stores) {
    store.node = places[static_cast<size_t>(store.node)];
    if (store.index >= 0) store.index = places[static_cast<size_t>(store.index)];
  }
  for (int& yield : scaled.yields) yield = places[static_cast<size_t>(yield)];
  return scaled;
}

std::optional<Refusal> settle_results(Problem& problem) {
  const Fusion& fusion = problem.fusion;
  problem.members = Dims::filled(problem.batch.rank(), 1);
  if (problem.dq && problem.dq->has_reduction())
    return refuse_attention(fusion, "elementwise-result", "", "gradients of queries without reductions",
                            "a reduction");
  if (!problem.dk) return std::nullopt;
  uint32_t of_keys = 0, of_values = 0;
  if (auto refusal = take_sum(fusion, *problem.dk, of_keys)) return refusal;
  if (auto refusal = take_sum(fusion, *problem.dv, of_values)) return refusal;
  for (int axis = 0; axis < problem.batch.rank(); ++axis) {
    const bool sums = of_keys >> axis & 1;
    const bool both = sums == static_cast<bool>(of_values >> axis & 1);
    if (problem.batch[axis] == 1) continue;
    if (!both || (sums && problem.shares[static_cast<size_t>(axis)] != problem.batch[axis]))
      return refuse_attention(fusion, "sum-of-heads", "", "sums over the heads that share keys and values",
                              "other sums");
    if (sums) problem.members[axis] = problem.batch[axis];
  }
  return std::nullopt;
}

// Results whose entries begin where the device knows are stored there by the kernels.
std::optional<Refusal> place_results(Problem& problem) {
  struct Result {
    const std::optional<Expr>& y;
    std::optional<RaggedResult>& placed;
  };
  for (const Result& result : {Result{problem.dq, problem.placed_dq},
                               {problem.dk, problem.placed_dk},
                               {problem.dv, problem.placed_dv}}) {
    if (!result.y) continue;
    result.placed = ragged_result_of(problem.fusion, without_last_rounding(*result.y));
    if (result.placed) continue;
    if (auto refusal = refuse_computed_places(problem.fusion, *result.y)) return refusal;
  }
  return std::nullopt;
}

std::optional<Refusal> find_rows(Problem& problem) {
  const Fusion& fusion = problem.fusion;
  const auto front = static_cast<size_t>(problem.roles.scores);
  const int rank = operand_site(fusion, 0, 0).domain.rank();
  struct Source {
    Rows& rows;
    const Expr& site;
    bool transposed;
  };
  for (const Source& source : {Source{problem.q, operand_site(fusion, front, 0), false},
                               {problem.k, operand_site(fusion, front, 1), true},
                               {problem.dy, operand_site(fusion, 1 - front, 0), false},
                               {problem.v, operand_site(fusion, 1 - front, 1), true}}) {
    if (source.site.domain.rank() != rank)
      return refuse_attention(fusion, "equal-ranks", "", "operands of one rank", "broadcast ones");
    auto rows =
        rows_of(fusion, source.site, rank - (source.transposed ? 1 : 2), rank - (source.transposed ? 2 : 1));
    if (auto* refusal = std::get_if<Refusal>(&rows)) return std::move(*refusal);
    source.rows = std::get<Rows>(rows);
  }
  problem.type = problem.q.map.type;
  for (const Rows* rows : {&problem.k, &problem.v, &problem.dy})
    if (rows->map.type != problem.type)
      return refuse_attention(fusion, "one-type", "", "operands of one type", "several");
  return std::nullopt;
}

std::optional<Refusal> find_sizes(const Expr& between, Problem& problem) {
  const Fusion& fusion = problem.fusion;
  const int rank = between.domain.rank();
  if (rank - 2 > kMostBatch)
    return refuse_attention(fusion, "batch-axes", "",
                            fmt::format("at most {} axes before the matrices", kMostBatch),
                            fmt::format("{}", rank - 2));
  for (const int yield : between.yields)
    if (between.node(yield).type != problem.type)
      return refuse_attention(fusion, "one-type", "", "probabilities and gradients in the operands' type",
                              std::string(to_string(between.node(yield).type)));
  for (int axis = 0; axis + 2 < rank; ++axis) problem.batch.push_back(between.domain[axis]);
  problem.queries = between.domain[rank - 2];
  problem.keys = between.domain[rank - 1];
  problem.head = problem.q.map.dims[0];
  problem.value = problem.v.map.dims[0];
  if (problem.head > kMostHead || problem.value > kMostHead)
    return refuse_attention(fusion, "head-elements", "", "at most 256 elements a head",
                            fmt::format("{} and {}", problem.head, problem.value));
  auto shares = shares_of(problem.batch, problem.q, problem.k, problem.v);
  const auto other = shares_of(problem.batch, problem.dy, problem.k, problem.v);
  if (!shares || !other)
    return refuse_attention(fusion, "shared-heads", "", "keys and values that the same heads share",
                            "other sharing");
  problem.shares = std::move(*shares);
  for (const fusor::Operand& operand : fusion.operands)
    if (operand.elements > std::numeric_limits<int32_t>::max()) problem.index_bits = 64;
  return refuse_wide_coordinates(
      fusion, "queries of all heads",
      std::max({problem.queries, problem.keys, problem.entries() * problem.queries}));
}

// --- Parts ---

int64_t lines(int64_t elements) { return ceil_div(elements, kLine); }

// dq of gradients that lie in blocks of 64 x 64.
Part product_of(const Problem& problem) {
  Part part{.gives = Part::Gives::product, .consumers = problem.padded_head() <= kShortHead ? 3 : 2};
  part.tile = kSpilledRows * part.consumers;
  part.step = kSpilledRows;
  const int64_t passes =
      part.step * 2 * kLine * lines(problem.head) + part.consumers * 2 * kSpilledRows * kSpilledRows;
  part.stages = std::min<int64_t>(6, (problem.device.shared_per_block - kBarrierBytes) / passes);
  part.shared_bytes = round_up(part.stages * passes + kBarrierBytes, 1024);
  if (part.stages < 2 || part.shared_bytes > problem.device.shared_per_block) part.stages = 0;
  part.registers = problem.padded_head() / 2 + kSpilledRows / 4;
  return part;
}

Part part_of(const Problem& problem, Part::Gives gives, int64_t consumers, int64_t step, bool spills) {
  Part part{.gives = gives, .consumers = consumers, .tile = 64 * consumers, .step = step};
  const int64_t head = lines(problem.head), value = lines(problem.value), line = 2 * kLine;
  // Two words of 4 bytes for each 32 blocks.
  const int64_t passing = part.stays_with_queries() ? problem.keys : problem.queries;
  const int64_t slots =
      problem.gradient.values ? kTileSlots * 2 * 4 * words_of_blocks(ceil_div(passing, step)) : 0;
  const bool needs_values = part.stays_with_queries() || part.gives_keys();
  const int64_t leaves = spills && part.gives_keys() ? consumers * 2 * kSpilledRows * kSpilledRows : 1024;
  const int64_t stays =
      part.tile * line * (head + (needs_values ? value : 0)) + (needs_values ? 0 : 1024) + leaves;
  const int64_t rows = static_cast<int64_t>(std::max<size_t>(problem.gradient.rows.size(), 1)) * step * 4;
  const int64_t passes = step * line * (head + value) + (part.stays_with_queries() ? 0 : rows);
  for (part.stages = 4; part.stages >= 2; --part.stages) {
    part.shared_bytes = round_up(stays + part.stages * passes + kBarrierBytes + slots, 1024);
    if (part.shared_bytes <= problem.device.shared_per_block) break;
  }
  if (part.stages < 2) part.stages = 0;
  const int64_t sums = (part.stays_with_queries() || part.gives_keys() ? problem.padded_head() / 2 : 0) +
                       (part.gives_values() ? problem.padded_value() / 2 : 0);
  const int64_t products = part.gives == Part::Gives::values ? step / 2 : step;
  part.registers = sums + products + step / 4;
  return part;
}

// All heads of a chunk lie one behind the other: those whose sums are one are the last of the batch's.
bool may_spill(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  if (!problem.dq || !problem.dk || schedule.knobs.split != 0 ||
      schedule.knobs.spill > problem.entries() / problem.heads())
    return false;
  bool behind = false;
  for (int axis = 0; axis < problem.batch.rank(); ++axis) {
    if (behind && problem.members[axis] != problem.batch[axis]) return false;
    behind = behind || problem.members[axis] > 1;
  }
  return true;
}

// Whether the numbers of heads whose gradients of keys are one sum may differ.
bool varies_by_member(const Problem& problem, const ValueMask& mask) {
  const uint32_t varying = mask.varying();
  for (int axis = 0; axis < problem.members.rank(); ++axis)
    if (problem.members[axis] > 1 && (varying >> axis & 1) != 0) return true;
  return false;
}

}  // namespace

std::variant<Problem, Refusal> problem_of(const Fusion& fusion, const DeviceInfo& device) {
  auto shape = shape_of(fusion);
  if (auto* refusal = std::get_if<Refusal>(&shape)) return std::move(*refusal);
  const auto& found = std::get<Shape>(shape);
  const Site& between = fusion.sites[static_cast<size_t>(found.between)];
  Problem problem{.fusion = fusion, .device = device};
  if (auto refusal = find_roles(fusion, found, problem)) return std::move(*refusal);
  if (auto refusal = find_rows(problem)) return std::move(*refusal);
  if (auto refusal = find_sizes(between.expr, problem)) return std::move(*refusal);
  const bool has_entries = !problem.shares.empty() && problem.shares[0] == 1;
  auto gradient = take_apart(fusion, between, problem.roles, has_entries);
  if (auto* refusal = std::get_if<Refusal>(&gradient)) return std::move(*refusal);
  problem.gradient = std::move(std::get<Gradient>(gradient));
  if (problem.gradient.stored && !problem.dk)
    return refuse_attention(fusion, "scores-stay", "", "gradients of keys beside stored gradients of scores",
                            "none");
  if (const auto& slope = problem.gradient.slope)
    for (std::optional<Expr>* result : {&problem.dq, &problem.dk})
      if (*result) *result = with_scaled_input(**result, *slope);
  if (auto refusal = settle_results(problem)) return std::move(*refusal);
  if (auto refusal = place_results(problem)) return std::move(*refusal);
  return problem;
}

Schedule::Schedule(const Problem& problem_, const Knobs& knobs_) : problem(problem_), knobs(knobs_) {
  if (knobs.spill > 0) knobs.step_q = kSpilledRows;
  const auto add = [&](Part::Gives gives, int64_t step) {
    parts.push_back(part_of(problem, gives, knobs.consumers, step, knobs.spill > 0));
  };
  if (problem.dk && knobs.split == 0) add(Part::Gives::both, knobs.step_q);
  if (problem.dk && knobs.split != 0) {
    add(Part::Gives::values, knobs.step_q);
    add(Part::Gives::keys, knobs.step_q);
  }
  if (knobs.spill > 0) parts.push_back(product_of(problem));
  if (problem.dq && knobs.spill == 0) add(Part::Gives::queries, knobs.step_k);
}

bool Schedule::fits() const {
  if (knobs.spill > 0 && !may_spill(*this)) return false;
  const int64_t others = kOtherRegisters + (problem.is_plain() ? 0 : kScoreRegisters) +
                         (problem.gradient.keep ? kDropoutRegisters : 0) +
                         (problem.mask() != nullptr ? kMaskRegisters : 0);
  return std::ranges::all_of(parts, [&](const Part& part) {
    const bool has_busy_producers = words(static_cast<size_t>(&part - parts.data())) > 0;
    const int64_t available = part.consumers == 2 ? has_busy_producers ? 232 : 240 : 160;
    return part.stages >= 2 &&
           part.registers + (part.gives == Part::Gives::product ? kOtherRegisters : others) <= available;
  });
}

RaggedOperands Schedule::ragged(size_t at) const {
  int64_t byte = 0;
  for (size_t i = 0;; ++i) {
    const Part& part = parts[i];
    const bool by_queries = part.stays_with_queries();
    const int64_t queries = by_queries ? part.tile : part.step, keys = by_queries ? part.step : part.tile;
    const int scratch = knobs.spill > 0 ? 1 : 0;
    RaggedOperands operands =
        part.gives == Part::Gives::product
            ? RaggedOperands({{&problem.k, keys}}, scratch, byte).ordered(order(part))
            : RaggedOperands(
                  {{&problem.q, queries}, {&problem.k, keys}, {&problem.v, keys}, {&problem.dy, queries}},
                  scratch, byte)
                  .ordered(order(part));
    if (i == at) return operands;
    byte = operands.end_byte();
  }
}

// Blocks of gradients that lie in memory are found by their places, so none of them is passed over; the same
// holds for stored gradients. Heads that share keys must have numbers alike.
std::optional<ValueRanges> Schedule::ranges(size_t at) const {
  const auto& mask = problem.gradient.values;
  if (!mask || knobs.spill > 0 || problem.gradient.stored || has_ragged() || varies_by_member(problem, *mask))
    return std::nullopt;
  int64_t byte = 0;
  for (size_t i = 0;; ++i) {
    const Part& part = parts[i];
    const bool by_queries = part.stays_with_queries();
    if ((by_queries ? problem.keys : problem.queries) > kFewBlocks * part.step) {
      const ValueRanges ranges(*mask, problem.batch, by_queries ? part.tile : part.step,
                               by_queries ? part.step : part.tile, byte);
      if (i == at) return ranges;
      byte = ranges.end_byte();
    } else if (i == at) {
      return std::nullopt;
    }
  }
}

int64_t Schedule::words(size_t at) const {
  const Part& part = parts[at];
  if (!ranges(at)) return 0;
  return words_of_blocks(ceil_div(part.stays_with_queries() ? problem.keys : problem.queries, part.step));
}

std::optional<TileOrder> Schedule::order(const Part& part) const {
  const std::optional<Expr>& lengths = problem.gradient.lengths;
  const int64_t heads_of_keys = problem.entries() / problem.heads() / problem.batch[0];
  if (knobs.persistent == 0 || heads_of_keys % chunks() != 0 || !lengths || !are_of_entries(*lengths))
    return std::nullopt;
  const bool by_keys = !part.stays_with_queries();
  TileOrder order{.lengths = &*lengths,
                  .by_keys = by_keys,
                  .sequences = problem.batch[0],
                  .heads = entries(part) / problem.batch[0],
                  .chunks = chunks(),
                  .section = section(part),
                  .queries = problem.queries,
                  .keys = problem.keys,
                  .tile = part.tile};
  const auto add = [&](const std::optional<RaggedResult>& placed) { order.add(placed ? &*placed : nullptr); };
  if (!by_keys) add(problem.placed_dq);
  if (part.gives_keys()) add(problem.placed_dk);
  // Gradients of scores are stored of all keys, zeros where there are none.
  if (part.gives_keys() && problem.gradient.stored) order.add(nullptr);
  if (part.gives_values()) add(problem.placed_dv);
  return order;
}

int64_t Schedule::chunk_entries(int64_t chunk) const {
  const int64_t all = problem.entries() / problem.heads();
  return all * (chunk + 1) / chunks() - all * chunk / chunks();
}
int64_t Schedule::spilled_keys() const {
  return ceil_div(problem.keys, kSpilledRows * knobs.consumers) * knobs.consumers;
}
int64_t Schedule::spilled_queries() const {
  const Part& product = parts.back();
  return ceil_div(problem.queries, product.tile) * product.consumers;
}
int64_t Schedule::spilled_beside() const {
  const auto is_causal = [](const KeyBound& bound) { return bound.slope == 1 && bound.offset <= 0; };
  const bool leaves_half = std::ranges::any_of(problem.gradient.bounds.upper, is_causal);
  return leaves_half && spilled_keys() <= spilled_queries() ? knobs.consumers : 0;
}
int64_t Schedule::spilled_blocks() const {
  const int64_t step = spilled_beside(), all = spilled_keys() * spilled_queries();
  if (step == 0) return all;
  const int64_t tiles = spilled_keys() / step;
  return all - step * step * tiles * (tiles - 1) / 2;
}
int64_t Schedule::counter_bytes() const {
  constexpr int64_t kLine = 128;
  return is_chained() ? round_up((1 + 2 * chunks()) * int64_t{sizeof(uint32_t)}, kLine) : 0;
}
int64_t Schedule::buffer_bytes() const {
  const int64_t most = ceil_div(problem.entries() / problem.heads(), chunks()) * problem.heads();
  return most * spilled_blocks() * 2 * kSpilledRows * kSpilledRows;
}
int64_t Schedule::spilled_bytes() const {
  return knobs.spill == 0 ? 0 : counter_bytes() + buffers() * buffer_bytes();
}

int64_t Schedule::tiles(const Part& part) const {
  return ceil_div(part.stays_with_queries() ? problem.queries : problem.keys, part.tile);
}

int64_t Schedule::entries(const Part& part) const {
  return part.stays_with_queries() ? problem.entries() : problem.entries() / problem.heads();
}

// Counted by tiles of queries in either case: so many pairs see each other.
int64_t Schedule::live_blocks(const Part& part) const {
  const auto& [queries, keys] =
      part.stays_with_queries() ? std::pair(part.tile, part.step) : std::pair(part.step, part.tile);
  return attention::live_blocks(problem.gradient.bounds, problem.queries, problem.keys, queries, keys);
}

int64_t Schedule::section(const Part& part) const {
  const int64_t passes = part.stays_with_queries() ? problem.keys : problem.queries * problem.heads();
  const int64_t bytes = passes * (problem.head + problem.value) * 2;
  int64_t shared = 1;
  if (part.stays_with_queries())
    for (const int64_t share : problem.shares) shared *= share;
  const int64_t fit =
      std::max<int64_t>(1, problem.device.l2_bytes / 2 / std::max<int64_t>(bytes, 1)) * shared;
  return std::min(fit, entries(part));
}

}  // namespace fusor::attention::backward
