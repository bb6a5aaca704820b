// Owns the text of formulas in a rows site: one value of a row or of an element, and what it reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/text/rows/numbers.h"
#include "codegen/text/rows/part.h"

namespace fusor {

/// Makes the text of values, and writes in front of the loops over lanes what they take from there.
class RowFormulas : private RowPart {
 public:
  RowFormulas(const RowNodes& nodes, std::string& text, const RowNumbers& numbers)
      : RowPart(nodes, text), numbers_(numbers) {}

  static std::string rounded(const Node& node, const std::string& value, bool in_carrier);
  std::string coordinate(int at) const;
  /// A value where it is read: in the loop over the lanes of a row's values, or over those of its elements.
  std::string read(int at, bool in_row) const;
  std::string computed(int at, std::string_view functions, bool in_row) const;

  void write_parameters(int at);
  /// Writes the by-value operands that these nodes read.
  void write_scalars(const std::vector<int>& readers);
  /// Writes the random words that the lanes of an element's vector share.
  void write_words(const std::vector<int>& needed);
  /// Writes the values of a row that its elements are divided by.
  void write_divisors(const std::vector<int>& needed);

 private:
  bool divides_by_row(int at) const;
  bool shares_words(int at) const;

  const RowNumbers& numbers_;
};

}  // namespace fusor
