// Owns the recognition of attention among a client's ops.
#include "compat/cudnn/src/translate/attention_pattern.h"

#include <algorithm>
#include <map>

#include "compat/cudnn/src/translate/heads.h"
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

using OpPointer = const Descriptor*;

bool is_matmul_op(const Descriptor& op) { return op.type() == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR; }

int64_t uid_of_child(const Descriptor& op, cudnnBackendAttributeName_t attribute) {
  const DescriptorPointer tensor = op.child(attribute);
  return tensor ? tensor->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID) : -1;
}

bool reduces_by(const Descriptor& op, cudnnReduceTensorOp_t mode) {
  if (op.type() != CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) return false;
  const DescriptorPointer reduction = op.child(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  return reduction && reduction->get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == mode;
}

// The ops of a graph by the tensors between them.
class Connections {
 public:
  explicit Connections(const std::vector<DescriptorPointer>& ops) {
    for (const DescriptorPointer& op : ops)
      for (const AttributeRow& row : op->row().attributes) {
        const Value* const value = row.flow == Flow::none ? nullptr : op->find(row.name);
        if (value == nullptr) continue;
        for (const DescriptorPointer& tensor : value->children) {
          const auto uid = tensor->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
          if (row.flow == Flow::reads) {
            reads_[op.get()].push_back(uid);
            readers_[uid].push_back(op.get());
          } else {
            writers_[uid] = op.get();
          }
        }
      }
  }
  OpPointer writer(int64_t uid) const {
    const auto found = writers_.find(uid);
    return found == writers_.end() ? nullptr : found->second;
  }
  const std::vector<OpPointer>& readers(int64_t uid) const {
    static const std::vector<OpPointer> none;
    const auto found = readers_.find(uid);
    return found == readers_.end() ? none : found->second;
  }
  // The first op that `wanted` holds of, from the tensor back through pointwise ops and views.
  template <class Wanted>
  OpPointer behind(int64_t uid, Wanted wanted) const {
    std::vector<int64_t> waiting{uid};
    std::set<OpPointer> met;
    while (!waiting.empty()) {
      const OpPointer op = writer(waiting.back());
      waiting.pop_back();
      if (op == nullptr || !met.insert(op).second) continue;
      if (wanted(*op)) return op;
      if (op->type() != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR &&
          op->type() != CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        continue;
      const auto reads = reads_.find(op);
      if (reads != reads_.end()) waiting.insert(waiting.end(), reads->second.begin(), reads->second.end());
    }
    return nullptr;
  }

 private:
  std::map<int64_t, OpPointer> writers_;
  std::map<int64_t, std::vector<OpPointer>> readers_;
  std::map<OpPointer, std::vector<int64_t>> reads_;
};

std::optional<int64_t> given_number(const Descriptor& op, cudnnBackendAttributeName_t attribute) {
  const DescriptorPointer tensor = op.child(attribute);
  if (!tensor) return std::nullopt;
  const TensorFacts facts = facts_of(*tensor);
  if (!facts.is_by_value || facts.type != DataType::f32) return std::nullopt;
  return facts.uid;
}

// Whether the op gives the same for a score of -inf and a very low one.
bool makes_alike(const Descriptor& op) {
  return is_pointwise_op(op, CUDNN_POINTWISE_EXP) || is_pointwise_op(op, CUDNN_POINTWISE_GEN_INDEX) ||
         reduces_by(op, CUDNN_REDUCE_TENSOR_MAX);
}

// Whether the op's result is such a score as well: it is masked again, or something is taken from it.
bool passes_on(const Descriptor& op, int64_t score) {
  if (is_pointwise_op(op, CUDNN_POINTWISE_BINARY_SELECT))
    return uid_of_child(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC) != score;
  return is_pointwise_op(op, CUDNN_POINTWISE_SUB) &&
         uid_of_child(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) != score;
}

// Whether the number only takes the place of scores, and nobody sees which very low number it is.
bool only_hides(const Connections& graph, int64_t number) {
  std::vector<OpPointer> waiting = graph.readers(number);
  const auto puts_in_place = [&](OpPointer op) {
    return is_pointwise_op(*op, CUDNN_POINTWISE_BINARY_SELECT) &&
           uid_of_child(*op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) == number &&
           uid_of_child(*op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != number &&
           uid_of_child(*op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC) != number;
  };
  if (!std::ranges::all_of(waiting, puts_in_place)) return false;
  std::set<OpPointer> met;
  while (!waiting.empty()) {
    const OpPointer op = waiting.back();
    waiting.pop_back();
    if (!met.insert(op).second) continue;
    const DescriptorPointer y = op->child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (!y || !y->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false)) return false;
    const auto score = y->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    for (const OpPointer reader : graph.readers(score)) {
      if (makes_alike(*reader)) continue;
      if (!passes_on(*reader, score)) return false;
      waiting.push_back(reader);
    }
  }
  return true;
}

// exp(scores - statistics) * (product - row sums), of which the gradients of scores are made.
bool is_gradient(const Connections& graph, const Descriptor& op) {
  if (!is_pointwise_op(op, CUDNN_POINTWISE_MUL)) return false;
  const int64_t x = uid_of_child(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                b = uid_of_child(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  for (const auto& [first, second] : {std::pair{x, b}, {b, x}}) {
    const OpPointer exponential = graph.writer(first), difference = graph.writer(second);
    if (exponential == nullptr || difference == nullptr ||
        !is_pointwise_op(*exponential, CUDNN_POINTWISE_EXP) ||
        !is_pointwise_op(*difference, CUDNN_POINTWISE_SUB))
      continue;
    const DescriptorPointer rows = difference->child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const int64_t product = uid_of_child(*difference, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                  score = uid_of_child(*exponential, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    if (rows && rows->list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS).back() == 1 &&
        graph.behind(product, is_matmul_op) != nullptr && graph.behind(score, is_matmul_op) != nullptr)
      return true;
  }
  return false;
}

// A product with random numbers.
bool drops(const Connections& graph, const Descriptor& op) {
  if (!is_pointwise_op(op, CUDNN_POINTWISE_MUL)) return false;
  const OpPointer numbers = graph.writer(uid_of_child(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
  return numbers != nullptr && numbers->type() == CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR;
}

// Whether one op reads the gradient, to convert a sum of fp32, or to sum it over heads.
bool is_on_its_way(const Connections& graph, const Descriptor& gradient) {
  const auto uid = gradient.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  const std::vector<OpPointer>& readers = graph.readers(uid);
  if (readers.size() != 1) return false;
  return reduces_by(*readers[0], CUDNN_REDUCE_TENSOR_ADD) ||
         (is_pointwise_op(*readers[0], CUDNN_POINTWISE_IDENTITY) && facts_of(gradient).type == DataType::f32);
}

}  // namespace

AttentionPattern attention_pattern(const std::vector<DescriptorPointer>& ops) {
  AttentionPattern pattern;
  const auto count = [&](auto holds) {
    return std::ranges::count_if(ops, [&](const DescriptorPointer& op) { return holds(*op); });
  };
  const auto is_exponential = [](const Descriptor& op) { return is_pointwise_op(op, CUDNN_POINTWISE_EXP); };
  const auto products = count(is_matmul_op);
  if (products < 2 || count(is_exponential) == 0) return pattern;
  const Connections graph(ops);
  const auto gives_gradients = [&](const Descriptor& op) { return is_gradient(graph, op); };
  pattern.is_backward = count(gives_gradients) == 1;
  pattern.is_forward =
      products == 2 && !pattern.is_backward &&
      count([](const Descriptor& op) { return reduces_by(op, CUDNN_REDUCE_TENSOR_MAX); }) == 1;
  for (const DescriptorPointer& op : ops) {
    if (is_pointwise_op(*op, CUDNN_POINTWISE_BINARY_SELECT)) {
      const auto fill = given_number(*op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
      if (fill && only_hides(graph, *fill) && std::ranges::find(pattern.fills, *fill) == pattern.fills.end())
        pattern.fills.push_back(*fill);
    }
    if (pattern.is_forward && is_pointwise_op(*op, CUDNN_POINTWISE_MUL)) {
      const OpPointer product = graph.writer(uid_of_child(*op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
      const auto scale = given_number(*op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
      if (scale && product != nullptr && (is_matmul_op(*product) || drops(graph, *product)))
        pattern.scales.insert(*scale);
    }
    if (!is_matmul_op(*op)) continue;
    const int64_t a = uid_of_child(*op, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    if (graph.behind(a, is_exponential) != nullptr) pattern.of_scores.insert(a);
    if (!pattern.is_backward) continue;
    const auto is_anchor = [&](const Descriptor& other) {
      return is_exponential(other) || gives_gradients(other);
    };
    const DescriptorPointer gradient = op->child(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    if (gradient && graph.behind(a, is_anchor) != nullptr && is_on_its_way(graph, *gradient))
      pattern.between.insert(gradient->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  }
  return pattern;
}

}  // namespace fusor::cudnn
