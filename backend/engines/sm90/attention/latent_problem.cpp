// Owns the rules of the attention_latent engine, and what a setting of its knobs settles.
#include <fmt/format.h>

#include <utility>

#include "backend/engines/rules.h"
#include "backend/engines/sm90/attention/latent.h"

namespace fusor::latent_attention {

namespace {

using tiled_attention::OperandLoad;
using tiled_attention::Problem;

constexpr int64_t kMostHead = 576, kMostValue = 512, kMostRows = 512;
constexpr int64_t kLineElements = 64;      // of a swizzled line
constexpr int64_t kConsumers = 2;          // each has whole lines of the values
constexpr int64_t kVector = 8;             // elements of a copy
constexpr int64_t kExchangedBytes = 9216;  // probabilities, numbers of rows, barriers, and alignment

// Whether value `at` of keys [.., element, row] is that of values [.., row, element], at the same places.
bool are_same(const Expr& keys, int at, const Expr& values, int other) {
  if (at < 0 || other < 0) return at == other;
  const Node &a = keys.node(at), &b = values.node(other);
  const int rank = keys.domain.rank();
  const auto of_values = [&](int axis) {
    return axis == rank - 1 ? rank - 2 : axis == rank - 2 ? rank - 1 : axis;
  };
  if (a.kind != b.kind || a.type != b.type || a.access.operand != b.access.operand ||
      a.access.offset != b.access.offset || a.access.indexed != b.access.indexed ||
      (a.kind == Node::Kind::index && of_values(a.axis) != b.axis) ||
      (a.kind == Node::Kind::pointwise && a.pointwise != b.pointwise) || a.kind == Node::Kind::reduce ||
      a.kind == Node::Kind::input)
    return false;
  for (int axis = 0; axis < rank; ++axis)
    if (a.access.strides.rank() == rank && keys.domain[axis] > 1 &&
        (b.access.strides.rank() != rank || a.access.strides[axis] != b.access.strides[of_values(axis)]))
      return false;
  for (size_t i = 0; i < a.args.size(); ++i)
    if (!are_same(keys, a.args[i], values, b.args[i])) return false;
  return true;
}

bool are_same_rows(const OperandLoad& k, const OperandLoad& v) {
  return k.plain && v.plain && are_same(k.expr, yielded(k.expr), v.expr, yielded(v.expr));
}

}  // namespace

std::variant<DecodeProblem, Refusal> latent_problem_of(const Fusion& fusion, const DeviceInfo& device) {
  if (auto refusal = refuse_other_than_hopper(device)) return std::move(*refusal);
  auto answer =
      tiled_attention::decode_problem_of(fusion, device, {.most_head = kMostHead, .most_rows = kMostRows});
  if (auto* refusal = std::get_if<Refusal>(&answer)) return std::move(*refusal);
  const Problem& problem = std::get<DecodeProblem>(answer).problem;
  if (problem.value > problem.head || !are_same_rows(problem.k, problem.v))
    return attention::refuse_attention(fusion, "values-in-keys", "",
                                       "values that are the first elements of keys", "rows of their own");
  if (problem.value > kMostValue || problem.value % (kConsumers * kLineElements) != 0)
    return attention::refuse_attention(fusion, "whole-lines", "",
                                       fmt::format("a multiple of {} elements of values, at most {}",
                                                   kConsumers * kLineElements, kMostValue),
                                       fmt::format("{}", problem.value));
  if (!problem.k.along_head || problem.k.width != kVector)
    return attention::refuse_attention(fusion, "whole-vectors", "", "rows of keys in vectors of 16 bytes",
                                       "others", "align them");
  return answer;
}

LatentSchedule::LatentSchedule(const DecodeProblem& decode_, const LatentKnobs& knobs_)
    : decode(decode_), knobs(knobs_) {
  // A stage has warps of its own, of four.
  for (const int64_t count : {4, 2}) {
    stages = count;
    const int64_t part = tiled_attention::part_bytes(decode, kTileRows);
    if (shared_bytes() <= decode.problem.device.shared_per_block && stages * kTileKeys * line_bytes() >= part)
      return;
  }
  stages = 0;
}

int64_t LatentSchedule::line_bytes() const {
  return 2 * round_up(decode.problem.padded_head(), kLineElements);
}

int64_t LatentSchedule::shared_bytes() const {
  return (kTileRows + stages * kTileKeys) * line_bytes() + kExchangedBytes;
}

int64_t LatentSchedule::finish_lanes() const {
  int64_t lanes = 1;
  while (lanes < 8 && 4 * lanes < knobs.split) lanes *= 2;
  return lanes;
}

int64_t LatentSchedule::workspace() const {
  return knobs.split > 1 ? all_tiles() * knobs.split * tiled_attention::part_bytes(decode, kTileRows) : 0;
}

}  // namespace fusor::latent_attention
