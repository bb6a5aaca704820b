// Owns the oracle's evaluation of a whole graph: one op at a time, every element.
#include <memory>
#include <vector>

#include "backend/planner/planner.h"
#include "backend/reference/reference.h"
#include "core/fail.h"

namespace fusor {

namespace {

// The graph as the oracle evaluates it: virtual tensors that it holds itself are row-major, whatever the
// graph asks for (their layout changes no value), so that every reshape of them can be walked.
Graph with_own_layout(const Graph& graph, std::span<void* const> tensors) {
  Graph own = graph;
  for (size_t i = 0; i < own.tensors.size(); ++i)
    if (own.tensors[i].is_virtual() && tensors[i] == nullptr)
      own.tensors[i].strides = packed_strides(own.tensors[i].dims);
  return expand_as_written(own);
}

}  // namespace

void evaluate_graph(const Graph& graph, std::span<void* const> tensors) {
  const Graph own = with_own_layout(graph, tensors);
  std::vector<void*> data(tensors.begin(), tensors.end());
  data.resize(own.tensors.size());
  std::vector<std::unique_ptr<std::byte[]>> held;
  for (size_t i = 0; i < own.tensors.size(); ++i) {
    const Tensor& tensor = own.tensors[i];
    if (data[i] != nullptr || tensor.memory == Memory::constant) continue;
    if (!tensor.is_virtual()) fail("the oracle needs a buffer for tensor '{}'", tensor.name);
    held.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(tensor.bytes())));
    data[i] = held.back().get();
  }
  const FoldedGraph unfolded = unfolded_with_index(own);
  for (size_t op = 0; op < own.ops.size(); ++op) {
    const Fusion fusion = make_single(own, unfolded, static_cast<int>(op));
    std::vector<void*> operands;
    for (const Operand& operand : fusion.operands)
      operands.push_back(data[static_cast<size_t>(operand.tensor)]);
    evaluate(fusion, operands, Reading::oracle);
  }
}

}  // namespace fusor
