// Owns the text of a site's struct: Args, apply<N>, and what reductions need.
#include "codegen/expr_emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "codegen/device_types.h"
#include "codegen/places.h"
#include "codegen/row_site.h"
#include "codegen/site_fields.h"
#include "codegen/word_facts.h"
#include "core/hash.h"

namespace fusor {

namespace {

const Node& node_at(const Expr& expr, int node) { return expr.nodes[static_cast<size_t>(node)]; }

/// Writes the struct of one site.
class SiteWriter {
 public:
  SiteWriter(const KernelSite& site, const SourceNames* names)
      : site_(site), expr_(site.expr), names_(names) {
    for (int node = 0, next = 0; node < std::ssize(expr_.nodes); ++node) {
      numbers_.push_back(next);
      if (expr_.node(node).kind != Node::Kind::reduce) ++next;
    }
    find_rounded_uses();
  }

  std::string write() {
    line(0, "struct {} {{", site_.name);
    line(1, "static constexpr int kRank = {};", expr_.domain.rank());
    line(1, "using Fn = {};", site_.short_forms ? "Short" : "Exact");
    write_args();
    if (expr_.has_reduction()) write_accumulator();
    write_apply();
    if (site_.addressed) write_address();
    if (expr_.has_reduction()) write_finish();
    line(0, "}};\n");
    return std::move(text_);
  }

 private:
  template <class... Values>
  void line(int indent, fmt::format_string<Values...> format, Values&&... values) {
    text_.append(2 * static_cast<size_t>(indent), ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_.push_back('\n');
  }

  // A node that only leaves through stores of its own type is rounded by the store.
  void find_rounded_uses() {
    used_rounded_.assign(expr_.nodes.size(), false);
    for (const Node& node : expr_.nodes)
      for (const int arg : node.args)
        if (arg >= 0) used_rounded_[static_cast<size_t>(arg)] = true;
    for (const Store& store : expr_.stores) {
      if (store.type != node_at(expr_, store.node).type)
        used_rounded_[static_cast<size_t>(store.node)] = true;
      if (store.index >= 0) used_rounded_[static_cast<size_t>(store.index)] = true;
    }
    for (const int yielded : expr_.yields)
      if (site_.rounds_value) used_rounded_[static_cast<size_t>(yielded)] = true;
  }

  std::string operand_comment(const SiteField& field) const {
    if (names_ == nullptr || field.kind == SiteField::Kind::stride || field.kind == SiteField::Kind::first ||
        field.kind == SiteField::Kind::index_stride || field.kind == SiteField::Kind::index_extent ||
        field.kind == SiteField::Kind::parameter)
      return {};
    const size_t at = static_cast<size_t>(field.at);
    const int operand = field.of_store ? expr_.stores[at].access.operand : expr_.nodes[at].access.operand;
    return operand < 0 ? std::string() : fmt::format("  // {}", names_->operand(operand));
  }

  std::string op_comment(int op) const {
    return names_ == nullptr || op < 0 ? std::string() : fmt::format("  // {}", names_->op(op));
  }

  void write_args() {
    line(1, "struct Args {{");
    for (const SiteField& field : site_fields(site_))
      line(2, "alignas(8) {} {};{}", field.type, field.name, operand_comment(field));
    line(1, "}};");
  }

  // The reduce node whose totals a store is for, or null.
  const Node* total_at(size_t store) const { return reduction_of(expr_, expr_.stores[store]); }

  // What the text calls a node: totals have names of their own.
  int number(int node) const { return numbers_[static_cast<size_t>(node)]; }

  void write_accumulator() {
    const auto for_each = [&](std::string_view format) {
      for (size_t i = 0; i < expr_.stores.size(); ++i)
        if (total_at(i)) line(3, "{}", fmt::format(fmt::runtime(format), i));
    };
    line(1, "struct Accumulator {{");
    for (size_t i = 0; i < expr_.stores.size(); ++i)
      if (const Node* const total = total_at(i))
        line(2, "reduction_{}<{}> r{};{}", to_string(total->reduction.mode),
             device_type(total->reduction.compute), i, op_comment(total->op));
    line(2, "__device__ __forceinline__ void init() {{");
    for_each("r{0}.init();");
    line(2, "}}");
    line(2, "__device__ __forceinline__ void combine(const Accumulator& other) {{");
    for_each("r{0}.combine(other.r{0});");
    line(2, "}}");
    line(1, "}};");
  }

  bool yields() const { return !expr_.yields.empty(); }
  bool yields_two() const { return expr_.yields.size() == 2; }

  int anchor_count() const {
    int count = 0;
    for (const Node& node : expr_.nodes)
      if (node.kind == Node::Kind::input) count = std::max(count, node.input + 1);
    return count;
  }

  // Axes along which an access has a stride, or whose coordinate is a value.
  unsigned walked_axes() const {
    unsigned axes = 0;
    const auto add = [&](const Access& access) {
      for (int axis = 0; axis < expr_.domain.rank(); ++axis)
        if (access.strides[axis] != 0) axes |= 1u << axis;
    };
    for (const Node& node : expr_.nodes) {
      if (node.kind == Node::Kind::load) add(node.access);
      if (node.kind == Node::Kind::index) axes |= 1u << node.axis;
    }
    for (const Store& result : expr_.stores) add(result.access);
    return axes;
  }

  // A kernel that gets a value back may want it of what does not exist, too, while totals must not.
  bool tells_totals() const { return expr_.has_reduction() && yields(); }

  // A kernel that gets values of anchors back may load what all lanes share once, for many vectors.
  bool lends_loads() const { return yields() && anchor_count() > 0; }
  bool is_shared_load(const Node& node) const {
    return node.kind == Node::Kind::load && !node.access.is_indexed() &&
           lane_step(site_, node.access) == LaneStep::broadcast;
  }

  // A load through an index is one of whole vectors where all lanes have the same index.
  bool has_lanes_own_index(const Node& node) const {
    if (node.kind != Node::Kind::load) return false;
    return std::ranges::any_of(node.args, [&](int arg) {
      return arg >= 0 && node_at(expr_, arg).kind != Node::Kind::scalar &&
             !is_shared_load(node_at(expr_, arg));
    });
  }

  bool has_lanes_own_index(const Store& store) const {
    return store.index >= 0 && node_at(expr_, store.index).kind != Node::Kind::scalar &&
           !is_shared_load(node_at(expr_, store.index));
  }

  // " + index * stride ..." behind the address, and whether all indices are within their extents.
  struct Indices {
    std::string steps, inside;
  };
  Indices indices_of(int at) const {
    const Node& node = node_at(expr_, at);
    const std::string name = load_name(expr_, at);
    Indices indices;
    for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k) {
      const int v = number(node.args[k]);
      indices.steps += fmt::format(" + Index(v{}) * args.{}_index{}_stride", v, name, k);
      indices.inside +=
          fmt::format("{}v{} >= 0 && v{} < args.{}_index{}_extent", k > 0 ? " && " : "", v, v, name, k);
    }
    return indices;
  }

