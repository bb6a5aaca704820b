// Owns the search for caches to which rows are appended in front of attention.
#include "backend/planner/rewrites/concatenations/appended_rows.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/concatenations/parts.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/attributes.h"
#include "core/graph_index.h"
#include "core/ops/pointwise.h"

namespace fusor {

namespace {

// Queries that share an entry of keys, at most, and ops between the two products.
constexpr int64_t kFewQueries = 128;
constexpr size_t kMostBetween = 64;

class AppendedRows {
 public:
  AppendedRows(Graph& graph, Additions& additions) : graph_(graph), additions_(additions), index_(graph) {}

  bool run() {
    for (int at = 0; at < static_cast<int>(graph_.ops.size()); ++at)
      if (is_matmul(op_of(at))) find_pair(at);
    if (reads_.empty()) return false;
    std::vector<Op> ops;
    for (size_t at = 0; at < graph_.ops.size(); ++at) {
      Op op = graph_.ops[at];
      if (const auto read = reads_.find(static_cast<int>(at)); read != reads_.end())
        op.inputs[1] = chosen_rows(read->second, ops);
      ops.push_back(std::move(op));
    }
    std::set<int> concatenations;
    for (const auto& [product, appended] : reads_)
      concatenations.insert(op_of(appended.concatenation).outputs[0]);
    graph_.ops = std::move(ops);
    drop_unread_views(graph_, concatenations);
    return true;
  }

 private:
  // The second operand of a product: views from the concatenation on, the last first.
  struct Appended {
    int concatenation = -1;
    std::optional<Part> slice = {};  // of the concatenation along another axis
    std::vector<int> views = {};
    int axis = -1;  // the concatenated one, of the operand
  };

  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Op& op_of(int at) const { return graph_.ops[static_cast<size_t>(at)]; }

  // The product whose rows `second` takes its first operand of, where a cache is appended to for both.
  void find_pair(int second) {
    const Appended values = appended(op_of(second).inputs[1]);
    if (values.concatenation < 0 || values.axis != rank_of(op_of(second).inputs[1]) - 2) return;
    const int first = product_behind(op_of(second).inputs[0]);
    if (first < 0) return;
    const Appended keys = appended(op_of(first).inputs[1]);
    if (keys.concatenation < 0 || keys.axis != rank_of(op_of(first).inputs[1]) - 1 || !has_few_queries(first))
      return;
    reads_.emplace(first, keys);
    reads_.emplace(second, values);
  }

  int rank_of(int at) const { return tensor(at).dims.rank(); }

  bool has_few_queries(int product) const {
    const Dims &scores = tensor(op_of(product).outputs[0]).dims,
               &keys = tensor(op_of(product).inputs[1]).dims;
    int64_t rows = element_count(scores) / scores.back(), entries = 1;
    for (int axis = 0; axis + 2 < keys.rank(); ++axis) entries *= keys[axis];
    return rows <= kFewQueries * entries;
  }

  // A concatenation of a cache in memory and one row, or a slice of it, seen through transposes, and reshapes
  // that add axes of one element.
  Appended appended(int at) const {
    Appended found;
    // The operand's axis, by axis of the tensor in front of the views.
    std::vector<int> from_axis(static_cast<size_t>(rank_of(at)));
    std::iota(from_axis.begin(), from_axis.end(), 0);
    for (;;) {
      const int producer = index_.producer(at);
      if (producer < 0) return {};
      const Op& op = op_of(producer);
      const Dims& dims = tensor(at).dims;
      if (const auto* const transpose = std::get_if<Transpose>(&op.attributes)) {
        std::vector<int> before(from_axis.size());
        for (size_t i = 0; i < from_axis.size(); ++i)
          before[static_cast<size_t>(transpose->permutation[static_cast<int>(i)])] = from_axis[i];
        from_axis = before;
      } else if (is_reshape(op)) {
        const Dims& source = tensor(op.inputs[0]).dims;
        std::vector<int> before;
        int axis = 0;
        for (int i = 0; i < source.rank(); ++i) {
          while (axis < dims.rank() && dims[axis] == 1 && source[i] != 1) ++axis;
          if (axis == dims.rank() || dims[axis] != source[i]) return {};
          before.push_back(from_axis[static_cast<size_t>(axis++)]);
        }
        while (axis < dims.rank() && dims[axis] == 1) ++axis;
        if (axis != dims.rank()) return {};
        from_axis = before;
      } else if (const auto part = part_taken(op, tensor(op.inputs[0]).dims); part && !found.slice) {
        found.slice = part;
        at = op.inputs[0];
        continue;
      } else if (const auto* const joined = std::get_if<Concatenate>(&op.attributes)) {
        const auto axis = static_cast<int>(joined->axis);
        if (found.slice && found.slice->axis == axis) return {};
        if (op.inputs.size() != 2 || !tensor(op.outputs[0]).is_virtual() ||
            tensor(op.inputs[1]).dims[axis] != 1 || !lies_in_memory(op.inputs[0]) ||
            tensor(op.inputs[0]).dims[axis] < 2 || is_packed(tensor(op.inputs[0]).type))
          return {};
        found.concatenation = producer;
        found.axis = from_axis[static_cast<size_t>(axis)];
        return found;
      } else {
        return {};
      }
      if (found.slice) return {};
      found.views.push_back(producer);
      at = op.inputs[0];
    }
  }

