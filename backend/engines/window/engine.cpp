// Owns the window engine: totals over the few places of every window, as one kernel without shared memory.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/guards.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/window/fitted.h"
#include "backend/engines/window/problem.h"
#include "codegen/text/parameters.h"
#include "codegen/text/rows/facts.h"
#include "codegen/text/rows/sizes.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// Places of a tile's windows that are elements, at most, of which a compiler is given the text: text, and
// with it compile time, grows with each. And registers of what a thread loads.
constexpr int64_t kMostVectorPlaces = 18;  // of vectors
constexpr int64_t kMostSinglePlaces = 36;  // of single elements
constexpr int64_t kMostPlacesInRuns = 72;  // of elements that are loaded in runs
constexpr int64_t kMostHeldBytes = 400;
// A block's: at 256 ptxas spills registers to fit a third block on an SM.
constexpr int64_t kThreads = 128;

const std::vector<int64_t> kImageCounts{1, 4, 16};

struct WindowKnobs {
  int64_t vector = 1;        ///< elements
  int64_t tile_rows = 1;     ///< neighbouring windows of a thread, along the last axis but one of windows
  int64_t tile_columns = 1;  ///< and along the last
  int64_t images = 1;        ///< of a thread, one after the other

  static void visit(auto& self, auto&& knob) {
    knob("vector", self.vector);
    knob("tile_rows", self.tile_rows);
    knob("tile_columns", self.tile_columns);
    knob("images", self.images);
  }
  friend bool operator==(const WindowKnobs&, const WindowKnobs&) = default;
};

struct WindowSchedule {
  WindowSchedule(const WindowProblem& problem, const WindowKnobs& asked) : y(problem.site), knobs(asked) {
    joins = problem.walks && knobs.tile_columns > 1 &&
            problem.domain()[problem.columns.axis] % knobs.tile_columns == 0;
    run = problem.run(knobs.tile_columns);
    if (joins && std::has_single_bit(static_cast<uint64_t>(knobs.tile_columns))) whole = knobs.tile_columns;
    if (!problem.walks) whole = knobs.vector;
    elementwise::mark_whole(problem.fusion, y, whole);
    const Dims& domain = problem.domain();
    for (int axis = 0; axis < y.kept; ++axis) extents.push_back(domain[axis]);
    extents[y.vector_axis] = ceil_div(extents[y.vector_axis], knobs.vector);
    if (knobs.tile_rows > 1)
      extents[problem.rows.axis] = ceil_div(extents[problem.rows.axis], knobs.tile_rows);
    if (knobs.tile_columns > 1)
      extents[problem.columns.axis] = ceil_div(extents[problem.columns.axis], knobs.tile_columns);
    if (knobs.images > 1) extents[problem.images] = ceil_div(extents[problem.images], knobs.images);
    tile_tails = domain[problem.rows.axis] % knobs.tile_rows != 0 ||
                 domain[problem.columns.axis] % knobs.tile_columns != 0;
  }

  KernelSite y;  ///< with whole vectors marked
  WindowKnobs knobs;
  Dims extents;  ///< of the kept axes, in tiles and vectors
  bool tile_tails = false;
  bool joins = false;  ///< a thread's windows along a row are stored together
  int64_t whole = 1;   ///< elements that are loaded or stored together beside runs
  int64_t run = 1;     ///< see WindowProblem::run

  int64_t tiles() const { return element_count(extents); }
  int64_t blocks() const { return ceil_div(tiles(), kThreads); }
  int64_t windows() const { return knobs.tile_rows * knobs.tile_columns; }
};

// Whether a load without indices differs both from window to window and from place to place.
bool reads_places_of_windows(const WindowProblem& problem) {
  const uint32_t windows = (1u << problem.site.kept) - 1;
  return std::ranges::any_of(problem.site.expr.nodes, [&](const Node& node) {
    if (node.kind != Node::Kind::load || node.access.is_indexed()) return false;
    uint32_t walked = 0;
    for (int axis = 0; axis < problem.domain().rank(); ++axis)
      if (node.access.strides[axis] != 0) walked |= 1u << axis;
    return (walked & windows) != 0 && (walked & ~windows) != 0;
  });
}

