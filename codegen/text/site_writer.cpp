// Owns the text of a site's struct: Args, apply<N>, and what reductions need.
#include "codegen/text/site_writer.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/text/device_types.h"
#include "codegen/text/places.h"
#include "codegen/text/site_fields.h"
#include "codegen/text/site_text.h"
#include "codegen/text/word_facts.h"
#include "core/chosen_load.h"

namespace fusor {

namespace {

/// Writes the struct of one site.
class SiteWriter : SiteText {
 public:
  SiteWriter(const KernelSite& site, const SourceNames* names) : SiteText(site, names) {}

  std::string write() {
    line(0, "struct {} {{", site_.name);
    line(1, "enum : int {{ kRank = {} }};", expr_.domain.rank());
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

  void write_args() {
    line(1, "struct Args {{");
    for (const SiteField& field : site_fields(site_))
      line(2, "alignas(8) {} {};{}", field.type, field.name, operand_comment(field));
    line(1, "}};");
  }

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

  void write_loads() {
    std::string fields;
    std::string values;
    for (int i = 0; i < static_cast<int>(expr_.nodes.size()); ++i) {
      if (!is_shared_load(expr_.node(i))) continue;
      fields += fmt::format(" {} v{};", carrier_type(expr_.node(i).type), number(i));
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
      line(1, "enum : int {{ kVectorAxis = {} }};", site_.vector_axis);
      line(1, "enum : unsigned {{ kWalked = {} }};  // axes that the value depends on, a bit each",
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
      line(2, "Vec<{}, N> r{};", carrier_type(expr_.node(expr_.stores[i].node).type), i);
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
      if (const auto [step, first] = word_steps(site_, expr_.node(i)); step > 0)
        line(2, "RandomWords<N, {}, {}> words{};", step, first, number(i));
  }

  // As the only lane of apply<1> finds it.
  void write_address() {
    const auto chosen = chosen_load(expr_);
    const int load = yielded(expr_);
    const bool may_miss = chosen || expr_.node(load).access.is_indexed();
    line(1, "static __device__ __forceinline__ {} address(const Args& args, const Index (&at)[kRank]) {{",
         is_packed(expr_.node(load).type) ? "PackedPointer<Stored>" : "const Stored*");
    if (may_miss) line(2, "[[maybe_unused]] constexpr int N = 1, i = 0, count = 1;");
    std::vector<bool> needed(expr_.nodes.size(), false);
    if (chosen) {
      need_with_loads(chosen->condition, needed);
      for (const int each : {chosen->first, chosen->second})
        for (const int arg : expr_.node(each).args) need_with_loads(arg, needed);
    } else {
      for (const int arg : expr_.node(load).args) need_with_loads(arg, needed);
    }
    for (size_t at = 0; at < needed.size(); ++at)
      if (needed[at]) write_uniform_node(static_cast<int>(at));
    for (size_t at = 0; at < needed.size(); ++at)
      if (needed[at]) write_lane_node(static_cast<int>(at));
    if (chosen)
      line(2, "return {} ? {} : {};", lane(chosen->condition), address_of_load(chosen->first),
           address_of_load(chosen->second));
    else
      line(2, "return {};", address_of_load(load));
    line(1, "}}");
    if (may_miss) line(1, "enum : bool {{ kMayMiss = true }};  // address(): null where an index is none");
  }
  std::string address_of_load(int at) const {
    const Node& node = expr_.node(at);
    std::string place = address(load_name(expr_, at), node);
    if (!node.access.is_indexed()) return place;
    const Indices indices = lane_indices(at);
    return fmt::format("({} ? {}{} : nullptr)", indices.inside, place, indices.steps);
  }
  void need_with_loads(int at, std::vector<bool>& needed) const {
    if (at < 0 || needed[static_cast<size_t>(at)]) return;
    needed[static_cast<size_t>(at)] = true;
    for (const int arg : expr_.node(at).args) need_with_loads(arg, needed);
  }

  /// What is the same for all lanes, or loaded for all at once.
  void write_uniform_node(int at) {
    const Node& node = expr_.node(at);
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
        if (node.access.whole_vectors) return write_pair_of_loads(at);
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

  // Whether the elements of one access lie between those of the other. The first ones of a pair begin on a
  // multiple of two.
  static bool are_paired(const Access& a, const Access& b) {
    return a.whole_vectors && b.whole_vectors && a.operand == b.operand && a.strides == b.strides &&
           a.offset != b.offset && (a.offset & ~int64_t{1}) == (b.offset & ~int64_t{1});
  }

  // Two loads by one access, where the first of them stands.
  void write_pair_of_loads(int at) {
    int other = 0;
    while (other == at || expr_.node(other).kind != Node::Kind::load ||
           !are_paired(expr_.node(at).access, expr_.node(other).access))
      ++other;
    if (other < at) return;
    const bool in_order = expr_.node(at).access.offset < expr_.node(other).access.offset;
    const int even = in_order ? at : other, odd = in_order ? other : at;
    const Node& node = expr_.node(even);
    line(2, "const auto pair{} = load_whole<2 * N>({}, 2 * count);", number(at),
         address(load_name(expr_, even), node));
    for (const int one : {even, odd})
      line(2, "const Vec<{}, N> v{} = widen(every_other<{}>(pair{}));", carrier_type(node.type), number(one),
           one == odd ? 1 : 0, number(at));
  }

  // Two stores by one access, where the second of them stands.
  void write_pair_of_stores(int at) {
    int other = 0;
    while (other == at || !are_paired(expr_.stores[static_cast<size_t>(at)].access,
                                      expr_.stores[static_cast<size_t>(other)].access))
      ++other;
    if (other > at) return;
    const auto offset = [&](int store) { return expr_.stores[static_cast<size_t>(store)].access.offset; };
    const int even = offset(at) < offset(other) ? at : other, odd = at + other - even;
    const Store& first = expr_.stores[static_cast<size_t>(even)];
    line(2, "store_whole({0}, in_turn(narrow<{1}>(r{2}), narrow<{1}>(r{3})), 2 * count);",
         address(store_name(even), first), device_type(first.type), even, odd);
  }

  // Each lane takes an element of its own; where all of them are neighbours, one access does.
  void write_lane_load(int at) {
    const Node& node = expr_.node(at);
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
    const Node& node = expr_.node(at);
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

  void write_lane_node(int at) {
    const Node& node = expr_.node(at);
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
        return line(3, "const {} v{} = {};{}", type, number(at), computed(at, in_order_),
                    op_comment(node.op));
    }
  }

  void write_parameters(int at, const Pointwise& pointwise) {
    line(3, "Parameters<{}> p{};", device_type(pointwise.compute), number(at));
    for (const ModeParameter& parameter : parameters_of(pointwise))
      line(3, "p{0}.{1} = args.v{0}_{1};", number(at), parameter.name);
  }

  void write_lane_result(int at) {
    const Store& result = expr_.stores[static_cast<size_t>(at)];
    const Node* const total = total_at(static_cast<size_t>(at));
    if (total == nullptr) return line(3, "r{}[i] = {};", at, lane(result.node));
    const std::string value = lane(total->args[0]);
    const DataType compute = total->reduction.compute;
    const bool same = carrier(expr_.node(total->args[0]).type) == compute;
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
    const bool loaded = is_per_lane_load(expr_.node(at));
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
        if (result.access.whole_vectors) return write_pair_of_stores(at);
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

  bool in_order_ = false;  // lanes are computed one after another, and what one leaves the next may use
  std::string text_;
};

}  // namespace

std::string emit_site(const KernelSite& site, const SourceNames* names) {
  return SiteWriter(site, names).write();
}

}  // namespace fusor
