// Owns the text of numbers that are counted: whole numbers of which more is known than their values.
#pragma once

#include <string>
#include <vector>

#include "codegen/text/rows/part.h"

namespace fusor {

/// Writes the numbers that sites which take elements through them count.
class RowNumbers : private RowPart {
 public:
  RowNumbers(const RowNodes& nodes, std::string& text);

  bool is_counted(int at) const { return counted_[static_cast<size_t>(at)]; }
  /// A counted number, or a truth, where it is read as a plain value.
  std::string value(int at) const;
  /// Writes the counted numbers that these nodes need.
  void write_counted(const std::vector<int>& readers);

 private:
  void find_counted();
  bool yields_truth_at(int at) const;
  std::string counted(int at) const;

  std::vector<bool> counted_;
};

}  // namespace fusor
