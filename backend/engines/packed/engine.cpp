// Owns the engine that stores packed elements: pointwise ops with one result, whose bytes each have one
// thread that computes all their elements (codegen/device/packed).
#include <algorithm>
#include <numeric>
#include <optional>

#include "backend/engines/elementwise/simplify.h"
#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/guards.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/reach.h"
#include "backend/engines/rules.h"
#include "codegen/text/parameters.h"
#include "core/ceil_div.h"
#include "core/fail.h"

namespace fusor {

namespace {

struct PackedKnobs {
  int64_t vector = 0;  ///< elements of a thread, at least a byte of them; 0: as many as suit
  int64_t threads = 256;

  static void visit(auto& self, auto&& knob) {
    knob("vector", self.vector);
    knob("threads", self.threads);
  }
};

/// Facts of a fusion.
struct PackedProblem {
  const Fusion& fusion;
  const DeviceInfo& device;
  Expr expr;     ///< simplified; yields what is stored, and stores nothing
  Access store;  ///< over its axes
  DataType type = DataType::i4;
  int row_axis = -1;  ///< neighbours along it are neighbours in memory, and every row of them begins a byte
  int64_t end = 0;    ///< elements from the buffer's first to the result's last
  int64_t index_bits = 32;

  PackedProblem(const Fusion& fusion, const DeviceInfo& device);
  int64_t shared() const { return elements_per_byte(type); }
  int64_t elements() const { return element_count(expr.domain); }
};

struct PackedSchedule {
  PackedKnobs knobs;
  KernelSite y;
  Dims extents;  ///< of the kernel's axes, and the steps along them
  Dims strides;
  bool adjacent = false;  ///< neighbours along the last axis are neighbours in memory
  int outer = 0;          ///< axes from run to run of places; the others' elements are a run
  int64_t pieces = 1;     ///< threads of a run
  bool whole_stores = false;
  int64_t threads = 0;  ///< that have elements