  std::string shared_load(int at) const {
    return fmt::format("widen(load_broadcast({}, count))", address(load_name(expr_, at), node_at(expr_, at)));
  }

  void write_loads() {
    std::string fields;
    std::string values;
    for (int i = 0; i < static_cast<int>(expr_.nodes.size()); ++i) {
      if (!is_shared_load(node_at(expr_, i))) continue;
      fields += fmt::format(" {} v{};", carrier_type(node_at(expr_, i).type), number(i));
      values += fmt::format("{}{}", values.empty() ? "" : ",\n            ", shared_load(i));
    }
    line(1, "struct Loads {{{}{}}};  // what all lanes share", fields, fields.empty() ? "" : " ");
    line(1,
         "static __device__ __forceinline__ Loads loads(const Args& args, const Index (&at)[kRank], "
         "int count) {{");
    line(2, "return {{{}}};", values);
    line(1, "}}");
  }

  void write_signature() {
    const std::string result = !yields() ? "void" : !yields_two() ? "Vec<Value, N>" : "Values<N>";
    const std::string head = fmt::format("static __device__ __forceinline__ {} apply(", result);
    const std::string further = fmt::format(",\n{:{}}", "", head.size() + 2);
    std::string types = "int N";
    std::string arguments = "const Args& args, const Index (&at)[kRank], int count";
    if (lends_loads()) arguments += further + "const Loads& loads";
    if (!expr_.stores.empty()) types += ", bool kSpread = false";
    for (int i = 0; i < anchor_count(); ++i) {
      types += fmt::format(", class Anchor{}", i);
      arguments += further + fmt::format("const Vec<Anchor{0}, N>& anchor{0}", i);
    }
    if (expr_.has_reduction()) arguments += further + "Accumulator* accumulators";
    if (tells_totals()) arguments += ", int added";
    if (yields()) {
      line(1, "using Stored = {};", device_type(yielded_node(expr_).type));
      line(1, "using Value = Carrier<Stored>;");
    }
    if (yields_two()) {
      line(1, "using SecondValue = {};", carrier_type(yielded_node(expr_, 1).type));
      line(1, "template <int N>");
      line(1, "struct Values {{");
      line(2, "Vec<Value, N> value;");
      line(2, "Vec<SecondValue, N> second;");
      line(1, "}};");
    }
    if (lends_loads()) {
      line(1, "static constexpr int kVectorAxis = {};", site_.vector_axis);
      line(1, "static constexpr unsigned kWalked = {};  // axes that the value depends on, a bit each",
           walked_axes());
      write_loads();
    }
    line(1, "template <{}>", types);
    line(1, "{}{}) {{", head, arguments);
  }

