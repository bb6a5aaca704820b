// Owns the text of totals: those of each phase, which a row's values are settled from, and those of columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/text/rows/elements.h"
#include "codegen/text/rows/formulas.h"
#include "codegen/text/rows/part.h"
#include "codegen/text/rows/values.h"

namespace fusor {

/// Writes the structs of totals, and the functions in which they grow and are settled.
class RowTotals : private RowPart {
 public:
  RowTotals(const RowNodes& nodes, std::string& text, RowValues& values, RowElements& elements,
            const RowFormulas& formulas)
      : RowPart(nodes, text), values_(values), elements_(elements), formulas_(formulas) {}

  void write_phase(int phase);
  /// Writes the totals of columns and how they grow.
  void write_columns();

 private:
  bool takes_steps(int total) const;
  bool takes_lanes(int total) const;
  std::string reduction_type(int total) const;
  std::vector<int> arguments_of(const std::vector<int>& totals) const;
  void write_accumulators(std::string_view type, const std::vector<int>& totals);
  void write_addition(int total, std::string_view into);
  void write_additions(const std::vector<int>& totals, std::string_view into);

  RowValues& values_;
  RowElements& elements_;
  const RowFormulas& formulas_;
};

}  // namespace fusor
