// Owns the reading of comparisons between queries and keys, and the launch that finds the ranges of what is
// compared.
#include "backend/engines/sm90/attention/value_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <utility>

#include "backend/engines/attention/form.h"
#include "backend/engines/sm90/attention/masks.h"
#include "core/ceil_div.h"

namespace fusor::attention {

namespace {

constexpr int64_t kCountBytes = 16, kRangeBytes = 16, kWarps = 4;

// The node alone, where it is an integer that does not vary along `other_axis`; one element is left of that
// axis.
std::optional<Expr> number_of(const Expr& expr, int at, int other_axis) {
  const DataType type = expr.node(at).type;
  if (type != DataType::i32 && type != DataType::i64) return std::nullopt;
  Expr part = expr;
  part.stores.clear();
  part.yields = {at};
  part = without_dead_nodes(part);
  const bool is_input =
      std::ranges::any_of(part.nodes, [](const Node& node) { return node.kind == Node::Kind::input; });
  const uint32_t varying = varying_axes(part)[static_cast<size_t>(part.yields[0])];
  if (is_input || part.has_reduction() || (varying >> other_axis & 1) != 0) return std::nullopt;
  part.domain[other_axis] = 1;
  return part;
}

struct Comparison {
  Reach first = Reach::none, second = Reach::none;  // how the first argument reaches the second one, and back
};

std::optional<Comparison> comparison_of(PointwiseMode mode, bool truth) {
  switch (mode) {
    case PointwiseMode::cmp_eq:
      return truth ? std::optional(Comparison{Reach::as_much, Reach::as_much}) : std::nullopt;
    case PointwiseMode::cmp_neq:
      return truth ? std::nullopt : std::optional(Comparison{Reach::as_much, Reach::as_much});
    case PointwiseMode::cmp_ge:
      return truth ? Comparison{.first = Reach::as_much} : Comparison{.second = Reach::more};
    case PointwiseMode::cmp_gt:
      return truth ? Comparison{.first = Reach::more} : Comparison{.second = Reach::as_much};
    case PointwiseMode::cmp_le:
      return truth ? Comparison{.second = Reach::as_much} : Comparison{.first = Reach::more};
    case PointwiseMode::cmp_lt:
      return truth ? Comparison{.second = Reach::more} : Comparison{.first = Reach::as_much};
    default:
      return std::nullopt;
  }
}

// A condition that is a comparison, behind ops that hand it on or negate it.
struct Compared {
  int at = -1;  // the node that is `truth`
  bool truth = true;
};

Compared behind_negations(const Expr& expr, int at, bool truth) {
  for (at = behind_identity(expr, at);; at = argument(expr, at, 0)) {
    const bool negates = is_pointwise(expr.node(at), PointwiseMode::logical_not);
    if (!negates && !is_pointwise(expr.node(at), PointwiseMode::identity)) return {at, truth};
    if (negates) truth = !truth;
  }
}

// Whether the comparison sees integers as they are: of a narrower type, or of a float, some would be equal.
bool compares_exactly(const Expr& expr, int at) {
  const DataType compute = expr.node(at).pointwise.compute;
  const auto is_narrow = [&](size_t i) { return expr.node(argument(expr, at, i)).type == DataType::i32; };
  return compute == DataType::i64 || (compute == DataType::i32 && is_narrow(0) && is_narrow(1));
}

// The coordinate along `axis` times `scale`, and `offset` more.
Node coordinate(const Expr& expr, int axis, int64_t scale, int64_t offset) {
  Node node;
  node.kind = Node::Kind::index;
  node.type = DataType::i64;
  node.axis = axis;
  node.access.strides = Strides(Dims::filled(expr.domain.rank(), 0));
  node.access.strides[axis] = scale;
  node.access.offset = offset;
  return node;
}

Node sum(int a, int b, bool is_difference) {
  Node node;
  node.kind = Node::Kind::pointwise;
  node.type = DataType::i64;
  node.pointwise.mode = is_difference ? PointwiseMode::sub : PointwiseMode::add;
  node.pointwise.compute = DataType::i64;
  node.args = {a, b, -1};
  return node;
}

// "key - query <= number" and the like, whose first side varies along both: what is left of the key alone is
// compared with the rest.
std::optional<ValueMask> mask_of_distance(const Fusion& fusion, const Expr& expr, int at,
                                          Comparison comparison) {
  const int keys = expr.domain.rank() - 1, queries = keys - 1;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const int distance = argument(expr, at, side);
    if (expr.node(distance).type == DataType::f32) continue;
    const auto line = line_of(fusion, expr, distance);
    const auto number = number_of(expr, argument(expr, at, 1 - side), keys);
    if (!line || !number || std::abs(line->key) != 1) continue;
    const bool is_negative = line->key < 0;
    ValueMask mask{*number, expr, comparison.first, comparison.second};
    // key + rest <= number is key <= number - rest; -key + rest <= number is rest - number <= key.
    std::vector<Node>& nodes = mask.of_query.nodes;
    const int sign = is_negative ? 1 : -1, value = mask.of_query.yields[0];
    nodes.push_back(coordinate(expr, queries, sign * line->row, sign * line->offset));
    const int rest = static_cast<int>(std::ssize(nodes)) - 1;
    nodes.push_back(sum(rest, value, is_negative));
    mask.of_query.yields = {rest + 1};
    mask.of_key.stores.clear();
    mask.of_key.nodes = {coordinate(expr, keys, 1, 0)};
    mask.of_key.yields = {0};
    mask.of_key.domain[queries] = 1;
    // The key is on the number's side now where it was negative.
    const bool query_first = (side == 0) == is_negative;
    if (!query_first) std::swap(mask.query, mask.key);
    return mask;
  }
  return std::nullopt;
}

// The mask that node `at`, a comparison, is where it has to be `truth`.
std::optional<ValueMask> mask_of_comparison(const Fusion& fusion, const Expr& expr, Compared compared) {
  const int at = compared.at;
  if (expr.node(at).kind != Node::Kind::pointwise) return std::nullopt;
  const auto comparison = comparison_of(expr.node(at).pointwise.mode, compared.truth);
  if (!comparison || !compares_exactly(expr, at)) return std::nullopt;
  const int keys = expr.domain.rank() - 1, queries = keys - 1;
  for (const bool query_first : {true, false}) {
    auto of_query = number_of(expr, argument(expr, at, query_first ? 0 : 1), keys),
         of_key = number_of(expr, argument(expr, at, query_first ? 1 : 0), queries);
    if (!of_query || !of_key) continue;
    ValueMask mask{std::move(*of_query), std::move(*of_key), comparison->first, comparison->second};
    if (!query_first) std::swap(mask.query, mask.key);
    return mask;
  }
  return mask_of_distance(fusion, expr, at, *comparison);
}

uint32_t axes_of(const Expr& number) { return varying_axes(number)[static_cast<size_t>(number.yields[0])]; }

// "key < a number of the entry" and its like of queries, which are lengths together.
bool is_length(const ValueMask& mask) {
  const int keys = mask.of_key.domain.rank() - 1;
  return (axes_of(mask.of_query) >> (keys - 1) & 1) == 0 || (axes_of(mask.of_key) >> keys & 1) == 0;
}

// The same of a comparison that is no bound: kernels know how to walk those.
std::optional<ValueMask> mask_of_numbers(const Fusion& fusion, const Expr& expr, Compared compared) {
  Bounds bounds;
  if (add_condition(fusion, expr, compared.at, compared.truth, bounds)) return std::nullopt;
  return mask_of_comparison(fusion, expr, compared);
}

// The first comparison that has to hold so that "node `at` is `truth`".
std::optional<ValueMask> mask_of_condition(const Fusion& fusion, const Expr& expr, int at, bool truth) {
  const Compared found = behind_negations(expr, at, truth);
  const Node& node = expr.node(found.at);
  if (!is_pointwise(node, found.truth ? PointwiseMode::logical_and : PointwiseMode::logical_or))
    return mask_of_numbers(fusion, expr, found);
  auto first = mask_of_condition(fusion, expr, node.args[0], found.truth);
  return first ? first : mask_of_condition(fusion, expr, node.args[1], found.truth);
}

// Takes the first comparison out of a conjunction that nothing else reads.
std::optional<ValueMask> take_comparison(const Fusion& fusion, Expr& expr, int at) {
  if (!is_pointwise(expr.node(at), PointwiseMode::logical_and) || !is_read_once(expr, at))
    return std::nullopt;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const std::array<int, 3> args = expr.node(at).args;
    auto mask = mask_of_numbers(fusion, expr, behind_negations(expr, args[i], true));
    if (mask && !is_length(*mask)) {
      expr.node(at).pointwise.mode = PointwiseMode::identity;
      expr.node(at).args = {args[1 - i], -1, -1};
      return mask;
    }
    mask = take_comparison(fusion, expr, args[i]);
    if (mask) return mask;
  }
  return std::nullopt;
}