  void write_apply() {
    write_signature();
    for (size_t i = 0; i < expr_.nodes.size(); ++i) write_uniform_node(static_cast<int>(i));
    for (size_t i = 0; i < expr_.stores.size(); ++i) {
      if (total_at(i)) continue;
      line(2, "Vec<{}, N> r{};", carrier_type(node_at(expr_, expr_.stores[i].node).type), i);
    }
    if (yields()) line(2, "Vec<Value, N> value;");
    if (yields_two()) line(2, "Vec<SecondValue, N> second;");
    write_words();
    line(0, "#pragma unroll");
    line(2, "for (int i = 0; i < N; ++i) {{");
    in_order_ = true;
    for (size_t i = 0; i < expr_.nodes.size(); ++i) write_lane_node(static_cast<int>(i));
    in_order_ = false;
    for (size_t i = 0; i < expr_.stores.size(); ++i) write_lane_result(static_cast<int>(i));
    if (yields()) write_lane_value(yielded(expr_), "value", "Value");
    if (yields_two()) write_lane_value(yielded(expr_, 1), "second", "SecondValue");
    line(2, "}}");
    for (size_t i = 0; i < expr_.stores.size(); ++i) write_store(static_cast<int>(i));
    if (yields()) line(2, "return {};", yields_two() ? "{value, second}" : "value");
    line(1, "}}");
  }

  // Random words that lanes share.
  void write_words() {
    for (int i = 0; i < static_cast<int>(expr_.nodes.size()); ++i)
      if (const auto [step, first] = word_steps(site_, node_at(expr_, i)); step > 0)
        line(2, "RandomWords<N, {}, {}> words{};", step, first, number(i));
  }

  // pointer + sum of coordinate * stride.
  std::string address(const std::string& name, const Node& load) const {
    return address(name, load.access, pointer_text(name, load.type));
  }
  std::string address(const std::string& name, const Access& access) const {
    return address(name, access, "args." + name);
  }
  // Packed elements leave this text where they are scattered: whole bytes of them, or any.
  std::string address(const std::string& name, const Store& store) const {
    if (!is_packed(store.type)) return address(name, store.access);
    return address(name, store.access,
                   fmt::format("{0}<{1}>{{args.{2}, args.{2}_first}}",
                               store.access.whole_vectors ? "PackedPlace" : "ScatteredPlace",
                               device_type(store.type), name));
  }
  std::string address(const std::string& name, const Access& access, const std::string& pointer) const {
    std::string terms;
    int walked = 0;
    for (int axis = 0; axis < expr_.domain.rank(); ++axis) {
      if (access.strides[axis] == 0) continue;
      if (walked++ > 0) terms += " + ";
      terms += fmt::format("at[{}]", axis);
      if (has_stride_field(site_, access, axis)) terms += fmt::format(" * args.{}_stride{}", name, axis);
    }
    if (walked == 0) return pointer;
    if (walked > 1) terms = fmt::format("({})", terms);
    return fmt::format("{} + {}", pointer, terms);
  }

  void write_address() {
    const Node& node = yielded_node(expr_);
    line(1,
         "static __device__ __forceinline__ const Stored* address(const Args& args, const Index "
         "(&at)[kRank]) {{");
    const std::string name = load_name(expr_, yielded(expr_));
    if (node.access.is_indexed()) {
      // As the only lane of apply<1> finds it.
      line(2, "[[maybe_unused]] constexpr int N = 1, i = 0, count = 1;");
      for (int at = 0; at < yielded(expr_); ++at) write_uniform_node(at);
      for (int at = 0; at < yielded(expr_); ++at) write_lane_node(at);
      const Indices indices = lane_indices(yielded(expr_));
      line(2, "return {} ? {}{} : nullptr;", indices.inside, address(name, node), indices.steps);
    } else {
      line(2, "return {};", address(name, node));
    }
    line(1, "}}");
    if (node.access.is_indexed())
      line(1, "static constexpr bool kMayMiss = true;  // address(): null where an index is none");
  }

