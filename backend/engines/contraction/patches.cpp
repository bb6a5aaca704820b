// Owns which axes of a convolution of patches become which.
#include "backend/engines/contraction/patches.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "core/ops/convolution.h"

namespace fusor {

namespace {

bool are_patches(const Contraction& view) {
  const auto is_cut_in_windows = [](const WindowAxis& axis) {
    return axis.stride == axis.window && axis.start == 0 && (axis.window == 1 || axis.step == 1) &&
           axis.input == axis.output * axis.window;
  };
  return view.is_convolution() && view.entries == 1 && view.siblings == 1 && view.taps() > 1 &&
         std::ranges::all_of(view.axes, is_cut_in_windows);
}

// Which axis the output rows of a convolution become: one with the images, so that an image is one row of
// outputs, or one of their own, where no stride walks both.
enum class OutputRows { among_images, apart };

// [image, output rows][channel][1 for each row axis][output column], or with rows apart
// [image][channel][output row][1][output column].
std::optional<Expr> output_of(const Expr& site, OutputRows rows) {
  const int rank = site.domain.rank();
  std::vector<Dims> groups{{0}, {1}};
  for (int axis = 2; axis + 1 < rank; ++axis) {
    if (rows == OutputRows::among_images)
      groups.front().push_back(axis);
    else
      groups.push_back({axis});
    groups.push_back({});
  }
  groups.push_back({rank - 1});
  return group_axes(site, groups);
}

std::optional<Expr> input_of(const Expr& site, const Contraction& view, OutputRows rows) {
  std::optional<Expr> split = site;
  const auto axes = static_cast<int>(view.axes.size());
  for (int i = axes; i-- > 0 && split;)
    split = split_axis(*split, 2 + i, view.axes[static_cast<size_t>(i)].window);
  if (!split) return std::nullopt;
  const auto outputs = [](int axis) { return 2 + 2 * axis; };
  std::vector<Dims> groups{{0}, {outputs(axes - 1) + 1, 1}};
  for (int i = 0; i + 1 < axes; ++i) {
    if (rows == OutputRows::among_images)
      groups.front().push_back(outputs(i));
    else
      groups.push_back({outputs(i)});
    groups.push_back({outputs(i) + 1});
  }
  groups.push_back({outputs(axes - 1)});
  return group_axes(*split, groups);
}

std::optional<Expr> filter_of(const Expr& site, OutputRows rows) {
  const int rank = site.domain.rank();
  std::vector<Dims> groups{{0}, {rank - 1, 1}};
  for (int axis = 2; axis + 1 < rank; ++axis) {
    if (rows == OutputRows::apart) groups.push_back({});
    groups.push_back({axis});
  }
  groups.push_back({});
  return group_axes(site, groups);
}

// Rewrites a site, and says whether it can be.
bool replace(Expr& site, std::optional<Expr> by) {
  if (!by) return false;
  site = *std::move(by);
  return true;
}

// The fusion with such axes.
std::optional<Fusion> with_rows(const Fusion& fusion, const Contraction& view, OutputRows rows) {
  Fusion patches = fusion;
  Expr &first = operand_site(patches, 0, 0), &second = operand_site(patches, 0, 1),
       &result = result_site(patches);
  const ContractionOp op = view.op;
  Expr& input = op == ContractionOp::fprop ? first : op == ContractionOp::dgrad ? result : second;
  Expr& filter = op == ContractionOp::wgrad ? result : second;
  Expr& output = op == ContractionOp::fprop ? result : first;
  if (!replace(input, input_of(input, view, rows)) || !replace(filter, filter_of(filter, rows)) ||
      !replace(output, output_of(output, rows)))
    return std::nullopt;
  auto& conv = std::get<Conv>(patches.anchors[0].attributes);
  const int axes = operand_site(patches, 0, 0).domain.rank() - 2;
  conv.mode = ConvMode::cross_correlation;
  conv.pre_padding = conv.post_padding = Dims::filled(axes, 0);
  conv.stride = conv.dilation = Dims::filled(axes, 1);
  return patches;
}

}  // namespace

std::optional<Fusion> as_convolution_of_patches(const Fusion& fusion) {
  const auto view = contraction_of(fusion);
  if (!view || !are_patches(*view)) return std::nullopt;
  if (auto patches = with_rows(fusion, *view, OutputRows::among_images)) return patches;
  // Two axes become three: copies walk no more.
  return view->axes.size() == 2 ? with_rows(fusion, *view, OutputRows::apart) : std::nullopt;
}

}  // namespace fusor
