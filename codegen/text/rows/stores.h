// Owns the text of what a rows site stores: elements, one value a row, and totals of columns.
#pragma once

#include <string>
#include <string_view>

#include "codegen/text/rows/elements.h"
#include "codegen/text/rows/formulas.h"
#include "codegen/text/rows/part.h"

namespace fusor {

/// Writes the functions that end an element, a row, and a column.
class RowStores : private RowPart {
 public:
  RowStores(const RowNodes& nodes, std::string& text, RowElements& elements, RowFormulas& formulas)
      : RowPart(nodes, text), elements_(elements), formulas_(formulas) {}

  void write_finish();
  /// Writes the stores of one value a row.
  void write_finish_row();
  /// Writes the stores of totals of columns.
  void write_finish_column();

 private:
  bool is_column_store(const Store& store) const;
  bool is_element_store(const Store& store) const;
  void write_store(int at, std::string_view count);

  RowElements& elements_;
  RowFormulas& formulas_;
};

}  // namespace fusor
