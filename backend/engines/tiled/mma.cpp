// Owns the mma engine: matmul and convolutions of any layout on the tensor cores of sm_80 and later, where
// the operands' values are exact in a type that these multiply, or may be rounded to TF32. Its rules, knobs
// and costs; the kernel is codegen/device/tiled/mma.cuh.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/tiled/part.h"

namespace fusor {

namespace {

// --- Elements ---

// Every number of `type` is one of `element`, or in fp32 may be rounded to it.
bool holds(DataType element, DataType type) {
  if (element == type || type == DataType::b8) return true;
  if (element == DataType::f32 && (type == DataType::f16 || type == DataType::bf16)) return true;
  const bool small =
      type == DataType::i8 || type == DataType::u8 || type == DataType::f8_e4m3 || type == DataType::f8_e5m2;
  return is_real(element) && small;
}

// Ops that give one of their operands or its negative, and so no number that these did not have.
bool keeps_numbers(const Pointwise& op) {
  switch (op.mode) {
    case PointwiseMode::identity:
    case PointwiseMode::neg:
    case PointwiseMode::abs:
    case PointwiseMode::relu:
    case PointwiseMode::max:
    case PointwiseMode::min:
      return is_real(op.compute) && has_default_parameters(op);
    default:
      return false;
  }
}

// Every value that node `at` can have is a number of `element`: by its type, or because its ops give nothing
// but what they were given.
bool is_exact(const Fusion& fusion, const Expr& site, int at, DataType element) {
  const Node& node = site.nodes[static_cast<size_t>(at)];
  if (holds(element, node.type)) return true;
  if (!is_real(element)) return false;
  if (node.kind == Node::Kind::load)
    return holds(element, fusion.operands[static_cast<size_t>(node.access.operand)].type);
  if (node.kind != Node::Kind::pointwise || !keeps_numbers(node.pointwise)) return false;
  return std::ranges::all_of(node.args,
                             [&](int arg) { return arg < 0 || is_exact(fusion, site, arg, element); });
}

// Types in the operand tiles. fp32 that may not be rounded becomes a sum of three parts:
// codegen/device/tiled/parts_of_floats.cuh.
struct Elements {
  DataType a, b;
  int64_t parts = 1;

  // The type in memory of the operand whose tile holds `element`.
  DataType loaded(DataType element) const { return parts > 1 ? DataType::f32 : element; }
};
constexpr int64_t kPartsOfFloat = 3, kProductsOfParts = 6;

std::optional<DataType> integer_element(const Fusion& fusion, const Expr& site) {
  for (const DataType element : {DataType::i8, DataType::u8})
    if (is_exact(fusion, site, yielded(site), element)) return element;
  return std::nullopt;
}

// fp32 sums take two operands of one type, int32 sums bytes of any sign.
std::optional<Elements> elements_of(const Fusion& fusion, DataType compute) {
  const Expr &a = operand_site(fusion, 0, 0), &b = operand_site(fusion, 0, 1);
  const auto is_allowed = [&](DataType element) {
    return element != DataType::f32 || fusion.precision >= Precision::allow_tf32;
  };
  const auto are_exact = [&](DataType element) {
    return is_exact(fusion, a, yielded(a), element) && is_exact(fusion, b, yielded(b), element);
  };
  if (compute == DataType::f32) {
    for (const DataType element : {DataType::f16, DataType::bf16, DataType::f32})
      if (is_allowed(element) && are_exact(element)) return Elements{element, element};
    if (fusion.precision != Precision::strict && are_exact(DataType::f32))
      return Elements{DataType::bf16, DataType::bf16, kPartsOfFloat};
  }
  if (compute != DataType::i32) return std::nullopt;
  const auto first = integer_element(fusion, a), second = integer_element(fusion, b);
  if (!first || !second) return std::nullopt;
  return Elements{*first, *second};
}

// --- Problem and schedule ---

constexpr int64_t kFragmentLine = 64;  // bytes of the shortest line along k
constexpr int64_t kTurnsOfPart = 4;    // of the main loop, in a part of a split at least
// In a part that is a block of a cluster; and most blocks for each SM then.
constexpr int64_t kTurnsInCluster = 2, kBlocksOfSm = 2;

// Vectors of 16 bytes and shorter.
Widths load_widths(DataType element) {
  static constexpr std::array<int64_t, 4> kWidths{16, 8, 4, 2};
  return Widths(kWidths).subspan(static_cast<size_t>(byte_size(element) / 2));
}
constexpr std::array<int64_t, 3> kStoreWidths{8, 4, 2};

struct Knobs {
  int64_t tile_m = 128, tile_n = 128, tile_k = 32, split = 1;
  std::optional<int64_t> cluster = {};  // blocks that share a tile's steps, and then the only split

