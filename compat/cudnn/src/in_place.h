// Owns results that a client puts in the place of an operand: running statistics that are updated where they
// are, a gradient over the gradient that it is made of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/executable.h"
#include "compat/cudnn/src/handle.h"
#include "core/graph.h"

namespace fusor::cudnn {

/// An operand that some run may want replaced by results of its own layout while the plan still reads it:
/// such a run reads a copy.
struct StagedOperand {
  int64_t uid = 0;
  std::vector<int64_t> results;        ///< by uid: where one of them has the operand's address
  int64_t bytes = 0, byte_offset = 0;  ///< of the copy, the latter from the first copy on
};

inline constexpr int64_t kMostStagedBytes = int64_t{1} << 20;

/// The operands that results are made of element by element or by a norm or a softmax. `loaded`: what will
/// run; pairs that all of them take in place are left out. Without it, operands that pointwise ops alone
/// depend on are: a pointwise graph's, the residual behind a matmul. At most `most` bytes in all, the
/// smallest first: runs that replace another operand are refused.
std::vector<StagedOperand> staged_operands(const Graph& graph, std::span<const Executable* const> loaded,
                                           int64_t most = kMostStagedBytes);

/// A plan's workspace with the copies behind it, and where they begin.
int64_t staging_begin(int64_t workspace_bytes);
int64_t with_staging(int64_t workspace_bytes, std::span<const StagedOperand> staged);

/// Whether a run with these bindings reads copies.
bool needs_copies(std::span<const StagedOperand> staged, std::span<const Binding> bindings);
/// The staged operands that a run with these bindings replaces, with places for their copies side by side.
std::vector<StagedOperand> replaced_operands(std::span<const StagedOperand> staged,
                                             std::span<const Binding> bindings);
/// Copies what is replaced to `staging`, in stream order, and has the bindings read it there. Throws Error
/// where staging is null.
void read_copies(std::span<const StagedOperand> staged, std::vector<Binding>& bindings, std::byte* staging,
                 bool on_cpu, Stream stream);

}  // namespace fusor::cudnn