  // The same as indices_of() in the loop over lanes.
  Indices lane_indices(int at) const {
    const Node& node = node_at(expr_, at);
    const std::string name = load_name(expr_, at);
    Indices indices;
    for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k) {
      const std::string index = lane(node.args[k]);
      indices.steps += fmt::format(" + Index({}) * args.{}_index{}_stride", index, name, k);
      indices.inside +=
          fmt::format("{0}{1} >= 0 && {1} < args.{2}_index{3}_extent", k > 0 ? " && " : "", index, name, k);
    }
    return indices;
  }

  /// What is the same for all lanes, or loaded for all at once.
  void write_uniform_node(int at) {
    const Node& node = node_at(expr_, at);
    if (node.kind == Node::Kind::scalar) {
      const std::string value = fmt::format("args.v{}_value", number(at));
      line(2, "const {} v{} = {};", carrier_type(node.type), number(at), rounded(node, value));
    } else if (node.kind == Node::Kind::load) {
      write_load(at, node);
    }
  }

  void write_load(int at, const Node& node) {
    if (has_lanes_own_index(node)) return write_lane_load(at);
    const std::string name = load_name(expr_, at);
    const Indices indices = indices_of(at);
    const std::string from = address(name, node) + indices.steps;
    const std::string count =
        indices.inside.empty() ? "count" : fmt::format("{} ? count : 0", indices.inside);
    switch (lane_step(site_, node.access)) {
      case LaneStep::broadcast:
        if (node.access.is_indexed())
          return line(2, "const {} v{} = widen(load_broadcast({}, {}));", carrier_type(node.type), number(at),
                      from, count);
        return line(2, "const {} v{} = {};", carrier_type(node.type), number(at),
                    lends_loads() ? fmt::format("loads.v{}", number(at)) : shared_load(at));
      case LaneStep::strided:
        return line(2, "const Vec<{}, N> v{} = widen(load_strided<N>({}, args.{}_stride{}, {}));",
                    carrier_type(node.type), number(at), from, name, site_.vector_axis, count);
      case LaneStep::adjacent:
        break;
    }
    if (node.access.whole_vectors)
      line(2, "const Vec<{}, N> v{} = widen(load_whole<N>({}, {}));", carrier_type(node.type), number(at),
           from, count);
    else
      line(2, "const Vec<{}, N> v{} = widen(load_strided<N>({}, 1, {}));", carrier_type(node.type),
           number(at), from, count);
  }

  // Each lane takes an element of its own; where all of them are neighbours, one access does.
  void write_lane_load(int at) {
    const Node& node = node_at(expr_, at);
    const std::string name = load_name(expr_, at);
    const Indices indices = lane_indices(at);
    const bool counts = node.args[1] < 0 && lane_offset(name, node.access).empty() &&
                        counts_along(expr_, node.args[0], site_.vector_axis);
    if (const auto place = counted_place(expr_, node.args[0], site_.vector_axis);
        counts && place && !is_packed(node.type))
      return write_counted_load(at, *place);
    write_place(fmt::format("place{}", number(at)), node.args, indices.inside,
                place_of(lane_offset(name, node.access), indices.steps));
    line(2, "const Vec<{}, N> v{} = widen(load_places<N, {}>({}, place{}));{}", carrier_type(node.type),
         number(at), counts, address(name, node), number(at), op_comment(node.op));
  }

  // Lanes take neighbours from the place of lane 0 on, as many as the bound lets them: found once for all.
  void write_counted_load(int at, const CountedPlace& place) {
    const Node& node = node_at(expr_, at);
    const std::string name = load_name(expr_, at);
    line(2, "const CountedPlaces places{} = [&] {{", number(at));
    line(3, "[[maybe_unused]] constexpr int i = 0;");
    std::vector<bool> needed(expr_.nodes.size(), false);
    for (const int part : {place.count, place.other, place.compared, place.bound}) need(part, needed);
    for (size_t i = 0; i < needed.size(); ++i)
      if (needed[i]) write_lane_node(static_cast<int>(i));
    if (place.bound < 0)
      line(3, "return CountedPlaces{{i64({}), N, -1}};", lane(place.count));
    else
      line(3, "return CountedPlaces{{i64({}), i64({}) - i64({}){}, i64({})}};", lane(place.count),
           lane(place.bound), lane(place.compared), place.takes_bound ? " + 1" : "", lane(place.other));
    line(2, "}}();");
    line(2,
         "const Vec<{0}, N> v{1} = widen(load_counted<N>({2}, places{1}, args.{3}_index0_extent, "
         "args.{3}_index0_stride, count));{4}",
         carrier_type(node.type), number(at), address(name, node), name, op_comment(node.op));
  }