bool fits(const WindowProblem& problem, const WindowKnobs& knobs) {
  const Dims& domain = problem.domain();
  if (knobs.images > 1 && (problem.images < 0 || domain[problem.images] < knobs.images)) return false;
  // A thread's results of a row are one access: of more, neighbouring threads would share sectors.
  for (const Store& store : problem.site.expr.stores)
    if (problem.walks && knobs.tile_columns * byte_size(store.type) > kMaxAccessBytes) return false;
  if (knobs.vector > problem.widest || domain[problem.site.vector_axis] % knobs.vector != 0) return false;
  if (knobs.tile_columns > 1 && domain[problem.columns.axis] < knobs.tile_columns) return false;
  if (knobs.tile_rows > 1 &&
      (domain[problem.rows.axis] < knobs.tile_rows || problem.rows.axis == problem.columns.axis))
    return false;
  if (knobs.tile_columns > 1 && knobs.vector > 1 && problem.columns.axis == problem.site.vector_axis)
    return false;
  // A window that is none reads elements through guarded indices alone.
  const auto divides = [&](const WindowLine& line, int64_t tile) { return domain[line.axis] % tile == 0; };
  if (reads_places_of_windows(problem) &&
      (!divides(problem.rows, knobs.tile_rows) || !divides(problem.columns, knobs.tile_columns)))
    return false;
  // Where numbers are divided, tiles hold whole periods: what is left of a division is known then.
  const bool single = knobs.tile_rows * knobs.tile_columns == 1;
  const auto meets = [&](const WindowLine& line, int64_t tile) {
    return single ||
           (tile % line.period == 0 && (tile == 1 || line.meeting[static_cast<size_t>(tile)].divisor != 0));
  };
  if (!meets(problem.rows, knobs.tile_rows) || !meets(problem.columns, knobs.tile_columns)) return false;
  const int64_t tile = knobs.tile_rows * knobs.tile_columns;
  const int64_t run = problem.run(knobs.tile_columns);
  if (knobs.tile_columns > kMostTile && run < kMostTile) return false;
  const WindowReach reach = reach_of(problem, knobs.tile_rows, knobs.tile_columns);
  const int64_t most = run > 1 ? kMostPlacesInRuns : knobs.vector > 1 ? kMostVectorPlaces : kMostSinglePlaces;
  if (tile > 1 && reach.places > most) return false;
  const bool holds = RowFacts(problem.site).phase_count > 1 || tile > 1;
  return knobs.vector == 1 || !holds ||
         reach.loads * held_bytes(problem.site, knobs.vector) <= kMostHeldBytes;
}

std::vector<WindowKnobs> settings_of(const WindowProblem& problem) {
  std::vector<WindowKnobs> all;
  for (int64_t vector = problem.widest; vector >= 1 && vector * 4 >= problem.widest; vector /= 2)
    for (const int64_t columns : {1, 2, 3, 4, 8, 16})
      for (int64_t rows = 1; rows <= kMostTile; ++rows) {
        const int64_t most = problem.run(columns) > 1 ? 2 * kMostLongTile : 2 * kMostTile;
        if (rows * columns > most) continue;
        for (const int64_t images : kImageCounts)
          if (const WindowKnobs knobs{vector, rows, columns, images}; fits(problem, knobs))
            all.push_back(knobs);
      }
  if (all.empty()) all.push_back({1, 1, 1});
  return all;
}

// --- Cost ---

