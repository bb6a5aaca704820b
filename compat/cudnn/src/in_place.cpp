// Owns the finding and the copying of operands that results take the place of.
#include "compat/cudnn/src/in_place.h"

#include <algorithm>
#include <cstring>

#include "codegen/cuda_driver.h"
#include "core/ceil_div.h"
#include "core/fail.h"
#include "core/overloaded.h"

namespace fusor::cudnn {

namespace {

constexpr int64_t kCopyAlignment = 256;

int64_t aligned_bytes(int64_t bytes) { return ceil_div(bytes, kCopyAlignment) * kCopyAlignment; }

// Whether clients expect to find an op's result in the place of an operand of the same layout.
bool works_by_element(const Op& op) {
  return is_view(op.attributes) ||
         std::visit(
             Overloaded{[](const Pointwise&) { return true; }, [](const NormForward&) { return true; },
                        [](const NormBackward&) { return true; }, [](const BnFinalize&) { return true; },
                        [](const BnBackwardWeights&) { return true; }, [](const Softmax&) { return true; },
                        [](const SoftmaxBackward&) { return true; }, [](const Dropout&) { return true; },
                        [](const auto&) { return false; }},
             op.attributes);
}

// The tensors that ops of this kind make of a tensor.
std::vector<bool> made_of(const Graph& graph, int tensor) {
  std::vector<bool> made(graph.tensors.size(), false);
  made[static_cast<size_t>(tensor)] = true;
  for (const Op& op : graph.ops) {
    const bool reads = std::ranges::any_of(
        op.inputs, [&](int input) { return input >= 0 && made[static_cast<size_t>(input)]; });
    if (!reads || !works_by_element(op)) continue;
    for (const int output : op.outputs)
      if (output >= 0) made[static_cast<size_t>(output)] = true;
  }
  return made;
}

bool is_pointwise(const Op& op) {
  return std::holds_alternative<Pointwise>(op.attributes) || is_view(op.attributes);
}

// Whether every op that depends on the tensor is pointwise: kernels read it where they write.
bool feeds_pointwise_alone(const Graph& graph, int tensor) {
  std::vector<bool> depends(graph.tensors.size(), false);
  depends[static_cast<size_t>(tensor)] = true;
  for (const Op& op : graph.ops) {
    const bool reads = std::ranges::any_of(
        op.inputs, [&](int input) { return input >= 0 && depends[static_cast<size_t>(input)]; });
    if (!reads) continue;
    if (!is_pointwise(op)) return false;
    for (const int output : op.outputs)
      if (output >= 0) depends[static_cast<size_t>(output)] = true;
  }
  return true;
}

bool is_laid_out_alike(const Tensor& a, const Tensor& b) {
  return a.type == b.type && a.dims == b.dims && a.strides == b.strides;
}

const void* address_of(std::span<const Binding> bindings, int64_t uid) {
  const auto found = std::ranges::find(bindings, uid, &Binding::uid);
  return found == bindings.end() ? nullptr : found->pointer;
}

// Whether the run has a result at the operand's address.
bool is_replaced(const StagedOperand& operand, std::span<const Binding> bindings) {
  const void* const pointer = address_of(bindings, operand.uid);
  return pointer != nullptr && std::ranges::any_of(operand.results, [&](int64_t result) {
           return address_of(bindings, result) == pointer;
         });
}

}  // namespace

std::vector<StagedOperand> staged_operands(const Graph& graph, std::span<const Executable* const> loaded,
                                           int64_t most) {
  std::vector<bool> is_written(graph.tensors.size(), false);
  for (const Op& op : graph.ops)
    for (const int output : op.outputs)
      if (output >= 0) is_written[static_cast<size_t>(output)] = true;
  const auto works_in_place = [&](const Tensor& result, const Tensor& operand) {
    return !loaded.empty() && std::ranges::all_of(loaded, [&](const Executable* executable) {
      return executable->may_replace(result.uid, operand.uid);
    });
  };
  std::vector<StagedOperand> staged;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& operand = graph.tensors[i];
    if (operand.memory != Memory::device || is_written[i]) continue;
    if (operand.bytes() > most || (loaded.empty() && feeds_pointwise_alone(graph, static_cast<int>(i))))
      continue;
    StagedOperand entry;
    entry.uid = operand.uid;
    entry.bytes = operand.bytes();
    const std::vector<bool> made = made_of(graph, static_cast<int>(i));
    for (size_t k = 0; k < graph.tensors.size(); ++k) {
      const Tensor& result = graph.tensors[k];
      if (!made[k] || !is_written[k] || result.memory != Memory::device) continue;
      if (is_laid_out_alike(operand, result) && !works_in_place(result, operand))
        entry.results.push_back(result.uid);
    }
    if (!entry.results.empty()) staged.push_back(std::move(entry));
  }
  std::ranges::stable_sort(staged, {}, &StagedOperand::bytes);
  int64_t end = 0;
  for (size_t i = 0; i < staged.size(); ++i) {
    staged[i].byte_offset = end;
    end += aligned_bytes(staged[i].bytes);
    if (end <= most) continue;
    staged.resize(i);
    break;
  }
  return staged;
}

int64_t staging_begin(int64_t workspace_bytes) { return aligned_bytes(workspace_bytes); }

int64_t with_staging(int64_t workspace_bytes, std::span<const StagedOperand> staged) {
  if (staged.empty()) return workspace_bytes;
  return staging_begin(workspace_bytes) + staged.back().byte_offset + staged.back().bytes;
}

bool needs_copies(std::span<const StagedOperand> staged, std::span<const Binding> bindings) {
  return std::ranges::any_of(staged,
                             [&](const StagedOperand& operand) { return is_replaced(operand, bindings); });
}

std::vector<StagedOperand> replaced_operands(std::span<const StagedOperand> staged,
                                             std::span<const Binding> bindings) {
  std::vector<StagedOperand> replaced;
  int64_t end = 0;
  for (const StagedOperand& operand : staged) {
    if (!is_replaced(operand, bindings)) continue;
    replaced.push_back(operand);
    replaced.back().byte_offset = end;
    end += aligned_bytes(operand.bytes);
  }
  return replaced;
}

void read_copies(std::span<const StagedOperand> staged, std::vector<Binding>& bindings, std::byte* staging,
                 bool on_cpu, Stream stream) {
  const std::vector<Binding> given = bindings;
  for (const StagedOperand& operand : staged) {
    if (!is_replaced(operand, given)) continue;
    if (staging == nullptr)
      fail("run: a result takes the place of operand {}, which needs a workspace, and it is null",
           operand.uid);
    std::byte* const copy = staging + operand.byte_offset;
    if (on_cpu)
      std::memcpy(copy, address_of(given, operand.uid), static_cast<size_t>(operand.bytes));
    else
      cuda::copy(copy, address_of(given, operand.uid), operand.bytes, stream);
    for (Binding& binding : bindings)
      if (binding.uid == operand.uid) binding.pointer = copy;
  }
}

}  // namespace fusor::cudnn
