// Owns Support: an engine's answer to a fusion, yes or a refusal as data.
#pragma once

#include <optional>
#include <string>

#include "core/api.h"

namespace fusor {

/// Why an engine does not take a fusion.
struct Refusal {
  std::string rule;    ///< stable, short: "needs-anchor", "one-reduction-mask"
  std::string node;    ///< the op's name
  std::string tensor;  ///< the tensor's name, or empty
  std::string expected;
  std::string actual;
  std::string remedy;  ///< what would make it accepted
  int op = -1;         ///< graph op at which the planner may cut, or -1
};

struct Support {
  std::optional<Refusal> refusal;
  explicit operator bool() const { return !refusal; }
  static Support yes() { return {}; }
  static Support no(Refusal why) { return {std::move(why)}; }
};

/// "rule 'contiguous-k' at op 'c1', tensor 'x': expected ..., got ...; remedy". Op, tensor and remedy are
/// left out where they are empty.
FUSOR_API std::string to_string(const Refusal& refusal);

}  // namespace fusor
