// Owns verify: a run's outputs compared with the oracle's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/api.h"
#include "core/graph.h"
#include "core/plan.h"

namespace fusor {

/// One output against the oracle. Errors are over finite elements; an element is wrong where |got - want|
/// exceeds `tolerance_abs + tolerance_rel * |want|`, or NaN / Inf stand where the oracle has none (or the
/// other way round), or, of types of less than 8 bits, other numbers of the type lie between.
struct OutputCheck {
  std::string tensor;
  int64_t elements = 0;   ///< of the tensor
  int64_t checked = 0;    ///< fewer where a seeded sample was taken (more than 10 GFLOP, or 16 Mi elements)
  int64_t unwritten = 0;  ///< looked at, but no op writes them (scatter): there is nothing to check
  uint64_t seed = 0;      ///< of the sample
  double max_abs = 0;
  double max_rel = 0;
  double max_ulp = 0;  ///< in units of the last place of the output's type at `want`
  double rms = 0;      ///< root mean square of the errors
  Dims max_abs_at, max_rel_at, max_ulp_at;
  double got = 0, want = 0;  ///< at the first wrong element, else at max_abs_at
  Dims wrong_at;             ///< the first wrong element
  int64_t wrong = 0;
  int64_t nans = 0, infs = 0;  ///< in the output
  double tolerance_abs = 0, tolerance_rel = 0;
  double of_tolerance = 0;  ///< the largest error as a part of what is allowed there
};

/// Whether some elements of the output were not looked at.
inline bool is_sampled(const OutputCheck& check) { return check.checked + check.unwritten < check.elements; }

struct FUSOR_API VerifyReport {
  std::vector<OutputCheck> outputs;
  bool passed() const;
};

/// `tensors[i]`: host buffer of graph.tensors[i], inputs as they were given to the run and outputs as it left
/// them. `notes`: the plan's; where they say so, operands may have been rounded to TF32, fp8 summed in
/// fewer bits than fp32's, and sums cut off by tensor cores.
FUSOR_API VerifyReport verify(const Graph& graph, std::span<void* const> tensors, uint64_t seed = 1,
                              const Notes& notes = {});
FUSOR_API std::string to_string(const VerifyReport& report);

/// Fills a host buffer for `tensor` with seeded random values that suit its type (reals uniform in [-1, 1];
/// integers small; booleans both).
FUSOR_API void fill_random(const Tensor& tensor, void* buffer, uint64_t seed);

}  // namespace fusor