  static void visit(auto& self, auto&& knob) {
    knob("tile_m", self.tile_m);
    knob("tile_n", self.tile_n);
    knob("tile_k", self.tile_k);
    knob("split", self.split);
    knob("cluster", self.cluster);
  }
};

// Facts of a fusion.
struct Problem : TiledProblem {
  const DeviceInfo& device;
  Elements elements;
  bool plain_a, plain_b;
  // The operand goes to shared memory without passing through registers.
  bool copies_a, copies_b;

  Problem(const Fusion& fusion_, const DeviceInfo& device_, const Elements& elements_)
      : TiledProblem(fusion_, device_,
                     {load_widths(elements_.loaded(elements_.a)), load_widths(elements_.loaded(elements_.b)),
                      kStoreWidths}),
        device(device_),
        elements(elements_),
        plain_a(is_plain(fusion_, sites.a, elements_.loaded(elements_.a))),
        plain_b(is_plain(fusion_, sites.b, elements_.loaded(elements_.b))),
        copies_a(!in_parts() && copies(load_a, plain_a, elements.a)),
        copies_b(!in_parts() && copies(load_b, plain_b, elements.b)) {}

  bool is_tf32() const { return elements.a == DataType::f32; }
  bool in_parts() const { return elements.parts > 1; }

 private:
  static bool copies(const OperandLoad& load, bool plain, DataType element) {
    return plain && load.width * byte_size(element) >= 4 && (load.along_k || byte_size(element) > 1);
  }
};

// A setting.
struct Schedule : TiledSchedule {
  int64_t blocks_per_sm = 1, stages = 2;
  int64_t shared_bytes = 0;

