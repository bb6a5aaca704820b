// Owns the reading of ragged places, and what the kernel that makes maps is told.
#include "backend/engines/sm90/attention/ragged.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "backend/engines/sm90/attention/arguments.h"
#include "backend/engines/sm90/attention/masks.h"
#include "backend/engines/sm90/attention/rows.h"
#include "codegen/text/device_types.h"
#include "core/ceil_div.h"

namespace fusor::attention {

namespace {

bool is_integer(DataType type) { return type == DataType::i32 || type == DataType::i64; }

// An integer as a node of the entry's own, and coordinates times strides.
struct Place {
  int start = -1;
  Strides strides;
};

class Places {
 public:
  Places(const Fusion& fusion, const Expr& expr)
      : fusion_(fusion), expr_(expr), varying_(varying_axes(expr)) {}

  /// Whether the value is one for each entry.
  bool is_of_entry(int at) const {
    return is_integer(expr_.node(at).type) && (varying_[static_cast<size_t>(at)] & ~1u) == 0;
  }

  std::optional<Place> place_of(int at) const {
    at = behind_identity(expr_, at);
    const Node& node = expr_.node(at);
    if (!is_integer(node.type)) return std::nullopt;
    Place place{-1, Dims::filled(expr_.domain.rank(), 0)};
    if (is_of_entry(at)) {
      place.start = at;
      return place;
    }
    if (node.kind == Node::Kind::index && node.access.offset == 0) {
      place.strides[node.axis] = node.access.strides.rank() <= node.axis ? 1 : node.access.strides[node.axis];
      return place;
    }
    const bool widens = is_pointwise(node, PointwiseMode::identity) && node.type == DataType::i64;
    if (widens && expr_.node(node.args[0]).type == DataType::i32) return place_of(node.args[0]);
    if (is_pointwise(node, PointwiseMode::add)) return sum_of(node);
    if (is_pointwise(node, PointwiseMode::mul)) return product_of(node);
    return std::nullopt;
  }

 private:
  std::optional<Place> sum_of(const Node& node) const {
    auto a = place_of(node.args[0]);
    const auto b = place_of(node.args[1]);
    if (!a || !b || (a->start >= 0 && b->start >= 0)) return std::nullopt;
    a->start = std::max(a->start, b->start);
    for (int axis = 0; axis < a->strides.rank(); ++axis) a->strides[axis] += b->strides[axis];
    return a;
  }

  std::optional<Place> product_of(const Node& node) const {
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const auto factor = constant(fusion_, expr_, argument_of(node, i));
      if (!factor || *factor < 0 || *factor > 1e15) continue;
      auto place = place_of(node.args[1 - i]);
      if (!place || place->start >= 0) return std::nullopt;
      for (int64_t& stride : place->strides)
        if (__builtin_mul_overflow(stride, static_cast<int64_t>(*factor), &stride)) return std::nullopt;
      return place;
    }
    return std::nullopt;
  }

  int argument_of(const Node& node, size_t i) const { return behind_identity(expr_, node.args[i]); }

