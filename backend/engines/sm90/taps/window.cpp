// Owns the window of a wgrad over planes as the wgmma_taps engine sees it.
#include "backend/engines/sm90/taps/window.h"

#include <algorithm>
#include <array>

namespace fusor::taps {

namespace {

constexpr int64_t kMostSums = 96;  // of a thread: three consumers leave it 160 registers

int64_t round_down(int64_t value, int64_t unit) { return value - ((value % unit) + unit) % unit; }

int64_t lower(const WindowAxis& axis) {
  return axis.start + std::min<int64_t>((axis.window - 1) * axis.step, 0);
}

}  // namespace

Window::Window(const Contraction& view) : w(view.axes.back()) {
  if (view.axes.size() == 2) h = view.axes.front();
  while (h.window * ceil_div(w.window, taps) > kMostConsumers && taps < kMostTaps) ++taps;
  consumers_of_row = ceil_div(w.window, taps);
}

int64_t Window::column(int64_t consumer) const {
  return lower(w) + consumer % consumers_of_row * taps * std::abs(w.step);
}

int64_t Window::distance(int64_t consumer) const {
  return (lower(h) + consumer / consumers_of_row * std::abs(h.step)) * w.input + column(consumer);
}

int64_t Window::origin() const { return round_down(distance(0), kUnit); }

int64_t Window::masked() const {
  int64_t bits = 0;
  for (int64_t column = 0; column < w.window; ++column) {
    const int64_t further = lower(w) + column * std::abs(w.step);
    if (further < 0 || further + w.output > w.input) bits |= int64_t{1} << (column % taps);
  }
  return bits;
}
int64_t shared_bytes(const Window& window, int64_t filters, const Rings& rings) {
  return round_up(rings.stages * filters * kStep * kElementBytes + rings.pieces * window.piece_bytes() +
                      16 * (rings.stages + rings.pieces),
                  1024);
}

std::optional<Rings> rings_of(const Window& window, int64_t filters, const DeviceInfo& device) {
  constexpr std::array kAhead{Rings{6, 4}, Rings{6, 3}, Rings{6, 2}, Rings{4, 2}, Rings{4, 1}, Rings{3, 1}};
  for (const auto& [stages, ahead] : kAhead)
    if (const Rings rings{stages, window.least_pieces() + ahead};
        shared_bytes(window, filters, rings) <= device.shared_per_block)
      return rings;
  return std::nullopt;
}

std::vector<int64_t> tiles_of(const Contraction& view, const DeviceInfo& device) {
  const Window window(view);
  std::vector<int64_t> tiles;
  for (const int64_t filters : {32, 64, 96, 128}) {
    if (window.taps * filters / 2 > kMostSums || !rings_of(window, filters, device)) break;
    tiles.push_back(filters);
    if (filters >= view.output_channels) break;
  }
  return tiles;
}

}  // namespace fusor::taps