  Schedule(const Problem& problem, const Knobs& knobs);
};

// --- Shared memory ---

constexpr int64_t kMostStages = 4;

int64_t staged_bytes(const Problem& problem, const TileShape& tile) {
  const int64_t m = tile.m, n = tile.n;
  const int64_t most_warps_n = n >= 128 ? 4 : n / 32;
  const int64_t warps_m = std::min(8 / most_warps_n, m / 16), warps_n = 8 / warps_m;
  return 4 * (problem.store.along_n ? 16 * warps_m * (n + 8) : 8 * warps_n * (m + 4));
}

// sizeof(Shared) in the kernel, which checks it.
int64_t shared_bytes_of(const Problem& problem, const TiledSchedule& schedule, int64_t depth) {
  const auto round_up = [](int64_t bytes) { return (bytes + 127) / 128 * 128; };
  const auto [m, n, k] = schedule.tile;
  const int64_t operands = depth * (m + n) * k * byte_size(problem.elements.a) * problem.elements.parts;
  return round_up(round_up(std::max(operands, staged_bytes(problem, schedule.tile))) +
                  (m + n + (problem.in_parts() ? 3 : 2) * k) * schedule.index_bits / 2);
}

// Blocks that an SM holds by their registers (ptxas, sm_90a: at most 128 a thread, 64 for the small tiles,
// more where the tile is wider than that), as far as two stages of each fit; then as many stages as still
// do. What goes through registers is one turn ahead, whatever the number of stages.
Schedule::Schedule(const Problem& problem, const Knobs& knobs)
    : TiledSchedule(problem, {knobs.tile_m, knobs.tile_n, knobs.tile_k},
                    knobs.cluster.value_or(1) > 1 ? *knobs.cluster : knobs.split, knobs.cluster.has_value()) {
  const DeviceInfo& device = problem.device;
  const auto fits = [&](int64_t depth) {
    return shared_bytes_of(problem, *this, depth) <=
           std::min(device.shared_per_block, device.shared_per_sm / blocks_per_sm - kReservedBytes);
  };
  const int64_t size = tile.elements();
  blocks_per_sm = size > 128 * 128 ? 1 : size > 64 * 64 ? 2 : 4;
  // Two sums for one, and three fragments.
  if (problem.in_parts()) blocks_per_sm = size > 64 * 64 ? 1 : 2;
  while (blocks_per_sm > 1 && !fits(2)) blocks_per_sm /= 2;
  const bool async = problem.copies_a || problem.copies_b;
  for (stages = async ? kMostStages : 2; stages > 2 && !fits(stages);) --stages;
  shared_bytes = shared_bytes_of(problem, *this, stages);
}

Lowered lower(const Problem& problem, const Schedule& schedule) {
  KernelSite a = site_a(problem), b = site_b(problem);
  a.addressed = problem.plain_a, b.addressed = problem.plain_b;
  Launch launch = tiled_launch(problem, schedule, "mma",
                               {{"tile_k", schedule.tile.k},
                                {"stages", schedule.stages},
                                {"parts", problem.elements.parts},
                                {"ElementA", problem.elements.a},
                                {"ElementB", problem.elements.b},
                                {"a_plain", problem.plain_a},
                                {"b_plain", problem.plain_b},
                                {"shared_bytes", schedule.shared_bytes},
                                {"guarded", false}},
                               a, b);
  launch.shared_bytes = schedule.shared_bytes;
  return tiled_steps(problem, schedule, std::move(launch));
}

// --- Costs ---

// The same where fp32 comes in parts: six products of what is loaded once, beside the work of splitting it.
// On an H200, by ten matmuls and four convolutions (bench/RESULTS.md).
double efficiency_in_parts(const Problem& problem, const Schedule& schedule) {
  const int64_t size = schedule.tile.elements();
  const double tile = size >= 128 * 128 ? 0.4 : size >= 128 * 64 ? 0.27 : size >= 64 * 64 ? 0.26 : 0.18;
  const int generation = problem.device.compute_capability / 10;
  const bool halved = generation == 9 || generation == 10;
  return tile * (halved ? 1.0 : 1.3) * (schedule.index_bits == 64 ? 0.7 : 1.0);
}

// The share of the 16-bit peak that the inner loop reaches. mma.sync feeds the tensor cores of sm_90 and
// sm_100 at little more than half their rate, those of other generations at all of it. On an H200, tiles of
// all sizes but the smallest reach about as much (240 candidates of 120 layers, bench/RESULTS.md). TF32 reads
// twice the bytes of 16-bit types for products that take twice the time, and rounds what it has read: with a
// tile of 128 x 128, shared memory is as busy as the tensor cores of sm_90 are.
double efficiency(const Problem& problem, const Schedule& schedule) {
  const int64_t size = schedule.tile.elements();
  const bool is_tf32 = problem.is_tf32();
  if (problem.in_parts()) return efficiency_in_parts(problem, schedule);
  const double wide = is_tf32 ? 1.15 : 0.6;
  const double tile = size > 128 * 128    ? wide
                      : size >= 128 * 128 ? (is_tf32 ? 1.0 : 0.66)
                      : size >= 128 * 64  ? (is_tf32 ? 0.75 : 0.64)
                      : size >= 64 * 64   ? 0.53
                                          : (is_tf32 ? 0.4 : 0.5);
  const int generation = problem.device.compute_capability / 10;
  const bool halved = generation == 9 || generation == 10;
  const double instructions = is_tf32 ? (halved ? 0.45 : 0.65) : (halved ? 0.35 : 0.75);
  // Parts of a convolution's wgrad took 1.2 to 1.35 of the time of their estimates without it.
  // A wgrad of fewer than 8 channels took 0.5 to 0.57 of its estimate in 256 parts, 0.79 in 64 (H200).
  constexpr double kPartsOfWgrad = 0.72, kFewChannels = 1.6;
  const bool in_parts_of_k = problem.view.op == ContractionOp::wgrad && schedule.is_split();
  const bool has_few_channels = problem.view.is_convolution() && problem.view.input_channels < 8;
  return tile * instructions * (schedule.index_bits == 64 ? 0.7 : 1.0) * (in_parts_of_k ? kPartsOfWgrad : 1) *
         (in_parts_of_k && has_few_channels ? kFewChannels : 1);
}

// Finding a vector's place and whether it is padding, by the text of the kernel; passing through registers.
constexpr double kInstructionsOfVector = 16, kInstructionsByRegisters = 36;
// Until the first step: the kernel's text, keys, the first copies.
constexpr double kStart = 1.3e-6;
// The same in parts, whose first two turns only load and split.
constexpr double kStartInParts = 6e-6;
// Blocks of a cluster that exchange such sums, beside what others wait for: by matmuls of 512 and 1024.
constexpr double kClusterInParts = 3e-6;

Work cost(const Problem& problem, const Schedule& schedule) {
  Work work = tiled_cost(problem, schedule);
  // The device's rate is that of 16 bits; TF32 has half of it.
  const int64_t products = problem.in_parts() ? kProductsOfParts : problem.is_tf32() ? 2 : 1;
  work.tensor_flops = inner_flops(problem, schedule) * static_cast<double>(products);
  const auto of_vector = [](bool copies) {
    return copies ? kInstructionsOfVector : kInstructionsByRegisters;
  };
  work.fp32_flops += 2 * (of_vector(problem.copies_a) * elements_of_a(problem, schedule) /
                              static_cast<double>(problem.load_a.width) +
                          of_vector(problem.copies_b) * elements_of_b(problem, schedule) /
                              static_cast<double>(problem.load_b.width));
  work.start_s += problem.in_parts() ? kStartInParts : kStart;
  if (problem.in_parts() && schedule.in_cluster) work.start_s += kClusterInParts;
  // Two keep the tensor cores as busy as four do.
  work.tiles_per_sm = static_cast<int>(std::min<int64_t>(schedule.blocks_per_sm, 2));
  work.stages = static_cast<int>(schedule.stages);
  work.efficiency = efficiency(problem, schedule);
  return work;
}

// --- The engine ---

// Names the operand that reaches no type of the tensor cores; where each does, the pair.
Refusal refuse_elements(const Fusion& fusion, DataType compute) {
  const std::string expected = compute == DataType::f32
                                   ? "values that are exact in fp16 or bf16, the same for both"
                                   : "values of int8 or uint8";
  Refusal refusal{"tensor-core-operands", "", "", expected, "", "", -1};
  for (const Site& before : operand_sites(fusion)) {
    const Expr& site = before.expr;
    const Node& value = yielded_node(site);
    const auto reaches = [&](DataType element) { return is_exact(fusion, site, yielded(site), element); };
    const bool reached = compute == DataType::f32 ? reaches(DataType::f16) || reaches(DataType::bf16)
                                                  : reaches(DataType::i8) || reaches(DataType::u8);
    if (!refusal.actual.empty()) refusal.actual += " and ";
    refusal.actual += to_string(value.type);
    if (reached) continue;
    refusal.actual = to_string(value.type);
    if (value.op >= 0) refusal.node = fusion.op_name(value.op);
    if (value.kind == Node::Kind::load) refusal.tensor = fusion.name_of(value.access.operand);
    if (is_real(value.type) && value.kind == Node::Kind::pointwise)
      refusal.remedy = "declare the op's result fp16 or bf16";
    if (compute == DataType::f32 && reaches(DataType::f32) && fusion.precision == Precision::strict)
      refusal.remedy +=
          fmt::format("{}let the graph's precision be exact", refusal.remedy.empty() ? "" : ", or ");
    break;
  }
  return refusal;
}

constexpr Notes kNotes{.tensor_cores = true};

class PreparedMma final : public Prepared {
 public:
  PreparedMma(const Fusion& fusion, const DeviceInfo& device, const Elements& elements)
      : problem_(fusion, device, elements) {}

