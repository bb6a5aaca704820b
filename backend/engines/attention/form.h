// Owns the form of a fusion that attention kernels carry out, and the facts of it that do not depend on how
// operands are loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/engines/sm90/attention/scores.h"
#include "codegen/text/parameters.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/support.h"

namespace fusor::attention {

/// A refusal that names the first product, and cuts in front of the second.
Refusal refuse_attention(const Fusion& fusion, const char* rule, std::string tensor, std::string expected,
                         std::string actual, const char* remedy = "");

/// The refusal of a result with elements at places that are computed, which `y` stores; none where it has
/// none.
std::optional<Refusal> refuse_computed_places(const Fusion& fusion, const Expr& y);

/// Two matmuls with fp32 sums, the second of what a site makes of the first; an elementwise result; where the
/// site is a softmax, a graph that lets it be divided behind its product.
std::optional<Refusal> refuse_attention_form(const Fusion& fusion);

/// Blocks of `tile_k` keys that the tiles of `tile_q` queries see, in all.
int64_t live_blocks(const Bounds& bounds, int64_t queries, int64_t keys, int64_t tile_q, int64_t tile_k);

/// Share of the scores that bounds on keys leave, of those that a fusion of attention or of its gradients
/// multiplies: of masks in front of an exponential, and of zeros behind it. 1 of other fusions. What only the
/// device knows, lengths and numbers that are compared, leaves all.
double seen_share(const Fusion& fusion);

/// The result with its input, a product, multiplied by the numbers that `weights` yields.
Expr multiplied(const Expr& y, const Expr& weights);

/// The result without a last rounding that the store repeats: a composite's last step only rounds.
Expr without_last_rounding(Expr y);

/// The fields of codegen/device/sm90/attention/tiles.cuh.
void append_visible(Parameters& p, const Bounds& bounds);
/// A divisor for each batch axis, and one of 1, for a batch without axes.
void append_divisors(Parameters& p, const char* name, std::vector<int64_t> divisors);

}  // namespace fusor::attention
