// Owns the argument blocks of the kernels in codegen/device/elementwise: the order of the puts is the order
// of the fields there.
#include "backend/engines/elementwise/launch.h"

#include <algorithm>
#include <bit>

#include "codegen/expr_emitter.h"
#include "core/ceil_div.h"
#include "core/fail.h"
#include "core/fast_divisor.h"

namespace fusor {

namespace {

using Variant = ElementwiseSchedule::Variant;

constexpr int64_t kFinishThreads = 256;  // of elementwise/reduce_finish.cuh
constexpr int64_t kMaxGridX = (int64_t{1} << 31) - 1;

uint32_t grid_x(int64_t blocks) {
  if (blocks > kMaxGridX) fail("a launch of {} blocks exceeds the grid's {}", blocks, kMaxGridX);
  return static_cast<uint32_t>(blocks);
}

// ---- The kernel ----

// A root file's name without folders and ending: its kernel is called so.
std::string entry_of(const std::string& root) {
  const size_t begin = root.rfind('/') + 1;
  return root.substr(begin, root.rfind('.') - begin);
}

int64_t results_of(const ElementwiseSchedule& s) {
  int64_t results = 1;
  for (int axis = 0; axis < s.kept; ++axis) results *= s.domain()[axis];
  return results;
}

// Threads per result of the second step: one where there are results enough for all threads of a device.
int64_t finish_group(const ElementwiseSchedule& s) {
  if (results_of(s) >= 4096) return 1;
  return std::min<int64_t>(kFinishThreads,
                           static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(s.splits))));
}

bool has_row_tails(const ElementwiseSchedule& s) { return s.domain()[s.last()] % s.vector != 0; }

void configure_plain(KernelSource& source, const ElementwiseSchedule& s) {
  source.root = "elementwise/elementwise.cuh";
  source.config.push_back({"unroll", s.unroll});
  source.config.push_back({"unroll_axis", s.unroll_axis});
  source.config.push_back({"unroll_tails", s.unroll_axis >= 0 && s.domain()[s.unroll_axis] % s.unroll != 0});
  source.config.push_back({"row_tails", has_row_tails(s)});
}

void configure_transpose(KernelSource& source, const ElementwiseSchedule& s) {
  source.root = "elementwise/transpose.cuh";
  const int64_t tile = 8 * s.vector;
  source.config.push_back({"staged", static_cast<int64_t>(s.staged.size())});
  source.config.push_back(
      {"tile_tails", s.domain()[s.last()] % tile != 0 || s.domain()[s.last() - 1] % tile != 0});
}

void configure_planes(KernelSource& source, const ElementwiseSchedule& s) {
  source.root = "elementwise/transpose_planes.cuh";
  source.config.push_back({"channels", s.channels});
  source.config.push_back({"run_loads", s.run_loads});
}

void configure_reduction(KernelSource& source, const ElementwiseSchedule& s) {
  const bool rows = s.variant == Variant::rows;
  source.root = rows ? "elementwise/reduce_rows.cuh" : "elementwise/reduce_columns.cuh";
  source.config.push_back({"unroll", s.unroll});
  source.config.push_back({rows ? "group" : "width", s.group});
  source.config.push_back({"kept", s.kept});
  if (rows) source.config.push_back({"row_tails", has_row_tails(s)});
  source.config.push_back({"split", s.splits > 1});
  if (s.splits > 1) source.config.push_back({"finish_group", finish_group(s)});
}

std::shared_ptr<const KernelSource> make_source(const ElementwiseSchedule& s, const DeviceInfo& device) {
  auto source = std::make_shared<KernelSource>();
  source->target = device.target();
  source->config = {{"index_bits", s.index_bits}, {"vector", s.vector}, {"threads", s.threads}};
  switch (s.variant) {
    case Variant::plain:
      configure_plain(*source, s);
      break;
    case Variant::transpose:
      configure_transpose(*source, s);
      break;
    case Variant::planes:
      configure_planes(*source, s);
      break;
    case Variant::rows:
    case Variant::columns:
      configure_reduction(*source, s);
      break;
  }
  source->sites = s.staged;
  source->sites.push_back(s.y);
  return source;
}

// ---- Arguments ----

void put_extents(ArgumentBlock& block, const Dims& extents, int bits) {
  for (const int64_t extent : extents) FastDivisor::of(extent, bits).put(block);
}

Dims extents_in_vectors(const ElementwiseSchedule& s) {
  Dims extents = s.domain();
  extents[s.y.vector_axis] = ceil_div(extents[s.y.vector_axis], s.vector);
  return extents;
}

void put_plain(ArgumentBlock& block, const ElementwiseSchedule& s) {
  Dims extents = extents_in_vectors(s);
  if (s.unroll_axis >= 0) extents[s.unroll_axis] = ceil_div(extents[s.unroll_axis], s.unroll);
  block.put_int(element_count(extents));
  block.put_int(s.domain()[s.last()]);
  block.put_int(s.unroll_axis >= 0 ? s.domain()[s.unroll_axis] : 1);
  put_extents(block, extents, s.index_bits);
}

void put_transpose(ArgumentBlock& block, const ElementwiseSchedule& s, const Fusion& fusion) {
  const int v = s.last();
  Dims extents = s.domain();
  block.put_int(extents[v - 1]);
  block.put_int(extents[v]);
  extents[v - 1] = ceil_div(extents[v - 1], 8 * s.vector);
  extents[v] = ceil_div(extents[v], 8 * s.vector);
  put_extents(block, extents, s.index_bits);
  for (const KernelSite& site : s.staged) write_arguments(block, site, fusion);
}

