// Owns the rewriting of a fusion for packed operands and results, and the joining of what its parts lower to.
#include "backend/engines/repack.h"

#include <algorithm>
#include <cstdlib>

namespace fusor {

namespace {

constexpr int64_t kUnit = 16;  // bytes: lines begin on multiples of it

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Axes fastest first.
Strides packed(const Dims& domain, const Dims& order, DataType type) {
  Strides strides = Dims::filled(domain.rank(), 0);
  int64_t next = 1;
  for (const int64_t axis : order) {
    strides[static_cast<int>(axis)] = next;
    next *= domain[static_cast<int>(axis)];
    if (axis == order[0]) next = round_up(next, kUnit / byte_size(type));
  }
  return strides;
}

Dims channels_last(int rank) {
  Dims order{1};
  for (int axis = rank - 1; axis >= 2; --axis) order.push_back(axis);
  order.push_back(0);
  return order;
}

Dims rows_last(int rank, bool along_rows) {
  Dims order{rank - (along_rows ? 1 : 2), rank - (along_rows ? 2 : 1)};
  for (int axis = rank - 3; axis >= 0; --axis) order.push_back(axis);
  return order;
}

// Whether elements of a row lie closer together than those of a column.
bool is_along_rows(const Expr& site) {
  const Access* const access = primary_access(site);
  const int last = site.domain.rank() - 1;
  const auto step = [&](int axis) { return site.domain[axis] == 1 ? 0 : std::abs(access->strides[axis]); };
  if (access == nullptr || step(last - 1) == 0) return true;
  return step(last) != 0 && step(last) <= step(last - 1);
}

bool is_anchor(const Node& node) { return node.kind == Node::Kind::anchor; }

// The product can wait in scratch without being rounded anew.
bool can_finish_later(const Expr& y) {
  if (std::ranges::count_if(y.nodes, is_anchor) != 1) return false;
  const DataType type = std::ranges::find_if(y.nodes, is_anchor)->type;
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f32;
}

class Repacker {
 public:
  Repacker(const Fusion& fusion, const Contraction& view) : view_(view) {
    out_.core = fusion;
    out_.loads.ops = out_.stores.ops = fusion.ops;
    out_.loads.op_names = out_.stores.op_names = fusion.op_names;
  }

  // The operand's site becomes a load of scratch; what it was is carried out by the copy.
  void pack_operand(size_t index) {
    Expr& site = out_.core.before[index];
    const Node value = site.nodes[static_cast<size_t>(site.value)];
    const Dims order = view_.is_convolution() ? channels_last(site.domain.rank())
                                              : rows_last(site.domain.rank(), is_along_rows(site));
    const Access* const source = primary_access(site);
    const Access scratch = add_scratch(site.domain, order, value.type,
                                       source != nullptr ? out_.core.name_of(source->operand) : "scratch");
    Expr copy = site;
    copy.results.push_back(
        {.node = site.value, .type = value.type, .access = scratch, .reduction = {}, .reduced = 0, .op = -1});
    copy.value = -1;
    out_.loads.after.push_back(std::move(copy));
    site.nodes = {{.kind = Node::Kind::load, .type = value.type, .access = scratch}};
    site.value = 0;
  }

  void copy_results() {
    Expr& y = out_.core.after[0];
    for (Result& result : y.results) {
      if (!is_apart(view_, y.domain, result.access)) continue;
      const Access scratch =
          add_scratch(y.domain, result_order(), result.type, out_.core.name_of(result.access.operand));
      Expr copy;
      copy.domain = y.domain;
      copy.nodes = {{.kind = Node::Kind::load, .type = result.type, .access = scratch, .op = result.op}};
      copy.results = {result};
      copy.results[0].node = 0;
      out_.stores.after.push_back(std::move(copy));
      result.access = scratch;
    }
  }

  void finish_later() {
    Expr& y = out_.core.after[0];
    out_.stores.after = {y};
    Node& loaded = *std::ranges::find_if(out_.stores.after[0].nodes, is_anchor);
    const Node anchor = loaded;
    const Access scratch = add_scratch(y.domain, result_order(), anchor.type, "product");
    loaded.kind = Node::Kind::load;
    loaded.access = scratch;
    y.nodes = {anchor};
    y.results = {{.node = 0,
                  .type = y.nodes[0].type,
                  .access = scratch,
                  .reduction = {},
                  .reduced = 0,
                  .op = y.nodes[0].op}};
  }