  bool lies_in_memory(int at) const { return index_.producer(at) < 0 && !tensor(at).is_scalar(); }

  // The one product that the value is made of by pointwise ops and totals, with an exponential; -1 where it
  // is none.
  int product_behind(int value) const {
    std::vector<int> waiting{value};
    std::set<int> met;
    int product = -1;
    bool has_exponential = false;
    while (!waiting.empty()) {
      const int producer = index_.producer(waiting.back());
      waiting.pop_back();
      if (producer < 0 || !met.insert(producer).second) continue;
      if (met.size() > kMostBetween) return -1;
      const Op& op = op_of(producer);
      if (is_matmul(op)) {
        if (product >= 0) return -1;
        product = producer;
        continue;
      }
      if (const auto* const pointwise = std::get_if<Pointwise>(&op.attributes))
        has_exponential = has_exponential || pointwise->mode == PointwiseMode::exp;
      else if (!is_reduction(op) && !is_view(op.attributes))
        return -1;
      waiting.insert(waiting.end(), op.inputs.begin(), op.inputs.end());
    }
    return has_exponential ? product : -1;
  }

  // ---- Writing ----

  int chosen_rows(const Appended& appended, std::vector<Op>& ops) {
    const Op joined = op_of(appended.concatenation);
    const auto axis = static_cast<int>(std::get<Concatenate>(joined.attributes).axis);
    int cache = joined.inputs[0], row = joined.inputs[1];
    Dims whole = tensor(joined.outputs[0]).dims;
    if (appended.slice) {
      const auto [start, limit] = appended.slice->range;
      for (int* const part : {&cache, &row}) {
        ops.push_back(additions_.slice(*part, appended.slice->axis, start, limit, joined.name + ".in"));
        *part = ops.back().outputs[0];
      }
      whole[appended.slice->axis] = limit - start;
    }
    Dims along = Dims::filled(whole.rank(), 1);
    along[axis] = whole[axis];
    const DataType counted = index_type(whole[axis]);
    const auto append = [&](const char* part, Attributes attributes, std::vector<int> inputs,
                            const Dims& dims, DataType type, bool has_default = true) {
      Op op{additions_.op_name(joined.name + part), std::move(attributes), std::move(inputs), {}};
      if (has_default) additions_.set_default_compute(op);
      Tensor model = tensor(cache);
      model.type = type;
      model.alignment = byte_size(type);
      op.outputs = {additions_.tensor(model, dims, op.name)};
      ops.push_back(std::move(op));
      return ops.back().outputs[0];
    };
    // Keys and values that are slices of one cache ask for one condition.
    auto& [coordinate, is_old] = conditions_.try_emplace(appended.concatenation, -1, -1).first->second;
    if (coordinate < 0) {
      Pointwise count{.mode = PointwiseMode::gen_index, .compute = counted};
      count.axis = axis;
      coordinate = append(".coordinate", count, {additions_.constant(0, counted)}, along, counted, false);
      const int last = additions_.constant(static_cast<double>(whole[axis] - 1), counted);
      is_old = append(".is_old", Pointwise{.mode = PointwiseMode::cmp_lt}, {coordinate, last}, along,
                      DataType::b8);
    }
    const int rows = append(".rows", Gather{.axis = axis}, {cache, coordinate}, whole, tensor(cache).type);
    int value = append(".chosen", Pointwise{.mode = PointwiseMode::binary_select}, {rows, row, is_old}, whole,
                       tensor(cache).type);
    for (auto view = appended.views.rbegin(); view != appended.views.rend(); ++view) {
      const Op& described = op_of(*view);
      ops.push_back(additions_.view(described.attributes, value, tensor(described.outputs[0]).dims,
                                    described.name + ".chosen"));
      value = ops.back().outputs[0];
    }
    return value;
  }

  Graph& graph_;
  Additions& additions_;
  const GraphIndex index_;
  std::map<int, Appended> reads_;                  // by product
  std::map<int, std::pair<int, int>> conditions_;  // a coordinate, and whether it is the cache's
};

}  // namespace

bool read_appended_rows(Graph& graph, Additions& additions) {
  const auto concatenates = [](const Op& op) { return std::holds_alternative<Concatenate>(op.attributes); };
  return std::ranges::any_of(graph.ops, concatenates) && AppendedRows(graph, additions).run();
}

}  // namespace fusor
