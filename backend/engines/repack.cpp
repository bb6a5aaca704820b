// Owns the rewriting of a fusion for packed operands and results, and the joining of what its parts lower to.
#include "backend/engines/repack.h"

#include <algorithm>
#include <cstdlib>

#include "backend/engines/joined_pixels.h"
#include "backend/engines/stride_phases.h"
#include "backend/engines/tensor_maps.h"
#include "backend/engines/unrolled_columns.h"

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

Dims output_channels_last(int rank) {
  Dims order{0};
  for (int axis = rank - 1; axis >= 1; --axis) order.push_back(axis);
  return order;
}

Dims positions_last(int rank) {
  Dims order;
  for (int axis = rank - 1; axis >= 0; --axis) order.push_back(axis);
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

// A filter's site, [output channel][channel of a group][taps].
bool names_first_axis(const Expr& site) {
  return std::ranges::any_of(
      site.nodes, [](const Node& node) { return node.kind == Node::Kind::index && node.axis == 0; });
}

// The site with its output channels taken apart into (joined group, group in it, output channel of it).
Expr split_outputs(const Expr& site, int64_t joined, int64_t outputs) {
  Expr split = site;
  split.domain[0] = outputs;
  split.domain.insert(0, joined);
  split.domain.insert(0, site.domain[0] / (joined * outputs));
  const auto split_access = [&](Access& access) {
    if (access.strides.rank() != site.domain.rank()) return;
    const int64_t stride = access.strides[0];
    access.strides.insert(0, stride * outputs);
    access.strides.insert(0, stride * outputs * joined);
  };
  for (Node& node : split.nodes) {
    split_access(node.access);
    if (node.kind == Node::Kind::index) node.axis += 2;
  }
  for (Result& result : split.results) split_access(result.access);
  return split;
}

// Channels of a position lie as those of the result do: channels side by side, or neighbours along a line.
std::optional<JoinedPixels> pixels_of(const Fusion& fusion, const Contraction& view, int64_t pixels) {
  const Expr& y = fusion.after[0];
  if (!view.is_convolution() || y.results.empty()) return std::nullopt;
  const Strides& strides = y.results.front().access.strides;
  return joined_pixels(view, pixels, strides[1] <= strides[y.domain.rank() - 1]);
}

// The site over `extent` positions of its last axis, from `first` on.
Expr part_of_last_axis(const Expr& site, int64_t first, int64_t extent) {
  Expr part = site;
  const int last = site.domain.rank() - 1;
  part.domain[last] = extent;
  for (Node& node : part.nodes)
    if (node.access.strides.rank() == site.domain.rank())
      node.access.offset += first * node.access.strides[last];
  return part;
}

class Repacker {
 public:
  Repacker(const Fusion& fusion, const Contraction& view, int64_t joined) : view_(view), joined_(joined) {
    out_.core = fusion;
    out_.loads.ops = out_.stores.ops = fusion.ops;
    out_.loads.op_names = out_.stores.op_names = fusion.op_names;
  }

  // The operand's site becomes a load of scratch; what it was is carried out by the copy.
  void pack_operand(size_t index) {
    Expr& site = out_.core.before[index];
    const DataType type = packed_type(index);
    const Access* const source = primary_access(site);
    const std::string name = source != nullptr ? out_.core.name_of(source->operand) : "scratch";
    const Access scratch = is_planes(type)
                               ? add_planes(site.domain, type, name)
                               : add_scratch(site.domain, operand_order(site, index, type), type, name);
    out_.loads.after.push_back(stored(site, type, scratch));
    site.nodes = {{.kind = Node::Kind::load, .type = type, .access = scratch}};
    site.value = 0;
  }

  // The filter of joined groups: those lie on the diagonal of blocks, in zeros.
  void join_filter() {
    Expr& site = out_.core.before[1];
    const DataType type = packed_type(1);
    const Dims dense = dense_filter(site.domain);
    const Access* const source = primary_access(site);
    const Access scratch = add_scratch(dense, operand_order(site, 1, type), type,
                                       source != nullptr ? out_.core.name_of(source->operand) : "scratch");
    out_.zeroed.push_back(static_cast<int>(out_.scratch.size()) - 1);
    out_.loads.after.push_back(
        stored(split_outputs(site, joined_, view_.output_channels), type, on_diagonal(scratch)));
    site = {.domain = dense,
            .nodes = {{.kind = Node::Kind::load, .type = type, .access = scratch}},
            .results = {},
            .value = 0};
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
    Expr copy = y;
    if (joins_result()) {
      copy = split_outputs(y, joined_, view_.output_channels);
      y.domain = dense_filter(y.domain);
    }
    Node& loaded = *std::ranges::find_if(copy.nodes, is_anchor);
    const Access scratch = leave_product(loaded);
    loaded.kind = Node::Kind::load;
    loaded.access = joins_result() ? on_diagonal(scratch) : scratch;
    out_.stores.after = {std::move(copy)};
  }

  void join_pixels(const JoinedPixels& joined, WayOut way) {
    join_filter_of(joined, filled_filter(joined));
    Anchor& anchor = out_.core.anchors[0];
    anchor.attributes = joined.convolution(std::get<Conv>(anchor.attributes));
    Expr& y = out_.core.after[0];
    const Expr whole = y;
    y.domain = {whole.domain[0], joined.channels};
    for (const JoinedAxis& axis : joined.axes) y.domain.push_back(axis.positions);
    if (way == WayOut::finished)
      finish_pixels(joined, whole);
    else
      copy_pixels(joined, whole);
  }

  std::optional<UnrolledColumns> columns() const {
    if (!view_.is_convolution()) return std::nullopt;
    const Expr& site = out_.core.before[0];
    const int last = site.domain.rank() - 1;
    // A part of a row would have coordinates of its own.
    if (std::ranges::any_of(site.nodes, [last](const Node& node) {
          return node.kind == Node::Kind::index && node.axis == last;
        }))
      return std::nullopt;
    return unrolled_columns(view_, packed_type(0));
  }

  void unroll_columns() {
    const UnrolledColumns unrolled = columns().value();
    const std::array types{packed_type(0), packed_type(1)};
    unroll_rows(unrolled, types[0]);
    unroll_filter(unrolled, types[1]);
    Anchor& anchor = out_.core.anchors[0];
    anchor.attributes = unrolled.convolution(std::get<Conv>(anchor.attributes));
  }

  // Planes whose rows are multiples of 16 bytes, or, beside a packed output gradient, those of add_planes().
  void split_phases(bool beside_packed) {
    const StridePhases phases = stride_phases(view_).value();
    Expr &x = out_.core.before[1], &y = out_.core.after[0];
    const Expr image = x, whole = y;
    const DataType type = packed_type(1);
    Anchor& anchor = out_.core.anchors[0];
    anchor.attributes = phases.convolution(std::get<Conv>(anchor.attributes));
    x.domain[1] *= phases.channels();
    y.domain[1] *= phases.channels();
    for (size_t i = 0; i < phases.axes.size(); ++i) {
      x.domain[2 + static_cast<int>(i)] = phases.input.axes[i].positions;
      y.domain[2 + static_cast<int>(i)] = phases.axes[i].window;
    }
    view_ = contraction_of(out_.core).value();
    split_input(phases, image, type, beside_packed);
    finish_phases(phases, whole);
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
    return add_strided(domain, packed(domain, order, type), type, name);
  }

  // Positions of wgrad along which all taps of a window lie equally far apart.
  bool is_planes(DataType type) const { return view_.op == ContractionOp::wgrad && !may_lie_across(type); }
  Access add_planes(const Dims& domain, DataType type, const std::string& name) {
    const Dims rows = flat_rows(view_, type);
    Strides strides = Dims::filled(domain.rank(), 1);
    for (int axis = domain.rank() - 2; axis >= 2; --axis)
      strides[axis] = strides[axis + 1] * rows[axis + 1 - 2];
    strides[1] = round_up(strides[2] * domain[2], kUnit / byte_size(type));
    strides[0] = strides[1] * domain[1];
    const Access access = add_strided(domain, strides, type, name);
    out_.core.operands.back().zero_gaps = true;
    out_.zeroed.push_back(static_cast<int>(out_.scratch.size()) - 1);
    return access;
  }

  Access add_strided(const Dims& domain, const Strides& strides, DataType type, const std::string& name) {
    Access access;
    access.operand = static_cast<int>(out_.core.operands.size());
    access.strides = strides;
    const int64_t elements = round_up(span_elements(domain, access.strides), kUnit / byte_size(type));
    out_.core.operands.push_back(
        {.tensor = -1, .type = type, .memory = Memory::workspace, .alignment = 256, .elements = elements});
    out_.core.operand_names.push_back(name);
    out_.scratch.push_back(elements * byte_size(type));
    return access;
  }

  // [image][channel of a run][pixels], where runs overlap; padding and what fills columns up are zero.
  void unroll_rows(const UnrolledColumns& unrolled, DataType type) {
    Expr& site = out_.core.before[0];
    const int last = site.domain.rank() - 1;
    Dims rows = site.domain;
    rows[1] = unrolled.columns * unrolled.channels_of_column;
    rows[last] = 1;
    const int64_t image_columns = unrolled.image_columns(site.domain[last]);
    const bool is_full = image_columns == unrolled.columns && unrolled.channels_of_column == site.domain[1];
    const Access scratch = add_channels_last(site, rows, type, !is_full);
    Access copied = scratch;
    copied.strides[last] = unrolled.channels_of_column;
    copied.offset = (unrolled.image_begin() - unrolled.first_column) * copied.strides[last];
    out_.loads.after.push_back(
        stored(part_of_last_axis(site, unrolled.image_begin(), image_columns), type, copied));
    Access runs = scratch;
    runs.strides[last] = unrolled.stride * unrolled.channels_of_column;
    Dims domain = site.domain;
    domain[1] = unrolled.channels;
    domain[last] = view_.axes.back().output;
    site = loaded(domain, type, runs);
  }

  // [output channel][channel of a run][taps along the other axes]
  void unroll_filter(const UnrolledColumns& unrolled, DataType type) {
    Expr& site = out_.core.before[1];
    const int last = site.domain.rank() - 1;
    Dims domain = site.domain;
    domain[1] = unrolled.channels;
    domain[last] = 1;
    const Access scratch = add_channels_last(site, domain, type, true);
    Access taps = scratch;
    taps.strides[last] = unrolled.tap_step * unrolled.channels_of_column;
    taps.offset = unrolled.first_tap * unrolled.channels_of_column;
    out_.loads.after.push_back(stored(site, type, taps));
    site = loaded(domain, type, scratch);
  }

  // In the name of what the site reads.
  Access add_channels_last(const Expr& site, const Dims& domain, DataType type, bool zeroed) {
    const Access* const source = primary_access(site);
    const Access scratch = add_scratch(domain, channels_last(domain.rank()), type,
                                       source != nullptr ? out_.core.name_of(source->operand) : "scratch");
    if (zeroed) out_.zeroed.push_back(static_cast<int>(out_.scratch.size()) - 1);
    return scratch;
  }

  static Expr loaded(const Dims& domain, DataType type, const Access& access) {
    return {.domain = domain,
            .nodes = {{.kind = Node::Kind::load, .type = type, .access = access}},
            .results = {},
            .value = 0};
  }

  // The filter with zeros around it; channels that are summed over lie side by side.
  Access filled_filter(const JoinedPixels& joined) {
    const Expr& site = out_.core.before[1];
    const DataType type = packed_type(1);
    Dims filled = site.domain;
    for (size_t i = 0; i < joined.axes.size(); ++i) filled[2 + static_cast<int>(i)] = joined.axes[i].taps;
    const bool along_inputs = view_.op == ContractionOp::fprop;
    const Access* const source = primary_access(site);
    const Access scratch =
        add_scratch(filled, along_inputs ? channels_last(filled.rank()) : output_channels_last(filled.rank()),
                    type, source != nullptr ? out_.core.name_of(source->operand) : "scratch");
    out_.zeroed.push_back(static_cast<int>(out_.scratch.size()) - 1);
    Access own = scratch;
    for (size_t i = 0; i < joined.axes.size(); ++i)
      own.offset += joined.axes[i].zeros * scratch.strides[2 + static_cast<int>(i)];
    out_.loads.after.push_back(stored(site, type, own));
    return scratch;
  }

  // [channel of a position][channel that is summed over][window]
  void join_filter_of(const JoinedPixels& joined, const Access& filled) {
    Expr& site = out_.core.before[1];
    const DataType type = packed_type(1);
    const int result_axis = view_.op == ContractionOp::fprop ? 0 : 1;
    Dims domain{joined.channels, site.domain[1 - result_axis]};
    for (const JoinedAxis& axis : joined.axes) domain.push_back(axis.window);
    const Access scratch =
        add_scratch(domain, channels_last(domain.rank()), type, out_.core.operand_names.back());
    Expr copy;
    copy.domain = {site.domain[result_axis], domain[1]};
    Access from = filled, to = scratch;
    from.strides = {filled.strides[result_axis], filled.strides[1 - result_axis]};
    to.strides = {joined.channel_step * scratch.strides[0], scratch.strides[1]};
    for (size_t i = 0; i < joined.axes.size(); ++i) {
      const JoinedAxis& axis = joined.axes[i];
      const int at = 2 + static_cast<int>(i);
      copy.domain.push_back(axis.block);
      copy.domain.push_back(axis.window);
      from.offset += axis.first * filled.strides[at];
      from.strides.push_back(axis.tap_of_result * filled.strides[at]);
      from.strides.push_back(axis.tap_of_window * filled.strides[at]);
      to.strides.push_back(axis.channel_step * scratch.strides[0]);
      to.strides.push_back(scratch.strides[at]);
    }
    copy.nodes = {{.kind = Node::Kind::load, .type = type, .access = from}};
    copy.value = 0;
    out_.loads.after.push_back(stored(std::move(copy), type, to));
    site = {.domain = domain,
            .nodes = {{.kind = Node::Kind::load, .type = type, .access = scratch}},
            .results = {},
            .value = 0};
  }

  // What follows the product is the same for every pixel: results leave in their own types.
  void copy_pixels(const JoinedPixels& joined, const Expr& whole) {
    Expr& y = out_.core.after[0];
    for (size_t i = 0; i < y.results.size(); ++i) {
      Result& result = y.results[i];
      const Access scratch =
          add_scratch(y.domain, result_order(), result.type, out_.core.name_of(result.access.operand));
      result.access = scratch;
      for (const auto& box : joined.boxes()) {
        Expr copy = in_box({.domain = whole.domain, .nodes = {}, .results = {whole.results[i]}, .value = -1},
                           joined, box);
        copy.nodes = {{.kind = Node::Kind::load,
                       .type = result.type,
                       .access = of_box(scratch, joined, box),
                       .op = result.op}};
        copy.results[0].node = 0;
        out_.stores.after.push_back(std::move(copy));
      }
    }
  }

  void finish_pixels(const JoinedPixels& joined, const Expr& whole) {
    const auto at = std::ranges::find_if(whole.nodes, is_anchor) - whole.nodes.begin();
    const Access scratch = leave_product(whole.nodes[static_cast<size_t>(at)]);
    for (const auto& box : joined.boxes()) {
      Expr copy = in_box(whole, joined, box);
      Node& loaded = copy.nodes[static_cast<size_t>(at)];
      loaded.kind = Node::Kind::load;
      loaded.access = of_box(scratch, joined, box);
      out_.stores.after.push_back(std::move(copy));
    }
  }

  void split_input(const StridePhases& phases, const Expr& image, DataType type, bool beside_packed) {
    Expr& x = out_.core.before[1];
    const Access* const source = primary_access(image);
    const std::string name = source != nullptr ? out_.core.name_of(source->operand) : "scratch";
    const Access planes = beside_packed ? add_planes(x.domain, type, name)
                                        : add_scratch(x.domain, positions_last(x.domain.rank()), type, name);
    // Outputs whose taps lie beside the image, and positions of a last block that the input lacks.
    const bool is_ragged = element_count(image.domain) / image.domain[image.domain.rank() - 1] *
                               phases.channels() / phases.count !=
                           element_count(x.domain) / x.domain[x.domain.rank() - 1];
    const auto is_cut = [&](const ColumnsOfTap& columns) {
      return columns.outputs != x.domain[x.domain.rank() - 1];
    };
    if (!beside_packed && (is_ragged || std::ranges::any_of(phases.taps, is_cut)))
      out_.zeroed.push_back(static_cast<int>(out_.scratch.size()) - 1);
    for (size_t tap = 0; tap < phases.taps.size(); ++tap)
      copy_columns(phases, image, type, planes, static_cast<int64_t>(tap));
    x = loaded(x.domain, type, planes);
  }

  void copy_columns(const StridePhases& phases, const Expr& image, DataType type, Access planes,
                    int64_t tap) {
    const ColumnsOfTap& columns = phases.taps[static_cast<size_t>(tap)];
    if (columns.outputs == 0) return;
    const Expr met = of_tap(image, phases, columns);
    planes.offset +=
        tap * planes.strides[1] + columns.first_output * planes.strides[planes.strides.rank() - 1];
    JoinedPixels input = phases.input;
    input.axes.back().results = input.axes.back().positions = columns.outputs;
    for (const auto& box : input.boxes())
      out_.loads.after.push_back(stored(in_box(met, input, box), type, of_box(planes, input, box)));
  }

  void finish_phases(const StridePhases& phases, const Expr& whole) {
    const auto at = std::ranges::find_if(whole.nodes, is_anchor) - whole.nodes.begin();
    const Access scratch = leave_product(whole.nodes[static_cast<size_t>(at)]);
    for (int64_t phase = 0; phase < phases.count; ++phase) {
      Expr copy = of_phase(whole, phases, phase);
      Node& product = copy.nodes[static_cast<size_t>(at)];
      product.kind = Node::Kind::load;
      product.access = of_phase(scratch, phases, phase);
      out_.stores.after.push_back(std::move(copy));
    }
  }

  // The bare product goes to a scratch of its own.
  Access leave_product(const Node& anchor) {
    Expr& y = out_.core.after[0];
    const Access scratch = add_scratch(y.domain, result_order(), anchor.type, "product");
    y.nodes = {anchor};
    y.results = {
        {.node = 0, .type = anchor.type, .access = scratch, .reduction = {}, .reduced = 0, .op = anchor.op}};
    return scratch;
  }

  // The site as a copy into scratch.
  static Expr stored(Expr site, DataType type, const Access& scratch) {
    site.results.push_back(
        {.node = site.value, .type = type, .access = scratch, .reduction = {}, .reduced = 0, .op = -1});
    site.value = -1;
    return site;
  }

  bool joins_result() const { return joined_ > 1 && view_.op == ContractionOp::wgrad; }

  Dims dense_filter(Dims filter) const {
    filter[1] *= joined_;
    return filter;
  }

  // Of an access to a dense filter: where the elements of split_outputs() lie.
  Access on_diagonal(Access access) const {
    const int64_t output = access.strides[0], channel = access.strides[1];
    access.strides.insert(0, view_.output_channels * output + view_.input_channels * channel);
    access.strides.insert(0, joined_ * view_.output_channels * output);
    return access;
  }

  // Bytes that are summed in fp32 become 16 bits, which hold all their numbers: those of the other operand,
  // where that has 16.
  DataType packed_type(size_t index) const {
    const auto type_at = [&](size_t i) {
      const Expr& site = out_.core.before[i];
      return site.nodes[static_cast<size_t>(site.value)].type;
    };
    const DataType type = type_at(index);
    if (view_.compute != DataType::f32 || byte_size(type) != 1) return type;
    if (out_.core.precision >= Precision::allow_short_sums && is_fp8(type) && is_fp8(type_at(1 - index)))
      return type;
    return type_at(1 - index) == DataType::bf16 ? DataType::bf16 : DataType::f16;
  }

  // Elements that tensor cores cannot transpose lie along k.
  Dims operand_order(const Expr& site, size_t index, DataType type) const {
    const int rank = site.domain.rank();
    const bool along_k = !may_lie_across(type);
    if (!view_.is_convolution()) return rows_last(rank, along_k ? index == 0 : is_along_rows(site));
    const bool is_dgrad_filter = index == 1 && view_.op == ContractionOp::dgrad;
    return along_k && is_dgrad_filter ? output_channels_last(rank) : channels_last(rank);
  }

  Dims result_order() const {
    const int rank = out_.core.after[0].domain.rank();
    return view_.is_convolution() ? channels_last(rank) : rows_last(rank, true);
  }

  Contraction view_;
  int64_t joined_;
  Repacked out_;
};

}  // namespace