// Bytes of what an access walks, and where it goes through indices, of all that it may take.
double walked_bytes(const Dims& domain, const Access& access, DataType type) {
  double bytes = static_cast<double>(byte_size(type));
  for (int axis = 0; axis < domain.rank(); ++axis)
    if (access.strides[axis] != 0) bytes *= static_cast<double>(domain[axis]);
  for (const IndexedAxis& indexed : access.indexed)
    if (indexed.extent > 0) bytes *= static_cast<double>(indexed.extent);
  return bytes;
}

// Steps for each place of a window and each lane, for each element that is taken, and for each window.
struct Steps {
  double place = 0, element = 0, window = 0;
  double counting = 0;  ///< for each window, the same for all lanes
  double weight = 0;    ///< of `place`: what coordinates decide, which images share
};

// A load, or what chooses between its elements and a number for all places outside: -1 where it is neither.
int taken_by(const Expr& expr, int at) {
  if (is_choice_of_places(expr, at)) return expr.node(at).args[0];
  return expr.node(at).kind == Node::Kind::load ? at : -1;
}
bool is_short(DataType type) { return type == DataType::f16 || type == DataType::bf16; }

// Whether a total compares elements two lanes at a time, as they are stored.
bool is_of_pairs(const WindowProblem& problem, const Node& total) {
  const Expr& expr = problem.site.expr;
  const int load = total.kind == Node::Kind::reduce ? taken_by(expr, total.args[0]) : -1;
  return load >= 0 && !problem.walks && is_short(expr.node(load).type) &&
         (total.reduction.mode == ReductionMode::max || total.reduction.mode == ReductionMode::min);
}

// A choice that only a sum reads: it adds where the truth holds.
bool is_added_where(const Expr& expr, int at) {
  if (expr.node(at).kind != Node::Kind::pointwise ||
      expr.node(at).pointwise.mode != PointwiseMode::binary_select)
    return false;
  return std::ranges::all_of(expr.nodes, [&](const Node& reader) {
    return std::ranges::find(reader.args, at) == reader.args.end() ||
           (reader.kind == Node::Kind::reduce && reader.reduction.mode == ReductionMode::add);
  });
}

Steps steps_of(const WindowProblem& problem) {
  const Expr& expr = problem.site.expr;
  const std::vector<uint32_t> varies = varying_axes(expr);
  const std::vector<CountedKind> kinds = counted_kinds(expr);
  const std::vector<bool> decided = decided_by_coordinates(expr);
  std::vector<bool> is_widened(expr.nodes.size(), false), is_counted_for(expr.nodes.size(), false);
  Steps steps;
  for (size_t i = expr.nodes.size(); i-- > 0;) {
    const Node& node = expr.nodes[i];
    const bool pairs = is_of_pairs(problem, node), counts = kinds[i] != CountedKind::none;
    const bool is_of_place = (varies[i] >> problem.site.kept) != 0;
    const double own = node.kind != Node::Kind::pointwise
                           ? 0
                           : info(node.pointwise.mode).alu + 2 * info(node.pointwise.mode).sfu;
    const bool is_taken = taken_by(expr, static_cast<int>(i)) >= 0;
    if (node.kind == Node::Kind::reduce) steps.place += pairs ? 0.25 : 1;
    if (counts && is_counted_for[i] && !is_of_place) steps.counting += own;
    if (!counts && !is_taken && !is_added_where(expr, static_cast<int>(i)))
      (is_of_place ? steps.place : steps.window) += own;
    if (!counts && is_of_place && decided[i]) steps.weight += own;
    for (const int arg : node.args) {
      if (arg < 0 || is_taken) continue;
      const int load = pairs ? -1 : taken_by(expr, arg);
      if (load >= 0) is_widened[static_cast<size_t>(load)] = true;
      if (counts ? is_counted_for[i] : !is_of_place) is_counted_for[static_cast<size_t>(arg)] = true;
    }
  }
  for (size_t i = 0; i < expr.nodes.size(); ++i)
    if (is_widened[i] && !is_compute_type(expr.nodes[i].type) && expr.nodes[i].access.is_indexed())
      steps.element += 1;
  return steps;
}

