// Owns the text of rows that reach shared memory ahead of their use: copied whole, or vector by vector.
#pragma once

#include <string>
#include <vector>

#include "codegen/text/rows/loads.h"
#include "codegen/text/rows/part.h"

namespace fusor {

/// Writes where rows lie in memory, how they are copied ahead, and how they are taken from where they are
/// copied to.
class RowStreams : private RowPart {
 public:
  RowStreams(const RowNodes& nodes, std::string& text, const RowLoads& loads);

  /// Writes rows that are copied whole: where each load's row begins, and a vector of them where they lie one
  /// behind the other.
  void write_streams();
  /// Writes the vectors of load() in pieces of 16 bytes of shared memory, `apart` bytes from one to the next:
  /// copied there ahead, and taken from there. What all lanes share is loaded again.
  void write_copy();

 private:
  template <class Visit>
  void write_pieces(Visit&& visit) const;
  std::string row_address(int load) const;

  const RowLoads& loads_;
  std::vector<int> streams_;  ///< loads that walk a row
};

}  // namespace fusor