bool is_apart(const Contraction& view, const Dims& domain, const Access& access) {
  const auto is_adjacent = [&](int axis) { return domain[axis] == 1 || access.strides[axis] == 1; };
  if (view.is_convolution()) return !is_adjacent(1);
  return !is_adjacent(domain.rank() - 1) && !is_adjacent(domain.rank() - 2);
}

Repacked repack(const Fusion& fusion, const Contraction& view, const Packing& packing, WayOut way) {
  Repacker repacker(fusion, view, packing.joined);
  if (packing.pixels > 0) {
    repacker.join_pixels(pixels_of(fusion, view, packing.pixels).value(), way);
    if (packing.sites[0]) repacker.pack_operand(0);
    return repacker.take();
  }
  if (packing.phases) {
    repacker.split_phases(packing.sites[0]);
    if (packing.sites[0]) repacker.pack_operand(0);
    return repacker.take();
  }
  if (packing.columns) repacker.unroll_columns();
  const bool joins_filter = packing.joined > 1 && view.op != ContractionOp::wgrad;
  if (packing.sites[0] && !packing.columns) repacker.pack_operand(0);
  if (joins_filter)
    repacker.join_filter();
  else if (packing.sites[1] && !packing.columns)
    repacker.pack_operand(1);
  if (way == WayOut::copied) repacker.copy_results();
  if (way == WayOut::finished) repacker.finish_later();
  return repacker.take();
}