  int64_t bytes(const PackedProblem& problem) const { return knobs.vector / problem.shared(); }
};

// The axis of rows that begin with a byte each; -1: there is none.
int packed_row_axis(const Expr& expr, const Access& store, int64_t shared) {
  int row = -1;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (expr.domain[axis] > 1 && store.strides[axis] == 1) row = axis;
  if (row < 0 || store.offset % shared != 0) return -1;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (axis != row && expr.domain[axis] > 1 && store.strides[axis] % shared != 0) return -1;
  return row;
}

PackedProblem::PackedProblem(const Fusion& fusion_, const DeviceInfo& device_)
    : fusion(fusion_), device(device_), expr(simplified(fusion_.sites[0].expr)) {
  index_bits = fusor::index_bits(expr);
  const Store result = expr.stores[0];
  store = result.access;
  type = result.type;
  end = reach(expr.domain, store) + 1;
  expr.stores.clear();
  expr.yields = {result.node};
  if (yielded_node(expr).type != type) {  // read from bytes of one element each
    Node packed;
    packed.kind = Node::Kind::pointwise;
    packed.pointwise = {.mode = PointwiseMode::identity, .compute = carrier(type)};
    packed.type = type;
    packed.args = {result.node, -1, -1};
    packed.op = result.op;
    expr.nodes.push_back(packed);
    expr.yields = {static_cast<int>(std::ssize(expr.nodes)) - 1};
  }
  row_axis = packed_row_axis(expr, store, shared());
}

// Elements of a thread along rows: 16 at most, and no more than rows have.
int64_t packed_row_vector(const PackedProblem& problem, int64_t asked) {
  constexpr int64_t kMost = 16;
  const int64_t row = problem.expr.domain[problem.row_axis];
  int64_t vector = asked > 0 ? std::clamp(asked, problem.shared(), kMost) : kMost;
  while (vector > problem.shared() && vector / 2 >= row) vector /= 2;
  return vector;
}

bool has_whole_stores(const PackedProblem& problem, const PackedSchedule& s) {
  const int64_t bytes = s.bytes(problem);
  const Operand& result = problem.fusion.operands[static_cast<size_t>(problem.store.operand)];
  if (result.alignment % bytes != 0 || problem.store.offset / problem.shared() % bytes != 0) return false;
  return std::ranges::all_of(std::span(s.strides.begin(), s.strides.end() - 1),
                             [&](int64_t stride) { return stride % bytes == 0; });
}

// Vectors along rows.
void schedule_packed_rows(const PackedProblem& problem, PackedSchedule& s, int64_t asked) {
  const Expr& expr = problem.expr;
  Dims order;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (axis != problem.row_axis) order.push_back(axis);
  order.push_back(problem.row_axis);
  s.knobs.vector = packed_row_vector(problem, asked);
  s.y.expr = select_axes(expr, order);
  s.y.vector_axis = order.rank() - 1;
  elementwise::mark_whole(problem.fusion, s.y, s.knobs.vector);
  s.extents = s.y.expr.domain;
  s.extents[s.y.vector_axis] = ceil_div(s.extents[s.y.vector_axis], s.knobs.vector);
  for (const int64_t axis : order)
    s.strides.push_back(
        std::max<int64_t>(1, problem.store.strides[static_cast<int>(axis)] / problem.shared()));
  s.threads = element_count(s.extents);
  s.whole_stores = has_whole_stores(problem, s);
}

// Threads of a run of places: of all bytes that elements of the axes behind `outer` may lie in.
int64_t packed_pieces(const PackedProblem& problem, const PackedSchedule& s, int outer) {
  int64_t places = 1;
  for (int axis = outer; axis < s.extents.rank(); ++axis) places += (s.extents[axis] - 1) * s.strides[axis];
  // A run that begins with the last element of a byte touches the most.
  return ceil_div((places + problem.shared() - 2) / problem.shared() + 1, s.bytes(problem));
}

// One run of all places from the first to the last, unless so much lies between elements that threads for the
// places of shorter runs are less than half as many.
void choose_packed_runs(const PackedProblem& problem, PackedSchedule& s) {
  const int64_t first = problem.store.offset / problem.shared();
  s.pieces = s.threads = ceil_div(ceil_div(problem.end, problem.shared()) - first, s.bytes(problem));
  const int64_t worth = s.threads / 2;
  int64_t runs = 1;
  for (int outer = 1; outer <= s.extents.rank(); ++outer) {
    runs *= s.extents[outer - 1];
    const int64_t pieces = packed_pieces(problem, s, outer);
    if (runs * pieces >= std::min(worth, s.threads)) continue;
    s.outer = outer;
    s.pieces = pieces;
    s.threads = runs * pieces;
  }
}

// Elements of a thread: more than a byte's where rows of neighbours are so long that few threads meet an end.
int64_t packed_place_vector(const PackedProblem& problem, const PackedSchedule& s, int64_t asked) {
  constexpr int64_t kMost = 16, kSuits = 8, kVectorsOfARow = 8;
  if (asked > 0) return std::clamp(asked, problem.shared(), kMost);
  int64_t vector = std::max(problem.shared(), kSuits);
  while (vector > problem.shared() && (!s.adjacent || s.extents.back() < kVectorsOfARow * vector))
    vector /= 2;
  return vector;
}

bool has_whole_places(const PackedProblem& problem, const PackedSchedule& s) {
  const int64_t bytes = s.bytes(problem);
  const Operand& result = problem.fusion.operands[static_cast<size_t>(problem.store.operand)];
  return s.outer == 0 && result.alignment % bytes == 0 &&
         problem.store.offset / problem.shared() % bytes == 0;
}

// Elements in the order of memory, axes from the longest stride to the shortest. Those of one element, whose
// strides say nothing, come first, and step over everything.
void schedule_packed_places(const PackedProblem& problem, PackedSchedule& s, int64_t asked) {
  const Expr& expr = problem.expr;
  const auto stride = [&](int64_t axis) {
    const int at = static_cast<int>(axis);
    return expr.domain[at] > 1 ? problem.store.strides[at] : problem.end;
  };
  Dims order;
  for (int axis = 0; axis < expr.domain.rank(); ++axis) order.push_back(axis);
  std::ranges::stable_sort(order.begin(), order.end(), std::greater{}, stride);
  s.y.expr = select_axes(expr, order);
  s.y.vector_axis = order.rank() - 1;
  s.extents = s.y.expr.domain;
  for (const int64_t axis : order) s.strides.push_back(stride(axis));
  s.adjacent = s.extents.back() > 1 && s.strides.back() == 1;
  s.knobs.vector = packed_place_vector(problem, s, asked);
  choose_packed_runs(problem, s);
  s.whole_stores = s.adjacent && has_whole_places(problem, s);
}

// Whether the value must be rounded from the type that it was computed in: by way of the carrier, half would
// be false, and a double be rounded twice.
bool loses_by_carrier(const PackedProblem& problem) {
  const Node& node = yielded_node(problem.expr);
  const bool is_carried =
      node.kind == Node::Kind::pointwise && node.pointwise.compute == carrier(problem.type);
  return !is_carried && problem.type != DataType::i4;
}

PackedSchedule schedule_packed(const PackedProblem& problem, const PackedKnobs& knobs) {
  PackedSchedule s;
  s.knobs = knobs;
  s.y.name = "Y";
  s.y.short_forms = is_real(problem.type);
  s.y.rounds_value = loses_by_carrier(problem);
  if (problem.row_axis >= 0)
    schedule_packed_rows(problem, s, knobs.vector);
  else
    schedule_packed_places(problem, s, knobs.vector);
  return s;
}

// ---- Cost ----

Work packed_work(const PackedProblem& problem, const PackedSchedule& s) {
  Work work;
  const double elements = static_cast<double>(problem.elements());
  const int64_t shared = problem.shared();
  work.dram_bytes = work.l2_bytes = elements / static_cast<double>(shared);
  for (const Node& node : problem.expr.nodes) {
    if (node.kind == Node::Kind::load) {
      double read = 1;
      for (int axis = 0; axis < problem.expr.domain.rank(); ++axis)
        if (node.access.strides[axis] != 0) read *= static_cast<double>(problem.expr.domain[axis]);
      const double bytes = static_cast<double>(bytes_of(node.type, 8)) / 8;
      work.dram_bytes += (node.access.is_indexed() ? elements : read) * bytes;
      work.l2_bytes += elements * bytes;
    }
    if (node.kind != Node::Kind::pointwise) continue;
    const PointwiseInfo& row = info(node.pointwise.mode);
    const bool wide = node.pointwise.compute == DataType::f64 || node.pointwise.compute == DataType::i64;
    (wide ? work.fp64_flops : work.fp32_flops) += 2 * elements * row.alu;
    work.special += elements * row.sfu;
  }
  // Rounding and shifting; places take divisions, for each element or once for those of a row, and elements
  // are loaded one by one.
  constexpr double kPackingFlops = 12, kFlopsOfPlace = 40, kFlopsOfRow = 80, kBytesOfPlace = 32;
  // Each line that a warp's load touches takes a turn: threads begin a vector apart.
  constexpr double kFlopsOfLine = 220, kLineBytes = 128;
  work.fp32_flops += elements * kPackingFlops;
  if (problem.row_axis < 0) {
    const double found = elements / static_cast<double>(s.adjacent ? s.knobs.vector : 1);
    work.fp32_flops += found * (s.adjacent ? kFlopsOfRow : kFlopsOfPlace) * problem.expr.domain.rank();
    work.l2_bytes += found * kBytesOfPlace;
    for (const Node& node : s.y.expr.nodes)
      if (node.kind == Node::Kind::load && node.access.strides[s.y.vector_axis] != 0)
        work.fp32_flops += elements * kFlopsOfLine / kLineBytes * static_cast<double>(s.knobs.vector) *
                           static_cast<double>(byte_size(node.type));
  }
  work.tiles = ceil_div(s.threads, s.knobs.threads);
  work.tiles_per_sm = std::max(1, problem.device.max_threads_per_sm / static_cast<int>(s.knobs.threads));
  return work;
}

// ---- Launch ----

Launch packed_launch(const PackedProblem& problem, const PackedSchedule& s) {
  constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
  const int64_t blocks = ceil_div(s.threads, s.knobs.threads);
  if (blocks > kMaxBlocks) fail("a launch of {} blocks exceeds the grid's {}", blocks, kMaxBlocks);
  const bool whole_rows = problem.row_axis >= 0;
  KernelSource source{.root = "packed/packed.cuh",
                      .sites = {s.y},
                      .config = {{"index_bits", problem.index_bits},
                                 {"vector", s.knobs.vector},
                                 {"threads", s.knobs.threads},
                                 {"whole_rows", whole_rows},
                                 {"adjacent", s.adjacent},
                                 {"outer", s.outer},
                                 {"whole_stores", s.whole_stores}},
                      .target = problem.device.target()};
  Launch launch;
  launch.entry = "packed_store";
  launch.grid = {static_cast<uint32_t>(blocks), 1, 1};
  launch.block = {static_cast<uint32_t>(s.knobs.threads), 1, 1};
  Parameters p(problem.index_bits);
  p.pointer("bytes", "u8", problem.store.operand, whole_rows ? problem.store.offset / problem.shared() : 0);
  p.index("threads", s.threads);
  p.index("row_extent", s.y.expr.domain[s.y.vector_axis]);
  p.index("first", problem.store.offset);
  p.index("end", problem.end);
  p.divisor("pieces", s.pieces);
  p.divisors("extents", s.extents);
  p.divisors("strides", s.strides);
  p.site("y", s.y, problem.fusion);
  p.move_to(std::move(source), launch);
  return launch;
}

class PreparedPacked final : public Prepared {
 public:
  PreparedPacked(const Fusion& fusion, const DeviceInfo& device) : problem_(fusion, device) {}