  std::vector<Knob> knobs() const override {
    const Contraction& view = problem_.view;
    const int64_t k = kFragmentLine / byte_size(problem_.elements.a);
    std::vector<int64_t> tile_n = tiles_up_to(view.n, {32, 64, 128, 256});
    // Two stages of the widest tile.
    const int64_t shared = problem_.device.shared_per_block;
    if (tile_n.back() == 256 && shared < 160 * 1024) tile_n.pop_back();
    std::vector<int64_t> tile_k = tiles_up_to(view.k, {k, 2 * k});
    if (problem_.in_parts()) {
      // Sums twice in registers, operands three times in shared memory.
      if (tile_n.back() == 256) tile_n.pop_back();
      if (tile_n.back() == 128 && shared < 104 * 1024) tile_n.pop_back();
      if (shared < 204 * 1024) tile_k.resize(1);
    }
    return {{"tile_m", tiles_up_to(view.m, {64, 128})},
            {"tile_n", tile_n},
            {"tile_k", tile_k},
            {"split", splits_of(view, k)},
            {"cluster", clusters()}};
  }

  std::vector<EngineCandidate> candidates() const override {
    const std::vector<Knob> offered = knobs();
    std::vector<EngineCandidate> list;
    const bool copied = problem_.copies_a && problem_.copies_b;
    // Longer lines make fewer turns, where no registers hold what is on its way.
    int64_t tile_k = copied ? offered[2].values.back() : offered[2].values.front();
    const auto add = [&](int64_t tile_m, int64_t tile_n, int64_t split,
                         std::optional<int64_t> cluster = std::nullopt) {
      const Knobs knobs{std::min(tile_m, offered[0].values.back()),
                        std::min(tile_n, offered[1].values.back()), tile_k, split, cluster};
      add_candidate(list, config_of(mma_engine(), knobs),
                    [&] { return cost(problem_, Schedule(problem_, knobs)); });
    };
    for (const auto& [tile_m, tile_n] : {std::pair{128, 128}, {128, 64}, {64, 64}, {64, 32}}) {
      add(tile_m, tile_n, 1);
      const Work whole = list.back().work;
      if (const int64_t split = split_for(whole, offered[3].values, kTurnsOfPart, problem_.device); split > 1)
        add(tile_m, tile_n, split);
      // Tiles of parts are few for an SM, and dear: a round of them that is half empty is worth a sum.
      if (problem_.in_parts())
        if (const int64_t split = even_split_for(whole, offered[3].values, kTurnsOfPart, problem_.device);
            split > 1 && list.back().config.knob("split", 1) != split)
          add(tile_m, tile_n, split);
      for (const int64_t cluster : offered[4].values)
        if (cluster > 1 && whole.k_steps >= kTurnsInCluster * cluster &&
            whole.tiles * cluster <= kBlocksOfSm * problem_.device.sm_count)
          add(tile_m, tile_n, 1, cluster);
    }
    // Its warps read least of shared memory for each product, where that is what the others wait for.
    if (copied) add(128, 256, 1);
    if (problem_.in_parts()) {
      tile_k = offered[2].values.back();
      add(128, 128, 1);
    }
    return list;
  }

