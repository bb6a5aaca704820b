// Owns the text of the loop over the lanes of a vector, in which the values of a row's elements are computed.
#pragma once

#include <string>
#include <vector>

#include "codegen/text/rows/formulas.h"
#include "codegen/text/rows/numbers.h"
#include "codegen/text/rows/part.h"

namespace fusor {

/// Opens the loops in which totals grow and results are made.
class RowElements : private RowPart {
 public:
  RowElements(const RowNodes& nodes, std::string& text, RowNumbers& numbers, RowFormulas& formulas)
      : RowPart(nodes, text), numbers_(numbers), formulas_(formulas) {}

  /// The arguments of every function that computes values of elements.
  std::vector<std::string> element_arguments() const;
  /// Opens the loop over lanes with all that the targets need.
  void write_elements(const std::vector<int>& targets);

 private:
  std::vector<int> elements_behind(const std::vector<int>& targets) const;

  RowNumbers& numbers_;
  RowFormulas& formulas_;
};

}  // namespace fusor