  // A function of the lane: its place, or -1.
  void write_place(const std::string& name, std::span<const int> indices, const std::string& inside,
                   const std::string& place) {
    line(2, "const auto {} = [&](int i) -> Index {{", name);
    std::vector<bool> needed(expr_.nodes.size(), false);
    for (const int index : indices) need(index, needed);
    for (size_t i = 0; i < needed.size(); ++i)
      if (needed[i]) write_lane_node(static_cast<int>(i));
    line(3, "return i < count && {} ? {} : Index(-1);", inside, place);
    line(2, "}};");
  }

  // Marks the nodes that each lane computes for node `at`.
  void need(int at, std::vector<bool>& needed) const {
    if (at < 0 || needed[static_cast<size_t>(at)]) return;
    const Node& node = node_at(expr_, at);
    if (node.kind == Node::Kind::load) return;
    needed[static_cast<size_t>(at)] = true;
    for (const int arg : node.args) need(arg, needed);
  }

  // Terms that begin with " + ", without the first sign.
  static std::string place_of(const std::string& offset, const std::string& steps) {
    return (offset + steps).substr(3);
  }

  // " + ..." from the first lane's element to lane i's.
  std::string lane_offset(const std::string& name, const Access& access) const {
    switch (lane_step(site_, access)) {
      case LaneStep::broadcast:
        break;
      case LaneStep::strided:
        return fmt::format(" + i * args.{}_stride{}", name, site_.vector_axis);
      case LaneStep::adjacent:
        return " + i";
    }
    return {};
  }

  bool is_per_lane_load(const Node& node) const {
    return node.kind == Node::Kind::load &&
           (has_lanes_own_index(node) || lane_step(site_, node.access) != LaneStep::broadcast);
  }

  /// The name of a node's value in the lane loop.
  std::string lane(int at) const {
    return is_per_lane_load(node_at(expr_, at)) ? fmt::format("v{}[i]", number(at))
                                                : fmt::format("v{}", number(at));
  }

  static std::string rounded(const Node& node, const std::string& value) {
    if (is_compute_type(node.type)) return value;
    return fmt::format("round_to<{}>({})", device_type(node.type), value);
  }

  void write_lane_node(int at) {
    const Node& node = node_at(expr_, at);
    const std::string type = carrier_type(node.type);
    switch (node.kind) {
      case Node::Kind::load:
      case Node::Kind::scalar:
      case Node::Kind::reduce:
        return;
      case Node::Kind::input: {
        const std::string value = fmt::format("anchor{}[i]", node.input);
        return line(3, "const {} v{} = {};{}", type, number(at), result_of(at, value, false),
                    op_comment(node.op));
      }
      case Node::Kind::index: {
        const std::string coordinate = node.axis == site_.vector_axis ? fmt::format("(at[{}] + i)", node.axis)
                                                                      : fmt::format("at[{}]", node.axis);
        const std::string value = is_plain_coordinate(node)
                                      ? coordinate
                                      : fmt::format("{0} * args.v{1}_scale + args.v{1}_offset",
                                                    index_text(node, coordinate), number(at));
        return line(3, "const {} v{} = {};{}", type, number(at), result_of(at, value, false),
                    op_comment(node.op));
      }
      case Node::Kind::pointwise:
        if (!has_default_parameters(node.pointwise)) write_parameters(at, node.pointwise);
        return line(3, "const {} v{} = {};{}", type, number(at), computed(at), op_comment(node.op));
    }
  }

  void write_parameters(int at, const Pointwise& pointwise) {
    line(3, "Parameters<{}> p{};", device_type(pointwise.compute), number(at));
    for (const ModeParameter& parameter : parameters_of(pointwise))
      line(3, "p{0}.{1} = args.v{0}_{1};", number(at), parameter.name);
  }

