// Owns the evaluation of one fusion: what stands before the anchor, the anchor, what stands after it.
#include <memory>
#include <vector>

#include "backend/reference/contraction.h"
#include "backend/reference/expression.h"
#include "backend/reference/reference.h"
#include "backend/reference/values.h"
#include "core/convert.h"

namespace fusor {

namespace {

using namespace reference;

// Buffers of the fusion's operands, then those made here: constants and the anchor's dense operands and
// result.
class FusionBuffers {
 public:
  FusionBuffers(const Fusion& fusion, std::span<void* const> operands) {
    for (size_t i = 0; i < fusion.operands.size(); ++i) {
      const Operand& operand = fusion.operands[i];
      if (operand.memory != Memory::constant) {
        buffers_.push_back({operand.type, operands[i]});
        continue;
      }
      void* value = allocate(8);
      if (const auto* integer = std::get_if<int64_t>(&operand.value))
        store_int(operand.type, value, 0, *integer);
      else
        store_real(operand.type, value, 0, std::get<double>(operand.value));
      buffers_.push_back({operand.type, value});
    }
  }

  /// A new dense buffer; returns its index.
  int add(DataType type, int64_t elements) {
    buffers_.push_back({type, allocate(elements * byte_size(type))});
    return static_cast<int>(buffers_.size()) - 1;
  }
  void* data(int index) const { return buffers_[static_cast<size_t>(index)].data; }
  std::span<const Buffer> all() const { return buffers_; }

 private:
  void* allocate(int64_t bytes) {
    owned_.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes)));
    return owned_.back().get();
  }
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<std::byte[]>> owned_;
};

// Evaluates a site before the anchor into a dense buffer.
int evaluate_operand(Expr site, DataType held, const Strides& strides, FusionBuffers& buffers,
                     Reading reading) {
  const int made = buffers.add(held, element_count(site.domain));
  Result value;
  value.node = site.value;
  value.type = held;
  value.access = {made, 0, strides, false};
  site.results.push_back(value);
  evaluate_expression(site, buffers.all(), reading);
  return made;
}

// The site after the anchors, their values read from dense buffers.
Expr with_anchors_loaded(Expr site, const std::vector<int>& results, const Strides& strides) {
  for (Node& node : site.nodes) {
    if (node.kind != Node::Kind::anchor) continue;
    node.kind = Node::Kind::load;
    node.access = {results[static_cast<size_t>(node.axis)], 0, strides, false};
    node.axis = 0;
  }
  return site;
}

void evaluate_anchored(const Fusion& fusion, FusionBuffers& buffers, Reading reading) {
  // Siblings have one shape.
  const Contraction shape{fusion.anchors[0].attributes, fusion.before[0].domain, fusion.before[1].domain,
                          fusion.after[0].domain};
  const bool oracle = reading == Reading::oracle;
  const DataType held = held_type(shape.compute(), reading);
  const auto operand = [&](size_t site) {
    const int i = site == 0 ? 0 : 1;
    return evaluate_operand(fusion.before[site], held,
                            oracle ? oracle_strides(shape, i) : device_strides(shape, i), buffers, reading);
  };
  const int first = operand(0);
  std::vector<int> results;
  for (size_t sibling = 0; sibling < fusion.anchors.size(); ++sibling) {
    const int second = operand(1 + sibling);
    results.push_back(buffers.add(held, element_count(shape.c)));
    void* const result = buffers.data(results.back());
    if (oracle)
      oracle_contraction(shape, held, buffers.data(first), buffers.data(second), result);
    else
      device_contraction(shape, buffers.data(first), buffers.data(second), result);
  }
  const Strides strides = oracle ? packed_strides(shape.c) : device_result_strides(shape);
  evaluate_expression(with_anchors_loaded(fusion.after[0], results, strides), buffers.all(), reading);
}

}  // namespace

void evaluate(const Fusion& fusion, std::span<void* const> operands, Reading reading) {
  FusionBuffers buffers(fusion, operands);
  if (!fusion.anchors.empty()) return evaluate_anchored(fusion, buffers, reading);
  for (const Expr& site : fusion.after) evaluate_expression(site, buffers.all(), reading);
}

}  // namespace fusor
