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

  /// Axes along which either number varies, a bit each.
  uint32_t varying() const;
};

/// The first such comparison of the masks that node `at`, a score, passes.
std::optional<ValueMask> value_mask_of(const Fusion& fusion, const Expr& expr, int at);
/// The mask that node `at` is, a comparison of numbers that is no bound on keys and no length: of scores that
/// are hidden where it does not hold, by whoever asks.
std::optional<ValueMask> compared_numbers(const Fusion& fusion, const Expr& expr, int at);
/// Where node `at` is a score that such a comparison masks, alone or among other conditions: the score
/// without it, which is `mask` then. What is a bound on keys is none.
std::optional<int> take_value_mask(const Fusion& fusion, Expr& expr, int at, std::optional<ValueMask>& mask);

/// The mask that the kernel compares numbers for, if any.
inline const ValueMask* compared_by_kernel(const std::optional<ValueMask>& mask) {
  return mask && !mask->in_score ? &*mask : nullptr;
}
/// Adds what a kernel knows at compile time: the words of bits of live blocks and, where it compares numbers
/// itself, how.
void append_mask(std::vector<ConfigValue>& config, const ValueMask* compared, int64_t words);
/// The words that a bit for each of so many blocks takes: a power of two, so that few kernels serve many
/// lengths.
int64_t words_of_blocks(int64_t blocks);
/// Share of pairs of a tile and a block that the model takes to be seen. Which are is known on the device
/// alone: a mask is taken to leave a quarter of the keys, 512 in a row, of which tiles and blocks at the ends
/// are seen in part.
double live_share(int64_t tile_q, int64_t tile_k);
/// Fewer blocks than this are not worth the launch that finds which of them are seen.
inline constexpr int64_t kFewBlocks = 4;

/// A count of tiles that were asked for, and the ranges of a mask's numbers, in the first scratch from a byte
/// on: those of the tiles of each entry that has numbers of its own, and behind them those of its blocks of
/// keys (codegen/device/sm90/attention/live_blocks.cuh).
class ValueRanges {
 public:
  ValueRanges(const ValueMask& mask, const Dims& batch, int64_t tile_q, int64_t tile_k,
              int64_t first_byte = 0);

  int64_t end_byte() const;
  /// The launch that finds them; its sites go to `sites`.
  Launch launch(const Fusion& fusion, const std::string& target, int64_t index_bits,
                std::vector<KernelSite>& sites) const;
  /// The field by which the kernel reads them.
  void append(Parameters& p) const;

 private:
  int64_t entries() const { return element_count(own_); }
  int64_t first_of_queries() const;
  int64_t first_of_keys() const;

  const ValueMask& mask_;
  Dims own_;  // entries that have numbers of their own, by axis
  int64_t queries_, keys_, tile_q_, tile_k_, first_byte_;
};

}  // namespace fusor::attention
