// Owns the search for gathers that may be totals.
#include "backend/planner/rewrites/gathers/gathers_as_totals.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/gathers/early_gathers.h"
#include "core/graph_index.h"
#include "core/ops/pointwise.h"

namespace fusor {

namespace {

class GathersAsTotals {
 public:
  GathersAsTotals(Graph& graph, Additions& additions) : graph_(graph), additions_(additions) {}

  bool run() {
    const std::vector<bool> is_total = gathers_that_may_be();
    if (std::ranges::find(is_total, true) == is_total.end()) return false;
    std::vector<Op> given = std::move(graph_.ops);
    for (size_t i = 0; i < given.size(); ++i) {
      if (is_total[i])
        append_total(given[i]);
      else
        ops_.push_back(std::move(given[i]));
    }
    graph_.ops = std::move(ops_);
    return true;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }

  std::vector<bool> gathers_that_may_be() const {
    const GraphIndex index(graph_);
    std::vector<bool> found(graph_.ops.size(), false);
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      found[i] =
          is_gather(op) && takes_one_of_each_row(op) && is_stored_for_gathers(graph_, index, op.inputs[0]);
    }
    return found;
  }

  bool takes_one_of_each_row(const Op& gather) const {
    Dims rows = tensor(gather.inputs[0]).dims;
    const auto axis = static_cast<int>(std::get<Gather>(gather.attributes).axis);
    if (rows[axis] == 1 || !is_real(tensor(gather.inputs[0]).type)) return false;
    rows[axis] = 1;
    return tensor(gather.outputs[0]).dims == rows && tensor(gather.inputs[1]).dims[axis] == 1;
  }

  void append_total(const Op& gather) {
    const int x = gather.inputs[0], index = gather.inputs[1];
    const Dims dims = tensor(x).dims;
    const int64_t axis = std::get<Gather>(gather.attributes).axis;
    Pointwise count{.mode = PointwiseMode::gen_index, .compute = index_type(dims[static_cast<int>(axis)])};
    count.axis = axis;
    const auto named = [&](const char* part) { return gather.name + part; };
    const int coordinate =
        append(named(".coordinate"), count, {additions_.constant(0, count.compute)}, dims, count.compute);
    const int is_meant = append(named(".is_meant"), Pointwise{.mode = PointwiseMode::cmp_eq},
                                {index, coordinate}, dims, DataType::b8);
    const int zero = additions_.constant(0, tensor(x).type);
    const int element = append(named(".element"), Pointwise{.mode = PointwiseMode::binary_select},
                               {x, zero, is_meant}, dims, tensor(x).type);
    Op total{additions_.op_name(named(".total")),
             Reduction{.mode = ReductionMode::add},
             {element},
             gather.outputs};
    additions_.set_default_compute(total);
    ops_.push_back(std::move(total));
  }

  int append(const std::string& name, const Pointwise& attributes, std::vector<int> inputs, const Dims& dims,
             DataType type) {
    Op op{additions_.op_name(name), attributes, std::move(inputs), {}};
    if (attributes.mode != PointwiseMode::gen_index) additions_.set_default_compute(op);
    Tensor model = tensor(op.inputs[0]);
    model.type = type;
    model.alignment = std::max(model.alignment, byte_size(type));
    op.outputs = {additions_.tensor(model, dims, op.name)};
    ops_.push_back(std::move(op));
    return ops_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  std::vector<Op> ops_;
};

}  // namespace

bool write_gathers_as_totals(Graph& graph, Additions& additions) {
  return std::ranges::any_of(graph.ops, is_gather) && GathersAsTotals(graph, additions).run();
}

}  // namespace fusor