  Repacked take() {
    for (Fusion* copies : {&out_.loads, &out_.stores}) {
      copies->operands = out_.core.operands;
      copies->operand_names = out_.core.operand_names;
    }
    return std::move(out_);
  }

 private:
  Access add_scratch(const Dims& domain, const Dims& order, DataType type, const std::string& name) {
    Access access;
    access.operand = static_cast<int>(out_.core.operands.size());
    access.strides = packed(domain, order, type);
    const int64_t elements = round_up(span_elements(domain, access.strides), kUnit / byte_size(type));
    out_.core.operands.push_back(
        {.tensor = -1, .type = type, .memory = Memory::workspace, .alignment = 256, .elements = elements});
    out_.core.operand_names.push_back(name);
    out_.scratch.push_back(elements * byte_size(type));
    return access;
  }

  Dims result_order() const {
    const int rank = out_.core.after[0].domain.rank();
    return view_.is_convolution() ? channels_last(rank) : rows_last(rank, true);
  }

  const Contraction& view_;
  Repacked out_;
};

}  // namespace

bool is_apart(const Contraction& view, const Dims& domain, const Access& access) {
  const auto is_adjacent = [&](int axis) { return domain[axis] == 1 || access.strides[axis] == 1; };
  if (view.is_convolution()) return !is_adjacent(1);
  return !is_adjacent(domain.rank() - 1) && !is_adjacent(domain.rank() - 2);
}

Repacked repack(const Fusion& fusion, const Contraction& view, const std::array<bool, 2>& sites, WayOut way) {
  Repacker repacker(fusion, view);
  for (size_t i = 0; i < sites.size(); ++i)
    if (sites[i]) repacker.pack_operand(i);
  if (way == WayOut::copied) repacker.copy_results();
  if (way == WayOut::finished) repacker.finish_later();
  return repacker.take();
}

std::vector<WayOut> ways_out(const Fusion& fusion, const Contraction& view) {
  const Expr& y = fusion.after[0];
  const auto apart = [&](const Result& result) { return is_apart(view, y.domain, result.access); };
  std::vector<WayOut> ways{WayOut::direct};
  if (!std::ranges::any_of(y.results, apart)) return ways;
  ways.push_back(WayOut::copied);
  // A product that is stored as it is has nothing to be finished.
  if (y.nodes.size() > 1 && can_finish_later(y)) ways.push_back(WayOut::finished);
  return ways;
}

void append_part(Lowered& whole, const Repacked& repacked, Lowered part) {
  const auto operands = static_cast<int>(repacked.core.operands.size() - repacked.scratch.size());
  const auto before = static_cast<int>(whole.scratch.size());
  const auto retarget = [&](Patch& patch) {
    if (patch.kind == Patch::Kind::scratch || patch.kind == Patch::Kind::scratch_map) {
      patch.index += before;
    } else if (patch.index >= operands) {
      patch.kind = patch.is_map() ? Patch::Kind::scratch_map : Patch::Kind::scratch;
      patch.index -= operands;
    }
  };
  for (Step& step : part.steps) {
    if (auto* launch = std::get_if<Launch>(&step))
      std::ranges::for_each(launch->arguments.patches(), retarget);
    if (auto* fill = std::get_if<Fill>(&step)) fill->scratch += before;
    whole.steps.push_back(std::move(step));
  }
  whole.scratch.insert(whole.scratch.end(), part.scratch.begin(), part.scratch.end());
  // Scratch begins on multiples that suit everyone.
  for (const Guard& guard : part.guards) {
    if (guard.operand >= operands) continue;
    const auto known = std::ranges::find(whole.guards, guard.operand, &Guard::operand);
    if (known == whole.guards.end())
      whole.guards.push_back(guard);
    else
      known->alignment = std::max(known->alignment, guard.alignment);
  }
}

}  // namespace fusor
