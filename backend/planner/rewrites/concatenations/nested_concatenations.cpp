// Owns the search for concatenations that are parts of others.
#include "backend/planner/rewrites/concatenations/nested_concatenations.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>

#include "core/attributes.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// Later concatenations of one operand that are looked at.
constexpr int kMostLater = 8;
// Shorter rows than two sectors leave most of what memory moves unread.
constexpr int64_t kShortestRow = 64;
constexpr int64_t kWidestAccess = 16;

class Nests {
 public:
  explicit Nests(const Graph& graph) : graph_(graph), index_(graph) {}

  std::map<int, Nest> found() const {
    std::map<int, Nest> found;
    // Last ones first: what is around another one is known.
    for (int at = static_cast<int>(std::ssize(graph_.ops)); at-- > 0;) {
      if (!may_be_part(at)) continue;
      auto nest = nest_of(at);
      if (!nest) continue;
      if (const auto around = found.find(nest->outer); around != found.end())
        nest = Nest{around->second.outer, around->second.first + nest->first};
      if (is_readable_there(at, *nest)) found.emplace(at, *nest);
    }
    return found;
  }

 private:
  const Op& op(int at) const { return graph_.ops[static_cast<size_t>(at)]; }
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  static const Concatenate* concatenation(const Op& op) { return std::get_if<Concatenate>(&op.attributes); }

  bool may_be_part(int at) const {
    if (concatenation(op(at)) == nullptr || op(at).inputs.empty()) return false;
    const int y = op(at).outputs[0];
    return tensor(y).is_virtual() && !is_packed(tensor(y).type) &&
           std::ranges::none_of(index_.consumers(y), [&](int reader) {
             return is_view(op(reader).attributes) || concatenation(op(reader)) != nullptr;
           });
  }

  // The next of the later concatenations that have the operands side by side.
  std::optional<Nest> nest_of(int at) const {
    const std::vector<int>& parts = op(at).inputs;
    int looked_at = 0;
    for (const int reader : index_.consumers(parts[0])) {
      if (reader <= at || concatenation(op(reader)) == nullptr) continue;
      if (++looked_at > kMostLater) break;
      if (concatenation(op(reader))->axis != concatenation(op(at))->axis) continue;
      const std::vector<int>& others = op(reader).inputs;
      const auto run = std::search(others.begin(), others.end(), parts.begin(), parts.end());
      if (run != others.end()) return Nest{reader, static_cast<int>(run - others.begin())};
    }
    return std::nullopt;
  }

  // Whether kernels read the part of the outer one as they would read it alone, and not much else with it.
  bool is_readable_there(int at, const Nest& nest) const {
    const auto axis = static_cast<int>(concatenation(op(at))->axis);
    const Tensor &own = tensor(op(at).outputs[0]), &outer = tensor(op(nest.outer).outputs[0]);
    const std::span<const int> before(op(nest.outer).inputs.begin(),
                                      op(nest.outer).inputs.begin() + nest.first);
    const int64_t start = std::accumulate(before.begin(), before.end(), int64_t{0},
                                          [&](int64_t sum, int x) { return sum + tensor(x).dims[axis]; });
    const int64_t step = outer.strides[axis] * byte_size(outer.type);
    const int64_t row = own.dims[axis] * step, alone = std::gcd(row, kWidestAccess);
    return own.strides[axis] * byte_size(own.type) == step && row >= kShortestRow &&
           start * step % alone == 0 && outer.dims[axis] * step % alone == 0;
  }

  const Graph& graph_;
  GraphIndex index_;
};

}  // namespace

std::map<int, Nest> nested_concatenations(const Graph& graph) {
  const auto is_concatenation = [](const Op& op) {
    return std::holds_alternative<Concatenate>(op.attributes);
  };
  if (std::ranges::count_if(graph.ops, is_concatenation) < 2) return {};
  return Nests(graph).found();
}

}  // namespace fusor