  std::vector<Knob> knobs() const override {
    std::vector<int64_t> vectors;
    for (int64_t vector = problem_.shared(); vector <= 16; vector *= 2) vectors.push_back(vector);
    return {{"vector", std::move(vectors)}, {"threads", {64, 128, 256, 512}}};
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> all;
    const PackedKnobs first = schedule_packed(problem_, {}).knobs;
    add(all, first);
    if (first.vector > problem_.shared()) add(all, {first.vector / 2, first.threads});
    if (first.vector < 16) add(all, {2 * first.vector, first.threads});
    for (const int64_t threads : {128, 512}) add(all, {first.vector, threads});
    return all;
  }

  Notes notes() const override { return {}; }

  Lowered lower(const EngineConfig& config) const override {
    const PackedSchedule s = schedule_packed(problem_, knobs_of<PackedKnobs>(config));
    Lowered lowered;
    lowered.steps.emplace_back(packed_launch(problem_, s));
    guard_accesses(lowered.guards, s.y, s.knobs.vector);
    guard(lowered.guards, {problem_.store.operand, s.whole_stores ? s.bytes(problem_) : 1});
    return lowered;
  }

 private:
  void add(std::vector<EngineCandidate>& all, const PackedKnobs& knobs) const {
    const PackedSchedule s = schedule_packed(problem_, knobs);
    all.push_back({config_of(packed_engine(), s.knobs), packed_work(problem_, s)});
  }

