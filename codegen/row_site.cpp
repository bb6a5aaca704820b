// Owns the text of rows sites: what is loaded, added phase by phase, settled once a row and stored.
#include "codegen/row_site.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "codegen/device_types.h"
#include "codegen/row_facts.h"
#include "codegen/row_sizes.h"
#include "codegen/site_fields.h"
#include "codegen/word_facts.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

class RowSiteWriter {
 public:
  RowSiteWriter(const KernelSite& site, const SourceNames* names)
      : site_(site), expr_(site.expr), names_(names), facts_(site) {
    int next_value = 0, next_total = 0;
    for (const Node& node : expr_.nodes)
      names_of_.push_back(is_reduce(node) ? fmt::format("t{}", next_total++)
                                          : fmt::format("v{}", next_value++));
    find_counted();
  }

  std::string write() {
    line(0, "struct {} {{", site_.name);
    line(1, "static constexpr int kRank = {};", expr_.domain.rank());
    line(1, "static constexpr int kKept = {};  // axes of the rows; those of a row follow", site_.kept);
    line(1, "static constexpr int kPhases = {};", facts_.phase_count);
    line(1, "static constexpr int kTotalsBytes = {};", totals_bytes(site_));
    line(1, "using Fn = {};", site_.short_forms ? "Short" : "Exact");
    write_args();
    write_loads("Held", "load", false);
    write_loads("Fixed", "fixed", true);
    if (takes_through_indices()) write_outside();
    if (takes_runs()) write_run();
    if (streamed_bytes(site_) > 0) write_streams();
    if (copied_bytes(site_, 1) > 0) write_copy();
    write_row();
    for (int phase = 0; phase < facts_.phase_count; ++phase) write_phase(phase);
    write_finish();
    write_finish_row();
    write_columns();
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

  // Begins a static function with these template parameters; its arguments stand one a line.
  void begin_function(std::string_view types, std::string_view result, std::string_view name,
                      const std::vector<std::string>& arguments) {
    const bool is_placed =
        takes_through_indices() && std::ranges::find(arguments, at_parameter()) != arguments.end();
    if (is_placed)
      line(1, "template <{}class At>", types.empty() ? "" : fmt::format("{}, ", types));
    else if (!types.empty())
      line(1, "template <{}>", types);
    const std::string head = fmt::format("static __device__ __forceinline__ {} {}(", result, name);
    const std::string further = fmt::format(",\n{:{}}", "", head.size() + 2);
    line(1, "{}{}) {{", head, fmt::join(arguments, further));
  }

  int node_count() const { return static_cast<int>(expr_.nodes.size()); }
  const std::string& name(int node) const { return names_of_[static_cast<size_t>(node)]; }
  RowPlace place(int node) const { return facts_.places[static_cast<size_t>(node)]; }
  int level(int node) const { return facts_.levels[static_cast<size_t>(node)]; }
  bool is_column(int node) const { return facts_.is_column[static_cast<size_t>(node)]; }
  LaneStep step(const Access& access) const { return lane_step(site_, access); }

  std::string comment_of(int op) const {
    return names_ == nullptr || op < 0 ? std::string() : fmt::format("  // {}", names_->op(op));
  }
  std::string operand_comment(const Access& access) const {
    return names_ == nullptr || access.operand < 0 ? std::string()
                                                   : fmt::format("  // {}", names_->operand(access.operand));
  }

  void write_args() {
    line(1, "struct Args {{");
    for (const SiteField& field : site_fields(site_)) {
      const bool is_named = field.kind == SiteField::Kind::pointer || field.kind == SiteField::Kind::scalar;
      const size_t at = static_cast<size_t>(field.at);
      const std::string comment =
          !is_named ? std::string()
                    : operand_comment(field.of_store ? expr_.stores[at].access : expr_.nodes[at].access);
      line(2, "alignas(8) {} {};{}", field.type, field.name, comment);
    }
    line(1, "}};");
  }

  std::string address(const std::string& base, const Node& load) const {
    return address(base, load.access, pointer_text(base, load.type));
  }
  std::string address(const std::string& base, const Access& access) const {
    return address(base, access, "args." + base);
  }
  std::string address(const std::string& base, const Access& access, const std::string& pointer) const {
    std::string terms;
    int walked = 0;
    for (int axis = 0; axis < expr_.domain.rank(); ++axis) {
      if (access.strides[axis] == 0) continue;
      if (walked++ > 0) terms += " + ";
      terms += takes_through_indices() ? at(axis) + ".value()" : at(axis);
      if (has_stride_field(site_, access, axis)) terms += fmt::format(" * args.{}_stride{}", base, axis);
    }
    if (walked == 0) return pointer;
    if (walked > 1) terms = fmt::format("({})", terms);
    return fmt::format("{} + {}", pointer, terms);
  }

  // Whether the numbers through which a load takes its elements name any.
  std::string is_inside(int at) const {
    const Node& node = expr_.node(at);
    std::string inside;
    for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k) {
      const std::string one =
          fmt::format("is_within({}, args.{}_index{}_extent)", name(node.args[k]), load_name(expr_, at), k);
      inside = k == 0 ? one : fmt::format("count_logical_and({}, {})", inside, one);
    }
    return inside;
  }

