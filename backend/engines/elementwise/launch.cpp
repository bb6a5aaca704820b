// Owns the kernel sources and the parameters of the kernels in codegen/device/elementwise.
#include "backend/engines/elementwise/launch.h"

#include <algorithm>
#include <bit>

#include "backend/engines/guards.h"
#include "codegen/text/expr_emitter.h"
#include "codegen/text/parameters.h"
#include "core/ceil_div.h"
#include "core/fail.h"

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
}

KernelSource make_source(const ElementwiseSchedule& s, const DeviceInfo& device) {
  KernelSource source;
  source.target = device.target();
  source.config = {{"index_bits", s.index_bits}, {"vector", s.vector}, {"threads", s.threads}};
  switch (s.variant) {
    case Variant::plain:
      configure_plain(source, s);
      break;
    case Variant::transpose:
      configure_transpose(source, s);
      break;
    case Variant::planes:
      configure_planes(source, s);
      break;
    case Variant::rows:
    case Variant::columns:
      configure_reduction(source, s);
      break;
  }
  source.sites = s.staged;
  source.sites.push_back(s.y);
  return source;
}

// ---- Parameters, by the names that the kernels have for them ----

Dims extents_in_vectors(const ElementwiseSchedule& s) {
  Dims extents = s.domain();
  extents[s.y.vector_axis] = ceil_div(extents[s.y.vector_axis], s.vector);
  return extents;
}

void append_plain(Parameters& p, const ElementwiseSchedule& s) {
  Dims extents = extents_in_vectors(s);
  if (s.unroll_axis >= 0) extents[s.unroll_axis] = ceil_div(extents[s.unroll_axis], s.unroll);
  p.index("vectors", element_count(extents));
  p.index("row_extent", s.domain()[s.last()]);
  p.index("unroll_extent", s.unroll_axis >= 0 ? s.domain()[s.unroll_axis] : 1);
  p.divisors("extents", extents);
}

void append_transpose(Parameters& p, const ElementwiseSchedule& s, const Fusion& fusion) {
  const int v = s.last();
  Dims extents = s.domain();
  p.index("extent_f", extents[v - 1]);
  p.index("extent_v", extents[v]);
  extents[v - 1] = ceil_div(extents[v - 1], 8 * s.vector);
  extents[v] = ceil_div(extents[v], 8 * s.vector);
  p.divisors("extents", extents);
  for (size_t i = 0; i < s.staged.size(); ++i) p.site(i == 0 ? "x0" : "x1", s.staged[i], fusion);
}

void append_planes(Parameters& p, const ElementwiseSchedule& s, const Fusion& fusion) {
  Dims extents = s.domain();
  p.index("channels", extents[s.channel_axis()]);
  p.divisor("plane", extents[s.plane_axis()]);
  extents[s.plane_axis()] = 1;
  extents[s.channel_axis()] = ceil_div(extents[s.channel_axis()], s.channels);
  p.divisors("extents", extents);
  p.site("x0", s.staged[0], fusion);
}

void append_rows(Parameters& p, const ElementwiseSchedule& s, int scratch) {
  const int64_t extent = s.domain()[s.last()];
  const int64_t vectors = s.vectors(s.kept, s.domain().rank());
  if (s.splits > 1) p.scratch("partials", "Y::Accumulator", scratch);
  p.index("rows", s.vectors(0, s.kept));
  p.index("vectors", vectors);
  // Where every row of vectors ends in a partial one, only a single reduced axis has whole ones in front of
  // it.
  const bool one_axis = s.domain().rank() == s.kept + 1;
  p.index("whole_vectors", !has_row_tails(s) ? vectors : one_axis ? extent / s.vector : 0);
  p.index("chunk", s.chunk);
  p.index("row_extent", extent);
  p.divisors("extents", extents_in_vectors(s));
}

void append_columns(Parameters& p, const ElementwiseSchedule& s, int scratch) {
  if (s.splits > 1) p.scratch("partials", "Y::Accumulator", scratch);
  p.index("vectors", s.vectors(0, s.kept));
  p.index("steps", s.vectors(s.kept, s.domain().rank()));
  p.index("chunk", s.chunk);
  p.divisors("extents", extents_in_vectors(s));
}

Parameters first_parameters(const ElementwiseSchedule& s, const Fusion& fusion, int scratch) {
  Parameters p(s.index_bits);
  switch (s.variant) {
    case Variant::plain:
      append_plain(p, s);
      break;
    case Variant::transpose:
      append_transpose(p, s, fusion);
      break;
    case Variant::planes:
      append_planes(p, s, fusion);
      break;
    case Variant::rows:
      append_rows(p, s, scratch);
      break;
    case Variant::columns:
      append_columns(p, s, scratch);
      break;
  }
  p.site("y", s.y, fusion);
  return p;
}

Launch first_launch(const ElementwiseSchedule& s, const Fusion& fusion, const DeviceInfo& device,
                    int scratch) {
  KernelSource source = make_source(s, device);
  Launch launch;
  launch.entry = entry_of(source.root);
  launch.grid = {grid_x(s.blocks()), static_cast<uint32_t>(s.splits), 1};
  launch.block = {static_cast<uint32_t>(s.threads), 1, 1};
  launch.shared_bytes = s.shared_bytes();
  first_parameters(s, fusion, scratch).move_to(std::move(source), launch);
  return launch;
}

Launch finish_launch(const ElementwiseSchedule& s, const Fusion& fusion, const DeviceInfo& device,
                     int scratch) {
  const int64_t results = results_of(s);
  const bool rows = s.variant == Variant::rows;
  KernelSource source{.root = "elementwise/reduce_finish.cuh",
                      .sites = {s.y},
                      .config = {{"index_bits", s.index_bits}, {"group", finish_group(s)}, {"kept", s.kept}},
                      .target = device.target()};
  Launch launch;
  launch.entry = "reduce_finish";
  launch.grid = {grid_x(ceil_div(results, kFinishThreads / finish_group(s))), 1, 1};
  launch.block = {static_cast<uint32_t>(kFinishThreads), 1, 1};
  Parameters p(s.index_bits);
  p.scratch("partials", "const Y::Accumulator", scratch);
  p.index("results", results);
  p.index("splits", s.splits);
  p.index("result_step", rows ? s.splits : 1);
  p.index("split_step", rows ? 1 : results);
  p.divisors("extents", s.domain());
  p.site("y", s.y, fusion);
  p.move_to(std::move(source), launch);
  return launch;
}

}  // namespace

int64_t scratch_bytes(const ElementwiseSchedule& schedule) {
  if (schedule.splits <= 1) return 0;
  return results_of(schedule) * schedule.splits * accumulator_bytes(schedule.y);
}

void append_launches(Lowered& lowered, const ElementwiseProblem& problem,
                     const ElementwiseSchedule& schedule) {
  const Fusion& fusion = problem.fusion;
  const int scratch = static_cast<int>(lowered.scratch.size());
  lowered.steps.push_back(first_launch(schedule, fusion, problem.device, scratch));
  if (schedule.splits > 1) {
    lowered.scratch.push_back(scratch_bytes(schedule));
    lowered.steps.push_back(finish_launch(schedule, fusion, problem.device, scratch));
  }
  guard_accesses(lowered.guards, schedule.y, [&](const Access& access) {
    const int64_t step = access.strides[schedule.y.vector_axis];  // 2: a pair of vectors
    return access.whole_vectors ? schedule.vector * std::max<int64_t>(step, 1) : int64_t{1};
  });
  for (const KernelSite& site : schedule.staged) guard_accesses(lowered.guards, site, schedule.vector);
}

}  // namespace fusor
