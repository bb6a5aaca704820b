// Owns the wording of refusals and the names that fusions carry for them.
#include "core/support.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/fusion.h"

namespace fusor {

std::string to_string(const Refusal& refusal) {
  std::string text = fmt::format("rule '{}'", refusal.rule);
  if (!refusal.node.empty()) text += fmt::format(" at op '{}'", refusal.node);
  if (!refusal.tensor.empty()) text += fmt::format(", tensor '{}'", refusal.tensor);
  text += fmt::format(": expected {}, got {}", refusal.expected, refusal.actual);
  if (!refusal.remedy.empty()) text += fmt::format("; {}", refusal.remedy);
  return text;
}

const std::string& Fusion::op_name(int op) const {
  static const std::string kNone;
  const auto found = std::ranges::find(ops, op);
  if (found == ops.end()) return kNone;
  return op_names[static_cast<size_t>(found - ops.begin())];
}

}  // namespace fusor