  std::string indexed_offset(int at) const {
    const Node& node = expr_.node(at);
    std::string offset;
    for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k)
      offset += fmt::format("{}Index({}) * args.{}_index{}_stride", k > 0 ? " + " : "", name(node.args[k]),
                            load_name(expr_, at), k);
    return offset;
  }

  // The text of a load of elements that all lanes take through the same indices.
  std::string indexed_load(int at, std::string_view lanes) const {
    const Node& node = expr_.node(at);
    const std::string base = load_name(expr_, at), inside = is_inside(at), offset = indexed_offset(at);
    const std::string from = address(base, node), other = outside(at);
    if (step(node.access) == LaneStep::adjacent && node.access.whole_vectors)
      return fmt::format("load_counted<{}>({} + ({}), {}, {})", lanes, from, offset, inside, other);
    const bool one = step(node.access) == LaneStep::broadcast;
    const std::string apart = step(node.access) == LaneStep::strided
                                  ? fmt::format("args.{}_stride{}", base, site_.vector_axis)
                                  : std::string(one ? "0" : "1");
    return fmt::format("load_counted_strided<{}>({} + ({}), {}, {}, {})", one ? "1" : lanes, from, offset,
                       apart, inside, other);
  }

  // The text of a load, whose elements stay as stored; `lanes` is the name of how many it gives.
  std::string raw_load(int at, std::string_view lanes, std::string_view count) const {
    const Access& access = expr_.node(at).access;
    const std::string base = load_name(expr_, at), from = address(base, expr_.node(at));
    switch (step(access)) {
      case LaneStep::broadcast:
        return fmt::format("load_strided<1>({}, 0, {})", from, count);
      case LaneStep::strided:
        return fmt::format("load_strided<{}>({}, args.{}_stride{}, {})", lanes, from, base, site_.vector_axis,
                           count);
      case LaneStep::adjacent:
        break;
    }
    if (access.whole_vectors) return fmt::format("load_whole<{}>({}, {})", lanes, from, count);
    return fmt::format("load_strided<{}>({}, 1, {})", lanes, from, count);
  }

  bool is_element_load(int at, bool fixed) const {
    return expr_.node(at).kind == Node::Kind::load && place(at) == RowPlace::element &&
           facts_.is_fixed(expr_, at) == fixed;
  }
  std::vector<int> indexed_loads() const {
    std::vector<int> loads;
    for (int i = 0; i < node_count(); ++i)
      if (is_element_load(i, false) && expr_.node(i).access.is_indexed()) loads.push_back(i);
    return loads;
  }
  bool takes_through_indices() const { return !indexed_loads().empty(); }
  bool is_shared_lane(int at) const { return step(expr_.node(at).access) == LaneStep::broadcast; }

  // The elements of a vector as they are stored, of each row or the same for all rows.
  void write_loads(std::string_view type, std::string_view function, bool fixed) {
    line(1, "template <int N>");
    line(1, "struct {} {{", type);
    for (int i = 0; i < node_count(); ++i)
      if (is_element_load(i, fixed))
        line(2, "Vec<{}, {}> {};", device_type(expr_.node(i).type), is_shared_lane(i) ? "1" : "N",
             load_name(expr_, i));
    line(1, "}};");
    begin_function("int N", fmt::format("{}<N>", type), function,
                   {"const Args& args", at_parameter(), "int count"});
    line(2, "{}<N> loaded;", type);
    if (!fixed) write_counted(indexed_loads());
    for (int i = 0; i < node_count(); ++i)
      if (is_element_load(i, fixed))
        line(2, "loaded.{} = {};", load_name(expr_, i),
             expr_.node(i).access.is_indexed() ? indexed_load(i, "N") : raw_load(i, "N", "count"));
    line(2, "return loaded;");
    line(1, "}}");
  }

  // The choice between the elements that a load takes and one number for all places outside, if that is all
  // that they are read for; else -1. A load gives that number itself.
  int filler(int load) const {
    int found = -1;
    for (int i = 0; i < node_count(); ++i) {
      const Node& node = expr_.node(i);
      if (std::ranges::find(node.args, load) == node.args.end()) continue;
      if (found >= 0 || !is_choice_of_places(expr_, i) || node.args[0] != load) return -1;
      found = i;
    }
    for (const Store& store : expr_.stores)
      if (store.node == load) return -1;
    return found;
  }
  // Whether a value is a load's elements, filled.
  bool is_filled(int at) const {
    const Node& node = expr_.node(at);
    return node.kind == Node::Kind::pointwise && takes_through_indices() && node.args[0] >= 0 &&
           is_taken(node.args[0]) && filler(node.args[0]) == at;
  }
  bool is_taken(int at) const { return expr_.node(at).access.is_indexed() && is_element_load(at, false); }
  std::string outside(int load) const {
    const std::string type = device_type(expr_.node(load).type);
    const int choice = filler(load);
    if (choice < 0) return type + "{}";
    const Node& other = expr_.node(expr_.node(choice).args[1]);
    return fmt::format("narrow<{}>({}(args.{}_value))", type, carrier_type(other.type),
                       name(expr_.node(choice).args[1]));
  }
  // Whether places outside leave every total as it is: sums of elements that are +0 there, or of choices
  // between such an element and zero.
  bool sums_ignore_outside() const {
    for (int i = 0; i < node_count(); ++i) {
      const Node& node = expr_.node(i);
      if (node.kind != Node::Kind::reduce) continue;
      const Node* const select = selects_or_adds_nothing(i);
      const int value = select != nullptr ? select->args[0] : summed(i);
      if (node.reduction.mode != ReductionMode::add || node.reduction.compute != DataType::f32 ||
          !is_taken(value) || filler(value) >= 0)
        return false;
    }
    return true;
  }
  // Elements of places that are none.
  void write_outside() {
    line(1, "static constexpr bool kSumsIgnoreOutside = {};", sums_ignore_outside());
    line(1, "template <int N>");
    begin_function("", "void", "outside", {"const Args& args", "Held<N>& held"});
    for (const int at : indexed_loads())
      line(2, "held.{} = splat<{}>({});", load_name(expr_, at), is_shared_lane(at) ? "1" : "N", outside(at));
    line(1, "}}");
  }

  // Where neighbouring lanes are neighbouring windows, each is loaded alone, or a thread loads runs of
  // elements that several of its windows take.
  bool takes_runs() const {
    const std::vector<int> loads = indexed_loads();
    return !loads.empty() && std::ranges::all_of(loads, [&](int at) { return is_shared_lane(at); });
  }
  void write_run() {
    line(1, "template <int N>");
    line(1, "struct Run {{");
    for (const int at : indexed_loads())
      line(2, "Vec<{}, N> {};", device_type(expr_.node(at).type), load_name(expr_, at));
    line(1, "}};");
    line(1,
         "// N neighbours, the first of them kBack in front of the one at a place, all inside or all "
         "outside.");
    begin_function("int N, int kBack", "Run<N>", "load_run", {"const Args& args", at_parameter()});
    line(2, "Run<N> run;");
    write_counted(indexed_loads());
    for (const int at : indexed_loads())
      line(2, "run.{} = load_counted<N>({} + ({} - kBack), {}, {});", load_name(expr_, at),
           address(load_name(expr_, at), expr_.node(at).access), indexed_offset(at), is_inside(at),
           outside(at));
    line(2, "return run;");
    line(1, "}}");
    line(1, "template <int N, int W>");
    line(1, "static __device__ __forceinline__ void take(const Run<N>& run, int i, Held<W>& held) {{");
    for (const int at : indexed_loads()) line(2, "held.{0}.lane[0] = run.{0}.lane[i];", load_name(expr_, at));
    line(1, "}}");
  }

  // ---- Numbers that are counted ----

  // In sites that take elements through numbers: whole numbers made of coordinates, the same for all lanes.
  void find_counted() {
    counted_.assign(expr_.nodes.size(), false);
    if (!takes_through_indices()) return;
    std::vector<bool> is_index(expr_.nodes.size(), false);
    for (int i = node_count() - 1; i >= 0; --i)
      if (is_index[static_cast<size_t>(i)] || expr_.node(i).access.is_indexed())
        for (const int arg : expr_.node(i).args)
          if (arg >= 0) is_index[static_cast<size_t>(arg)] = true;
    const std::vector<uint32_t> varies = varying_axes(expr_);
    const std::vector<CountedKind> kinds = counted_kinds(expr_);
    for (int i = 0; i < node_count(); ++i) {
      const bool differs = (varies[static_cast<size_t>(i)] >> site_.vector_axis & 1) != 0;
      counted_[static_cast<size_t>(i)] = (!differs || is_index[static_cast<size_t>(i)]) &&
                                         kinds[static_cast<size_t>(i)] != CountedKind::none;
    }
  }
  bool is_counted(int at) const { return counted_[static_cast<size_t>(at)]; }

  // The counted numbers that these nodes need.
  void write_counted(const std::vector<int>& readers) {
    std::vector<bool> needed(expr_.nodes.size(), false);
    for (const int reader : readers) needed[static_cast<size_t>(reader)] = true;
    for (int i = node_count() - 1; i >= 0; --i) {
      const bool reads =
          needed[static_cast<size_t>(i)] && (is_counted(i) || expr_.node(i).kind == Node::Kind::load ||
                                             std::ranges::find(readers, i) != readers.end());
      if (!reads) continue;
      for (const int arg : expr_.node(i).args)
        if (arg >= 0 && is_counted(arg)) needed[static_cast<size_t>(arg)] = true;
    }
    for (int at = 0; at < node_count(); ++at)
      if (needed[static_cast<size_t>(at)] && is_counted(at))
        line(2, "const auto {} = {};{}", name(at), counted(at), comment_of(expr_.node(at).op));
  }
  bool yields_truth_at(int at) const {
    const Node& node = expr_.node(at);
    return node.kind == Node::Kind::pointwise && yields_truth(node.pointwise.mode);
  }
  std::string counted(int at) const {
    const Node& node = expr_.node(at);
    if (node.kind == Node::Kind::scalar) return fmt::format("Unknown{{Index(args.{}_value)}}", name(at));
    if (node.kind == Node::Kind::index) {
      if (is_number(node)) return fmt::format("Number<{}>{{0}}", node.access.offset);
      std::string where = this->at(node.axis);
      if (is_plain_coordinate(node)) return where;
      return fmt::format("Unknown{{{0} * args.{1}_scale + args.{1}_offset}}", where, name(at));
    }
    std::string call = fmt::format("count_{}(", to_string(node.pointwise.mode));
    for (int i = 0; i < info(node.pointwise.mode).inputs; ++i)
      call += fmt::format("{}{}", i > 0 ? ", " : "", name(node.args[static_cast<size_t>(i)]));
    return call + ")";
  }

  // Rows that are copied whole: where each load's row begins, and a vector of them where they lie one behind
  // the other.
  void write_streams() {
    std::vector<int> loads;
    for (int i = 0; i < node_count(); ++i)
      if (is_element_load(i, false)) loads.push_back(i);
    line(1, "static constexpr int kStreams = {};", loads.size());
    line(1, "static constexpr int kStreamedBytes = {};  // of an element, all streams",
         streamed_bytes(site_));
    begin_function("", "const void*", "stream",
                   {"const Args& args", "const Index (&at)[kRank]", "int number"});
    for (size_t k = 0; k + 1 < loads.size(); ++k)
      line(2, "if (number == {}) return {};", k, row_address(loads[k]));
    line(2, "return {};", row_address(loads.back()));
    line(1, "}}");
    begin_function("", "constexpr int", "stream_bytes", {"int number"});
    for (size_t k = 0; k + 1 < loads.size(); ++k)
      line(2, "if (number == {}) return {};", k, byte_size(expr_.node(loads[k]).type));
    line(2, "return {};", byte_size(expr_.node(loads.back()).type));
    line(1, "}}");
    begin_function("int N", "Held<N>", "held_in", {"const char* streams", "int elements", "int vector"});
    line(2, "Held<N> loaded;");
    int64_t before = 0;
    for (const int at : loads) {
      const DataType type = expr_.node(at).type;
      line(2,
           "loaded.{} = *reinterpret_cast<const Vec<{}, N>*>(streams + elements * {} + vector * (N * {}));",
           load_name(expr_, at), device_type(type), before, byte_size(type));
      before += byte_size(type);
    }
    line(2, "return loaded;");
    line(1, "}}");
  }
  // The vectors of load() in pieces of 16 bytes of shared memory, `apart` bytes from one to the next: copied
  // there ahead, and taken from there. What all lanes share is loaded again.
  void write_copy() {
    std::vector<int> loads;
    for (int i = 0; i < node_count(); ++i)
      if (is_element_load(i, false)) loads.push_back(i);
    line(1, "static constexpr int kCopiedBytes = {};  // of an element", copied_bytes(site_, 1));
    begin_function("int N", "void", "copy",
                   {"const Args& args", "const Index (&at)[kRank]", "char* to", "int apart"});
    write_pieces(loads, [&](int at, const std::string& piece) {
      line(2, "copy_ahead<N>(to + {} * apart, apart, {});", piece,
           address(load_name(expr_, at), expr_.node(at).access));
    });
    line(1, "}}");
    begin_function(
        "int N", "Held<N>", "copied",
        {"const Args& args", "const Index (&at)[kRank]", "int count", "const char* from", "int apart"});
    line(2, "Held<N> loaded;");
    for (const int at : loads)
      if (is_shared_lane(at)) line(2, "loaded.{} = {};", load_name(expr_, at), raw_load(at, "N", "count"));
    write_pieces(loads, [&](int at, const std::string& piece) {
      line(2, "copied_ahead(from + {} * apart, apart, loaded.{});", piece, load_name(expr_, at));
    });
    line(2, "return loaded;");
    line(1, "}}");
  }
  template <class Visit>
  void write_pieces(const std::vector<int>& loads, Visit&& visit) {
    int64_t bytes = 0;
    for (const int at : loads) {
      if (is_shared_lane(at)) continue;
      visit(at, fmt::format("(N * {} / 16)", bytes));
      bytes += byte_size(expr_.node(at).type);
    }
  }
  std::string row_address(int load) const {
    Access of_row = expr_.node(load).access;
    of_row.strides[site_.vector_axis] = 0;
    return address(load_name(expr_, load), of_row);
  }

  // ---- Values of a row ----

  bool is_row_value(int at) const {
    return place(at) == RowPlace::row && !is_counted(at) && !(is_reduce(expr_.node(at)) && is_column(at));
  }

  void write_row() {
    line(1, "template <int W>");
    line(1, "struct Row {{");
    for (int i = 0; i < node_count(); ++i)
      if (is_row_value(i)) line(2, "Vec<{}, W> {};", carrier_type(expr_.node(i).type), name(i));
    line(1, "}};");
    if (takes_runs()) {
      line(1, "template <int W>");
      line(1, "static __device__ __forceinline__ void put(const Row<1>& one, int lane, Row<W>& row) {{");
      for (int i = 0; i < node_count(); ++i)
        if (is_row_value(i)) line(2, "row.{0}[lane] = one.{0}[0];", name(i));
      line(1, "}}");
    }
    begin_function("int W", "void", "begin", {"const Args& args", at_parameter(), "Row<W>& row"});
    for (int i = 0; i < node_count(); ++i)
      if (is_row_value(i) && expr_.node(i).kind == Node::Kind::load && !expr_.node(i).access.is_indexed())
        line(2, "const auto loaded_{} = widen({});", name(i), raw_load(i, "W", "W"));
    write_row_values(0);
    line(1, "}}");
  }

  // The values of a row that are known at `wanted`.
  void write_row_values(int wanted) {
    std::vector<int> values;
    for (int i = 0; i < node_count(); ++i)
      if (is_row_value(i) && level(i) == wanted) values.push_back(i);
    if (values.empty()) return;
    write_counted(values);
    write_scalars(values);
    line(0, "#pragma unroll");
    line(2, "for (int i = 0; i < W; ++i) {{");
    for (const int at : values) write_row_value(at);
    line(2, "}}");
  }

  void write_row_value(int at) {
    const Node& node = expr_.node(at);
    if (node.kind == Node::Kind::pointwise) write_parameters(at);
    line(3, "row.{}[i] = {};{}", name(at), row_value(at), comment_of(node.op));
  }

  std::string row_value(int at) const {
    const Node& node = expr_.node(at);
    switch (node.kind) {
      case Node::Kind::load:
        if (node.access.is_indexed()) return picked(at);
        return fmt::format("loaded_{}[{}]", name(at), is_shared_lane(at) ? "0" : "i");
      case Node::Kind::index:
        return rounded(node, coordinate(at), false);
      case Node::Kind::reduce: {
        if (giver(at) != at && node.reduction.mode == ReductionMode::max)
          return fmt::format("totals[i].{}.maximum()", name(giver(at)));
        if (is_of_pairs(at)) return fmt::format("totals[i & ~1].{}.result(i & 1)", name(at));
        const bool counts = node.reduction.mode == ReductionMode::avg;
        const std::string total =
            fmt::format("totals[i].{}.result({})", name(giver(at)),
                        counts ? fmt::format("args.{}_count", name(at)) : std::string());
        const bool in_carrier = carrier(node.type) == node.reduction.compute;
        return in_carrier && is_rounded_by_stores(at) ? total : rounded(node, total, in_carrier);
      }
      default:
        return computed(at, "Exact", true);
    }
  }

  // An element taken through an index, of the row in lane i.
  std::string picked(int at) const {
    const Node& node = expr_.node(at);
    const std::string base = load_name(expr_, at);
    std::string from = address(base, node), inside = "true";
    if (step(node.access) == LaneStep::adjacent) from += " + i";
    if (step(node.access) == LaneStep::strided)
      from += fmt::format(" + i * args.{}_stride{}", base, site_.vector_axis);
    for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k) {
      const std::string index = read(node.args[k], true);
      from += fmt::format(" + Index({}) * args.{}_index{}_stride", index, base, k);
      inside += fmt::format(" && {0} >= 0 && {0} < args.{1}_index{2}_extent", index, base, k);
    }
    return fmt::format("widen(Vec<{}, 1>{{load_where({}, {})}})[0]", device_type(node.type), from, inside);
  }

  // ---- Formulas ----

  static std::string rounded(const Node& node, const std::string& value, bool in_carrier) {
    if (!is_compute_type(node.type)) return fmt::format("round_to<{}>({})", device_type(node.type), value);
    return in_carrier ? value : fmt::format("narrow<{}>({})", device_type(node.type), value);
  }

  std::string coordinate(int at) const {
    const Node& node = expr_.node(at);
    std::string where =
        node.axis == site_.vector_axis ? fmt::format("({} + i)", this->at(node.axis)) : this->at(node.axis);
    if (is_number(node)) return fmt::format("Index({})", node.access.offset);
    if (is_plain_coordinate(node)) return where;
    return fmt::format("{0} * args.{1}_scale + args.{1}_offset", index_text(node, where), name(at));
  }

  // A value where it is read: in the loop over the lanes of a row's values, or over those of its elements.
  std::string read(int at, bool in_row) const {
    if (is_counted(at))
      return yields_truth_at(at) ? fmt::format("i32({})", name(at))
                                 : fmt::format("{}({}.value())", carrier_type(expr_.node(at).type), name(at));
    switch (place(at)) {
      case RowPlace::uniform:
        return name(at);
      case RowPlace::row:
        return fmt::format("row.{}[{}]", name(at), in_row || facts_.spread ? "i" : "0");
      case RowPlace::element:
        break;
    }
    if (load_of(at) < 0) return name(at);
    return fmt::format("{}[{}]", name(at), is_shared_lane(load_of(at)) ? "0" : "i");
  }

  // An element divided by a value of its row, where few digits are seen of the quotient.
  bool divides_by_row(int at) const {
    const Node& node = expr_.node(at);
    const auto is_float = [&](int value) { return carrier(expr_.node(value).type) == DataType::f32; };
    return site_.short_forms && place(at) == RowPlace::element && node.kind == Node::Kind::pointwise &&
           node.pointwise.mode == PointwiseMode::div && node.pointwise.compute == DataType::f32 &&
           is_float(at) && is_float(node.args[0]) && is_float(node.args[1]) &&
           place(node.args[1]) == RowPlace::row;
  }

  std::string computed(int at, std::string_view functions, bool in_row) const {
    const Node& node = expr_.node(at);
    const Pointwise& pointwise = node.pointwise;
    if (!in_row && divides_by_row(at)) {
      const std::string quotient = fmt::format("by_{}[{}]({})", name(node.args[1]), facts_.spread ? "i" : "0",
                                               read(node.args[0], false));
      return is_rounded_by_stores(at) ? quotient : rounded(node, quotient, true);
    }
    std::string call = !in_row && shares_words(at)
                           ? fmt::format("words_{}.at(i, ", name(at))
                           : fmt::format("op_{}<{}>(", to_string(pointwise.mode), functions);
    for (int i = 0; i < info(pointwise.mode).inputs; ++i) {
      const int arg = node.args[static_cast<size_t>(i)];
      if (i > 0) call += ", ";
      const std::string value = read(arg, in_row);
      call += carrier(expr_.node(arg).type) == pointwise.compute
                  ? value
                  : fmt::format("narrow<{}>({})", device_type(pointwise.compute), value);
    }
    if (!has_default_parameters(pointwise)) call += fmt::format(", p_{}", name(at));
    call += ")";
    if (yields_truth(pointwise.mode)) return call;
    const bool in_carrier = carrier(node.type) == pointwise.compute;
    return in_carrier && is_rounded_by_stores(at) ? call : rounded(node, call, in_carrier);
  }

  // Random words that the lanes of an element's vector share.
  bool shares_words(int at) const {
    return place(at) == RowPlace::element && word_steps(site_, expr_.node(at)).step > 0;
  }
  void write_words(const std::vector<int>& needed) {
    for (const int at : needed) {
      if (!shares_words(at)) continue;
      const auto [step, first] = word_steps(site_, expr_.node(at));
      line(2, "RandomWords<N, {}, {}> words_{};", step, first, name(at));
    }
  }

  // A value that only leaves through stores of its own type is rounded by them.
  bool is_rounded_by_stores(int at) const {
    const auto reads = [&](const Node& node) { return std::ranges::find(node.args, at) != node.args.end(); };
    const auto widens = [&](const Store& store) {
      return store.node == at && store.type != expr_.node(at).type;
    };
    return std::ranges::none_of(expr_.nodes, reads) && std::ranges::none_of(expr_.stores, widens);
  }

  void write_parameters(int at) {
    const Pointwise& pointwise = expr_.node(at).pointwise;
    if (has_default_parameters(pointwise)) return;
    line(3, "Parameters<{}> p_{};", device_type(pointwise.compute), name(at));
    for (const ModeParameter& parameter : parameters_of(pointwise))
      line(3, "p_{0}.{1} = args.{0}_{1};", name(at), parameter.name);
  }

  // By-value operands that these nodes read.
  void write_scalars(const std::vector<int>& readers) {
    std::vector<bool> written(expr_.nodes.size(), false);
    const auto write = [&](int at) {
      if (at < 0 || place(at) != RowPlace::uniform || is_counted(at) || written[static_cast<size_t>(at)])
        return;
      written[static_cast<size_t>(at)] = true;
      const Node& node = expr_.node(at);
      const std::string value = fmt::format("args.{}_value", name(at));
      line(2, "const {} {} = {};", carrier_type(node.type), name(at),
           is_compute_type(node.type) ? value
                                      : fmt::format("round_to<{}>({})", device_type(node.type), value));
    };
    for (const int reader : readers) {
      write(reader);
      for (const int arg : expr_.node(reader).args) write(arg);
    }
  }

  // ---- Values of elements ----

  // The values of elements that these nodes need, themselves included, in order.
  std::vector<int> elements_behind(const std::vector<int>& targets) const {
    std::vector<bool> needed(expr_.nodes.size(), false);
    for (const int target : targets) needed[static_cast<size_t>(target)] = true;
    for (int i = node_count() - 1; i >= 0; --i) {
      if (!needed[static_cast<size_t>(i)] || place(i) != RowPlace::element || is_counted(i) ||
          load_of(i) >= 0)
        continue;
      for (const int arg : expr_.node(i).args)
        if (arg >= 0) needed[static_cast<size_t>(arg)] = true;
    }
    std::vector<int> order;
    for (int i = 0; i < node_count(); ++i)
      if (needed[static_cast<size_t>(i)]) order.push_back(i);
    return order;
  }

  // The load whose elements a value is, filled or not; -1.
  int load_of(int at) const {
    if (is_filled(at)) return expr_.node(at).args[0];
    return expr_.node(at).kind == Node::Kind::load ? at : -1;
  }
  // The largest or smallest of elements of 16 bits is found as they are stored.
  bool is_of_pairs(int total) const {
    const Node& node = expr_.node(total);
    const int load = load_of(summed(total));
    if (load < 0 || !is_taken(load) || is_shared_lane(load)) return false;
    const DataType type = expr_.node(load).type;
    const bool is_extreme =
        node.reduction.mode == ReductionMode::max || node.reduction.mode == ReductionMode::min;
    const bool is_exact = node.type == DataType::f32 || node.type == type;
    return is_extreme && is_exact && node.reduction.compute == DataType::f32 && takes_through_indices() &&
           facts_.spread && join(total) == RowJoin::none && (type == DataType::f16 || type == DataType::bf16);
  }

  // Opens the loop over lanes with all that the targets need.
  void write_elements(const std::vector<int>& targets) {
    const std::vector<int> needed = elements_behind(targets);
    for (const int at : needed)
      if (load_of(at) >= 0 && place(at) == RowPlace::element)
        line(2, "const auto {} = widen({}.{});", name(at),
             facts_.is_fixed(expr_, load_of(at)) ? "fixed" : "held", load_name(expr_, load_of(at)));
    std::vector<int> readers = needed;
    std::erase_if(readers, [&](int at) { return place(at) == RowPlace::row || load_of(at) >= 0; });
    std::vector<int> counting = needed;
    std::erase_if(counting, [&](int at) { return load_of(at) >= 0; });
    write_counted(counting);
    write_scalars(readers);
    write_divisors(needed);
    write_words(needed);
    line(0, "#pragma unroll");
    line(2, "for (int i = 0; i < N; ++i) {{");
    for (const int at : needed) {
      const Node& node = expr_.node(at);
      if (place(at) != RowPlace::element || load_of(at) >= 0 || is_counted(at)) continue;
      if (node.kind == Node::Kind::pointwise) write_parameters(at);
      const std::string value =
          node.kind == Node::Kind::index ? rounded(node, coordinate(at), false) : computed(at, "Fn", false);
      line(3, "const {} {} = {};{}", carrier_type(node.type), name(at), value, comment_of(node.op));
    }
  }

  void write_divisors(const std::vector<int>& needed) {
    std::vector<int> written;
    for (const int at : needed) {
      if (!divides_by_row(at)) continue;
      const int divisor = expr_.node(at).args[1];
      if (std::ranges::find(written, divisor) != written.end()) continue;
      written.push_back(divisor);
      line(2, "Vec<ShortDivisor, W> by_{};", name(divisor));
      line(0, "#pragma unroll");
      line(2, "for (int i = 0; i < W; ++i) by_{0}[i] = ShortDivisor(row.{0}[i]);", name(divisor));
    }
  }

  // Windows' sites are given coordinates of which more is known than their values: axis<0>(), axis<1>() ...
  std::string at_parameter() const {
    return takes_through_indices() ? "const At& at" : "const Index (&at)[kRank]";
  }
  std::string at(int axis) const {
    return takes_through_indices() ? fmt::format("at.template axis<{}>()", axis)
                                   : fmt::format("at[{}]", axis);
  }

  std::vector<std::string> element_arguments() const {
    return {"const Args& args",    at_parameter(),          "int count",
            "const Held<N>& held", "const Fixed<N>& fixed", "const Row<W>& row"};
  }

  RowJoin join(int total) const { return facts_.joins[static_cast<size_t>(total)]; }
  int summed(int total) const { return facts_.summed[static_cast<size_t>(total)]; }
  int giver(int total) const { return facts_.giver[static_cast<size_t>(total)]; }
  // Whether the totals of all lanes take one more element each, and share what that makes of their counts.
  bool takes_steps(int total) const { return join(total) == RowJoin::deviation && facts_.spread; }
  // Whether the lanes of a vector are added together.
  bool takes_lanes(int total) const { return join(total) != RowJoin::none && !facts_.spread; }

  void write_addition(int total, std::string_view into) {
    const DataType compute = expr_.node(total).reduction.compute;
    const int arg = summed(total);
    const std::string value = read(arg, false);
    if (is_of_pairs(total)) return;
    if (takes_lanes(total)) return line(3, "lanes_{}[i] = {};", name(total), value);
    if (const Node* const select = selects_or_adds_nothing(total))
      return line(3, "if (i < count) {}.{}.add_where({} != 0, {});", into, name(total),
                  read(select->args[2], false), read(select->args[0], false));
    if (takes_steps(total)) return line(3, "{}.{}.add({}, step_{});", into, name(total), value, name(total));
    line(3, "if (i < count) {}.{}.add({});", into, name(total),
         carrier(expr_.node(arg).type) == compute
             ? value
             : fmt::format("narrow<{}>({})", device_type(compute), value));
  }

  // The choice between a value and zero that a total adds, or null: sums begin at +0, so that a zero of
  // either sign leaves them as they are.
  const Node* selects_or_adds_nothing(int total) const {
    const auto is_plain = [](const Node& node) {
      return node.kind == Node::Kind::pointwise && node.pointwise.mode == PointwiseMode::binary_select &&
             node.type == DataType::f32 && node.pointwise.compute == DataType::f32;
    };
    const Reduction& reduction = expr_.node(total).reduction;
    const Node& value = expr_.node(summed(total));
    if (reduction.mode != ReductionMode::add || reduction.compute != DataType::f32 || !is_plain(value))
      return nullptr;
    const Node& other = expr_.node(value.args[1]);
    const bool is_zero = other.kind == Node::Kind::index && is_number(other) && other.access.offset == 0;
    return is_zero && carrier(expr_.node(value.args[0]).type) == DataType::f32 ? &value : nullptr;
  }

  // The loop over lanes in which these totals grow.
  void write_additions(const std::vector<int>& totals, std::string_view into) {
    for (const int total : totals)
      if (takes_lanes(total))
        line(2, "Vec<{}, N> lanes_{};", device_type(expr_.node(total).reduction.compute), name(total));
    for (const int total : totals)
      if (takes_steps(total)) line(2, "const auto step_{0} = totals[0].{0}.next();", name(total));
    write_elements(arguments_of(totals));
    for (const int total : totals) write_addition(total, into);
    line(2, "}}");
    for (const int total : totals)
      if (takes_lanes(total)) line(2, "{}.{}.add_lanes(lanes_{}, count);", into, name(total), name(total));
    for (const int total : totals) {
      if (!is_of_pairs(total)) continue;
      line(0, "#pragma unroll");
      line(2, "for (int i = 0; i < N; i += 2) {}.{}.add(pair_of({}, i));", into, name(total),
           "held." + load_name(expr_, load_of(summed(total))));
    }
  }

  std::string reduction_type(int total) const {
    const Reduction& reduction = expr_.node(total).reduction;
    if (is_of_pairs(total))
      return fmt::format("reduction_{}_of_pairs<{}>", to_string(reduction.mode),
                         device_type(expr_.node(summed(total)).type));
    const std::string_view joined[] = {to_string(reduction.mode), "exp_sum", "deviation"};
    return fmt::format("reduction_{}<{}>", joined[static_cast<size_t>(join(total))],
                       device_type(reduction.compute));
  }

  void write_accumulators(std::string_view type, const std::vector<int>& totals) {
    const auto for_each = [&](std::string_view format) {
      for (const int total : totals) line(3, "{}", fmt::format(fmt::runtime(format), name(total)));
    };
    line(1, "struct {} {{", type);
    for (const int total : totals)
      line(2, "{} {};{}", reduction_type(total), name(total), comment_of(expr_.node(total).op));
    line(2, "__device__ __forceinline__ void init() {{");
    for_each("{0}.init();");
    line(2, "}}");
    line(2, "__device__ __forceinline__ void combine(const {}& other) {{", type);
    for_each("{0}.combine(other.{0});");
    line(2, "}}");
    line(1, "}};");
  }

  std::vector<int> arguments_of(const std::vector<int>& totals) const {
    std::vector<int> args;
    args.reserve(totals.size());
    for (const int total : totals) args.push_back(summed(total));
    return args;
  }

  void write_phase(int phase) {
    std::vector<int> totals;
    for (int i = 0; i < node_count(); ++i)
      if (is_reduce(expr_.node(i)) && !is_column(i) && giver(i) == i && level(i) == phase + 1)
        totals.push_back(i);
    write_accumulators(fmt::format("Totals{}", phase), totals);
    line(1, "static __device__ Totals{0} totals(Phase<{0}>);", phase);
    std::vector<std::string> arguments = element_arguments();
    arguments.insert(arguments.begin(), fmt::format("Phase<{}>", phase));
    arguments.push_back(fmt::format("Totals{} (&totals)[W]", phase));
    begin_function("int N, int W", "void", "add", arguments);
    write_additions(totals, facts_.spread ? "totals[i]" : "totals[0]");
    line(1, "}}");
    begin_function("int W", "void", "settle",
                   {fmt::format("Phase<{}>", phase), "const Args& args", at_parameter(),
                    fmt::format("const Totals{} (&totals)[W]", phase), "Row<W>& row"});
    write_row_values(phase + 1);
    line(1, "}}");
  }

  // ---- Stores ----

  bool is_column_store(const Store& store) const {
    return is_reduce(expr_.node(store.node)) && is_column(store.node);
  }
  bool is_element_store(const Store& store) const { return facts_.is_element_store(expr_, store); }

  void write_store(int at, std::string_view count) {
    const Store& store = expr_.stores[static_cast<size_t>(at)];
    const std::string base = store_name(at), type = device_type(store.type);
    const std::string pointer = is_packed(store.type)
                                    ? fmt::format("PackedPlace<{0}>{{args.{1}, args.{1}_first}}", type, base)
                                    : "args." + base;
    const std::string to = address(base, store.access, pointer);
    const std::string elements = fmt::format("narrow<{}>(r{})", type, at);
    switch (step(store.access)) {
      case LaneStep::broadcast:
        return line(2, "store_strided({}, 0, {}, {} < 1 ? {} : 1);", to, elements, count, count);
      case LaneStep::strided:
        return line(2, "store_strided({}, args.{}_stride{}, {}, {});", to, base, site_.vector_axis, elements,
                    count);
      case LaneStep::adjacent:
        break;
    }
    if (store.access.whole_vectors)
      line(2, "{}({}, {}, {});", whole_store(store), to, elements, count);
    else
      line(2, "store_strided({}, 1, {}, {});", to, elements, count);
  }

  void write_finish() {
    std::vector<int> stores, targets;
    for (int i = 0; i < std::ssize(expr_.stores); ++i) {
      const Store& store = expr_.stores[static_cast<size_t>(i)];
      if (!is_element_store(store)) continue;
      stores.push_back(i);
      targets.push_back(store.node);
    }
    line(1, "static constexpr bool kStoresElements = {};", !stores.empty());
    begin_function("int N, int W", "void", "finish", element_arguments());
    if (!stores.empty()) {
      for (const int at : stores)
        line(2, "Vec<{}, N> r{};", carrier_type(expr_.node(expr_.stores[static_cast<size_t>(at)].node).type),
             at);
      write_elements(targets);
      for (const int at : stores)
        line(3, "r{}[i] = {};", at, read(expr_.stores[static_cast<size_t>(at)].node, false));
      line(2, "}}");
      for (const int at : stores) write_store(at, "count");
    }
    line(1, "}}");
  }

  // Writes the stores of one value a row.
  void write_finish_row() {
    begin_function("int W", "void", "finish_row", {"const Args& args", at_parameter(), "const Row<W>& row"});
    for (int i = 0; i < std::ssize(expr_.stores); ++i) {
      const Store& store = expr_.stores[static_cast<size_t>(i)];
      if (is_column_store(store) || is_element_store(store)) continue;
      if (place(store.node) == RowPlace::uniform) {
        write_scalars({store.node});
        line(2, "const Vec<{}, 1> r{} = {{{{{}}}}};", carrier_type(expr_.node(store.node).type), i,
             name(store.node));
      } else {
        line(2, "const auto& r{} = row.{};", i, name(store.node));
      }
      if (facts_.spread)
        write_store(i, "W");
      else
        line(2, "store({}, narrow<{}>(r{}[0]));", address(store_name(i), store.access),
             device_type(store.type), i);
    }
    line(1, "}}");
  }

  // ---- Totals of columns ----

  void write_columns() {
    std::vector<int> totals;
    for (int i = 0; i < node_count(); ++i)
      if (is_reduce(expr_.node(i)) && is_column(i)) totals.push_back(i);
    write_accumulators("Columns", totals);
    std::vector<std::string> arguments = element_arguments();
    arguments.emplace_back("Columns (&columns)[N]");
    begin_function("int N, int W", "void", "add_columns", arguments);
    if (!totals.empty()) {
      write_additions(totals, "columns[i]");
    }
    line(1, "}}");
    begin_function("", "void", "finish_column", {"const Args& args", at_parameter(), "const Columns& total"});
    for (int i = 0; i < std::ssize(expr_.stores); ++i) {
      const Store& store = expr_.stores[static_cast<size_t>(i)];
      if (!is_column_store(store)) continue;
      const Node& node = expr_.node(store.node);
      const bool counts = node.reduction.mode == ReductionMode::avg;
      line(2, "store({}, narrow<{}>(total.{}.result({})));", address(store_name(i), store.access),
           device_type(store.type), name(store.node),
           counts ? fmt::format("args.{}_count", name(store.node)) : std::string());
    }
    line(1, "}}");
  }

  const KernelSite& site_;
  const Expr& expr_;
  const SourceNames* names_;
  const RowFacts facts_;
  std::vector<bool> counted_;
  std::vector<std::string> names_of_;
  std::string text_;
};

}  // namespace

std::string emit_row_site(const KernelSite& site, const SourceNames* names) {
  return RowSiteWriter(site, names).write();
}

}  // namespace fusor
