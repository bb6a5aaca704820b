// Owns the problem of the rows engine: a fusion as rows of elements whose totals are needed again.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/support.h"

namespace fusor {

/// Facts of a fusion of form rows.
struct RowsProblem {
  const Fusion& fusion;
  const DeviceInfo& device;
  /// Y over the axes that number rows, then those of a row; the vector axis is last among its kind.
  KernelSite site = {};
  bool spread = false;       ///< the vector axis numbers rows: neighbouring lanes are neighbouring rows
  bool has_columns = false;  ///< totals over the rows are stored, too
  bool joins = false;        ///< totals that need one another may be made in one pass
  int index_bits = 32;
  int64_t widest = 1;  ///< elements of a vector at most

  const Dims& domain() const { return site.expr.domain; }
  int64_t rows() const;  ///< coordinates of the axes that number them
  int64_t row_elements() const;
};

/// Short forms err by 1e-5: where only 16 bits of an element's value are seen, and no wider total of special
/// functions.
bool fits_short_forms(const KernelSite& site);

/// The problem, or why the fusion is none.
std::variant<Refusal, RowsProblem> rows_problem(const Fusion& fusion, const DeviceInfo& device);

}  // namespace fusor
