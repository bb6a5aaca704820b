// Owns the rules of the attention_decode engine, and what a setting of its knobs settles.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/engines/tiled/attention/decode.h"
#include "backend/engines/tiled/tiling.h"

namespace fusor::tiled_attention {

namespace {

constexpr int64_t kThreadsOfSm = 256;  // whose copies in flight keep memory busy
constexpr int64_t kMostStages = 4;     // of a warp
constexpr int64_t kMostCluster = 16;   // blocks of a cluster
constexpr int64_t kPadding = 8;        // floats behind a line of a part

}  // namespace

std::variant<DecodeProblem, Refusal> decode_problem_of(const Fusion& fusion, const DeviceInfo& device,
                                                       const DecodeSizes& sizes) {
  auto answer = problem_of(fusion, device, sizes.most_head);
  if (auto* refusal = std::get_if<Refusal>(&answer)) return std::move(*refusal);
  DecodeProblem decode{.problem = std::move(std::get<Problem>(answer)), .shares = {}};
  Problem& problem = decode.problem;
  if (!problem.scores.softens)
    return attention::refuse_attention(fusion, "softmax-between", "",
                                       "a softmax over the keys between the products", "none");
  if (problem.k.sharing != problem.v.sharing)
    return attention::refuse_attention(fusion, "shared-heads", "",
                                       "keys and values that the same heads share", "other sharing");
  decode.shares = problem.k.sharing;
  for (const int64_t share : decode.shares) decode.heads *= share;
  if (decode.rows() > sizes.most_rows)
    return attention::refuse_attention(
        fusion, "few-rows", "", fmt::format("at most {} queries of heads that share keys", sizes.most_rows),
        fmt::format("{} queries of {} heads", problem.queries, decode.heads));
  if (!problem.q.along_head) {
    // Rows of a tile are queries of several heads: no vectors across them.
    const Expr& q = operand_site(fusion, 0, 0);
    problem.q.expr = q;
    problem.q.vector_axis = q.domain.rank() - 1;
    problem.q.along_head = true;
    problem.q.width = 1;
  }
  decode.fixed = problem.scores.bounds;
  take_limits(decode);
  return decode;
}

// As many blocks as keep memory busy, if their share of an SM holds two stages; then as many stages as it
// holds.
DecodeSchedule::DecodeSchedule(const DecodeProblem& decode_, const DecodeKnobs& knobs_)
    : decode(decode_), knobs(knobs_) {
  const DeviceInfo& device = decode.problem.device;
  if (knobs.split > kMostCluster || device.compute_capability < 90) knobs.cluster = 0;
  for (blocks_per_sm = std::max<int64_t>(1, kThreadsOfSm / threads());; --blocks_per_sm) {
    const int64_t share =
        std::min(device.shared_per_block, device.shared_per_sm / blocks_per_sm - kReservedBytes);
    for (stages = kMostStages; stages >= 2 && shared_bytes() > share; --stages) {
    }
    if (stages >= 2 || blocks_per_sm == 1) break;
  }
  if (stages < 2) stages = 0;
}

int64_t DecodeSchedule::stage_bytes() const {
  const Problem& problem = decode.problem;
  return tile_bytes(knobs.tile_k, problem.padded_head()) + tile_bytes(knobs.tile_k, problem.padded_value());
}

int64_t part_bytes(const DecodeProblem& decode, int64_t rows) {
  return rows * 4 * (decode.problem.padded_value() + kPadding + 2);
}

int64_t DecodeSchedule::part_bytes() const { return tiled_attention::part_bytes(decode, tile_rows()); }

int64_t DecodeSchedule::shared_bytes() const {
  const int64_t parts = round_up((knobs.warps + 1) * part_bytes(), 128);
  return tile_bytes(tile_rows(), decode.problem.padded_head()) +
         std::max(knobs.warps * stages * stage_bytes(), parts);
}

int64_t DecodeSchedule::workspace() const {
  return knobs.split > 1 && knobs.cluster == 0 ? all_tiles() * knobs.split * part_bytes() : 0;
}

// Scores and sums; rows, addresses and the running softmax; masks and ops on scores.
bool DecodeSchedule::fits() const {
  constexpr int64_t kMostRegisters = 255;
  const Problem& problem = decode.problem;
  const int64_t values = knobs.row_blocks * (knobs.tile_k / 2 + problem.padded_value() / 2);
  const attention::Bounds& bounds = problem.scores.bounds;
  const int64_t masks = bounds.lower.empty() && bounds.upper.empty() ? 0 : 8;
  const int64_t others = 40 + 24 * knobs.row_blocks + masks + (problem.scores.scale ? 0 : 24) +
                         (problem.index_bits == 64 ? 16 : 0);
  return stages >= 2 && values + others <= kMostRegisters;
}

}  // namespace fusor::tiled_attention