// A select that leaves -inf to scores whose condition is not `truth`.
struct Hiding {
  int score = -1, condition = -1;
  bool truth = true;
};

std::optional<Hiding> hiding_select(const Fusion& fusion, const Expr& expr, int at) {
  if (!is_pointwise(expr.node(at), PointwiseMode::binary_select)) return std::nullopt;
  for (const bool truth : {true, false})
    if (constant(fusion, expr, argument(expr, at, truth ? 1 : 0)) == -std::numeric_limits<double>::infinity())
      return Hiding{argument(expr, at, truth ? 0 : 1), expr.node(at).args[2], truth};
  return std::nullopt;
}

}  // namespace

uint32_t ValueMask::varying() const { return axes_of(of_query) | axes_of(of_key); }

std::optional<ValueMask> value_mask_of(const Fusion& fusion, const Expr& expr, int at) {
  at = behind_identity(expr, at);
  while (const auto select = hiding_select(fusion, expr, at)) {
    if (auto mask = mask_of_condition(fusion, expr, select->condition, select->truth)) return mask;
    at = select->score;
  }
  return std::nullopt;
}

std::optional<ValueMask> compared_numbers(const Fusion& fusion, const Expr& expr, int at) {
  auto mask = mask_of_numbers(fusion, expr, {at, true});
  if (!mask || is_length(*mask)) return std::nullopt;
  mask->in_score = false;
  return mask;
}

