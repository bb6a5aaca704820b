// Owns how the totals of a rows site are declared, grow over elements, and are settled once a row.
#include "codegen/text/rows/totals.h"

#include "codegen/text/device_types.h"

namespace fusor {

// Whether the totals of all lanes take one more element each, and share what that makes of their counts.
bool RowTotals::takes_steps(int total) const {
  return nodes_.join(total) == RowJoin::deviation && is_spread();
}

// Whether the lanes of a vector are added together.
bool RowTotals::takes_lanes(int total) const { return nodes_.join(total) != RowJoin::none && !is_spread(); }

void RowTotals::write_addition(int total, std::string_view into) {
  const DataType compute = expr_.node(total).reduction.compute;
  const int arg = nodes_.summed(total);
  const std::string value = formulas_.read(arg, false);
  const std::string_view where_exists = site_.tails ? "if (i < count) " : "";
  if (nodes_.is_of_pairs(total)) return;
  if (takes_lanes(total)) return line(3, "lanes_{}[i] = {};", name(total), value);
  if (const Node* const select = nodes_.selects_or_adds_nothing(total))
    return line(3, "{}{}.{}.add_where({} != 0, {});", where_exists, into, name(total),
                formulas_.read(select->args[2], false), formulas_.read(select->args[0], false));
  if (takes_steps(total)) return line(3, "{}.{}.add({}, step_{});", into, name(total), value, name(total));
  line(3, "{}{}.{}.add({});", where_exists, into, name(total),
       carrier(expr_.node(arg).type) == compute ? value
                                                : fmt::format("narrow<{}>({})", device_type(compute), value));
}

// The loop over lanes in which these totals grow.
void RowTotals::write_additions(const std::vector<int>& totals, std::string_view into) {
  for (const int total : totals)
    if (takes_lanes(total))
      line(2, "Vec<{}, N> lanes_{};", device_type(expr_.node(total).reduction.compute), name(total));
  for (const int total : totals)
    if (takes_steps(total)) line(2, "const auto step_{0} = totals[0].{0}.next();", name(total));
  elements_.write_elements(arguments_of(totals));
  for (const int total : totals) write_addition(total, into);
  line(2, "}}");
  for (const int total : totals)
    if (takes_lanes(total))
      line(2, "{}.{}.add_lanes(lanes_{}{});", into, name(total), name(total), up_to("count"));
  for (const int total : totals) {
    if (!nodes_.is_of_pairs(total)) continue;
    line(0, "#pragma unroll");
    line(2, "for (int i = 0; i < N; i += 2) {}.{}.add(pair_of({}, i));", into, name(total),
         "held." + load_name(expr_, nodes_.load_of(nodes_.summed(total))));
  }
}

std::string RowTotals::reduction_type(int total) const {
  const Reduction& reduction = expr_.node(total).reduction;
  if (nodes_.is_of_pairs(total))
    return fmt::format("reduction_{}_of_pairs<{}>", to_string(reduction.mode),
                       device_type(expr_.node(nodes_.summed(total)).type));
  const std::string_view joined[] = {to_string(reduction.mode), "exp_sum", "deviation"};
  return fmt::format("reduction_{}<{}>", joined[static_cast<size_t>(nodes_.join(total))],
                     device_type(reduction.compute));
}

void RowTotals::write_accumulators(std::string_view type, const std::vector<int>& totals) {
  const auto for_each = [&](std::string_view format) {
    for (const int total : totals) line(3, "{}", fmt::format(fmt::runtime(format), name(total)));
  };
  line(1, "struct {} {{", type);
  for (const int total : totals)
    line(2, "{} {};{}", reduction_type(total), name(total), nodes_.comment_of(expr_.node(total).op));
  line(2, "__device__ __forceinline__ void init() {{");
  for_each("{0}.init();");
  line(2, "}}");
  line(2, "__device__ __forceinline__ void combine(const {}& other) {{", type);
  for_each("{0}.combine(other.{0});");
  line(2, "}}");
  line(1, "}};");
}

std::vector<int> RowTotals::arguments_of(const std::vector<int>& totals) const {
  std::vector<int> args;
  args.reserve(totals.size());
  for (const int total : totals) args.push_back(nodes_.summed(total));
  return args;
}

void RowTotals::write_phase(int phase) {
  std::vector<int> totals;
  for (int i = 0; i < node_count(); ++i)
    if (is_reduce(expr_.node(i)) && !nodes_.is_column(i) && nodes_.giver(i) == i &&
        nodes_.level(i) == phase + 1)
      totals.push_back(i);
  write_accumulators(fmt::format("Totals{}", phase), totals);
  line(1, "static __device__ Totals{0} totals(Phase<{0}>);", phase);
  std::vector<std::string> arguments = elements_.element_arguments();
  arguments.insert(arguments.begin(), fmt::format("Phase<{}>", phase));
  arguments.push_back(fmt::format("Totals{} (&totals)[W]", phase));
  begin_function("int N, int W", "void", "add", arguments);
  write_additions(totals, is_spread() ? "totals[i]" : "totals[0]");
  line(1, "}}");
  begin_function("int W", "void", "settle",
                 {fmt::format("Phase<{}>", phase), "const Args& args", at_parameter(),
                  fmt::format("const Totals{} (&totals)[W]", phase), "Row<W>& row"});
  values_.write_row_values(phase + 1);
  line(1, "}}");
}

void RowTotals::write_columns() {
  std::vector<int> totals;
  for (int i = 0; i < node_count(); ++i)
    if (is_reduce(expr_.node(i)) && nodes_.is_column(i)) totals.push_back(i);
  write_accumulators("Columns", totals);
  std::vector<std::string> arguments = elements_.element_arguments();
  arguments.emplace_back("Columns (&columns)[N]");
  begin_function("int N, int W", "void", "add_columns", arguments);
  if (!totals.empty()) {
    write_additions(totals, "columns[i]");
  }
  line(1, "}}");
}

}  // namespace fusor