  const Fusion& fusion_;
  const Expr& expr_;
  std::vector<uint32_t> varying_;
};

// The nodes of an entry, over the first axis alone.
Expr of_entries(Expr expr, std::vector<int> yields) {
  expr.stores.clear();
  expr.yields = std::move(yields);
  for (int axis = 1; axis < expr.domain.rank(); ++axis) expr.domain[axis] = 1;
  return without_dead_nodes(expr);
}

// "x where row < length, else 0": the length's node; `at` becomes x.
std::optional<int> behind_length(const Fusion& fusion, const Expr& expr, const Places& places, int row_axis,
                                 int& at) {
  const Node& select = expr.node(at);
  if (!is_pointwise(select, PointwiseMode::binary_select) ||
      constant(fusion, expr, argument(expr, at, 1)) != 0)
    return std::nullopt;
  const Node& less = expr.node(argument(expr, at, 2));
  if (!is_pointwise(less, PointwiseMode::cmp_lt)) return std::nullopt;
  const Node& index = expr.node(behind_identity(expr, less.args[0]));
  const int number = behind_identity(expr, less.args[1]);
  const bool counts = index.kind == Node::Kind::index && index.axis == row_axis && index.access.offset == 0 &&
                      (index.access.strides.rank() <= row_axis || index.access.strides[row_axis] == 1);
  if (!counts || !places.is_of_entry(number)) return std::nullopt;
  at = argument(expr, at, 0);
  return number;
}

// "place where it is less than end, else a negative number", taken apart; nothing where the node is another.
struct Bounded {
  Place place;
  int end = -1;
};
std::optional<Bounded> bounded_place(const Fusion& fusion, const Expr& site, const Places& places, int at) {
  const int select = behind_identity(site, at);
  if (!is_pointwise(site.node(select), PointwiseMode::binary_select)) return std::nullopt;
  const auto other = constant(fusion, site, argument(site, select, 1));
  const Node& less = site.node(argument(site, select, 2));
  if (!other || *other >= 0 || !is_pointwise(less, PointwiseMode::cmp_lt) ||
      behind_identity(site, less.args[0]) != argument(site, select, 0))
    return std::nullopt;
  auto place = places.place_of(argument(site, select, 0));
  const int end = behind_identity(site, less.args[1]);
  if (!place || place->start < 0 || !places.is_of_entry(end) || place->strides[0] != 0) return std::nullopt;
  return Bounded{*place, end};
}

// A number for each entry: entry * scale + offset.
Node number_of_entry(int rank, int64_t scale, int64_t offset, int op) {
  Node number{.kind = Node::Kind::index, .type = DataType::i64, .axis = 0, .op = op};
  number.access.strides = Dims::filled(rank, 0);
  number.access.strides[0] = scale;
  number.access.offset = offset;
  return number;
}

// Entries at multiples of a stride, whose rows end where a length says. Each begins where a map may.
std::optional<Ragged> dense_below_length(const Expr& site, int load, int row_axis, int length) {
  constexpr int64_t kMapUnit = 8;  // elements of 16 bits
  const Access& access = site.node(load).access;
  const int rank = site.domain.rank();
  if (access.is_indexed() || access.strides[0] < 0 || access.strides[0] % kMapUnit != 0 ||
      access.strides[row_axis] <= 0)
    return std::nullopt;
  const int64_t entry = access.strides[0], rows = site.domain[row_axis] * access.strides[row_axis];
  Expr bounds{.domain = site.domain, .nodes = {}, .stores = {}, .yields = {0, 1}};
  for (int axis = 1; axis < rank; ++axis) bounds.domain[axis] = 1;
  for (const int64_t offset : {int64_t{0}, rows})
    bounds.nodes.push_back(number_of_entry(rank, entry, offset, site.node(load).op));
  Ragged ragged{.bounds = std::move(bounds),
                .lengths = of_entries(site, {length}),
                .load = load,
                .strides = access.strides,
                .extent = (site.domain[0] - 1) * entry + rows,
                .is_dense = true};
  ragged.strides[0] = 0;
  return ragged;
}

// Whether an access goes to one axis of adjacent elements, and nowhere else.
bool is_flat(const Access& access) {
  return access.indexed[0].stride == 1 && access.indexed[1].extent == 0 && access.offset == 0 &&
         std::ranges::all_of(access.strides, [](int64_t stride) { return stride == 0; });
}

}  // namespace

std::optional<Ragged> ragged_of(const Fusion& fusion, const Expr& site, int row_axis) {
  const Places places(fusion, site);
  int at = behind_identity(site, yielded(site));
  const auto length = behind_length(fusion, site, places, row_axis, at);
  const Node& load = site.node(at);
  if (load.kind != Node::Kind::load) return std::nullopt;
  if (length && !load.access.is_indexed()) return dense_below_length(site, at, row_axis, *length);
  if (!is_flat(load.access)) return std::nullopt;
  auto bounded = bounded_place(fusion, site, places, load.args[0]);
  if (!bounded) return std::nullopt;
  Ragged ragged{of_entries(site, {bounded->place.start, bounded->end}), std::nullopt, at,
                bounded->place.strides, load.access.indexed[0].extent};
  if (length) ragged.lengths = of_entries(site, {*length});
  return ragged;
}

