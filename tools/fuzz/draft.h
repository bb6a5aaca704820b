// Owns Draft: a graph that grows by random ops, and the operands that it offers them.
#pragma once

#include <optional>
#include <vector>

#include "core/graph.h"
#include "tools/fuzz/random.h"
#include "tools/fuzz/values.h"

namespace fusor::fuzz {

struct Limits {
  int ops = 8;
  int64_t elements = 8192;  ///< of one tensor
  /// Multiply-adds of one contraction.
  int64_t multiply_adds() const { return elements * 128; }
};

/// An op that a family proposes; the draft infers its result, or drops it.
struct Proposal {
  Attributes attributes;
  std::vector<int> inputs;  ///< -1: left out
  Dims given;               ///< dims of the result, where the op does not imply them
};

class Draft {
 public:
  Draft(uint64_t seed, int64_t index, const Limits& limits);

  Random random;
  const Limits& limits() const { return limits_; }
  const Graph& graph() const { return graph_; }
  const Tensor& tensor(int index) const { return graph_.tensors[static_cast<size_t>(index)]; }

  /// An extent of the graph's own style: odd, a multiple of eight, one, ...
  int64_t extent();
  /// `rank` extents of at most `elements` elements together.
  Dims dims(int rank, int64_t elements);
  DataType type();

  /// A tensor of `rank` axes or more, of at most `most_rank`, that the graph has already, or a new input.
  int operand(int rank = 1, int most_rank = kMaxRank);
  /// One of these dims; of this type, where one is said.
  int operand_of(const Dims& dims, std::optional<DataType> type = std::nullopt);
  /// Filled at random, where no filling is said.
  int new_input(const Dims& dims, DataType type, std::optional<Filling> filling = std::nullopt);
  int new_scalar(DataType type);
  /// The result of operand_of(), or every other time -1.
  int optional_operand_of(const Dims& dims) { return random.once_in(2) ? operand_of(dims) : -1; }

  /// The compute type for these operands: mostly the default one.
  DataType compute_for(const Attributes& attributes, const std::vector<int>& inputs);

  /// Appends the op with a result of random type and place, or says that it may not be.
  bool append(const Proposal& proposal);
  /// What nothing reads becomes an output, and some of the rest.
  Graph finish();

 private:
  enum class Style : uint8_t { odd, eights, small, mixed };
  bool has_gaps(int tensor) const;
  int add(Tensor tensor, const Values& values);
  DataType result_type(const Attributes& attributes, DataType inferred);
  Strides place(const Dims& dims, bool is_input);

  Limits limits_;
  Graph graph_;
  Style style_;
  DataType main_type_;
  bool plain_places_;
  std::vector<Values> values_;
  std::vector<int> reads_;
};

}  // namespace fusor::fuzz