std::vector<WayOut> ways_out(const Fusion& fusion, const Contraction& view, int64_t joined) {
  if (joined > 1 && view.op == ContractionOp::wgrad) return {WayOut::finished};
  const Expr& y = fusion.after[0];
  const auto apart = [&](const Result& result) { return is_apart(view, y.domain, result.access); };
  std::vector<WayOut> ways{WayOut::direct};
  if (!std::ranges::any_of(y.results, apart)) return ways;
  ways.push_back(WayOut::copied);
  // A product that is stored as it is has nothing to be finished.
  if (y.nodes.size() > 1 && can_finish_later(y)) ways.push_back(WayOut::finished);
  return ways;
}

std::optional<WayOut> way_out_of_pixels(const Fusion& fusion, const Contraction& view, int64_t pixels) {
  const Expr& y = fusion.after[0];
  if (y.has_reduction() || !pixels_of(fusion, view, pixels)) return std::nullopt;
  const bool same_for_all = std::ranges::none_of(y.nodes, [](const Node& node) {
    return node.kind == Node::Kind::load || node.kind == Node::Kind::index;
  });
  if (same_for_all) return WayOut::copied;
  const bool names_pixels = std::ranges::any_of(
      y.nodes, [](const Node& node) { return node.kind == Node::Kind::index && node.axis >= 2; });
  if (names_pixels || !can_finish_later(y)) return std::nullopt;
  return WayOut::finished;
}

