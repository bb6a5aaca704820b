// Owns the form of a rows site: its vectors of one width, its totals joined or each for itself, and the sizes
// that follow from these alone. Many schedules share one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "backend/engines/rows/problem.h"
#include "codegen/text/rows/facts.h"

namespace fusor {

struct RowsForm {
  RowsForm(const RowsProblem& problem, int64_t vector, bool joins);

  KernelSite y;  ///< with whole vectors marked
  RowFacts facts;
  int64_t held = 0;        ///< bytes of a vector of what differs between rows, at least 1
  int64_t fixed = 0;       ///< bytes of a vector of what is the same for all rows
  int64_t streamed = 0;    ///< bytes of an element that bulk copies move, 0 where none can (rows/sizes.h)
  int64_t copied = 0;      ///< bytes of a vector that copies move, 0 where none can
  int64_t columns = 0;     ///< bytes of a column's totals
  int64_t totals = 0;      ///< bytes of a phase's totals, at most
  int64_t row_values = 0;  ///< values of a row that its elements need
  int64_t row_bytes = 0;   ///< bytes of all values of a row, at most
  bool in_pieces = false;  ///< whether vectors of what walks a row are pieces of 16 bytes or more
};

/// The forms of a problem, each made once.
class RowsForms {
 public:
  explicit RowsForms(const RowsProblem& problem) : problem_(problem) {}
  std::shared_ptr<const RowsForm> at(int64_t vector, bool joins);

 private:
  const RowsProblem& problem_;
  std::map<std::pair<int64_t, bool>, std::shared_ptr<const RowsForm>> made_;
};

}  // namespace fusor
