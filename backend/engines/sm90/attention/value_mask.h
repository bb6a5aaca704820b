// Owns the masks that compare a number of each query with one of each key, such as those of documents: what
// is compared, and the launch that finds which numbers the tiles of queries and the blocks of keys have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/text/parameters.h"
#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor::attention {

/// Which of two numbers has to reach the other one.
enum class Reach : uint8_t { none, as_much, more };

/// A score is -inf unless of_query reaches of_key by `query`, and of_key reaches of_query by `key`. Equality
/// is both of them, as_much.
struct ValueMask {
  Expr of_query;  ///< yields an integer, over the batch and queries
  Expr of_key;    ///< yields an integer, over the batch and keys
  Reach query = Reach::none, key = Reach::none;
  bool in_score = true;  ///< the score is masked by it; else the kernel does that
};

/// The first such comparison of the masks that node `at`, a score, passes.
std::optional<ValueMask> value_mask_of(const Fusion& fusion, const Expr& expr, int at);
/// Where node `at` is a score that such a comparison, and nothing else, masks: the score without the mask,
/// which is `mask` then.
std::optional<int> behind_value_mask(const Fusion& fusion, const Expr& expr, int at,
                                     std::optional<ValueMask>& mask);

/// The ranges of a mask's numbers in a scratch: those of the tiles of each entry that has numbers of its own,
/// and behind them those of its blocks of keys (codegen/device/sm90/attention/live_blocks.cuh).
class ValueRanges {
 public:
  ValueRanges(const ValueMask& mask, const Dims& batch, int64_t tile_q, int64_t tile_k);

  int64_t bytes() const;
  /// The launch that finds them; its sites go to `sites`.
  Launch launch(const Fusion& fusion, const std::string& target, int64_t index_bits,
                std::vector<KernelSite>& sites) const;
  /// The field by which the kernel reads them.
  void append(Parameters& p) const;

 private:
  int64_t entries() const { return element_count(own_); }
  int64_t first_of_keys() const;

  const ValueMask& mask_;
  Dims own_;  // entries that have numbers of their own, by axis
  int64_t queries_, keys_, tile_q_, tile_k_;
};

}  // namespace fusor::attention