  Notes notes() const override {
    Notes notes = kNotes;
    notes.tf32 = problem_.is_tf32();
    notes.split_operands = problem_.in_parts();
    return notes;
  }

  Lowered lower(const EngineConfig& config) const override {
    return fusor::lower(problem_, Schedule(problem_, knobs_of<Knobs>(config)));
  }

 private:
  // For blocks that read each other's shared memory. Those of parts fill an SM each, of which few lie
  // together.
  std::vector<int64_t> clusters() const {
    if (problem_.target != "sm_90a") return {1};
    if (problem_.in_parts()) return {1, 2};
    return {1, 2, 4, 8};
  }

  const Problem problem_;
};

class MmaEngine final : public Engine {
 public:
  std::string_view name() const override { return "mma"; }
  int number() const override { return 25; }
  Notes notes() const override { return kNotes; }

  PackedAccess packed_access() const override { return {.loads = true}; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_tiling(fusion, device)) return std::move(*refusal);
    if (device.compute_capability < 80)
      return Refusal{"sm-80", "", "", "an Ampere GPU (sm_80) or later", device.name, "plan for one", -1};
    const DataType compute = contraction_of(fusion).value().compute;
    if (compute != DataType::f32 && compute != DataType::i32)
      return Refusal{"tensor-core-sums",
                     fusion.op_name(fusion.anchors[0].op),
                     "",
                     "compute type fp32 or int32",
                     std::string(to_string(compute)),
                     "",
                     -1};
    const std::optional<Elements> elements = elements_of(fusion, compute);
    if (!elements) return refuse_elements(fusion, compute);
    return std::make_unique<const PreparedMma>(fusion, device, *elements);
  }
};

}  // namespace

const Engine& mma_engine() {
  static const MmaEngine engine;
  return engine;
}

}  // namespace fusor