Work cost(const WindowProblem& problem, const WindowSchedule& s) {
  const WindowFit fit;
  const Expr& expr = s.y.expr;
  const WindowKnobs& knobs = s.knobs;
  const WindowReach reach = reach_of(problem, knobs.tile_rows, knobs.tile_columns);
  const double lanes = static_cast<double>(knobs.vector);
  Work work;
  work.tiles = s.blocks();
  work.tiles_per_sm = std::max<int>(1, static_cast<int>(1024 / kThreads));
  double memory = 0, indexed = 0, widest = 1;
  for (const Node& node : expr.nodes) {
    if (node.kind != Node::Kind::load) continue;
    memory += walked_bytes(problem.domain(), node.access, node.type);
    if (!node.access.is_indexed()) continue;
    indexed += 1;
    widest = std::max(widest, static_cast<double>(byte_size(node.type)));
  }
  for (const Store& store : expr.stores) memory += walked_bytes(problem.domain(), store.access, store.type);
  const double windows = static_cast<double>(s.windows());
  // Windows that divide are met singly: what they share is not known when the kernel is compiled.
  const bool is_unknown =
      knobs.tile_rows % problem.rows.period != 0 || knobs.tile_columns % problem.columns.period != 0;
  const double places =
      is_unknown ? windows * static_cast<double>(problem.places()) : static_cast<double>(reach.places);
  const double loads = is_unknown ? places * indexed : static_cast<double>(reach.loads);
  const double requests = is_unknown ? loads : static_cast<double>(reach.requests);
  const Steps steps = steps_of(problem);
  const double words = requests * lanes * widest / 4;
  const double elements = loads * lanes * steps.element / indexed;
  const double images = static_cast<double>(knobs.images);
  const double done = places * lanes * (images * (steps.place - steps.weight) + steps.weight);
  const double results = images * lanes * (static_cast<double>(std::ssize(expr.stores)) + steps.window);
  const double instructions = fit.tile +
                              images * (fit.request * requests + fit.word * words + fit.element * elements) +
                              fit.step * done + fit.stored * windows * (results + steps.counting);
  const double moving = memory / problem.device.dram_bytes_per_s;
  const double issuing =
      static_cast<double>(s.tiles()) * instructions / (fit.issue_rate * problem.device.sm_count / 132);
  const double lag = std::pow(1 + std::pow(issuing / moving, fit.sharpness), 1 / fit.sharpness);
  work.dram_bytes = memory * lag;
  work.l2_bytes = memory;
  return work;
}

// --- Launch ---

void configure_line(KernelSource& source, std::string_view name, const WindowLine& line, int64_t tile) {
  const WindowMeeting& meeting = line.meeting[static_cast<size_t>(tile)];
  const auto add = [&](std::string_view what, int64_t value) {
    source.config.push_back({fmt::format("{}_{}", name, what), value});
  };
  add("axis", line.axis);
  add("places", line.places);
  add("step", meeting.step);
  add("turn", meeting.turn);
  add("shift", meeting.shift);
  add("divisor", meeting.divisor);
  add("never", static_cast<int32_t>(meeting.never));
}

