// Owns how the formulas of a rows site read, compute and round.
#include "codegen/text/rows/formulas.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/text/device_types.h"
#include "codegen/text/formula_text.h"
#include "codegen/text/rounding_facts.h"
#include "codegen/text/word_facts.h"

namespace fusor {

std::string RowFormulas::rounded(const Node& node, const std::string& value, bool in_carrier) {
  if (!is_compute_type(node.type)) return fmt::format("round_to<{}>({})", device_type(node.type), value);
  return in_carrier ? value : fmt::format("narrow<{}>({})", device_type(node.type), value);
}

std::string RowFormulas::coordinate(int at) const {
  const Node& node = expr_.node(at);
  std::string where =
      node.axis == site_.vector_axis ? fmt::format("({} + i)", this->at(node.axis)) : this->at(node.axis);
  if (is_number(node)) return fmt::format("Index({})", node.access.offset);
  if (is_plain_coordinate(node)) return where;
  return fmt::format("{0} * args.{1}_scale + args.{1}_offset", index_text(node, where), name(at));
}

std::string RowFormulas::read(int at, bool in_row) const {
  if (numbers_.is_counted(at)) return numbers_.value(at);
  switch (place(at)) {
    case RowPlace::uniform:
      return name(at);
    case RowPlace::row:
      return fmt::format("row.{}[{}]", name(at), in_row || is_spread() ? "i" : "0");
    case RowPlace::element:
      break;
  }
  const int load = nodes_.load_of(at);
  if (load < 0) return name(at);
  return fmt::format("{}[{}]", name(at), is_shared_lane(load) ? "0" : "i");
}

// An element divided by a value of its row, where few digits are seen of the quotient.
bool RowFormulas::divides_by_row(int at) const {
  const Node& node = expr_.node(at);
  const auto is_float = [&](int value) { return carrier(expr_.node(value).type) == DataType::f32; };
  return site_.short_forms && place(at) == RowPlace::element && node.kind == Node::Kind::pointwise &&
         node.pointwise.mode == PointwiseMode::div && node.pointwise.compute == DataType::f32 &&
         is_float(at) && is_float(node.args[0]) && is_float(node.args[1]) &&
         place(node.args[1]) == RowPlace::row;
}

std::string RowFormulas::computed(int at, std::string_view functions, bool in_row) const {
  const Node& node = expr_.node(at);
  const Pointwise& pointwise = node.pointwise;
  if (!in_row && divides_by_row(at)) {
    const std::string quotient =
        fmt::format("by_{}[{}]({})", name(node.args[1]), is_spread() ? "i" : "0", read(node.args[0], false));
    return nodes_.is_rounded_by_stores(at) ? quotient : rounded(node, quotient, true);
  }
  const bool chooses = chooses_elements(expr_, node);
  std::vector<std::string> operands;
  for (int i = 0; i < info(pointwise.mode).inputs; ++i) {
    const int arg = node.args[static_cast<size_t>(i)];
    const bool is_rounded = chooses && is_chosen_scalar(expr_, node, i);
    const std::string value = is_rounded ? rounded(node, read(arg, in_row), true) : read(arg, in_row);
    operands.push_back(carrier(expr_.node(arg).type) == pointwise.compute
                           ? value
                           : fmt::format("narrow<{}>({})", device_type(pointwise.compute), value));
  }
  std::string value =
      !in_row && shares_words(at)
          ? fmt::format("words_{}.at(i, {})", name(at), fmt::join(operands, ", "))
          : formula_text(pointwise, functions, operands,
                         has_default_parameters(pointwise) ? "" : fmt::format("p_{}", name(at)));
  if (yields_truth(pointwise.mode) || chooses) return value;
  const bool in_carrier = carrier(node.type) == pointwise.compute;
  return in_carrier && nodes_.is_rounded_by_stores(at) ? value : rounded(node, value, in_carrier);
}

void RowFormulas::write_parameters(int at) {
  const Pointwise& pointwise = expr_.node(at).pointwise;
  if (has_default_parameters(pointwise)) return;
  line(3, "Parameters<{}> p_{};", device_type(pointwise.compute), name(at));
  for (const ModeParameter& parameter : parameters_of(pointwise))
    line(3, "p_{0}.{1} = args.{0}_{1};", name(at), parameter.name);
}

void RowFormulas::write_scalars(const std::vector<int>& readers) {
  std::vector<bool> written(expr_.nodes.size(), false);
  const auto write = [&](int at) {
    if (at < 0 || place(at) != RowPlace::uniform || numbers_.is_counted(at) ||
        written[static_cast<size_t>(at)])
      return;
    written[static_cast<size_t>(at)] = true;
    const Node& node = expr_.node(at);
    const std::string value = fmt::format("args.{}_value", name(at));
    line(2, "const {} {} = {};", carrier_type(node.type), name(at),
         is_compute_type(node.type) ? value : fmt::format("round_to<{}>({})", device_type(node.type), value));
  };
  for (const int reader : readers) {
    write(reader);
    for (const int arg : expr_.node(reader).args) write(arg);
  }
}

bool RowFormulas::shares_words(int at) const {
  return place(at) == RowPlace::element && word_steps(site_, expr_.node(at)).step > 0;
}

void RowFormulas::write_words(const std::vector<int>& needed) {
  for (const int at : needed) {
    if (!shares_words(at)) continue;
    const auto [step, first] = word_steps(site_, expr_.node(at));
    line(2, "RandomWords<N, {}, {}> words_{};", step, first, name(at));
  }
}

void RowFormulas::write_divisors(const std::vector<int>& needed) {
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

}  // namespace fusor