  const PackedProblem problem_;
};

Refusal refuse_unpacked(const Fusion& fusion, const char* expected, const char* actual, int op) {
  return {"one-packed-result", op < 0 ? "" : fusion.op_name(op), "", expected, actual, "", op};
}

class PackedEngine final : public Engine {
 public:
  std::string_view name() const override { return "packed"; }
  int number() const override { return 14; }
  PackedAccess packed_access() const override { return {.loads = true, .stores = true}; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_cpu(device)) return std::move(*refusal);
    const auto is_packed_store = [](const Store& store) { return is_packed(store.type); };
    const std::vector<Store>& stores = fusion.sites.back().expr.stores;
    const auto found = std::ranges::find_if(stores, is_packed_store);
    if (found == stores.end())
      return refuse_unpacked(fusion, "a result of a type of less than 8 bits", "others", -1);
    if (fusion.sites.size() > 1 || stores.size() > 1)
      return refuse_unpacked(fusion, "one result, of pointwise ops", "others beside it", found->op);
    if (fusion.sites[0].expr.has_reduction() || found->access.is_indexed())
      return refuse_unpacked(fusion, "one result, of pointwise ops", "reductions or scattered elements",
                             found->op);
    return std::make_unique<const PreparedPacked>(fusion, device);
  }
};

}  // namespace

const Engine& packed_engine() {
  static const PackedEngine engine;
  return engine;
}

}  // namespace fusor