std::optional<int> take_value_mask(const Fusion& fusion, Expr& expr, int at, std::optional<ValueMask>& mask) {
  const auto select = hiding_select(fusion, expr, at);
  if (!select) return std::nullopt;
  int score = select->score;
  mask = mask_of_numbers(fusion, expr, behind_negations(expr, select->condition, select->truth));
  if (!mask && select->truth) {
    score = at;
    mask = take_comparison(fusion, expr, select->condition);
  }
  if (!mask) return std::nullopt;
  mask->in_score = false;
  return score;
}

void append_mask(std::vector<ConfigValue>& config, const ValueMask* compared, int64_t words) {
  const Reach query = compared != nullptr ? compared->query : Reach::none,
              key = compared != nullptr ? compared->key : Reach::none;
  config.emplace_back("words", words);
  config.emplace_back("masks", compared != nullptr);
  config.emplace_back("query_reach", static_cast<int64_t>(query));
  config.emplace_back("key_reach", static_cast<int64_t>(key));
}

int64_t words_of_blocks(int64_t blocks) {
  constexpr uint64_t kBits = 32;
  return static_cast<int64_t>(std::bit_ceil((static_cast<uint64_t>(blocks) + kBits - 1) / kBits));
}

double live_share(int64_t tile_q, int64_t tile_k) {
  constexpr double kShare = 0.25, kKeys = 512;
  return std::min(1.0, kShare * (1 + static_cast<double>(tile_q + tile_k) / kKeys));
}