  /// `value` as node `at` holds it. Rounding is left to a store where nothing else sees the node and the
  /// value comes in the carrier of the node's type.
  std::string result_of(int at, const std::string& value, bool in_carrier) const {
    const Node& node = node_at(expr_, at);
    const bool is_yielded = std::ranges::find(expr_.yields, at) != expr_.yields.end();
    const bool left_to_kernel = is_yielded && !used_rounded_[static_cast<size_t>(at)];
    if (left_to_kernel && !in_carrier) return fmt::format("narrow<{}>({})", carrier_type(node.type), value);
    if (is_compute_type(node.type))
      return in_carrier ? value : fmt::format("narrow<{}>({})", device_type(node.type), value);
    if (in_carrier && !used_rounded_[static_cast<size_t>(at)]) return value;
    return fmt::format("round_to<{}>({})", device_type(node.type), value);
  }

  std::string computed(int at) const {
    const Node& node = node_at(expr_, at);
    const Pointwise& pointwise = node.pointwise;
    if (compares_word(expr_, node))
      return fmt::format("is_word_below({}, {})", lane(node.args[0]), lane(node.args[1]));
    const bool shares_words = in_order_ && word_steps(site_, node).step > 0;
    std::string call = shares_words ? fmt::format("words{}.at(i, ", number(at))
                                    : fmt::format("op_{}<Fn>(", to_string(pointwise.mode));
    for (int i = 0; i < info(pointwise.mode).inputs; ++i) {
      const int arg = node.args[static_cast<size_t>(i)];
      if (i > 0) call += ", ";
      if (i == kPhiloxIndex && counts_up(expr_, node)) {
        call += fmt::format("i64(u32({}))", lane(arg));
        continue;
      }
      call += carrier(node_at(expr_, arg).type) == pointwise.compute
                  ? lane(arg)
                  : fmt::format("narrow<{}>({})", device_type(pointwise.compute), lane(arg));
    }
    if (!has_default_parameters(pointwise)) call += fmt::format(", p{}", number(at));
    call += ")";
    if (yields_truth(pointwise.mode)) return call;
    return result_of(at, call, carrier(node.type) == pointwise.compute);
  }

  void write_lane_result(int at) {
    const Store& result = expr_.stores[static_cast<size_t>(at)];
    const Node* const total = total_at(static_cast<size_t>(at));
    if (total == nullptr) return line(3, "r{}[i] = {};", at, lane(result.node));
    const std::string value = lane(total->args[0]);
    const DataType compute = total->reduction.compute;
    const bool same = carrier(node_at(expr_, total->args[0]).type) == compute;
    line(3, "if (i < {}) accumulators[kSpread ? i : 0].r{}.add({});", tells_totals() ? "added" : "count", at,
         same ? value : fmt::format("narrow<{}>({})", device_type(compute), value));
  }

  // Each lane goes where its own index says, or nowhere.
  void write_lane_store(int at) {
    const Store& result = expr_.stores[static_cast<size_t>(at)];
    const std::string name = store_name(at), index = lane(result.index),
                      offset = lane_offset(name, result.access);
    const bool counts = offset.empty() && counts_along(expr_, result.index, site_.vector_axis);
    const std::array<int, 1> indices{result.index};
    write_place(fmt::format("place_r{}", at), indices,
                fmt::format("{0} >= 0 && {0} < args.{1}_index0_extent", index, name),
                place_of(offset, fmt::format(" + Index({}) * args.{}_index0_stride", index, name)));
    line(2, "store_places<{}>({}, narrow<{}>(r{}), place_r{});{}", counts, address(name, result),
         device_type(result.type), at, at, op_comment(result.op));
  }

  // Loads already give zeros where nothing exists.
  void write_lane_value(int at, std::string_view name, std::string_view type) {
    const bool loaded = is_per_lane_load(node_at(expr_, at));
    line(3, "{}[i] = {};", name, loaded ? lane(at) : fmt::format("i < count ? {} : {}(0)", lane(at), type));
  }

