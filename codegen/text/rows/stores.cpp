// Owns how the results of a rows site leave for memory.
#include "codegen/text/rows/stores.h"

#include <iterator>
#include <vector>

#include "codegen/text/device_types.h"

namespace fusor {

bool RowStores::is_column_store(const Store& store) const {
  return is_reduce(expr_.node(store.node)) && nodes_.is_column(store.node);
}

bool RowStores::is_element_store(const Store& store) const {
  return nodes_.facts().is_element_store(expr_, store);
}

void RowStores::write_store(int at, std::string_view count) {
  const Store& store = expr_.stores[static_cast<size_t>(at)];
  const std::string base = store_name(at), type = device_type(store.type);
  const std::string pointer = is_packed(store.type)
                                  ? fmt::format("PackedPlace<{0}>{{args.{1}, args.{1}_first}}", type, base)
                                  : "args." + base;
  const std::string to = address(base, store.access, pointer);
  const std::string elements = fmt::format("narrow<{}>(r{})", type, at);
  switch (step(store.access)) {
    case LaneStep::broadcast:
      return line(2, "store_strided({}, 0, {}, {});", to, elements,
                  site_.tails ? fmt::format("{0} < 1 ? {0} : 1", count) : "1");
    case LaneStep::strided:
      return line(2, "store_strided({}, args.{}_stride{}, {}{});", to, base, site_.vector_axis, elements,
                  up_to(count));
    case LaneStep::adjacent:
      break;
  }
  if (store.access.whole_vectors)
    line(2, "{}({}, {}{});", whole_store(store), to, elements, up_to(count));
  else
    line(2, "store_strided({}, 1, {}{});", to, elements, up_to(count));
}

void RowStores::write_finish() {
  std::vector<int> stores, targets;
  for (int i = 0; i < std::ssize(expr_.stores); ++i) {
    const Store& store = expr_.stores[static_cast<size_t>(i)];
    if (!is_element_store(store)) continue;
    stores.push_back(i);
    targets.push_back(store.node);
  }
  line(1, "enum : bool {{ kStoresElements = {} }};", !stores.empty());
  begin_function("int N, int W", "void", "finish", elements_.element_arguments());
  if (!stores.empty()) {
    for (const int at : stores)
      line(2, "Vec<{}, N> r{};", carrier_type(expr_.node(expr_.stores[static_cast<size_t>(at)].node).type),
           at);
    elements_.write_elements(targets);
    for (const int at : stores)
      line(3, "r{}[i] = {};", at, formulas_.read(expr_.stores[static_cast<size_t>(at)].node, false));
    line(2, "}}");
    for (const int at : stores) write_store(at, "count");
  }
  line(1, "}}");
}

void RowStores::write_finish_row() {
  begin_function("int W", "void", "finish_row", {"const Args& args", at_parameter(), "const Row<W>& row"});
  for (int i = 0; i < std::ssize(expr_.stores); ++i) {
    const Store& store = expr_.stores[static_cast<size_t>(i)];
    if (is_column_store(store) || is_element_store(store)) continue;
    if (place(store.node) == RowPlace::uniform) {
      formulas_.write_scalars({store.node});
      line(2, "const Vec<{}, 1> r{} = {{{{{}}}}};", carrier_type(expr_.node(store.node).type), i,
           name(store.node));
    } else {
      line(2, "const auto& r{} = row.{};", i, name(store.node));
    }
    if (is_spread())
      write_store(i, "W");
    else
      line(2, "store({}, narrow<{}>(r{}[0]));", address(store_name(i), store.access), device_type(store.type),
           i);
  }
  line(1, "}}");
}

void RowStores::write_finish_column() {
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

}  // namespace fusor
