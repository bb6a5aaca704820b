// Owns the search for identities that nobody needs.
#include "backend/planner/rewrites/identities.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/unread_views.h"

namespace fusor {

namespace {

class Identities {
 public:
  explicit Identities(Graph& graph) : graph_(graph) {}

  bool run() {
    std::map<int, int> copied;  // by result: the value
    std::set<int> copies;
    bool changes = false;
    for (Op& op : graph_.ops) {
      for (int& input : op.inputs)
        for (auto value = copied.find(input); value != copied.end() && may_read(op, input, value->second);
             value = copied.find(input)) {
          input = value->second;
          changes = true;
        }
      if (!is_copy(op)) continue;
      copied.emplace(op.outputs[0], op.inputs[0]);
      copies.insert(op.outputs[0]);
    }
    if (changes) drop_unread_views(graph_, copies);
    return changes;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }

  bool is_copy(const Op& op) const {
    const auto* const pointwise = std::get_if<Pointwise>(&op.attributes);
    if (pointwise == nullptr || pointwise->mode != PointwiseMode::identity) return false;
    const Tensor &x = tensor(op.inputs[0]), &y = tensor(op.outputs[0]);
    return y.is_virtual() && !x.is_scalar() && x.type == y.type && !is_packed(x.type);
  }

  // Whether the op's result is the same where it reads the value in place of its copy.
  bool may_read(const Op& op, int copy, int value) const {
    // In front of views and concatenations it may be a copy that they cannot do without.
    if (!is_pointwise(op) && !is_matmul(op) && !is_reduction(op)) return false;
    if (dims(copy) == dims(value)) return true;
    if (is_pointwise(op))
      return std::ranges::any_of(op.inputs, [&](int other) {
        return other != copy && !tensor(other).is_scalar() && dims(other) == dims(op.outputs[0]);
      });
    if (!is_matmul(op) || op.inputs.size() != 2) return false;
    const int other = op.inputs[op.inputs[0] == copy ? 1 : 0];
    return other != copy && broadcasts_batches_alone(copy, value) && has_batches_of(other, copy);
  }

  bool broadcasts_batches_alone(int copy, int value) const {
    const Dims &whole = dims(copy), &part = dims(value);
    if (part.rank() < 2) return false;
    for (const int from_end : {1, 2})
      if (whole[whole.rank() - from_end] != part[part.rank() - from_end]) return false;
    return true;
  }
  bool has_batches_of(int other, int copy) const {
    const Dims &has = dims(other), &wants = dims(copy);
    if (has.rank() < wants.rank()) return false;
    for (int from_end = 3; from_end <= wants.rank(); ++from_end) {
      const int64_t extent = wants[wants.rank() - from_end];
      if (extent != 1 && has[has.rank() - from_end] != extent) return false;
    }
    return true;
  }

  Graph& graph_;
};

}  // namespace

bool drop_identities(Graph& graph) { return Identities(graph).run(); }

}  // namespace fusor