ValueRanges::ValueRanges(const ValueMask& mask, const Dims& batch, int64_t tile_q, int64_t tile_k,
                         int64_t first_byte)
    : mask_(mask), own_(batch), tile_q_(tile_q), tile_k_(tile_k), first_byte_(first_byte) {
  const int rank = mask.of_query.domain.rank();
  queries_ = mask.of_query.domain[rank - 2];
  keys_ = mask.of_key.domain[rank - 1];
  const uint32_t all = mask.varying();
  for (int axis = 0; axis < batch.rank(); ++axis)
    if ((all >> axis & 1) == 0) own_[axis] = 1;
}

int64_t ValueRanges::first_of_queries() const { return first_byte_ + kCountBytes; }

int64_t ValueRanges::first_of_keys() const {
  return first_of_queries() + entries() * ceil_div(queries_, tile_q_) * kRangeBytes;
}

int64_t ValueRanges::end_byte() const {
  return first_of_keys() + entries() * ceil_div(keys_, tile_k_) * kRangeBytes;
}

Launch ValueRanges::launch(const Fusion& fusion, const std::string& target, int64_t index_bits,
                           std::vector<KernelSite>& sites) const {
  KernelSource source{.root = "sm90/attention/value_ranges.cuh",
                      .target = target,
                      .types = {"sm90/attention/live_blocks.cuh"}};
  source.config = {{"index_bits", index_bits}};
  Parameters p(index_bits);
  p.scratch("taken", "u32", 0, first_byte_);
  p.scratch("of_queries", "ValueRange", 0, first_of_queries());
  p.scratch("of_keys", "ValueRange", 0, first_of_keys());
  p.wide("entries", entries());
  p.wide("queries", queries_);
  p.wide("keys", keys_);
  p.wide("tile_q", tile_q_);
  p.wide("tile_k", tile_k_);
  append_divisors(p, "extents", {own_.begin(), own_.end()});
  const auto add = [&](const char* name, const char* field, const Expr& expr) {
    source.sites.push_back({name, expr, expr.domain.rank() - 1});
    p.site(field, source.sites.back(), fusion);
  };
  add("R", "r", mask_.of_query);
  add("C", "c", mask_.of_key);
  sites.insert(sites.end(), source.sites.begin(), source.sites.end());
  Launch launch;
  p.move_to(std::move(source), launch);
  launch.turn_at = -1;  // it always waits
  launch.entry = "attention_value_ranges";
  const int64_t ranges = entries() * (ceil_div(queries_, tile_q_) + ceil_div(keys_, tile_k_));
  launch.grid[0] = static_cast<uint32_t>(ceil_div(ranges, kWarps));
  launch.block[0] = static_cast<uint32_t>(32 * kWarps);
  return launch;
}

void ValueRanges::append(Parameters& p) const {
  std::vector<int64_t> strides;
  int64_t stride = 1;
  for (int axis = own_.rank() - 1; axis >= 0; --axis) {
    strides.insert(strides.begin(), own_[axis] == 1 ? 0 : stride);
    stride *= own_[axis];
  }
  if (strides.empty()) strides.push_back(0);
  p.group("ranges", fmt::format("ValueRanges<{}>", strides.size()), [&] {
    p.scratch("taken", "u32", 0, first_byte_);
    p.scratch("of_queries", "const ValueRange", 0, first_of_queries());
    p.scratch("of_keys", "const ValueRange", 0, first_of_keys());
    p.wide("tiles", ceil_div(queries_, tile_q_));
    p.wide("blocks", ceil_div(keys_, tile_k_));
    p.wide("query", static_cast<int64_t>(mask_.query));
    p.wide("key", static_cast<int64_t>(mask_.key));
    p.wide("strides", strides);
  });
}

}  // namespace fusor::attention