Lowered lower(const WindowProblem& problem, const WindowSchedule& s) {
  const Dims& domain = problem.domain();
  const auto places = [&](int axis) { return s.y.kept + axis < domain.rank() ? domain[s.y.kept + axis] : 1; };
  const WindowMeeting& columns = problem.columns.meeting[static_cast<size_t>(s.knobs.tile_columns)];
  KernelSource source;
  source.root = "window/window.cuh";
  source.sites = {s.y};
  source.target = problem.device.target();
  source.config = {{"index_bits", problem.index_bits},
                   {"vector", s.knobs.vector},
                   {"threads", kThreads},
                   {"tile_rows", s.knobs.tile_rows},
                   {"tile_columns", s.knobs.tile_columns},
                   {"tile_tails", s.tile_tails},
                   {"joins", s.joins},
                   {"images", s.knobs.images},
                   {"image_axis", std::max(0, problem.images)},
                   {"run", s.run},
                   {"column_base", s.run > 1 ? columns.base : 0},
                   {"column_live", s.run > 1 ? static_cast<int32_t>(columns.live) : 0},
                   {"places_0", places(0)},
                   {"places_1", places(1)},
                   {"places_2", places(2)}};
  configure_line(source, "row", problem.rows, s.knobs.tile_rows);
  configure_line(source, "column", problem.columns, s.knobs.tile_columns);
  Parameters p(problem.index_bits);
  p.index("tiles", s.tiles());
  p.index("row_extent", domain[problem.rows.axis]);
  p.index("column_extent", domain[problem.columns.axis]);
  p.index("image_extent", domain[std::max(0, problem.images)]);
  p.divisors("extents", s.extents);
  p.site("y", s.y, problem.fusion);

  Launch launch;
  launch.entry = "window";
  launch.grid = {static_cast<uint32_t>(s.blocks()), 1, 1};
  launch.block = {static_cast<uint32_t>(kThreads), 1, 1};
  p.move_to(std::move(source), launch);

  Lowered lowered;
  lowered.steps.push_back(std::move(launch));
  guard_accesses(lowered.guards, s.y, [&](const Access& access) -> int64_t {
    if (access.is_indexed() && s.run > 1) return s.run;
    return access.whole_vectors ? s.whole : 1;
  });
  return lowered;
}

class PreparedWindow final : public Prepared {
 public:
  explicit PreparedWindow(WindowProblem problem)
      : problem_(std::move(problem)), settings_(settings_of(problem_)) {}

  std::vector<Knob> knobs() const override {
    return {{"vector", {1, 2, 4, 8}},
            {"tile_rows", {1, 2, 3, 4}},
            {"tile_columns", {1, 2, 3, 4, 8, 16}},
            {"images", kImageCounts}};
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> all;
    for (const WindowKnobs& knobs : settings_)
      all.push_back({config_of(window_engine(), knobs), cost(problem_, WindowSchedule(problem_, knobs))});
    return all;
  }

  Notes notes() const override { return {}; }

  Lowered lower(const EngineConfig& config) const override {
    return fusor::lower(problem_, WindowSchedule(problem_, nearest(knobs_of<WindowKnobs>(config))));
  }

 private:
  // A setting that cannot be had stands for the one that agrees with it in most.
  WindowKnobs nearest(const WindowKnobs& asked) const {
    return std::ranges::min(settings_, {}, [&](const WindowKnobs& one) {
      return 4 * (one.vector != asked.vector) + 2 * (one.tile_rows != asked.tile_rows) +
             2 * (one.tile_columns != asked.tile_columns) + (one.images != asked.images);
    });
  }

  const WindowProblem problem_;
  const std::vector<WindowKnobs> settings_;  // never empty
};

class WindowEngine final : public Engine {
 public:
  std::string_view name() const override { return "window"; }
  int number() const override { return 12; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_cpu(device)) return std::move(*refusal);
    if (form_of(fusion) != Form::rows || fusion.sites.size() != 1)
      return Refusal{
          "windows", "", "", "pointwise ops and totals of windows", std::string(to_string(form_of(fusion))),
          "",        -1};
    auto answer = window_problem(fusion, device);
    if (auto* refusal = std::get_if<Refusal>(&answer)) return std::move(*refusal);
    WindowProblem& problem = std::get<WindowProblem>(answer);
    if (ceil_div(problem.windows(), kThreads) > std::numeric_limits<int32_t>::max())
      return Refusal{
          "grid", "", "", "windows of up to 2^31 blocks", fmt::format("{} windows", problem.windows()),
          "",     -1};
    return std::make_unique<const PreparedWindow>(std::move(problem));
  }
};

}  // namespace

const Engine& window_engine() {
  static const WindowEngine engine;
  return engine;
}

}  // namespace fusor
