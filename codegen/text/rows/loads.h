// Owns the text of what a rows site loads of a row's elements: Held, Fixed, runs, and what lies outside.
#pragma once

#include <string>
#include <string_view>

#include "codegen/text/rows/numbers.h"
#include "codegen/text/rows/part.h"

namespace fusor {

/// Writes the structs of elements as they are stored, and the functions that load them.
class RowLoads : private RowPart {
 public:
  RowLoads(const RowNodes& nodes, std::string& text, RowNumbers& numbers)
      : RowPart(nodes, text), numbers_(numbers) {}

  /// The text of a load, whose elements stay as stored; `lanes` is the name of how many it gives.
  std::string raw_load(int at, std::string_view lanes, std::string_view count) const;
  /// Writes the elements of a vector as they are stored, of each row or the same for all rows.
  void write_loads(std::string_view type, std::string_view function, bool fixed);
  /// Writes the elements of places that are none.
  void write_outside();
  /// Writes the runs of elements that several windows of a thread take.
  void write_run();

 private:
  std::string is_inside(int at) const;
  std::string indexed_offset(int at) const;
  std::string indexed_load(int at, std::string_view lanes) const;
  std::string outside(int load) const;
  bool sums_ignore_outside() const;

  RowNumbers& numbers_;
};

}  // namespace fusor