  void write_store(int at) {
    const Store& result = expr_.stores[static_cast<size_t>(at)];
    if (total_at(static_cast<size_t>(at))) return;
    const std::string name = store_name(at);
    if (has_lanes_own_index(result)) return write_lane_store(at);
    std::string to = address(name, result), count = "count", at_most_one = "count < 1 ? count : 1";
    if (result.index >= 0) {
      const int v = number(result.index);
      to += fmt::format(" + Index(v{}) * args.{}_index0_stride", v, name);
      const std::string inside = fmt::format("v{0} >= 0 && v{0} < args.{1}_index0_extent", v, name);
      count = fmt::format("{} ? count : 0", inside);
      at_most_one = fmt::format("{} && count > 0 ? 1 : 0", inside);
    }
    const std::string elements = fmt::format("narrow<{}>(r{})", device_type(result.type), at);
    switch (lane_step(site_, result.access)) {
      case LaneStep::broadcast:
        return line(2, "store_strided({}, 0, {}, {});", to, elements, at_most_one);
      case LaneStep::strided:
        return line(2, "store_strided({}, args.{}_stride{}, {}, {});", to, name, site_.vector_axis, elements,
                    count);
      case LaneStep::adjacent:
        break;
    }
    if (result.access.whole_vectors)
      line(2, "{}({}, {}, {});", whole_store(result), to, elements, count);
    else
      line(2, "store_strided({}, 1, {}, {});", to, elements, count);
  }

  void write_finish() {
    line(1,
         "static __device__ __forceinline__ void finish(const Args& args, const Index (&at)[kRank], "
         "const Accumulator& total) {{");
    for (size_t i = 0; i < expr_.stores.size(); ++i) {
      const Store& result = expr_.stores[i];
      const Node* const total = total_at(i);
      if (total == nullptr) continue;
      const std::string name = store_name(static_cast<int>(i));
      const bool counts = total->reduction.mode == ReductionMode::avg;
      line(2, "store({}, narrow<{}>(total.r{}.result({})));", address(name, result.access),
           device_type(result.type), i, counts ? fmt::format("args.{}_count", name) : std::string());
    }
    line(1, "}}");
  }

  const KernelSite& site_;
  const Expr& expr_;
  const SourceNames* names_;
  std::vector<int> numbers_;
  std::vector<bool> used_rounded_;
  bool in_order_ = false;  // lanes are computed one after another, and what one leaves the next may use
  std::string text_;
};

// The compute capability of "sm_90a", times ten: what __CUDA_ARCH__ is.
int arch_of(const std::string& target) {
  int arch = 0;
  for (const char c : target)
    if (c >= '0' && c <= '9') arch = arch * 10 + (c - '0');
  return arch * 10;
}

std::string config_text(const KernelSource& source) {
  std::string text = fmt::format(
      "#include \"codegen/device/base/elements.cuh\"\n\n"
      "struct Config {{\n  static constexpr int arch = {};\n",
      arch_of(source.target));
  for (const auto& [name, value] : source.config) {
    if (const auto* const type = std::get_if<DataType>(&value))
      text += fmt::format("  using {} = {};\n", name, device_type(*type));
    else if (const auto* const truth = std::get_if<bool>(&value))
      text += fmt::format("  static constexpr bool {} = {};\n", name, *truth);
    else
      text += fmt::format("  static constexpr int {} = {};\n", name, std::get<int64_t>(value));
  }
  return text + "};\n";
}

// Members of structs are declared by device files: that they lie where their bytes are is checked.
std::string parameters_text(const KernelSource& source) {
  std::string text;
  std::string checks;
  for (const std::string& declaring : source.types)
    text += declaring.ends_with(')') ? declaring + "\n"
                                     : fmt::format("#include \"codegen/device/{}\"\n", declaring);
  text += "struct Params {\n";
  for (const ParameterField& field : source.parameters) {
    if (field.type.empty())
      checks += fmt::format("static_assert(FUSOR_PLACE(Params, {}) == {}, \"\");\n", field.path, field.at);
    else
      text += fmt::format("  {} {}{};\n", field.type, field.path,
                          field.count > 0 ? fmt::format("[{}]", field.count) : std::string());
  }
  return text + "};\n" + checks + "\n";
}

void hash_access(Hasher& hasher, const KernelSite& site, const Access& access) {
  for (int axis = 0; axis < site.expr.domain.rank(); ++axis)
    hasher.add(access.strides[axis] == 0 ? 0 : has_stride_field(site, access, axis) ? 1 : 2);
  hasher.add(access.whole_vectors);
}

// An index node has three forms in the text: the coordinate as it is; scaled, with scale and offset as
// arguments; and, in sites of rows where the scale is 0, the offset as a number.
void hash_number(Hasher& hasher, const Node& node) {
  const int64_t scale = node.access.strides[node.axis];
  hasher.add(scale == 0 ? 0 : scale == 1 && node.access.offset == 0 ? 1 : 2);
  if (scale == 0) hasher.add(node.access.offset);
}

void hash_node(Hasher& hasher, const KernelSite& site, const Node& node) {
  hasher.add(node.kind).add(node.type);
  switch (node.kind) {
    case Node::Kind::load:
      for (const int arg : node.args) hasher.add(arg);
      return hash_access(hasher, site, node.access);
    case Node::Kind::scalar:
      return;
    case Node::Kind::input:
      hasher.add(node.input);
      return;
    case Node::Kind::index:
      hasher.add(node.axis);
      hash_number(hasher, node);
      return;
    case Node::Kind::reduce:
      hasher.add(node.reduction.mode).add(node.reduction.compute).add(node.args[0]);
      return;
    case Node::Kind::pointwise:
      hasher.add(node.pointwise.mode).add(node.pointwise.compute).add(has_default_parameters(node.pointwise));
      hasher.add(counts_up(site.expr, node));
      if (const auto [step, first] = word_steps(site, node); step > 0) hasher.add(step).add(first);
      for (const int arg : node.args) hasher.add(arg);
  }
}

// Tells values of a row from values of an element.
void hash_rows(Hasher& hasher, const KernelSite& site) {
  if (site.kept < 0) return;
  hasher.add(site.kept).add(site.joins);
  for (const int64_t extent : site.expr.domain) hasher.add(extent == 1);
  for (const Node& node : site.expr.nodes) hasher.add(static_cast<int64_t>(node.over));
}

void hash_site(Hasher& hasher, const KernelSite& site) {
  hasher.add(site.name).add(site.expr.domain.rank()).add(site.vector_axis);
  hasher.add(site.short_forms).add(site.rounds_value).add(site.addressed);
  hash_rows(hasher, site);
  hasher.add(site.expr.nodes.size());
  for (const Node& node : site.expr.nodes) hash_node(hasher, site, node);
  hasher.add(site.expr.stores.size());
  for (const Store& result : site.expr.stores) {
    hasher.add(result.node).add(result.type).add(result.index).add(result.stays_in_l2);
    hash_access(hasher, site, result.access);
  }
  hasher.add(site.expr.yields.size());
  for (const int node : site.expr.yields) hasher.add(node);
}

// Whether it takes elements through numbers that are counted.
bool counts_places(const KernelSite& site) {
  return site.kept >= 0 && std::ranges::any_of(site.expr.nodes, [](const Node& node) {
           return node.kind == Node::Kind::load && node.access.is_indexed();
         });
}

}  // namespace

