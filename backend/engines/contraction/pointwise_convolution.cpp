// Owns which axes of a pointwise convolution are which of a matmul's.
#include "backend/engines/contraction/pointwise_convolution.h"

#include <utility>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

bool has_adjacent_channels(const Expr& site) {
  const Access* const access = primary_access(site);
  return access == nullptr || site.domain[1] == 1 || access->strides[1] == 1;
}

// The axes of a site by which it is a matmul's: batch, rows, columns.
using Axes = std::vector<Dims>;

struct Sites {
  size_t first = 0;  // of the convolution's operands: the matmul's left one
  Axes left, right, result;
};

// `axis` and those of the taps, which have one element.
Dims with_taps(int64_t axis, int rank) {
  Dims axes{axis};
  for (int i = 2; i < rank; ++i) axes.push_back(i);
  return axes;
}

Sites sites_of(const Fusion& fusion, const Contraction& view) {
  const int rank = result_site(fusion).domain.rank();
  const Dims pixels = with_taps(0, rank);  // images, then positions
  if (view.op == ContractionOp::wgrad) return {0, {{1}, pixels}, {pixels, {1}}, {{0}, with_taps(1, rank)}};
  const bool channels_last = has_adjacent_channels(operand_site(fusion, 0, 0)),
             to_last = has_adjacent_channels(result_site(fusion));
  const bool forward = view.op == ContractionOp::fprop;
  const Dims summed = with_taps(forward ? 1 : 0, rank), kept{forward ? 0 : 1};
  if (channels_last && to_last) return {0, {pixels, {1}}, {summed, kept}, {pixels, {1}}};
  Dims positions = pixels;
  positions.erase(0);
  if (to_last) return {0, {{0}, positions, {1}}, {summed, kept}, {{0}, positions, {1}}};
  return {1, {kept, summed}, {{0}, {1}, positions}, {{0}, {1}, positions}};
}

// The last axis of a site that lies side by side in memory, or has one element.
bool has_adjacent_columns(const Expr& site) {
  const int last = site.domain.rank() - 1;
  const Access* const access = primary_access(site);
  return access == nullptr || site.domain[last] == 1 || access->strides[last] == 1;
}

// Whether rows that end with their entry leave little of the last tile empty. Tiles of matrices are then as
// fast as those of pixels or faster: 61 us for 75 with 64 entries of 64 rows (H200, 4608 steps), 118 for 104
// with 128 of 49.
bool fills_tiles(int64_t rows) {
  constexpr int64_t kTile = 64;
  return static_cast<double>(round_up(rows, kTile)) <= 1.15 * static_cast<double>(rows);
}

// Whether every batch entry has rows of its own and no weights.
bool shares_weights(const Fusion& fusion, const Contraction& view) {
  const Dims &rows = operand_site(fusion, 0, 0).domain, &result = result_site(fusion).domain;
  if (rows.rank() != result.rank()) return false;
  for (int axis = 0; axis < view.batch.rank(); ++axis)
    if (rows[axis] != view.batch[axis]) return false;
  for (size_t i = 0; i < fusion.anchors.size(); ++i) {
    const Dims& weights = operand_site(fusion, i, 1).domain;
    if (element_count(weights) != view.k * view.n) return false;
  }
  return true;
}

// The axes of a site over batch, rows and columns as images, channels and positions.
Axes pixels_of_rows(int rank) {
  Axes axes{{0}, {rank - 1}};
  for (int axis = 1; axis + 1 < rank; ++axis) axes.push_back({axis});
  return axes;
}

// Those of weights [k, n] as a filter of one tap, along as many axes as positions have. The columns are a
// filter each in a forward pass, and its channels in a backward one, which lie side by side.
Axes filter_of_columns(ConvPass pass, int rank, int positions) {
  Dims summed;
  for (int axis = 0; axis + 1 < rank; ++axis) summed.push_back(axis);
  Axes axes{{rank - 1}, summed};
  if (pass == ConvPass::dgrad) std::swap(axes[0], axes[1]);
  axes.resize(2 + static_cast<size_t>(positions));
  return axes;
}

Conv one_tap(ConvPass pass, int positions, DataType compute) {
  Conv conv;
  conv.pass = pass;
  conv.pre_padding = conv.post_padding = Dims::filled(positions, 0);
  conv.stride = conv.dilation = Dims::filled(positions, 1);
  conv.compute = compute;
  return conv;
}

}  // namespace

std::optional<Fusion> as_matmul(const Fusion& fusion) {
  const auto view = contraction_of(fusion);
  if (!view || !view->is_pointwise()) return std::nullopt;
  const Sites sites = sites_of(fusion, *view);
  // Siblings share the left operand.
  if (form_of(fusion) == Form::siblings && sites.first != 0) return std::nullopt;
  auto left = group_axes(operand_site(fusion, 0, sites.first), sites.left);
  auto result = group_axes(result_site(fusion), sites.result);
  if (!left || !result) return std::nullopt;
  Fusion matmul = fusion;
  for (size_t i = 0; i < fusion.anchors.size(); ++i) {
    auto right = group_axes(operand_site(fusion, i, 1 - sites.first), sites.right);
    if (!right) return std::nullopt;
    Anchor& anchor = matmul.anchors[i];
    if (sites.first == 1) std::swap(anchor.operands[0], anchor.operands[1]);
    anchor.attributes = Matmul{view->compute};
    operand_site(matmul, i, 1) = std::move(*right);
  }
  operand_site(matmul, 0, 0) = std::move(*left);
  result_site(matmul) = std::move(*result);
  return matmul;
}

std::optional<Fusion> as_pointwise_convolution(const Fusion& fusion) {
  constexpr int kMostPositionAxes = 3;
  const auto view = contraction_of(fusion);
  if (!view || view->op != ContractionOp::matmul || view->entries == 1 || fills_tiles(view->m))
    return std::nullopt;
  const int positions = view->batch.rank();
  if (positions > kMostPositionAxes || !shares_weights(fusion, *view) ||
      !has_adjacent_columns(operand_site(fusion, 0, 0)) || !has_adjacent_columns(result_site(fusion)))
    return std::nullopt;
  const Axes axes = pixels_of_rows(positions + 2);
  auto first = group_axes(operand_site(fusion, 0, 0), axes), result = group_axes(result_site(fusion), axes);
  if (!first || !result) return std::nullopt;
  const ConvPass pass = has_adjacent_columns(operand_site(fusion, 0, 1)) ? ConvPass::dgrad : ConvPass::fprop;
  Fusion convolution = fusion;
  for (size_t i = 0; i < fusion.anchors.size(); ++i) {
    const Expr& weights = operand_site(fusion, i, 1);
    auto second = group_axes(weights, filter_of_columns(pass, weights.domain.rank(), positions));
    if (!second) return std::nullopt;
    convolution.anchors[i].attributes = one_tap(pass, positions, view->compute);
    operand_site(convolution, i, 1) = std::move(*second);
  }
  operand_site(convolution, 0, 0) = std::move(*first);
  result_site(convolution) = std::move(*result);
  return convolution;
}

}  // namespace fusor
