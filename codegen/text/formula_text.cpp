// Owns how a formula of core/pointwise.def becomes text of a kernel.
#include "codegen/text/formula_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "codegen/text/device_types.h"

namespace fusor {

namespace {

constexpr std::array<std::string_view, 3> kOperands = {"a", "b", "c"};

// "(a + b)" ..., in the order of the modes.
constexpr std::array kFormulas = {
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula) std::string_view(#formula),
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
};

std::string_view formula_of(PointwiseMode mode) {
  std::string_view formula = kFormulas[static_cast<size_t>(mode)];
  formula.remove_prefix(1);
  formula.remove_suffix(1);
  return formula;
}

bool is_part_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Calls visit(word) for each name or number, and visit(character) for what stands between them.
template <class Visit>
void for_each_word(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_part_of_word(text[end])) ++end;
    if (end == at) ++end;
    visit(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace

bool reads_parameters(PointwiseMode mode) {
  bool reads = false;
  for_each_word(formula_of(mode), [&](std::string_view word) { reads |= word == "p"; });
  return reads;
}

std::string formula_text(const Pointwise& pointwise, std::string_view functions,
                         std::span<const std::string> operands, std::string_view parameters) {
  if (reads_parameters(pointwise.mode))
    return fmt::format("op_{}<{}>({}{}{})", to_string(pointwise.mode), functions, fmt::join(operands, ", "),
                       parameters.empty() ? "" : ", ", parameters);
  std::string text;
  for_each_word(formula_of(pointwise.mode), [&](std::string_view word) {
    const auto operand = std::ranges::find(kOperands, word);
    if (operand != kOperands.end())
      text += operands[static_cast<size_t>(operand - kOperands.begin())];
    else if (word == "T")
      text += device_type(pointwise.compute);
    else
      text += word == "fn" ? functions : word;
  });
  return text;
}

}  // namespace fusor
