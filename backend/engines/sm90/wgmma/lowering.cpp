// Owns what a candidate of the wgmma engine settles before it is launched: the way out, operands in boxes,
// vectors, and what shared memory is for.
#include "backend/engines/sm90/wgmma/lowering.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/residue_classes.h"
#include "backend/engines/sm90/wgmma/resident_window.h"
#include "backend/engines/tiled/tiling.h"
#include "core/ceil_div.h"

namespace fusor::wgmma {

Schedule::Schedule(const Problem& problem_, const Knobs& knobs)
    : problem(problem_),
      fusion(problem_.fusion),
      device(problem_.device),
      view(problem_.view),
      tiling(tiling_of(problem_, knobs)),
      prologue_a(prologue_operand(fusion, view, tiling.swapped, tiling.tile_m)),
      prologue_b(prologue_operand(fusion, view, !tiling.swapped, tiling.columns_of_tile())),
      a(prologue_a ? prologue_a->stored
                   : copied_operand(fusion, view, tiling.swapped, tiling.tile_m / tiling.cluster_n)),
      y(result_site(fusion)),
      reduction(problem_.reduction),
      short_forms(fits_short_forms(y)),
      index_bits(problem_.index_bits) {
  if (tiling.window) keep_window();
  if (prologue_b) b = {prologue_b->stored};
  for (int64_t i = std::ssize(b); i < tiling.siblings; ++i)
    b.push_back(copied_operand(fusion, view, !tiling.swapped, tiling.columns_of_tile() / tiling.cluster, i));
  if (const auto& experts = problem.form.experts()) {
    b[0].batched = true;
    b[0].map.dims[2] = experts->count;
    b[0].map.stride_bytes[1] = experts->stride * byte_size(b[0].map.type);
  }
  const auto share_steps = [&](CopiedOperand& operand, int64_t extent, int64_t blocks) {
    if (operand.across_adjacent && tiling.shares_steps(extent, blocks)) operand.map.box[1] /= blocks;
  };
  share_steps(a, tiling.tile_m, tiling.cluster_n);
  for (CopiedOperand& each : b) share_steps(each, tiling.columns_of_tile(), tiling.cluster);
  choose_loaders();
  std::stable_partition(y.stores.begin(), y.stores.end(),
                        [&](const Store& store) { return !reduction_of(y, store); });
  choose_store();
  choose_staged();
  choose_vectors();
  mark_whole_vectors(fusion, y, vector_axis, vector);
}

Tiling Schedule::tiling_of(const Problem& problem, const Knobs& knobs) {
  const Fusion& fusion = problem.fusion;
  const Contraction& view = problem.view;
  Tiling tiling(problem, knobs);
  if (tiling.window) return tiling;
  const bool second = !tiling.swapped;
  const auto passed = prologue_operand(fusion, view, second, kBoxLine);
  const CopiedOperand columns =
      passed ? passed->stored : copied_operand(fusion, view, second, tiling.columns_of_tile());
  // Columns of pixels are cut where one tap after the other is read, of a single class.
  const bool cuts_pixels = view.op != ContractionOp::wgrad && tiling.classes == 0;
  const auto is_shared = [&](const CopiedOperand& operand) {
    return !view.planes && (!operand.map.window || cuts_pixels);
  };
  tiling.fit_columns(columns.across_adjacent, is_shared(columns));
  if (tiling.cluster_n > 1) {
    const CopiedOperand rows = copied_operand(fusion, view, tiling.swapped, tiling.tile_m);
    tiling.fit_rows(rows.across_adjacent, is_shared(rows));
  }
  return tiling;
}

void Schedule::keep_window() {
  CopiedOperand window = copied_window(fusion, view, *tiling.window, tiling.lines_of_window());
  window.map.box[0] = Tiling::window_line_bytes(view) / byte_size(type());
  if (tiling.swapped) {
    b = {window};
  } else {
    a = window;
    b = {copied_operand(fusion, view, true, tiling.tile_n)};
  }
  filters().map.box[2] = filter_lines();
  join_taps();
}

int64_t Schedule::filter_lines() const {
  constexpr int64_t kSlice = 16, kAtom = 8;
  const int64_t lines =
      filters().across_adjacent ? kSlice * Tiling::slices_of(view) : ceil_div(view.n, kAtom) * kAtom;
  return std::min(lines, kPartRows);
}

// Taps that lie one behind the other in memory are copied by lines of 128 bytes.
void Schedule::join_taps() {
  TensorMap& map = filters().map;
  const int64_t taps = tiling.window->layers * std::ssize(tiling.window->lines), channels = map.dims[0];
  const bool divides = channels == kBoxLine / 2 || channels == kBoxLine / 4;
  if (tiling.window->layers == 1 || !divides || map.stride_bytes[0] != channels * byte_size(map.type)) return;
  taps_of_line = kBoxLine / channels;
  map.dims[0] = taps * channels;
  map.dims[1] = 1;
  map.stride_bytes[0] = map.stride_bytes[1];
}

int64_t Schedule::filter_bytes() const {
  const int64_t taps = tiling.window->layers * std::ssize(tiling.window->lines);
  return ceil_div(taps, taps_of_line) * filter_lines() * kLineBytes;
}

int64_t Schedule::run_of_pixels() const {
  if (tiling.window)
    return std::gcd(tiling.window->axes.back().pixels, tiling.window->axes.back().positions.pixels);
  int64_t pixels = 1;
  for (const WindowAxis& axis : view.axes)
    pixels *= view.op == ContractionOp::fprop ? axis.output : axis.input;
  return pixels;
}

void Schedule::choose_store() {
  if (tiling.split > 1) return;
  copied = copied_result(fusion, view, y, y.stores.front());
  if (!copied && tiling.classes == 0) copied = planes_result(fusion, view, y, run_of_pixels());
  // Threads store lines of few channels, too, but for those of experts.
  const bool short_lines = (tiling.window || tiling.classes > 0) && along_columns() && !stores_planes();
  if (copied && (stores_lines() || stores_planes()) && line_bytes() != 128 && !short_lines) copied.reset();
  // Lines along the rows would be of several experts.
  if (copied && problem.form.experts() && !copied->along_n) copied.reset();
  // A thread's two rows are no part of a matrix that could be transposed; ptxas takes rounding them one by
  // one for a part of the products, and serialises those.
  const bool rounded = copied && byte_size(copied->type) == 2;
  if (rounded && tiling.from_registers && !along_columns()) copied.reset();
  if (!copied) return;
  second = result_beside();
  // The kernel rounds to a result's type: enough where the value has that type or none of its own.
  rounds_value = !yields(*copied);
  if (second) rounds_value |= !yields(*second);
}

std::optional<CopiedResult> Schedule::result_beside() const {
  if (stores_lines() || stores_planes() || y.stores.size() < 2) return std::nullopt;
  auto found = copied_result(fusion, view, y, y.stores[1], &*copied);
  if (!found || found->along_n != copied->along_n) return std::nullopt;
  const bool wide = byte_size(found->type) != 2 || byte_size(copied->type) != 2;
  // Lines of a box along rows are 64 elements of 16 bits; two blocks an SM leave registers for no wider
  // pairs.
  if (wide && (!along_columns() || tiling.blocks_per_sm() > 1)) return std::nullopt;
  return found;
}

bool Schedule::yields(const CopiedResult& stored) {
  const int value = y.stores.front().node;
  y.yields.push_back(value);
  y.stores.erase(y.stores.begin());
  return y.node(value).type == stored.type;
}

ThreadLoad Schedule::loaded_operand(bool second_operand, int64_t sibling) const {
  ThreadLoad load = thread_load(fusion, view, second_operand, sibling).value();
  if (!problem.needed.any()) load.grain = byte_size(type());
  return load;
}

void Schedule::choose_loaders() {
  const auto by_threads = [&](bool second_operand) {
    return second_operand ? tiling.by_threads.second : tiling.by_threads.first;
  };
  if (by_threads(tiling.swapped)) thread_a = loaded_operand(tiling.swapped, 0);
  for (int64_t i = 0; i < tiling.siblings && by_threads(!tiling.swapped); ++i)
    thread_b.push_back(loaded_operand(!tiling.swapped, i));
}

int64_t Schedule::raw_bytes_of_step() const {
  const auto bytes = [&](const std::optional<PrologueOperand>& passed, int64_t lines) {
    return passed ? lines * tiling.line * byte_size(passed->stored.map.type) : 0;
  };
  return bytes(prologue_a, tiling.tile_m) + bytes(prologue_b, tiling.columns_of_tile());
}

// What keeps memory busy, of an SM.
int64_t Schedule::steps_ahead() const {
  constexpr int64_t kUnderWay = 48 * 1024, kMost = 8;
  if (!passes()) return 0;
  return std::clamp<int64_t>(kUnderWay / (tiling.blocks_per_sm() * raw_bytes_of_step()), 1, kMost);
}

// Four warpgroups start with 128 registers a thread, and ptxas wants every wgmma to do with as many.
int64_t Schedule::loaders() const {
  constexpr int64_t kLinesOfPass = 32, kWidest = 192;
  const bool even = !prologue_b || tiling.columns_of_tile() % kLinesOfPass == 0;
  return passes() && even && tiling.tile_n <= kWidest && tiling.blocks_per_sm() == 1 ? 2 : 1;
}

// Where the loading warpgroup is busy, nobody moves boxes.
void Schedule::choose_staged() {
  if (store_path() != StorePath::boxes || tiling.loader_is_busy()) return;
  for (size_t i = 0; i < y.nodes.size() && std::ssize(staged) < kMostStaged; ++i) {
    Node& node = y.nodes[i];
    if (node.kind != Node::Kind::load || std::cmp_equal(i, yielded(y)) || std::cmp_equal(i, yielded(y, 1)))
      continue;
    const auto found = operand_like_result(node);
    if (!found) continue;
    const int64_t enough = std::min(kFewStages, stages());
    staged.push_back(*found);
    if (stages() < enough || shared_bytes(2) > shared_budget()) {
      staged.pop_back();
      continue;
    }
    node.kind = Node::Kind::input;
    node.input = static_cast<int>(tiling.siblings + std::ssize(staged)) - 1;
    node.type = carrier(node.type);
    node.access = {};
  }
}

std::optional<CopiedResult> Schedule::operand_like_result(const Node& load) const {
  if (load.type != type_of(fusion, load.access)) return std::nullopt;
  auto found = copied_result(fusion, view, y, {.type = load.type, .access = load.access}, &*copied);
  if (!found || found->along_n != copied->along_n) return std::nullopt;
  // Rows that are neighbours are no part of a matrix.
  if (tiling.from_registers && !along_columns()) return std::nullopt;
  if (byte_size(load.type) != 2 && tiling.blocks_per_sm() > 1) return std::nullopt;
  return found;
}

// Four sums are 16 bytes of another block's memory.
void Schedule::choose_gathered_vectors() {
  const ProductAxis axis = fastest(view.columns_of_result());
  const Access& access = y.stores.front().access;
  const Operand& operand = fusion.operands[static_cast<size_t>(access.operand)];
  vector_axis = view.is_convolution() ? 1 : view.batch.rank() + 1;
  for (const int64_t width : {4, 2})
    if (axis.axis == vector_axis && axis.step == 1 && axis.extent % width == 0 &&
        moves_whole_vectors(access, operand, operand.type, vector_axis, width)) {
      vector = width;
      return;
    }
}

void Schedule::choose_vectors() {
  if (tiling.gathered) return choose_gathered_vectors();
  const int n_axis = view.is_convolution() ? 1 : view.batch.rank() + 1;
  vector_axis = tiling.swapped ? n_axis - 1 : n_axis;
  // Neighbouring pixels may lie in different lines.
  const bool pixels = tiling.swapped && view.is_convolution() && view.op != ContractionOp::wgrad;
  const bool even = tiling.columns % 2 == 0 &&
                    ((!view.planes && view.padded_channels == 0) || view.input_channels % 2 == 0);
  vector = !pixels && along_columns() && even ? 2 : 1;
}

StorePath Schedule::store_path() const {
  if (tiling.gathered) return StorePath::gathered;
  if (is_split()) return StorePath::partials;
  if (!copied) return StorePath::threads;
  if (stores_planes()) return StorePath::planes;
  return stores_lines() ? StorePath::lines : StorePath::boxes;
}

bool Schedule::is_unrolled() const {
  constexpr int64_t kManySteps = 24, kManyRounds = 8, kFewSteps = 12;
  constexpr int64_t kMostSums = 128;  // written out; more take ptxas twice as long
  constexpr double kMostInstructions = 24;
  if (!copied || reduction) return false;
  const SiteCost cost = cost_of(result_site(fusion), fusion);
  const bool linear = problem.form.is_given() && !view.is_convolution();
  const bool bare = linear && tiling.steps_of_part <= kFewSteps && tiling.sums() <= kMostSums &&
                    cost.instructions + 4 * cost.special <= kMostInstructions;
  if (!is_short(cost) && !bare) return false;
  const bool wide = byte_size(copied->type) > 2 && tiling.sums() > 128;
  const bool hidden =
      tiling.ping_pong && tiling.steps_of_part >= kManySteps && tiling.tiles() >= kManyRounds * slots();
  // A loop over wide pieces that also reads boxes has no register left for its sums.
  return wide ? !staged.empty() : !hidden;
}

int64_t Schedule::box_columns() const {
  int64_t widest = std::max(byte_size(copied->type), second ? byte_size(second->type) : 0);
  for (const CopiedResult& operand : staged) widest = std::max(widest, byte_size(operand.type));
  const int64_t line = 128 / widest;
  const bool wide = along_columns() || tiling.blocks_per_sm() == 1;
  if (!wide || tiling.columns_of_tile() % line != 0) return tiling.piece_columns();
  // Boxes of two leave stages enough, or are no wider than a piece.
  const bool fits = box_element_bytes() == byte_size(copied->type) ||
                    shared_bytes_with(boxes_bytes(line, 2), kEnoughStages) <= shared_budget();
  return fits ? line : tiling.piece_columns();
}

int64_t Schedule::joined_rows() const {
  const bool plain = store_path() == StorePath::boxes && along_columns() && staged.empty() && !second;
  if (!plain || tiling.swapped || view.is_convolution() || tiling.entries > 1 || tiling.classes > 0) return 1;
  const TensorMap& map = copied->map;
  const int64_t line = map.dims[0] * byte_size(copied->type);
  const bool dense = map.stride_bytes[0] == line && map.dims[0] == box_columns() &&
                     tiling.columns_of_tile() == box_columns();
  // Rows of a warp are 16, and begin on multiples of the pattern in which TMA swizzles a line.
  const int64_t joined = line == 64 || line == 32 ? 2 : 1;
  return dense && map.dims[1] % joined == 0 ? joined : 1;
}

int64_t Schedule::box_element_bytes() const {
  std::vector<DataType> results{copied->type};
  if (second) results.push_back(second->type);
  int64_t bytes = 0;
  for (const DataType type : results) bytes += byte_size(type);
  for (const CopiedResult& operand : staged) {
    const auto place = std::ranges::find_if(results, [&](DataType type) {
      return type == operand.type || (byte_size(type) == 2 && byte_size(operand.type) == 2);
    });
    if (place == results.end())
      bytes += byte_size(operand.type);
    else
      results.erase(place);
  }
  return bytes;
}

int64_t Schedule::boxes_of_consumer() const {
  constexpr int64_t kMost = 4, kBusy = 5;
  if (store_path() != StorePath::boxes) return kFewestBoxes;
  const int64_t columns = box_columns();
  const int64_t most = stages_beside(boxes_bytes(columns, kFewestBoxes));
  const bool spared = !staged.empty() || most > tiling.steps;
  const int64_t wanted = spared ? std::min(kBusy, most) : most;
  int64_t count = kMost;
  while (count > kFewestBoxes && shared_bytes_with(boxes_bytes(columns, count), wanted) > shared_budget())
    --count;
  return count;
}

int64_t Schedule::line_bytes() const {
  return (along_columns() ? box_columns() : kPartRows) * byte_size(copied->type);
}

int64_t Schedule::boxes_bytes(int64_t columns, int64_t count) const {
  return tiling.consumers() * count * kPartRows * columns * box_element_bytes();
}

int64_t Schedule::shared_bytes_with(int64_t boxes, int64_t stages) const {
  if (tiling.window)
    return boxes + 1024 + filter_bytes() + stages * tiling.lines_of_stage() * Tiling::window_line_bytes(view);
  const int64_t kept = passes() ? steps_ahead() * raw_bytes_of_step() + 1024 : 0;
  return stages * tiling.stage_bytes() + ceil_div(16 * (stages + 1), 1024) * 1024 + kept + boxes;
}

int64_t Schedule::shared_bytes(int64_t stages) const {
  return shared_bytes_with(copied ? boxes_bytes(box_columns(), boxes_of_consumer()) : 0, stages);
}

int64_t Schedule::shared_budget() const {
  return tiling.blocks_per_sm() == 1 ? device.shared_per_block
                                     : device.shared_per_sm / tiling.blocks_per_sm() - 1024;
}

int64_t Schedule::stages_beside(int64_t boxes) const {
  int64_t stages = tiling.window ? kMaxWindows : kMaxStages;
  while (stages > 2 && shared_bytes_with(boxes, stages) > shared_budget()) --stages;
  return stages;
}

int64_t Schedule::gathered_bytes() const {
  constexpr int64_t kSumBytes = 4;
  const bool along = along_columns();
  return (along ? tiling.tile_m : tiling.tile_n) * (along ? tiling.tile_n + 8 : tiling.tile_m + 4) *
         kSumBytes;
}

bool Schedule::fits() const {
  if (shared_bytes(2) > shared_budget()) return false;
  // Numbers in parts have three stages in use at a time; a fourth is filled meanwhile.
  if (tiling.in_parts && stages() <= kPartsOfNumber) return false;
  if (tiling.cluster_n > 1 && (stores_lines() || stores_planes())) return false;
  if (tiling.gathered && gathered_bytes() > stages() * tiling.stage_bytes()) return false;
  constexpr int64_t kMostPixels = 1024;  // of one copy
  return !tiling.window || (filter_blocks() <= device.sm_count && tiling.lines_of_window() <= kMostPixels);
}

int64_t Schedule::slots() const {
  const int64_t together = tiling.window ? filter_blocks() : tiling.cluster_blocks();
  return sms_of_clusters(device, tiling.cluster_blocks()) / together * together * tiling.blocks_per_sm();
}

Lowered lower(const Schedule& schedule) {
  Lowered lowered;
  if (const auto& experts = schedule.problem.form.experts()) {
    const int64_t rows = schedule.tiling.rows, tile = schedule.tiling.tile_m;
    lowered.steps.emplace_back(
        list_of_tiles(*experts, schedule.fusion, rows, tile, schedule.device.target()));
    lowered.scratch.push_back(bytes_of_tiles(*experts, rows, tile));
  }
  lowered.steps.emplace_back(schedule.product());
  if (schedule.is_split()) {
    lowered.steps.emplace_back(schedule.sum_of_parts());
    lowered.scratch.push_back(schedule.partial_bytes());
  }
  if (schedule.reduction) {
    const PartialResults partial = schedule.partial_results();
    for (Launch& launch : partial.combinations(schedule.fusion, static_cast<int>(schedule.index_bits),
                                               schedule.device.target()))
      lowered.steps.emplace_back(std::move(launch));
    lowered.scratch.push_back(partial.bytes(schedule.fusion));
  }
  lowered.guards = schedule.guards();
  return lowered;
}

}  // namespace fusor::wgmma
