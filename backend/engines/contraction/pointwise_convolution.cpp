// Owns which axes of a pointwise convolution are which of a matmul's.
#include "backend/engines/contraction/pointwise_convolution.h"

#include <utility>
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

}  // namespace fusor
