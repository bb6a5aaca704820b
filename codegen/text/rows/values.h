// Owns the text of the values that a row has once: the struct Row, and where each of them is computed.
#pragma once

#include <string>
#include <string_view>

#include "codegen/text/rows/formulas.h"
#include "codegen/text/rows/loads.h"
#include "codegen/text/rows/numbers.h"
#include "codegen/text/rows/part.h"

namespace fusor {

/// Writes the values of a row: those that are known from the beginning, and those that a phase settles.
class RowValues : private RowPart {
 public:
  RowValues(const RowNodes& nodes, std::string& text, RowNumbers& numbers, const RowLoads& loads,
            RowFormulas& formulas)
      : RowPart(nodes, text), numbers_(numbers), loads_(loads), formulas_(formulas) {}

  void write_row();
  /// Writes the values of a row that are known at `wanted`.
  void write_row_values(int wanted);

 private:
  bool is_row_value(int at) const;
  void write_lane(std::string_view function, std::string_view arguments, std::string_view format);
  void write_row_value(int at);
  std::string row_value(int at) const;
  std::string settled(int at) const;
  std::string picked(int at) const;

  RowNumbers& numbers_;
  const RowLoads& loads_;
  RowFormulas& formulas_;
};

}  // namespace fusor
