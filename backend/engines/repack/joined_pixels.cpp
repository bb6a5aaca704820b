// Owns which taps lead to which of the joined results, and where those lie.
#include "backend/engines/repack/joined_pixels.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "core/ceil_div.h"

namespace fusor {

namespace {

// What comes of a block beyond the classes of a dgrad's stride gains little, and wide products need no
// blocks.
constexpr int64_t kMaxChannelsOfBlock = 256, kMaxChannelsOfStride = 4096;

// source * of_source = result * of_result + tap * of_tap + constant, along one axis
struct Meeting {
  int64_t of_source, of_result, of_tap, constant;
};
Meeting meeting_of(const Contraction& view, const WindowAxis& axis) {
  if (view.op == ContractionOp::fprop) return {1, axis.stride, axis.step, axis.start};
  return {axis.stride, 1, -axis.step, -axis.start};
}

// Offsets of the sources that the results of a block meet.
struct Offsets {
  int64_t lowest = std::numeric_limits<int64_t>::max(), highest = std::numeric_limits<int64_t>::min();
};
Offsets offsets_of(const Meeting& meeting, int64_t block, int64_t window) {
  Offsets offsets;
  for (int64_t result = 0; result < block; ++result)
    for (int64_t tap = 0; tap < window; ++tap) {
      const int64_t reached = result * meeting.of_result + tap * meeting.of_tap + meeting.constant;
      if (reached % meeting.of_source != 0) continue;
      offsets.lowest = std::min(offsets.lowest, reached / meeting.of_source);
      offsets.highest = std::max(offsets.highest, reached / meeting.of_source);
    }
  return offsets;
}

// The filter up to every tap that a result and a window tap lead to.
void fill_up(JoinedAxis& joined, int64_t own_taps) {
  const int64_t by_result = (joined.block - 1) * joined.tap_of_result;
  const int64_t last = joined.first + (joined.window - 1) * joined.tap_of_window;
  const int64_t lowest = std::min<int64_t>(joined.first + std::min<int64_t>(by_result, 0), 0);
  const int64_t highest = std::max(last + std::max<int64_t>(by_result, 0), own_taps - 1);
  joined.zeros = -lowest;
  joined.taps = highest - lowest + 1;
  joined.first += joined.zeros;
}

std::optional<JoinedAxis> joined_axis(const Contraction& view, const WindowAxis& axis, int64_t join) {
  if (std::abs(axis.step) != 1) return std::nullopt;
  const bool forward = view.op == ContractionOp::fprop;
  const Meeting meeting = meeting_of(view, axis);
  JoinedAxis joined;
  joined.results = forward ? axis.output : axis.input;
  const int64_t sources = forward ? axis.input : axis.output;
  joined.block = join * meeting.of_source;
  if (joined.block > kMaxChannelsOfStride) return std::nullopt;
  joined.positions = ceil_div(joined.results, joined.block);
  joined.stride = join * meeting.of_result;
  const Offsets offsets = offsets_of(meeting, joined.block, axis.window);
  if (offsets.lowest > offsets.highest) return std::nullopt;
  joined.window = offsets.highest - offsets.lowest + 1;
  joined.pre_padding = -offsets.lowest;
  joined.post_padding = (joined.positions - 1) * joined.stride + joined.window - sources - joined.pre_padding;

  joined.tap_of_result = -meeting.of_tap * meeting.of_result;
  joined.tap_of_window = meeting.of_source;
  joined.first = meeting.of_tap * (offsets.lowest * meeting.of_source - meeting.constant);
  joined.flipped = meeting.of_tap < 0;
  if (joined.flipped) joined.first -= (joined.window - 1) * joined.tap_of_window;
  fill_up(joined, axis.window);
  return joined;
}

// As even a split of `join` into factors as its divisors allow, the largest along the last axis.
Dims spread(int64_t join, int axes) {
  Dims shares = Dims::filled(axes, 1);
  for (int last = axes - 1; last >= 0; --last) {
    int64_t& share = shares[last];
    const auto suffices = [&] {
      int64_t product = 1;
      for (int i = 0; i <= last; ++i) product *= share;
      return product >= join;
    };
    while (join % share != 0 || !suffices()) ++share;
    join /= share;
  }
  return shares;
}

std::vector<BlockRun> runs_of(const JoinedAxis& axis) {
  const int64_t whole = axis.results / axis.block, rest = axis.results % axis.block;
  std::vector<BlockRun> runs;
  if (whole > 0) runs.push_back({0, whole, axis.block});
  if (rest > 0) runs.push_back({whole, 1, rest});
  return runs;
}

}  // namespace

std::optional<JoinedPixels> joined_pixels(const Contraction& view, int64_t join, bool channels_adjacent) {
  if (view.op != ContractionOp::fprop && view.op != ContractionOp::dgrad) return std::nullopt;
  if (join < 1 || view.entries != 1 || view.siblings != 1 || view.n > kMaxJoinedChannels) return std::nullopt;
  JoinedPixels joined;
  int64_t block = 1;
  const Dims shares = spread(join, static_cast<int>(view.axes.size()));
  for (int i = 0; i < shares.rank(); ++i) {
    const auto next = joined_axis(view, view.axes[static_cast<size_t>(i)], shares[i]);
    if (!next) return std::nullopt;
    block *= next->block;
    if (block * view.n > kMaxChannelsOfStride) return std::nullopt;
    joined.axes.push_back(*next);
  }
  if (block == 1 || (join > 1 && block * view.n > kMaxChannelsOfBlock)) return std::nullopt;
  joined.channel_step = channels_adjacent ? 1 : block;
  int64_t step = channels_adjacent ? view.n : 1;
  for (size_t i = joined.axes.size(); i-- > 0; step *= joined.axes[i].block)
    joined.axes[i].channel_step = step;
  // Lines of a position are whole units of TMA; nobody reads what fills them up.
  joined.channels = round_up(block * view.n, 8);
  return joined;
}

Conv JoinedPixels::convolution(const Conv& of_pixels) const {
  Conv conv = of_pixels;
  conv.pass = ConvPass::fprop;
  conv.mode = axes[0].flipped ? ConvMode::convolution : ConvMode::cross_correlation;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = static_cast<int>(i);
    conv.pre_padding[axis] = axes[i].pre_padding;
    conv.post_padding[axis] = axes[i].post_padding;
    conv.stride[axis] = axes[i].stride;
    conv.dilation[axis] = 1;
  }
  return conv;
}

