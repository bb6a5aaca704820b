// Owns the reading of nodes between attention's products: constants, masks that are bounds on keys, scales.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/fusion.h"

namespace fusor::attention {

/// A bound on the keys that row q sees, both ends included: slope * q + offset.
struct KeyBound {
  int64_t slope = 0, offset = 0;
  friend bool operator==(const KeyBound&, const KeyBound&) = default;
};

/// A row sees the keys from the largest of `lower` to the smallest of `upper`.
struct Bounds {
  std::vector<KeyBound> lower, upper;
};

/// q * row + k * key + offset, over the axes of queries and keys.
struct Line {
  int64_t row = 0, key = 0, offset = 0;
};

/// Whether values of the type are real numbers that are computed in fp32.
inline bool is_in_float(DataType type) { return is_real(type) && carrier(type) == DataType::f32; }

bool is_pointwise(const Node& node, PointwiseMode mode);
/// Past nodes that hand their argument on as it is.
int behind_identity(const Expr& expr, int at);
inline int argument(const Expr& expr, int at, size_t i) {
  return behind_identity(expr, expr.node(at).args[i]);
}
/// How many arguments of all nodes are this one; whether one is.
int readers_of(const Expr& expr, int at);
bool is_read_once(const Expr& expr, int at);
/// The number that a node is for every element, where it is one.
std::optional<double> constant(const Fusion& fusion, const Expr& expr, int at);

/// The value as such a line, where it is one and exact in the type that it is computed in.
std::optional<Line> line_of(const Fusion& fusion, const Expr& expr, int at);

/// Whether "node `at` is `truth`" is bounds on the keys of a row, which are added.
bool add_condition(const Fusion& fusion, const Expr& expr, int at, bool truth, Bounds& bounds);
/// Adds the bounds among the conditions that "node `at` is `truth`" joins; the others are passed over.
void add_bounds_of(const Fusion& fusion, const Expr& expr, int at, bool truth, Bounds& bounds);
/// Whether `condition` is one of those that node `at` joins.
bool asks(const Expr& expr, int at, int condition);
/// Takes the condition out of all that ask it: it holds wherever the site's values matter. Selects without
/// another condition still round.
void assume(Expr& expr, int condition);
/// No more bounds than kernels take.
bool fit(const Bounds& bounds);
/// The score without masks that are bounds: selects, or added zeros and infinities.
int behind_masks(const Fusion& fusion, Expr& expr, int at, Bounds& bounds);

/// A number that values are multiplied by: one that is known, or a by-value scalar of each run, which is
/// taken as no less than `least`.
struct Factor {
  double constant = 1;
  int node = -1;     ///< of the constant or the scalar; -1: values are taken as they are
  int operand = -1;  ///< of a scalar that is not known
  double least = -std::numeric_limits<double>::infinity();

  bool is_known() const { return operand < 0; }
  bool is_positive() const { return is_known() ? constant > 0 : least > 0; }
  friend bool operator==(const Factor&, const Factor&) = default;
};
/// Node `at` as a factor: a scalar, or the larger of a scalar and a constant; nothing where it is neither.
std::optional<Factor> factor_at(const Fusion& fusion, const Expr& expr, int at);
/// The number that makes the score of the site's input `input`.
std::optional<Factor> factor_of(const Fusion& fusion, const Expr& expr, int score, int input);

/// The positive constant that makes the score of the site's input `input`.
std::optional<double> scale_of(const Fusion& fusion, const Expr& expr, int score, int input);

}  // namespace fusor::attention