bool unrolls_columns(const Fusion& fusion, const Contraction& view) {
  return Repacker(fusion, view, 1).columns().has_value();
}

bool splits_phases(const Fusion& fusion, const Contraction& view) {
  const Expr& y = fusion.after[0];
  const auto names_position = [](const Node& node) {
    return node.kind == Node::Kind::index && node.axis >= 2;
  };
  if (y.has_reduction() || !can_finish_later(y) || !stride_phases(view)) return false;
  return std::ranges::none_of(y.nodes, names_position) &&
         std::ranges::none_of(fusion.before[1].nodes, names_position);
}

int64_t joined_groups(const Fusion& fusion, const Contraction& view, int64_t block) {
  if (!view.is_convolution() || view.entries == 1 || view.channels() % block == 0) return 1;
  // Of depthwise convolutions, all but one of 64 products would be with zeros.
  if (view.input_channels == 1 && view.output_channels == 1) return 1;
  const bool of_result = view.op == ContractionOp::wgrad;
  const Expr& filter = of_result ? fusion.after[0] : fusion.before[1];
  if (names_first_axis(filter) || (of_result && !can_finish_later(filter))) return 1;
  for (int64_t joined = 2; joined < view.entries; ++joined)
    if (view.entries % joined == 0 && joined * view.channels() % block == 0) return joined;
  return view.entries;
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