std::vector<std::vector<BlockRun>> JoinedPixels::boxes() const {
  std::vector<std::vector<BlockRun>> all(1);
  for (const JoinedAxis& axis : axes) {
    std::vector<std::vector<BlockRun>> finer;
    for (const std::vector<BlockRun>& box : all)
      for (const BlockRun& run : runs_of(axis)) {
        finer.push_back(box);
        finer.back().push_back(run);
      }
    all = std::move(finer);
  }
  return all;
}

Expr in_box(const Expr& site, const JoinedPixels& joined, const std::vector<BlockRun>& box) {
  Expr part = site;
  part.domain = {site.domain[0], site.domain[1]};
  for (const BlockRun& run : box) {
    part.domain.push_back(run.positions);
    part.domain.push_back(run.block);
  }
  const auto split = [&](Access& access) {
    if (access.strides.rank() != site.domain.rank()) return;
    Strides strides{access.strides[0], access.strides[1]};
    for (size_t i = 0; i < box.size(); ++i) {
      const int64_t stride = access.strides[2 + static_cast<int>(i)], block = joined.axes[i].block;
      access.offset += box[i].first * block * stride;
      strides.push_back(block * stride);
      strides.push_back(stride);
    }
    access.strides = strides;
  };
  for (Node& node : part.nodes)
    if (node.kind == Node::Kind::load || node.kind == Node::Kind::index) split(node.access);
  for (Store& result : part.stores) split(result.access);
  return part;
}

Access of_box(const Access& access, const JoinedPixels& joined, const std::vector<BlockRun>& box) {
  Access part = access;
  const int64_t channel = access.strides[1];
  part.strides = {access.strides[0], channel * joined.channel_step};
  for (size_t i = 0; i < box.size(); ++i) {
    const int64_t position = access.strides[2 + static_cast<int>(i)];
    part.offset += box[i].first * position;
    part.strides.push_back(position);
    part.strides.push_back(channel * joined.axes[i].channel_step);
  }
  return part;
}

}  // namespace fusor