std::string emit_header(const KernelSource& source, const SourceNames* names) {
  std::string text;
  bool reduces = false;
  text += config_text(source);
  for (const KernelSite& site : source.sites) reduces |= site.expr.has_reduction();
  text += fmt::format("#include \"codegen/device/base/{}.cuh\"\n", reduces ? "reduction" : "pointwise");
  if (std::ranges::any_of(source.sites, counts_places))
    text += "#include \"codegen/device/base/counted.cuh\"\n";
  text += "\n";
  for (const KernelSite& site : source.sites)
    text += site.kept >= 0 ? emit_row_site(site, names) : SiteWriter(site, names).write();
  if (!source.parameters.empty()) text += parameters_text(source);
  return text;
}

int64_t accumulator_bytes(const KernelSite& site) {
  int64_t bytes = 0;
  int64_t widest = 1;
  for (const Store& result : site.expr.stores) {
    const Node* const total = reduction_of(site.expr, result);
    if (total == nullptr) continue;
    const int64_t size = byte_size(total->reduction.compute);
    widest = std::max(widest, size);
    bytes = (bytes + size - 1) / size * size + size;
  }
  return (bytes + widest - 1) / widest * widest;
}

std::string structure_hash(const KernelSource& source) {
  Hasher hasher;
  hasher.add(source.root).add(source.target).add(source.config.size());
  for (const ConfigValue& value : source.config)
    hasher.add(value.name).add(value.value.index()).add(value.number());
  hasher.add(source.sites.size());
  for (const KernelSite& site : source.sites) hash_site(hasher, site);
  hasher.add(source.types.size());
  for (const std::string& file : source.types) hasher.add(file);
  hasher.add(source.parameters.size());
  for (const ParameterField& field : source.parameters)
    hasher.add(field.path).add(field.type).add(field.count).add(field.at);
  return hasher.hex();
}

}  // namespace fusor
