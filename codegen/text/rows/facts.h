// Owns the facts of a rows site: when each value is known and where, and which numbers a text can count.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/text/expr_emitter.h"

namespace fusor {

inline bool is_reduce(const Node& node) { return node.kind == Node::Kind::reduce; }
/// Whether an index is along no axis: a number that the text names.
inline bool is_number(const Node& node) { return node.access.strides[node.axis] == 0; }

/// Where a rows site is computed: once an element of a row, or once a row.
enum class RowPlace : uint8_t { uniform, row, element };

/// A total that one pass makes together with the one that it needs.
enum class RowJoin : uint8_t {
  none,
  exp_sum,    ///< of exponentials less the maximum
  deviation,  ///< of squares of distances to the mean
};

/// Facts of a rows site's Expr, by node where they are lists.
struct RowFacts {
  explicit RowFacts(const KernelSite& site);

  uint32_t row_axes = 0;         ///< reduced by what feeds back
  bool spread = false;           ///< the vector axis is kept: neighbouring lanes are neighbouring rows
  int phase_count = 0;           ///< passes over a row before the last one
  std::vector<int> levels;       ///< the phase in which each value is known
  std::vector<RowPlace> places;  ///< of columns' totals: element
  std::vector<bool> is_column;   ///< a reduction over the other axes
  std::vector<RowJoin> joins;    ///< of totals, where the site joins any
  std::vector<int> summed;       ///< of totals: the node whose values a pass adds
  std::vector<int> giver;        ///< of totals: the joined total that has their result, or themselves
  /// A load of elements that are the same for all rows.
  bool is_fixed(const Expr& expr, int node) const;
  /// Whether each element of a row is stored: a value that they all share may still have a place for each.
  bool is_element_store(const Expr& expr, const Store& store) const;

 private:
  int level_of(const Node& node, int argument) const;
  void share_sum(const Expr& expr, int at);

  int kept_ = 0;
};

/// The part of a node in numbers that a text can count (device/base/counted.cuh): those made of coordinates
/// and whole constants by sums, products, quotients, bounds and choices, and the truths that choose.
enum class CountedKind : uint8_t { none, number, truth };
std::vector<CountedKind> counted_kinds(const Expr& expr);

/// The comparisons that a truth is the conjunction of, in order.
std::vector<int> comparisons_of(const Expr& expr, int truth);
/// The number that an index of a load is, where it is -1 or less unless a truth holds; else -1.
int place_of_choice(const Expr& expr, int index);
/// Whether a node chooses between elements that a load takes through such indices, where all their truths
/// hold, and a scalar. A site takes it that the load finds an element exactly where they hold, and loads the
/// scalar elsewhere.
bool is_choice_of_places(const Expr& expr, int at);

}  // namespace fusor
