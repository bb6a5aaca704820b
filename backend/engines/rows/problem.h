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
  /// Neighbouring rows whose totals are one: of a row whose innermost axis its neighbour goes on along, as
  /// channels of a group do. The site's rows are then those of that axis, its first axis of a row stands for
  /// them, and is not walked.
  int64_t fold = 1;
  /// Z: the same site by vectors along the last axis of a row, where results lie along that and the operand
  /// along neighbouring rows.
  std::optional<KernelSite> across = std::nullopt;

  const Dims& domain() const { return site.expr.domain; }
  int64_t rows() const;  ///< coordinates of the axes that number them
  int64_t row_elements() const;
  int64_t elements() const { return element_count(domain()) / fold; }
  /// The first axis that is walked along a row.
  int first_of_row() const { return site.kept + (fold > 1 ? 1 : 0); }
};

/// Whether short forms will do for elements; what is made of rows is exact.
bool elements_fit_short_forms(const KernelSite& site);

/// The problem, or why the fusion is none.
std::variant<Refusal, RowsProblem> rows_problem(const Fusion& fusion, const DeviceInfo& device);
/// The same with neighbouring rows folded into one, where vectors reach over several of them so.
std::optional<RowsProblem> folded(const RowsProblem& problem);
/// The same where the operand lies along neighbouring rows and results along each row: its blocks turn what
/// they keep.
std::optional<RowsProblem> turned(const RowsProblem& problem);

}  // namespace fusor
