// Owns the schedules of the two kernels that reduce.
#include "backend/engines/elementwise/reduce.h"

#include <algorithm>

#include "backend/engines/elementwise/vectors.h"
#include "codegen/text/expr_emitter.h"
#include "core/ceil_div.h"

namespace fusor::elementwise {

namespace {

void split_reduction(ElementwiseSchedule& s, int64_t steps, int64_t least, int64_t unit,
                     const ElementwiseKnobs& knobs, int64_t wanted_blocks) {
  const int64_t most = std::max<int64_t>(1, steps / std::max<int64_t>(1, least));
  const int64_t splits = knobs.splits ? *knobs.splits : power_of_two_to(wanted_blocks / s.blocks());
  s.splits = std::clamp<int64_t>(splits, 1, std::min<int64_t>(most, 4096));
  s.chunk = ceil_div(ceil_div(steps, s.splits), unit) * unit;
  s.splits = ceil_div(steps, s.chunk);
}

int64_t reduction_unroll(const ElementwiseSchedule& s, const ElementwiseKnobs& knobs) {
  const Expr& expr = s.y.expr;
  const int64_t enough = streamed_bytes(expr, s.y.vector_axis, s.vector) <= 4 ? 8 : 4;
  return affordable_unroll(expr, s.vector, knobs.unroll.value_or(enough));
}

// Whether elements are taken through an index: places are found once for each vector, and for the row they
// are in once for all vectors that a thread adds.
bool has_indexed_loads(const Expr& expr) {
  return std::ranges::any_of(
      expr.nodes, [](const Node& node) { return node.kind == Node::Kind::load && node.access.is_indexed(); });
}

// Fewer threads for a row, of many.
void share_places(ElementwiseSchedule& s, int64_t steps, const DeviceInfo& device) {
  constexpr int64_t kVectors = 4, kLeastGroup = 4, kWaves = 2;
  const int64_t blocks = device.sm_count * (device.max_threads_per_sm / s.threads) * kWaves;
  while (s.group > kLeastGroup && steps / s.group < kVectors && s.blocks() / 2 >= blocks) s.group /= 2;
}

}  // namespace

void schedule_rows(ElementwiseSchedule& s, const ElementwiseKnobs& knobs, const DeviceInfo& device) {
  s.variant = ElementwiseSchedule::Variant::rows;
  s.threads = knobs.threads.value_or(256);
  s.unroll = reduction_unroll(s, knobs);
  const int64_t steps = s.vectors(s.kept, s.domain().rank());
  s.group = std::min(s.threads, power_of_two_from(ceil_div(steps, s.unroll)));
  // With few rows, more threads to each.
  while (s.group < s.threads && s.group < steps && s.blocks() < device.sm_count) s.group *= 2;
  if (has_indexed_loads(s.y.expr)) share_places(s, steps, device);
  split_reduction(s, steps, 2 * s.group * s.unroll, s.group, knobs, 2048 / s.threads * device.sm_count);
}

void schedule_columns(ElementwiseSchedule& s, const ElementwiseKnobs& knobs, const DeviceInfo& device) {
  s.variant = ElementwiseSchedule::Variant::columns;
  const int64_t accumulator = accumulator_bytes(s.y);
  s.threads = knobs.threads.value_or(256);
  while (s.threads > 64 && accumulator * s.vector * s.threads / 2 > kStaticSharedBytes) s.threads /= 2;
  s.unroll = reduction_unroll(s, knobs);
  const int64_t steps = s.vectors(s.kept, s.domain().rank());
  const int64_t lanes = std::clamp<int64_t>(power_of_two_to(steps / s.unroll), 1, s.threads / 32);
  s.group = std::min(s.threads / lanes, power_of_two_from(s.vectors(0, s.kept)));
  const int64_t lanes_of_block = s.threads / s.group;
  split_reduction(s, steps, 2 * lanes_of_block * s.unroll, lanes_of_block, knobs,
                  1024 / s.threads * device.sm_count);
}

int64_t column_vector(const KernelSite& site, int axis, int64_t vector) {
  const int64_t accumulator = accumulator_bytes(site);
  while (vector > 1 && (site.expr.domain[axis] % vector != 0 || vector * accumulator > 128)) vector /= 2;
  return vector;
}

}  // namespace fusor::elementwise
