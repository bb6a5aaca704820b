// Owns how attention reads the site between its two products: which node is the score, which are its row's
// largest value and sum of exponentials, and which keys a row sees.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "backend/engines/sm90/attention/masks.h"
#include "backend/engines/sm90/attention/value_mask.h"
#include "core/fusion.h"
#include "core/support.h"

namespace fusor::attention {

/// The nodes of a softmax over the last axis, p = exp(score - largest) / sum. With a sink, a score that has
/// no key, `largest` and `sum` are those of all scores and the sink.
struct Softmax {
  int score = -1, largest = -1, sum = -1, sink = -1;
  std::vector<int> steps = {};    ///< nodes between these, which kernels compute in fp32
  std::vector<int> weights = {};  ///< numbers that probabilities are multiplied by
  /// Behind the division, a probability is kept where node `keep` holds, and node `otherwise` elsewhere, or 0
  /// where this is -1. Without dropout `keep` is -1.
  int keep = -1, otherwise = -1;
  bool guarded = false;                 ///< a row without a finite score gives zeros, not NaN
  std::array<int, 2> guard = {-1, -1};  ///< what takes the place of its sum, and the sum that is replaced
  int least = -1;  ///< the number that the largest score is at least, which kernels pass over
};

/// The node that stands for input number `input` in a part of a site, with the type and the op of `like`.
Node input_node(int input, const Node& like);

/// The softmax that the site yields, or nothing where it yields something else.
std::optional<Softmax> match_softmax(const Expr& expr);

/// The site taken apart, as the kernel is given it.
struct Scores {
  Expr score;                   ///< input 0, a product, to the score of a key that the row sees
  Expr rows;                    ///< inputs 0 and 1, the largest score and the sum, to what is stored of a row
  std::optional<Expr> sink;     ///< the sink of a row
  Bounds bounds;                ///< keys that a mask leaves
  std::optional<double> scale;  ///< score = product * scale, a positive constant
  /// score = product * a scalar that each run gives, which is taken to be positive.
  std::optional<Factor> given_scale;
  double weight = 1;  ///< of probabilities
  /// Probabilities that dropout keeps are multiplied by a scalar that each run gives, too.
  std::optional<Factor> given_weight;
  /// Numbers that are known in a run only, by which probabilities are multiplied: what this yields.
  std::optional<Expr> run_weights;
  /// Which probabilities dropout keeps, of coordinates and numbers of an entry; see kept_part().
  std::optional<Expr> keep;
  bool guarded = false;
  /// Values are multiplied by exponentials and divided by their sum; else by the scores themselves, which are
  /// zero outside of the bounds.
  bool softens = true;
  /// How many keys and how many queries of an entry exist, where a mask hides all others: integers that the
  /// device knows, yielded in that order.
  std::optional<Expr> lengths;
  /// A mask by which whole blocks of keys are passed over.
  std::optional<ValueMask> values;

  bool is_plain() const { return softens && (scale || given_scale); }
};

/// Where node `at` is "coordinate along `axis` < number" and the number one of an entry of the batch: its
/// node, an integer that the device knows.
std::optional<int> length_along(const Expr& expr, int at, int axis);
/// The numbers of keys and of queries at these nodes, yielded in that order.
Expr lengths_at(const Expr& expr, int keys, int queries);

/// The parts of a site, beside softmax and score, that the caller carries out.
struct Takes {
  bool weights = false;  ///< probabilities may be multiplied by numbers before they are rounded
  bool lengths = false;  ///< where a mask is lengths, they are no part of the score
  bool dropout = false;  ///< probabilities may be dropped behind the division
  bool values = false;  ///< a mask that compares numbers is no part of the score, where nothing else is in it
  bool plain_chains = false;  ///< there may be no softmax
};

/// Takes the site apart, or says why attention cannot.
std::variant<Scores, Refusal> take_apart(const Fusion& fusion, const Expr& site, const Takes& takes = {});

}  // namespace fusor::attention
