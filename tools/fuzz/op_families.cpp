// Owns the table of random ops: a family without a Proposer does not compile.
#include "tools/fuzz/op_families.h"

#include <array>
#include <utility>

#include "tools/fuzz/families/attention.h"
#include "tools/fuzz/families/basic.h"
#include "tools/fuzz/families/rows.h"
#include "tools/fuzz/families/sequences.h"
#include "tools/fuzz/families/windows.h"

namespace fusor::fuzz {

/// Families of programs that use the library: there are none to propose.
template <>
struct Proposer<Composite> {
  static constexpr int kShare = 0;

  static std::optional<Proposal> propose(Draft&) { return std::nullopt; }
};

namespace {

template <size_t... I>
constexpr auto rows(std::index_sequence<I...>) {
  return std::array{OpFamily{Proposer<std::variant_alternative_t<I, Attributes>>::kShare,
                             &Proposer<std::variant_alternative_t<I, Attributes>>::propose}...};
}

constexpr auto kFamilies = rows(std::make_index_sequence<std::variant_size_v<Attributes>>());

}  // namespace

std::span<const OpFamily> op_families() { return kFamilies; }

}  // namespace fusor::fuzz
