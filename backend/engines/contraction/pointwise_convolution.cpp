// Owns which axes of a pointwise convolution are which of a matmul's.
#include "backend/engines/contraction/pointwise_convolution.h"

#include <vector>

#include "backend/engines/contraction/product.h"

namespace fusor {

namespace {

bool has_adjacent_channels(const Expr& site) {
  const Access* const access = primary_access(site);
  return access == nullptr || site.domain[1] == 1 || access->strides[1] == 1;
}

// The axes of a site by which it is a matmul's: batch, rows, columns.
using Axes = std::vector<Dims>;

struct Sites {
  size_t first = 0;  // of fusion.before: the matmul's left operand
  Axes left, right, result;
};

// `axis` and those of the taps, which have one element.
Dims with_taps(int64_t axis, int rank) {
  Dims axes{axis};
  for (int i = 2; i < rank; ++i) axes.push_back(i);
  return axes;
}

Sites sites_of(const Fusion& fusion, const Contraction& view) {
  const int rank = fusion.after[0].domain.rank();
  const Dims pixels = with_taps(0, rank);  // images, then positions
  if (view.op == ContractionOp::wgrad) return {0, {{1}, pixels}, {pixels, {1}}, {{0}, with_taps(1, rank)}};
  const bool channels_last = has_adjacent_channels(fusion.before[0]),
             to_last = has_adjacent_channels(fusion.after[0]);
  const bool forward = view.op == ContractionOp::fprop;
  const Dims summed = with_taps(forward ? 1 : 0, rank), kept{forward ? 0 : 1};
  if (channels_last && to_last) return {0, {pixels, {1}}, {summed, kept}, {pixels, {1}}};
  Dims positions = pixels;
  positions.erase(0);
  if (to_last) return {0, {{0}, positions, {1}}, {summed, kept}, {{0}, positions, {1}}};
  return {1, {kept, summed}, {{0}, {1}, positions}, {{0}, {1}, positions}};
}

}  // namespace

std::optional<Fusion> as_matmul(const Fusion& fusion) {
  const auto view = contraction_of(fusion);
  if (!view || !view->is_pointwise()) return std::nullopt;
  const Sites sites = sites_of(fusion, *view);
  // Siblings share the left operand.
  if (fusion.is_pair() && sites.first != 0) return std::nullopt;
  auto left = group_axes(fusion.before[sites.first], sites.left);
  auto result = group_axes(fusion.after[0], sites.result);
  if (!left || !result) return std::nullopt;
  Fusion matmul = fusion;
  matmul.before = {std::move(*left)};
  for (size_t i = 0; i < fusion.anchors.size(); ++i) {
    auto right = group_axes(fusion.before[i + 1 - sites.first], sites.right);
    if (!right) return std::nullopt;
    matmul.anchors[i].attributes = Matmul{view->compute};
    matmul.before.push_back(std::move(*right));
  }
  matmul.after = {std::move(*result)};
  return matmul;
}

}  // namespace fusor
