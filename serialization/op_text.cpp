// Owns the text of each kind of op: the rows of op_text.def, and the formulas of core/pointwise.def made
// readable.
#include "serialization/op_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ops/pointwise.h"

namespace fusor {

namespace {

struct TextRow {
  std::string_view kind, formula, shapes, types, errors;
};

constexpr auto kTextRows = std::to_array<TextRow>({
#define FUSOR_OP_TEXT(kind, formula, shapes, types, errors) {#kind, formula, shapes, types, errors},
#include "serialization/op_text.def"
#undef FUSOR_OP_TEXT
});

/// In the order of the modes, as the table has them.
constexpr auto kFormulas = std::to_array<std::string_view>({
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula) #formula,
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
});

/// Formula of each function whose name is not common.
constexpr auto kMeanings = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"normal_cdf(", "normal_cdf(t) = (1 + erf(t / sqrt(2))) / 2"},
    {"normal_pdf(", "normal_pdf(t) = exp(-t * t / 2) / sqrt(2 * pi)"},
    {"gated_slope(",
     "gated_slope(u, v) = sigmoid(u) * (1 + v * sigmoid(-u)); sigmoid(t) = 1 / (1 + exp(-t))"},
    {"logistic_slope(", "logistic_slope(t) = sigmoid(t) * (1 - sigmoid(t))"},
    {" sigmoid(", "sigmoid(t) = 1 / (1 + exp(-t))"},
    {"expm1(", "expm1(t) = exp(t) - 1"},
    {"log1p(", "log1p(t) = log(1 + t)"},
    {"mod(", "mod(a, b) = the remainder of a / b, with the sign of a"},
    {"philox(",
     "philox = word number index of the stream of Philox 4x32-10 under key seed: word index mod 4 of the "
     "block of counter "
     "(offset, index / 4)"},
});

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The place of the bracket that closes the one at `open`.
size_t closing(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0) return i;
  }
  return text.size() - 1;
}

std::string without_outer(std::string text) {
  while (text.size() > 1 && text.front() == '(' && closing(text, 0) == text.size() - 1)
    text = text.substr(1, text.size() - 2);
  return text;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// In brackets, if an operator beside it could take it apart: if it is more than a word or one call.
std::string as_operand(const std::string& text) {
  const size_t open = text.find('(');
  const bool is_call = open != std::string::npos && closing(text, open) == text.size() - 1;
  const std::string_view head = std::string_view(text).substr(0, is_call ? open : text.size());
  return std::ranges::all_of(head, is_word) ? text : "(" + text + ")";
}

std::vector<std::string> arguments(std::string_view inside) {
  std::vector<std::string> found(1);
  int depth = 0;
  for (const char c : inside) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0)
      found.emplace_back();
    else if (c != ' ' || !found.back().empty())
      found.back() += c;
  }
  return found;
}

/// Replaces each call of a function by what `written` makes of its arguments.
template <class Written>
void write_calls(std::string& text, std::string_view function, const Written& written) {
  for (size_t at = text.find(function); at != std::string::npos; at = text.find(function, at)) {
    const size_t open = at + function.size() - 1, close = closing(text, open);
    const std::string instead = written(arguments(std::string_view(text).substr(open + 1, close - open - 1)));
    text.replace(at, close + 1 - at, instead);
  }
}

/// The operands a, b, c by the names of their roles.
std::string named(std::string_view text, const std::vector<Role>& operands) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string_view word = text.substr(i, end - i);
    const auto operand = word.size() == 1 ? static_cast<size_t>(word[0] - 'a') : operands.size();
    result += word.empty() ? text.substr(i, 1) : operand < operands.size() ? operands[operand].name : word;
    i = std::max(end, i + 1);
  }
  return result;
}

/// The formula of core/pointwise.def as a reader has it: clips that only keep infinities from meeting zeros
/// are left out.
std::string readable(std::string_view formula, const std::vector<Role>& operands) {
  std::string text(formula);
  replace_all(text, "fn::", "");
  replace_all(text, "p.", "");
  for (size_t at = text.find("T("); at != std::string::npos; at = text.find("T(", at))
    text = text.substr(0, at) + text.substr(at + 2, closing(text, at + 1) - at - 2) +
           text.substr(closing(text, at + 1) + 1);
  write_calls(text, "clip(", [](const auto& of) { return as_operand(of[0]); });
  write_calls(text, "multiply_add(", [](const auto& of) {
    return "(" + as_operand(of[0]) + " * " + as_operand(of[1]) + " + " + of[2] + ")";
  });
  write_calls(text, "div(", [](const auto& of) { return as_operand(of[0]) + " / " + as_operand(of[1]); });
  return named(without_outer(text), operands);
}

std::string pointwise_formula(const Pointwise& op) {
  if (op.mode == PointwiseMode::gen_index) return "y = the coordinate of the element along axis";
  const std::string text = "y = " + readable(kFormulas[static_cast<size_t>(op.mode)], op.roles().inputs);
  std::string result = text;
  for (const auto& [function, meaning] : kMeanings)
    if (text.find(function) != std::string::npos) result += "; " + std::string(meaning);
  return result;
}

std::string_view pointwise_types(const Pointwise& op) {
  if (gives_words(op.mode)) return "integers, computed in int64; y is int64";
  switch (info(op.mode).domain) {
    case PointwiseDomain::real:
      return "real: integers are converted, computed in fp32, or in fp64 where an operand is fp64";
    case PointwiseDomain::any:
      return "any: computed in fp32, in fp64 where an operand is fp64, in int32 or int64 where all are "
             "integers";
    case PointwiseDomain::compare:
      return "any; y is 0 or 1, bool8 where no type is said";
    case PointwiseDomain::logical:
      return "any, not zero is true; y is 0 or 1, bool8 where no type is said";
    case PointwiseDomain::index:
      return "x any, only its dims count; y is int32, or int64 where the extent needs it";
  }
  return {};
}

OpText pointwise_text(const Pointwise& op) {
  std::string errors = "an attribute that the mode does not have";
  if (info(op.mode).inputs > 1) errors = "operands that do not broadcast; " + errors;
  if (op.has("upper_clip")) errors += "; lower_clip above upper_clip";
  if (op.has("softplus_beta")) errors += "; softplus_beta 0";
  if (info(op.mode).domain == PointwiseDomain::real) errors += "; an integer compute type";
  return {pointwise_formula(op),
          info(op.mode).inputs > 1
              ? "operands broadcast: trailing axes aligned, equal extents or 1; y: the larger extents"
              : "x, y: equal dims",
          std::string(pointwise_types(op)), errors};
}

}  // namespace

OpText op_text(const Attributes& kind) {
  if (const auto* op = std::get_if<Pointwise>(&kind)) return pointwise_text(*op);
  const auto row = std::ranges::find(kTextRows, kind_name(kind), &TextRow::kind);
  if (row == kTextRows.end()) return {};
  return {std::string(row->formula), std::string(row->shapes), std::string(row->types),
          std::string(row->errors)};
}

}  // namespace fusor
