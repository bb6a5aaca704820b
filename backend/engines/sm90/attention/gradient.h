// Owns how attention's backward pass reads the site behind its two products: probabilities and the gradients
// of scores, the values of a row that both are made of, and which keys a row sees.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "backend/engines/sm90/attention/masks.h"
#include "backend/engines/sm90/attention/value_mask.h"
#include "core/fusion.h"
#include "core/support.h"

namespace fusor::attention {

/// Which input and which yields of the site are what; a yield that nobody asks for is -1.
struct GradientRoles {
  int scores = 0;          ///< the input that is the product of queries and keys
  int probabilities = -1;  ///< yield
  int gradients = -1;      ///< yield
};

/// The site taken apart, as the kernels are given it.
struct Gradient {
  /// Inputs 0 and 1, the products of queries and keys and of result gradients and values; then the values of
  /// a row. The yields are the site's.
  Expr site;
  /// The way to memory of gradients of scores, input 0, that others read, too: the gradient of a bias, say.
  std::optional<Expr> stored;
  std::vector<Expr> rows;  ///< what a row's values are, in the order of the inputs
  Bounds bounds;           ///< keys outside have neither probability nor gradient
  /// Probabilities are exp(product * scale - first value of the row), gradients of scores probability *
  /// (product - second value) * slope; with dropout, of dropped products, and the first product is of dropped
  /// probabilities.
  std::optional<double> scale;
  /// The factor of scores where each run gives it; `scale` is 1 then.
  std::optional<Factor> given_scale;
  /// A scalar of the site, which is left to the products of gradients of scores: they are linear.
  std::optional<Node> slope;
  bool slopes_late = false;  ///< what is rounded without the slope may be another number than with it
  /// How many keys and how many queries of an entry along the first axis exist: neither probability nor
  /// gradient is elsewhere. Integers that the device knows, yielded in that order.
  std::optional<Expr> lengths;
  /// A mask by which whole blocks are passed over; outside of it neither probability nor gradient is.
  std::optional<ValueMask> values;
  /// Which probabilities dropout keeps, times `kept_weight`, and which products, times `product_weight`; see
  /// kept_part(). Gradients are those of probabilities times `kept_weight`.
  std::optional<Expr> keep;
  double kept_weight = 1, product_weight = 1;
  bool rounds = false;  ///< probabilities are rounded before gradients are made of them
};

/// Takes the site apart, or says why the engine cannot. `takes_lengths`: where a mask is lengths, they are no
/// part of the score.
std::variant<Gradient, Refusal> take_apart(const Fusion& fusion, const Site& site, const GradientRoles& roles,
                                           bool takes_lengths = false);

}  // namespace fusor::attention
