// Owns reductions of a contraction's result that its own kernel begins: which axes they leave, why others are
// refused, where partial results lie, and the launch that combines these
// (codegen/device/elementwise/reduce_parts.cuh).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/support.h"

namespace fusor {

class Parameters;

/// What all reductions of an epilogue leave: the rows of the product, its columns, or neither.
struct ResultReduction {
  bool leaves_m = false, leaves_n = false;
  bool leaves_entries = false;  ///< of the batch
  Dims axes;                    ///< of the result's domain, those that are left
  int64_t results = 1;          ///< of one reduction
};
/// Nothing where nothing is reduced; refuse_reductions() had nothing to say.
std::optional<ResultReduction> result_reduction(const Fusion& fusion, const Contraction& view);
/// Why the reductions of the epilogue cannot be begun tile by tile, or nothing.
std::optional<Refusal> refuse_reductions(const Fusion& fusion, const Contraction& view);

/// Partial results in scratch 0, [part][result]: a kernel's tiles leave so many parts of each batch entry (or
/// of all, where one result is left). Behind them lie totals of groups of parts, where these are many.
struct PartialResults {
  const ResultReduction& reduction;
  const Contraction& view;
  int64_t parts_of_entry = 1;

  bool is_one() const { return !reduction.leaves_m && !reduction.leaves_n; }
  int64_t parts() const;
  int64_t bytes(const Fusion& fusion) const;
  /// The bytes of `Partials` of codegen/device/sm90/epilogue/reduce.cuh.
  void append_to(Parameters& p) const;
  /// One launch, or two where parts are many: few blocks would have few results, and read them all.
  int launches() const { return groups() > 0 ? 2 : 1; }
  std::vector<Launch> combinations(const Fusion& fusion, int index_bits, const std::string& target) const;

 private:
  int64_t groups() const;
  Launch combination(const Fusion& fusion, int index_bits, std::string target, bool of_groups) const;
};

}  // namespace fusor
