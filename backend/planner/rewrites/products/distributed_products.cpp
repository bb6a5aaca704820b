// Owns the search for sums of softmaxes in front of a product.
#include "backend/planner/rewrites/products/distributed_products.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/attributes.h"
#include "core/graph_index.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

constexpr int64_t kMostHead = 256;  // of a head, and of a row of values
constexpr size_t kMostSoftmaxes = 4, kMostBefore = 256;

class DistributedProducts {
 public:
  DistributedProducts(Graph& graph, Additions& additions)
      : graph_(graph), additions_(additions), index_(graph) {}

  bool run() {
    std::vector<Op> given = graph_.ops;
    for (const Op& op : given) {
      if (std::holds_alternative<Matmul>(op.attributes) && may_distribute(op))
        distribute(op);
      else
        ops_.push_back(op);
    }
    if (replaced_.empty()) return false;
    graph_.ops = std::move(ops_);
    drop_unread_views(graph_, replaced_);
    return true;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Op* maker_of(int at) const {
    const int producer = index_.producer(at);
    return producer < 0 ? nullptr : &graph_.ops[static_cast<size_t>(producer)];
  }
  static const Pointwise* pointwise(const Op* op) {
    return op == nullptr ? nullptr : std::get_if<Pointwise>(&op->attributes);
  }

  // ---- The search ----

  // What a tensor is in the sum: its way on to softmaxes, all of whose other operands are numbers of rows.
  enum class Part { sum, factor, copy, softmax };
  std::optional<Part> part_of(int at) const {
    const Op* const op = maker_of(at);
    const Pointwise* const mode = pointwise(op);
    if (mode == nullptr || !tensor(at).is_virtual() || index_.consumers(at).size() != 1) return std::nullopt;
    const auto is_whole = [&](size_t i) { return tensor(op->inputs[i]).dims == tensor(at).dims; };
    if (mode->mode == PointwiseMode::identity && is_whole(0)) return Part::copy;
    if (is_softmax(at)) return Part::softmax;
    const bool adds = mode->mode == PointwiseMode::add || mode->mode == PointwiseMode::sub;
    if (adds && is_whole(0) && is_whole(1)) return Part::sum;
    const bool scales = mode->mode == PointwiseMode::mul || mode->mode == PointwiseMode::div;
    if (scales && is_whole(0) && is_number_of_row(op->inputs[1], at)) return Part::factor;
    if (mode->mode == PointwiseMode::mul && is_whole(1) && is_number_of_row(op->inputs[0], at))
      return Part::factor;
    return std::nullopt;
  }

  bool is_number_of_row(int at, int whole) const {
    const Dims& dims = tensor(at).dims;
    return tensor(at).is_scalar() ||
           (dims.rank() == tensor(whole).dims.rank() && dims.back() == 1 && tensor(whole).dims.back() != 1);
  }

  // Whether the tensor is made of the exponentials and a reduction of one product's rows, and is divided
  // last.
  bool is_softmax(int at) const {
    const Op* const last = maker_of(at);
    const PointwiseMode mode = pointwise(last)->mode;
    if (mode != PointwiseMode::div && mode != PointwiseMode::mul) return false;
    const auto found = product_of(at);
    if (!found) return false;
    return std::ranges::any_of(last->inputs, [&](int input) {
      return !tensor(input).is_scalar() && tensor(input).dims.back() == 1 && product_of(input) == found;
    });
  }

  // The one product of short heads that a tensor is made of by single ops and reductions, with an exponential
  // among them.
  std::optional<int> product_of(int at) const {
    std::vector<int> met, waiting{at};
    int product = -1;
    bool has_exponential = false;
    while (!waiting.empty()) {
      const int producer = index_.producer(waiting.back());
      waiting.pop_back();
      if (producer < 0 || std::ranges::find(met, producer) != met.end()) continue;
      met.push_back(producer);
      const Op& op = graph_.ops[static_cast<size_t>(producer)];
      if (std::holds_alternative<Matmul>(op.attributes)) {
        if (product >= 0) return std::nullopt;
        product = producer;
        continue;
      }
      if (is_view(op.attributes)) continue;
      if ((!is_pointwise(op) && !is_reduction(op)) || met.size() > kMostBefore) return std::nullopt;
      has_exponential = has_exponential || (is_pointwise(op) && pointwise(&op)->mode == PointwiseMode::exp);
      waiting.insert(waiting.end(), op.inputs.begin(), op.inputs.end());
    }
    if (product < 0 || !has_exponential) return std::nullopt;
    const Op& matmul = graph_.ops[static_cast<size_t>(product)];
    return tensor(matmul.inputs[0]).dims.back() <= kMostHead ? std::optional(product) : std::nullopt;
  }

  // Collects the products behind a tensor's softmaxes; false where something else is added.
  bool collect(int at, std::set<int>& products, size_t& terms) const {
    const auto part = part_of(at);
    if (!part) return false;
    const Op& op = *maker_of(at);
    switch (*part) {
      case Part::softmax:
        products.insert(*product_of(at));
        return ++terms <= kMostSoftmaxes;
      case Part::copy:
        return collect(op.inputs[0], products, terms);
      case Part::factor:
        return collect(op.inputs[whole_of(op)], products, terms);
      case Part::sum:
        return collect(op.inputs[0], products, terms) && collect(op.inputs[1], products, terms);
    }
    return false;
  }
  size_t whole_of(const Op& op) const {
    return tensor(op.inputs[0]).dims == tensor(op.outputs[0]).dims ? 0 : 1;
  }

  // Several softmaxes of a product each; in other types attention has no kernels.
  bool may_distribute(const Op& matmul) const {
    const Tensor &p = tensor(matmul.inputs[0]), &v = tensor(matmul.inputs[1]);
    const bool is_16_bits = p.type == DataType::bf16 || p.type == DataType::f16;
    if (!is_16_bits || v.type != p.type || v.dims.back() > kMostHead) return false;
    std::set<int> products;
    size_t terms = 0;
    return collect(matmul.inputs[0], products, terms) && terms > 1 && products.size() == terms;
  }

  // ---- The rewriting ----

  void distribute(const Op& matmul) {
    const int sum = written(matmul.inputs[0], matmul);
    ops_.back().outputs = matmul.outputs;
    ops_.back().name = matmul.name;
    leave_empty(graph_.tensors[static_cast<size_t>(sum)]);
  }

  // Appends the product of `matmul` with the part of its operand that a tensor is; the result.
  int written(int at, const Op& matmul) {
    replaced_.insert(at);
    const Op op = *maker_of(at);
    switch (*part_of(at)) {
      case Part::copy:
        return written(op.inputs[0], matmul);
      case Part::softmax:
        replaced_.erase(at);
        return product(at, matmul);
      case Part::factor: {
        std::vector<int> inputs = op.inputs;
        inputs[whole_of(op)] = written(op.inputs[whole_of(op)], matmul);
        return append(op, std::move(inputs), matmul);
      }
      case Part::sum: {
        const int a = written(op.inputs[0], matmul), b = written(op.inputs[1], matmul);
        return append(op, {a, b}, matmul);
      }
    }
    return at;
  }

  int product(int at, const Op& matmul) {
    const Tensor operand = tensor(matmul.inputs[0]);
    if (tensor(at).type != operand.type) {
      Op rounded{
          additions_.op_name(matmul.name + ".rounded"), Pointwise{.mode = PointwiseMode::identity}, {at}, {}};
      additions_.set_default_compute(rounded);
      rounded.outputs = {additions_.tensor(operand, operand.dims, rounded.name)};
      ops_.push_back(rounded);
      at = rounded.outputs[0];
    }
    return append(matmul, {at, matmul.inputs[1]}, matmul);
  }

  int append(const Op& like, std::vector<int> inputs, const Op& matmul) {
    Op op{additions_.op_name(like.name + ".part"), like.attributes, std::move(inputs), {}};
    Tensor model = tensor(matmul.outputs[0]);
    model.type = DataType::f32;
    model.alignment = std::max(model.alignment, byte_size(model.type));
    op.outputs = {additions_.tensor(model, model.dims, op.name)};
    ops_.push_back(op);
    return op.outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;
  std::vector<Op> ops_;
  std::set<int> replaced_;
};

}  // namespace

bool distribute_products(Graph& graph, Additions& additions) {
  const auto is_matmul = [](const Op& op) { return std::holds_alternative<Matmul>(op.attributes); };
  if (graph.precision == Precision::strict || std::ranges::count_if(graph.ops, is_matmul) < 3) return false;
  return DistributedProducts(graph, additions).run();
}

}  // namespace fusor
