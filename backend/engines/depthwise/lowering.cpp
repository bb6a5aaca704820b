// Owns how a block's threads are dealt out, and what one of them holds.
#include "backend/engines/depthwise/lowering.h"

#include <bit>
#include <limits>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/reach.h"

namespace fusor::depthwise {

namespace {

// Strips beyond the last one count, too.
constexpr int64_t kMostNumbers = kMaxIndex32 - 65536;

// As many adjacent channels as 16 bytes of the operand hold, fewer where their count or its alignment asks
// for it.
int64_t widest_vector(const Fusion& fusion, const Expr& pixels) {
  const Access* const access = primary_access(pixels);
  if (access == nullptr) return 1;
  const Operand& operand = fusion.operands[static_cast<size_t>(access->operand)];
  for (int64_t width = std::min<int64_t>(8, 16 / byte_size(operand.type)); width > 1; width /= 2)
    if (pixels.domain[1] % width == 0 && moves_whole_vectors(*access, operand, operand.type, 1, width))
      return width;
  return 1;
}

// The share of the threads of all blocks that have work, a little more where neighbours share what they load.
double usefulness(const Deal& deal, int64_t vectors, int64_t row_pieces) {
  const auto share = [](int64_t all, int64_t each) {
    return static_cast<double>(all) / static_cast<double>(ceil_div(all, each) * each);
  };
  const double wide = 0.1 * static_cast<double>(std::min<int64_t>(deal.width, 8)) / 8;
  const double high = 0.1 * static_cast<double>(deal.rows) / static_cast<double>(row_pieces);
  return share(vectors, deal.width) * share(row_pieces, deal.rows) * static_cast<double>(deal.threads()) /
             static_cast<double>(kThreads) +
         wide + high;
}

Deal best_deal(int64_t vectors, int64_t row_pieces, int64_t max_width) {
  Deal best;
  double most = 0;
  for (int64_t width = std::min(vectors, max_width); width >= 1; --width)
    for (int64_t rows = 1; rows <= row_pieces && width * rows <= kThreads; ++rows) {
      const Deal deal{width, rows, kThreads / (width * rows)};
      const double useful = usefulness(deal, vectors, row_pieces);
      if (useful <= most) continue;
      most = useful;
      best = deal;
    }
  return best;
}

int64_t widest_vector(const Fusion& fusion, bool wgrad) {
  const int64_t width = widest_vector(fusion, operand_site(fusion, 0, 0));
  return wgrad ? std::min(width, widest_vector(fusion, operand_site(fusion, 0, 1))) : width;
}

// Planes: lanes are strips of whole images where those have few, so that the block's planes, which are
// adjacent in memory, are read from end to end; idle threads cost more.
Deal best_deal_of_planes(int64_t channels, int64_t strips_of_image, int64_t max_width) {
  constexpr double kWholeImage = 0.15, kWholeImages = 0.1;
  Deal best;
  double most = 0;
  for (int64_t lanes = kThreads; lanes >= 1; --lanes) {
    const Deal deal{std::min({channels, max_width, kThreads / lanes}), 1, lanes};
    const double whole = lanes == strips_of_image       ? kWholeImage
                         : lanes % strips_of_image == 0 ? kWholeImages
                                                        : 0;
    const double share =
        static_cast<double>(channels) / static_cast<double>(ceil_div(channels, deal.width) * deal.width);
    const double useful = share * static_cast<double>(deal.threads()) / static_cast<double>(kThreads) + whole;
    if (useful <= most) continue;
    most = useful;
    best = deal;
  }
  return best;
}

// Neighbours along the last axis that one access moves: as many as divide the axis and the distance between
// strips, so that each access lies inside of the axis or beyond it.
int64_t neighbours_at_once(const Fusion& fusion, const Expr& site, int64_t distance, int64_t most) {
  const Access* const access = primary_access(site);
  if (access == nullptr) return 1;
  const Operand& operand = fusion.operands[static_cast<size_t>(access->operand)];
  const int axis = site.domain.rank() - 1;
  for (int64_t width = std::min<int64_t>(most, 16 / byte_size(operand.type)); width > 1; width /= 2)
    if (site.domain[axis] % width == 0 && distance % width == 0 &&
        moves_whole_vectors(*access, operand, operand.type, axis, width))
      return width;
  return 1;
}

}  // namespace

bool is_plain(const Fusion& fusion, const Expr& site, int64_t width) {
  const Node& value = yielded_node(site);
  return value.kind == Node::Kind::load && byte_size(value.type) == 2 && is_real(value.type) &&
         (value.access.whole_vectors || width == 1) &&
         fusion.operands[static_cast<size_t>(value.access.operand)].type == value.type;
}

Problem::Problem(const Fusion& fusion_, const DeviceInfo& device_)
    : fusion(fusion_),
      device(device_),
      view(contraction_of(fusion_).value()),
      target(device.target()),
      plane_axis(fusor::plane_axis(fusion_, view).value_or(-1)),
      order(axis_order(view, plane_axis)),
      axes(sliding_axes(view, order, in_planes())),
      widest_vector(in_planes() ? 1 : depthwise::widest_vector(fusion_, view.op == ContractionOp::wgrad)),
      dram_bytes(fusor::dram_bytes(fusion_)) {
  a = over_kernel_axes(operand_site(fusion, 0, 0), order);
  b = over_kernel_axes(operand_site(fusion, 0, 1), order);
  y = over_kernel_axes(result_site(fusion), order);
  pieces = pieces_of_rows(axes);
  taps = ceil_div(last().taps(), pieces);
}

Schedule::Schedule(const Problem& problem_, const Knobs& knobs)
    : problem(problem_),
      fusion(problem_.fusion),
      view(problem_.view),
      target(problem_.target),
      axes(problem_.axes),
      pieces(problem_.pieces),
      taps(problem_.taps),
      a(problem_.a),
      b(problem_.b),
      y(problem_.y),
      strip(knobs.strip),
      rows(knobs.rows),
      split(knobs.split.value_or(1)),
      vector(knobs.vector) {
  if (in_planes()) settle_planes(knobs.load.value_or(0));
  mark_vectors();
  if (marches() && !can_march()) rows = 1;
  deal = best_deal();
  if (!is_wgrad()) steps = steps_for_device();
  if (split == 0) split = split_for_device();
  index_bits = needs_wide_index() ? 64 : 32;
}

// Columns that are neighbours and begin at the same distance from a multiple in every strip are loaded
// together; so are results that are neighbours.
void Schedule::settle_planes(int64_t most) {
  const int64_t phases = last().phases();
  vector = 1;
  while (is_wgrad() && columns() > kMostColumns) strip /= 2;
  strip = ceil_div(strip, phases) * phases;
  if (last().spacing() == 1) along = neighbours_at_once(fusion, strips_site(), strip, 8);
  if (last().picks_taps() || last().dilation != 1 || pieces > 1 || last().advance() > taps) return;
  most = most < 1 ? 8 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
  load = neighbours_at_once(fusion, columns_site(), strip / phases * last().advance(),
                            std::min<int64_t>(most, 8));
  const int64_t first = (last().start - last().phase()) / phases;
  lead = (first % load + load) % load;
}

Deal Schedule::best_deal() const {
  if (!in_planes())
    return depthwise::best_deal(vectors, is_wgrad() && !marches() ? row_pieces() : 1, max_width());
  return best_deal_of_planes(vectors, strips_of_image(), max_width());
}

// The axis along which a site's vectors lie.
int Schedule::vector_axis(const Expr& site) const {
  const bool over_filters = is_wgrad() ? &site == &y : &site == &b;
  return over_filters ? 0 : in_planes() ? site.domain.rank() - 1 : 1;
}

int64_t Schedule::vector_width(const Expr& site) const {
  if (&site == &columns_site()) return vector * load;
  if (&site == &strips_site()) return vector * along;
  return is_wgrad() ? 1 : vector;
}

void Schedule::mark_vectors() {
  vectors = view.entries / vector;
  for (Expr* const site : {&a, &b, &y})
    mark_whole_vectors(fusion, *site, vector_axis(*site), vector_width(*site));
}

int64_t Schedule::blocks() const {
  if (is_wgrad()) return channel_tiles() * row_tiles() * split;
  return channel_tiles() * ceil_div(strips(), deal.lanes * steps);
}

int64_t Schedule::steps_for_device() const {
  const int64_t places = int64_t{problem.device.sm_count} * blocks_per_sm();
  const int64_t single = channel_tiles() * ceil_div(strips(), deal.lanes);
  return std::clamp<int64_t>(single / (places * 4), 1, 16);
}

int64_t Schedule::split_for_device() const {
  const int64_t places = int64_t{problem.device.sm_count} * blocks_per_sm();
  const int64_t most = std::max<int64_t>(1, places / (channel_tiles() * row_tiles()));
  const int64_t strips_of_lane = ceil_div(strips(), most * deal.lanes);
  return ceil_div(strips(), strips_of_lane * deal.lanes);
}

int64_t Schedule::values_on_the_way() const {
  int64_t values = is_plain(columns_site()) ? column_loads() * load : 0;
  if (is_wgrad() && is_plain(a)) values += strip;
  return ceil_div(values * vector, 2);
}

int64_t Schedule::values() const {
  if (marches() && is_wgrad())
    return values_on_the_way() + strip / along + column_loads() +
           vector * (columns() + ring() * strip + axes[1].taps() * taps);
  // The first row of results leaves before the last one begins.
  if (marches())
    return values_on_the_way() + column_loads() +
           vector * (columns() + std::max<int64_t>(1, ring() - 1) * strip);
  return vector * (is_wgrad() ? columns() + strip + taps : columns() + strip * rows + 1);
}

int64_t Schedule::blocks_per_sm() const {
  int64_t others = marches() ? 30 : in_planes() ? 50 : 40;
  // Where results end, and which taps there are.
  if (marches() && !is_wgrad()) others += 4 + (has_tails() ? strip : 0) + (whole_rows() ? 0 : 8);
  const int64_t registers = values() + others + (index_bits == 64 ? 32 : 0);
  const int64_t room = registers <= 96 ? 5 : registers <= 128 ? 4 : registers <= 168 ? 3 : 2;
  return in_planes() && registers <= 80 ? (registers <= 64 ? 8 : 6) : room;
}

bool Schedule::needs_wide_index() const {
  int64_t most = std::max({strips() + deal.lanes * (steps + 1), blocks(), elements()});
  for (int i = 0; i < kSlidingAxes; ++i)
    most = std::max(most, axes[static_cast<size_t>(i)].largest_index(length(i)));
  for (const Expr* site : {&a, &b, &y}) most = std::max(most, reach(*site));
  return most > kMostNumbers;
}

}  // namespace fusor::depthwise