std::optional<RaggedResult> ragged_result_of(const Fusion& fusion, const Expr& site) {
  if (site.stores.size() != 1 || site.stores[0].index < 0) return std::nullopt;
  const Store& store = site.stores[0];
  const Places places(fusion, site);
  const int last = site.domain.rank() - 1;
  const auto bounded = bounded_place(fusion, site, places, store.index);
  if (!bounded || !is_flat(store.access) || is_packed(store.type) || last < 2 ||
      (bounded->place.strides[last] != 1 && site.domain[last] != 1) ||
      std::ranges::any_of(bounded->place.strides, [](int64_t stride) { return stride < 0; }))
    return std::nullopt;
  RaggedResult result{site, of_entries(site, {bounded->place.start, bounded->end}), bounded->place.strides,
                      store.access, store.type};
  result.value.stores.clear();
  result.value.yields = {store.node};
  result.value = without_dead_nodes(result.value);
  return result;
}

void append_result(Parameters& p, std::string_view name, const RaggedResult& result) {
  const int batch = result.strides.rank() - 2;
  p.group(name, fmt::format("RaggedResult<{}, {}>", batch, device_type(result.type)), [&] {
    p.pointer("data", device_type(result.type), result.access.operand);
    p.wide("reach", result.access.indexed[0].extent);
    p.wide("stride", result.strides[batch]);
    p.wide("strides", std::vector<int64_t>(result.strides.begin(), result.strides.begin() + batch));
  });
}

RaggedOperands::RaggedOperands(std::initializer_list<RaggedOperand> all, int scratch, int64_t first_byte)
    : scratch_(scratch), first_byte_(first_byte) {
  for (const RaggedOperand& operand : all)
    if (operand.rows->is_ragged()) operands_.push_back(operand);
}

bool are_of_entries(const Expr& lengths) {
  const std::vector<uint32_t> varying = varying_axes(lengths);
  return std::ranges::all_of(lengths.yields,
                             [&](int at) { return (varying[static_cast<size_t>(at)] & ~1u) == 0; });
}

// 256 bytes in front, and a run of tiles for each sequence (codegen/device/sm90/attention/order.cuh).
int64_t TileOrder::bytes() const {
  constexpr int64_t kHead = 256, kRun = 16, kUnit = 256;
  return round_up(kHead + kRun * sequences, kUnit);
}

void TileOrder::add(const RaggedResult* placed) {
  if (placed == nullptr)
    has_all_rows = true;
  else
    results.push_back(placed);
}

RaggedOperands RaggedOperands::ordered(std::optional<TileOrder> order) && {
  if (!operands_.empty()) order_ = std::move(order);
  return std::move(*this);
}

int64_t RaggedOperands::order_byte() const {
  int64_t bytes = first_byte_;
  for (const RaggedOperand& operand : operands_) bytes += operand.rows->entries * kRaggedEntryBytes;
  return bytes;
}

int64_t RaggedOperands::end_byte() const { return order_byte() + (order_ ? order_->bytes() : 0); }

void RaggedOperands::append_order(Parameters& p, int64_t chunk) const {
  if (!order_) return;
  p.group("ordered", "OrderedTiles", [&] {
    p.scratch("order", "TileOrder", scratch_, order_byte());
    p.wide("sequences", order_->sequences);
    p.wide("all", order_->heads);
    p.wide("first", chunk * order_->heads_of_chunk());
    p.wide("heads", order_->heads_of_chunk());
    p.wide("chunk", chunk);
    p.wide("section", std::min(order_->section, order_->heads_of_chunk()));
    p.wide("most", order_->by_keys ? ceil_div(order_->keys, order_->tile) : 0);
  });
}

void RaggedOperands::append_facts_of_order(Parameters& p, const Fusion& fusion,
                                           std::vector<KernelSite>& sites) const {
  constexpr std::array kResults{"result_a", "result_b"}, kBounds{"O", "Z"}, kBoundFields{"o", "z"};
  p.group("order", "TileOrderFacts", [&] {
    p.scratch("to", "TileOrder", scratch_, order_byte());
    p.wide("sequences", order_->sequences);
    p.wide("heads", order_->heads_of_chunk());
    p.wide("rows", order_->rows());
    p.wide("least", order_->has_all_rows ? order_->rows() : 0);
    p.wide("tile", order_->tile);
  });
  p.wide("keys", order_->keys);
  p.wide("queries", order_->queries);
  const auto add = [&](const char* name, const char* field, const Expr& expr) {
    sites.push_back({name, expr, expr.domain.rank() - 1});
    p.site(field, sites.back(), fusion);
  };
  add("N", "n", *order_->lengths);
  for (size_t i = 0; i < order_->results.size(); ++i) {
    const RaggedResult& result = *order_->results[i];
    p.group(kResults[i], "ResultReach", [&] {
      p.wide("stride", result.strides[result.strides.rank() - 2]);
      p.wide("reach", result.access.indexed[0].extent);
    });
    add(kBounds[i], kBoundFields[i], result.bounds);
  }
}