void put_planes(ArgumentBlock& block, const ElementwiseSchedule& s, const Fusion& fusion) {
  Dims extents = s.domain();
  block.put_int(extents[s.channel_axis()]);
  FastDivisor::of(extents[s.plane_axis()], s.index_bits).put(block);
  extents[s.plane_axis()] = 1;
  extents[s.channel_axis()] = ceil_div(extents[s.channel_axis()], s.channels);
  put_extents(block, extents, s.index_bits);
  write_arguments(block, s.staged[0], fusion);
}

void put_partials(ArgumentBlock& block, const ElementwiseSchedule& s, int scratch) {
  if (s.splits > 1)
    block.put_pointer(Patch::Kind::scratch, scratch);
  else
    block.put_int(0);
}

void put_rows(ArgumentBlock& block, const ElementwiseSchedule& s, int scratch) {
  const int64_t extent = s.domain()[s.last()];
  const int64_t vectors = s.vectors(s.kept, s.domain().rank());
  put_partials(block, s, scratch);
  block.put_int(s.vectors(0, s.kept));
  block.put_int(vectors);
  // Where every row of vectors ends in a partial one, only a single reduced axis has whole ones in front of
  // it.
  const bool one_axis = s.domain().rank() == s.kept + 1;
  block.put_int(!has_row_tails(s) ? vectors : one_axis ? extent / s.vector : 0);
  block.put_int(s.chunk);
  block.put_int(extent);
  put_extents(block, extents_in_vectors(s), s.index_bits);
}

void put_columns(ArgumentBlock& block, const ElementwiseSchedule& s, int scratch) {
  put_partials(block, s, scratch);
  block.put_int(s.vectors(0, s.kept));
  block.put_int(s.vectors(s.kept, s.domain().rank()));
  block.put_int(s.chunk);
  put_extents(block, extents_in_vectors(s), s.index_bits);
}

Launch first_launch(const ElementwiseSchedule& s, const Fusion& fusion,
                    std::shared_ptr<const KernelSource> source, int scratch) {
  Launch launch;
  launch.entry = entry_of(source->root);
  launch.source = std::move(source);
  launch.grid = {grid_x(s.blocks()), static_cast<uint32_t>(s.splits), 1};
  launch.block = {static_cast<uint32_t>(s.threads), 1, 1};
  launch.shared_bytes = s.shared_bytes();
  switch (s.variant) {
    case Variant::plain:
      put_plain(launch.arguments, s);
      break;
    case Variant::transpose:
      put_transpose(launch.arguments, s, fusion);
      break;
    case Variant::planes:
      put_planes(launch.arguments, s, fusion);
      break;
    case Variant::rows:
      put_rows(launch.arguments, s, scratch);
      break;
    case Variant::columns:
      put_columns(launch.arguments, s, scratch);
      break;
  }
  write_arguments(launch.arguments, s.y, fusion);
  return launch;
}

Launch finish_launch(const ElementwiseSchedule& s, const Fusion& fusion,
                     std::shared_ptr<const KernelSource> source, int scratch) {
  const int64_t results = results_of(s);
  const bool rows = s.variant == Variant::rows;
  Launch launch;
  launch.entry = "reduce_finish";
  launch.source = std::move(source);
  launch.grid = {grid_x(ceil_div(results, kFinishThreads / finish_group(s))), 1, 1};
  launch.block = {static_cast<uint32_t>(kFinishThreads), 1, 1};
  put_partials(launch.arguments, s, scratch);
  launch.arguments.put_int(results);
  launch.arguments.put_int(s.splits);
  launch.arguments.put_int(rows ? s.splits : 1);
  launch.arguments.put_int(rows ? 1 : results);
  put_extents(launch.arguments, s.domain(), s.index_bits);
  write_arguments(launch.arguments, s.y, fusion);
  return launch;
}

// ---- Guards ----

void guard(std::vector<Guard>& guards, const Access& access, DataType type, int64_t vector) {
  const int64_t size = byte_size(type);
  const int64_t bytes = access.whole_vectors ? std::min<int64_t>(vector * size, 16) : size;
  const auto known = std::ranges::find(guards, access.operand, &Guard::operand);
  if (known == guards.end())
    guards.push_back({access.operand, bytes});
  else
    known->alignment = std::max(known->alignment, bytes);
}

void append_guards(std::vector<Guard>& guards, const KernelSite& site, int64_t vector) {
  for (const Node& node : site.expr.nodes)
    if (node.kind == Node::Kind::load) guard(guards, node.access, node.type, vector);
  for (const Store& result : site.expr.stores) guard(guards, result.access, result.type, vector);
}

}  // namespace

int64_t scratch_bytes(const ElementwiseSchedule& schedule) {
  if (schedule.splits <= 1) return 0;
  return results_of(schedule) * schedule.splits * accumulator_bytes(schedule.y);
}

void append_launches(Lowered& lowered, const ElementwiseProblem& problem,
                     const ElementwiseSchedule& schedule) {
  const Fusion& fusion = problem.fusion;
  const auto source = make_source(schedule, problem.device);
  const int scratch = static_cast<int>(lowered.scratch.size());
  lowered.steps.push_back(first_launch(schedule, fusion, source, scratch));
  if (schedule.splits > 1) {
    lowered.scratch.push_back(scratch_bytes(schedule));
    lowered.steps.push_back(finish_launch(schedule, fusion, source, scratch));
  }
  append_guards(lowered.guards, schedule.y, schedule.vector);
  for (const KernelSite& site : schedule.staged) append_guards(lowered.guards, site, schedule.vector);
}

}  // namespace fusor