int64_t RaggedOperands::byte_of(const Rows& rows) const {
  int64_t byte = first_byte_;
  for (const RaggedOperand& operand : operands_) {
    if (operand.rows == &rows) break;
    byte += operand.rows->entries * kRaggedEntryBytes;
  }
  return byte;
}

// Maps come first: they begin on multiples of 64 bytes.
Launch RaggedOperands::maps(const Fusion& fusion, const std::string& target, int64_t index_bits,
                            std::vector<KernelSite>& sites) const {
  constexpr std::array kMaps{"map_a", "map_b", "map_c", "map_d"},
      kFacts{"facts_a", "facts_b", "facts_c", "facts_d"}, kBounds{"A", "B", "C", "D"},
      kBoundFields{"a", "b", "c", "d"}, kLengths{"E", "F", "G", "H"}, kLengthFields{"e", "f", "g", "h"};
  KernelSource source{.root = "sm90/attention/ragged_maps.cuh",
                      .target = target,
                      .types = {"sm90/attention/ragged.cuh", "sm90/attention/order.cuh"}};
  Parameters p(index_bits);
  int64_t lengths = 0, most = 0;
  for (size_t i = 0; i < operands_.size(); ++i) append_map(p, kMaps[i], *operands_[i].rows, operands_[i].box);
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Rows& rows = *operands_[i].rows;
    p.group(kFacts[i], "RaggedFacts", [&] {
      p.scratch("to", "RaggedEntry", scratch_, byte_of(rows));
      p.pointer("data", "const u16", rows.operand, rows.byte_offset);
      p.wide("reach", rows.ragged->extent);
      p.wide("stride", rows.row_stride);
      p.wide("span", rows.span);
      p.wide("rows", rows.map.dims[1]);
      p.wide("entries", rows.entries);
    });
    most = std::max(most, rows.entries);
  }
  const auto add = [&](const char* name, const char* field, const Expr& expr) {
    source.sites.push_back({name, expr, expr.domain.rank() - 1});
    p.site(field, source.sites.back(), fusion);
  };
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Ragged& ragged = *operands_[i].rows->ragged;
    add(kBounds[i], kBoundFields[i], ragged.bounds);
    if (!ragged.lengths) continue;
    add(kLengths[i], kLengthFields[i], *ragged.lengths);
    lengths |= int64_t{1} << i;
  }
  if (order_) {
    append_facts_of_order(p, fusion, source.sites);
    most = std::max(most, order_->sequences);
  }
  source.config = {{"index_bits", index_bits},
                   {"operands", operands_.size()},
                   {"ragged", true},
                   {"lengths", lengths},
                   {"ordered", is_ordered()},
                   {"order_by_keys", order_ && order_->by_keys},
                   {"order_results", order_ ? order_->results.size() : size_t{0}}};
  sites.insert(sites.end(), source.sites.begin(), source.sites.end());
  Launch launch;
  p.move_to(std::move(source), launch);
  launch.entry = "attention_ragged_maps";
  launch.grid[0] = static_cast<uint32_t>(most);
  launch.block[0] = 32;
  return launch;
}

void RaggedOperands::append(Parameters& p, const char* name, const Rows& rows, int64_t box) const {
  if (!rows.is_ragged()) return append_map(p, name, rows, box);
  const int batch = rows.batch.rank();
  const Strides& strides = rows.ragged->strides;
  p.group(name, fmt::format("RaggedRows<{}>", batch), [&] {
    p.scratch("entries", "const RaggedEntry", scratch_, byte_of(rows));
    p.pointer("data", "const u16", rows.operand, rows.byte_offset);
    p.wide("elements", rows.map.dims[0]);
    p.wide("stride", rows.row_stride);
    p.wide("strides", std::vector<int64_t>(strides.begin(), strides.begin() + batch));
  });
}

}  // namespace fusor::attention
