// Owns the arithmetic of the matrix-product view.
#include "backend/engines/contraction/product.h"

#include <algorithm>
#include <cstdlib>

#include "codegen/text/parameters.h"

namespace fusor {

namespace {

int64_t product(const Dims& dims, int first, int last) {
  int64_t count = 1;
  for (int i = first; i < last; ++i) count *= dims[i];
  return count;
}

WindowAxis window_axis(const Conv& conv, int i, int64_t input, int64_t output, int64_t window) {
  WindowAxis axis{input, output, window, conv.stride[i], conv.dilation[i], -conv.pre_padding[i]};
  if (conv.mode == ConvMode::convolution) {
    axis.start += (window - 1) * axis.step;
    axis.step = -axis.step;
  }
  return axis;
}

bool is_consistent(const Conv& conv, const Dims& x, const Dims& w, const Dims& y) {
  const int rank = x.rank();
  if (w.rank() != rank || y.rank() != rank || x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0) return false;
  if (w[0] % (x[1] / w[1]) != 0) return false;
  for (int i = 2; i < rank; ++i) {
    const int64_t padded = x[i] + conv.pre_padding[i - 2] + conv.post_padding[i - 2];
    const int64_t covered = conv.dilation[i - 2] * (w[i] - 1) + 1;
    if (padded < covered || (padded - covered) / conv.stride[i - 2] + 1 != y[i]) return false;
  }
  return true;
}

// Channels lie closer together than pixels do.
bool has_channels_fastest(const Expr& pixels) {
  const Access* const access = primary_access(pixels);
  if (access == nullptr) return true;
  for (int i = pixels.domain.rank() - 1; i >= 2; --i)
    if (pixels.domain[i] > 1) return std::abs(access->strides[1]) <= std::abs(access->strides[i]);
  return true;
}

std::optional<Contraction> convolution(const Fusion& fusion, const Conv& conv) {
  const Dims& first = operand_site(fusion, 0, 0).domain;
  const Dims& second = operand_site(fusion, 0, 1).domain;
  const Dims& result = result_site(fusion).domain;
  const bool forward = conv.pass == ConvPass::fprop;
  const Dims& x = forward ? first : conv.pass == ConvPass::dgrad ? result : second;
  const Dims& w = conv.pass == ConvPass::wgrad ? result : second;
  const Dims& y = forward ? result : first;
  if (!is_consistent(conv, x, w, y)) return std::nullopt;

  Contraction view;
  view.compute = conv.compute;
  view.entries = x[1] / w[1];
  view.input_channels = w[1];
  view.output_channels = w[0] / view.entries;
  const int rank = x.rank();
  for (int i = 2; i < rank; ++i) view.axes.push_back(window_axis(conv, i - 2, x[i], y[i], w[i]));
  const int64_t taps = product(w, 2, rank);
  const int64_t output_pixels = y[0] * product(y, 2, rank);
  switch (conv.pass) {
    case ConvPass::fprop:
      view.op = ContractionOp::fprop;
      view.m = output_pixels, view.n = view.output_channels, view.k = view.input_channels * taps;
      break;
    case ConvPass::dgrad:
      view.op = ContractionOp::dgrad;
      view.m = x[0] * product(x, 2, rank), view.n = view.input_channels, view.k = view.output_channels * taps;
      break;
    case ConvPass::wgrad:
      view.op = ContractionOp::wgrad;
      view.m = view.output_channels, view.n = view.input_channels * taps, view.k = output_pixels;
      break;
  }
  view.channels_fastest = has_channels_fastest(conv.pass == ConvPass::wgrad ? operand_site(fusion, 0, 1)
                                                                            : operand_site(fusion, 0, 0));
  return view;
}

std::optional<Contraction> matmul(const Fusion& fusion, const Matmul& op) {
  const Dims& a = operand_site(fusion, 0, 0).domain;
  const Dims& b = operand_site(fusion, 0, 1).domain;
  const Dims& c = result_site(fusion).domain;
  const int rank = c.rank();
  Contraction view;
  view.compute = op.compute;
  view.m = a[a.rank() - 2], view.n = b[b.rank() - 1], view.k = a[a.rank() - 1];
  if (rank != std::max(a.rank(), b.rank()) || c[rank - 2] != view.m || c[rank - 1] != view.n)
    return std::nullopt;
  for (int i = 0; i < rank - 2; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const int64_t extent = std::max(ia < 0 ? 1 : a[ia], ib < 0 ? 1 : b[ib]);
    if (c[i] != extent) return std::nullopt;
    view.batch.push_back(extent);
  }
  view.entries = element_count(view.batch);
  return view;
}

std::vector<ProductAxis> channel_and_tap(const Contraction& view, int channel_axis) {
  std::vector<ProductAxis> axes;
  for (int i = static_cast<int>(view.axes.size()) - 1; i >= 0; --i)
    axes.push_back({2 + i, view.axes[i].window, 1});
  const ProductAxis channel{channel_axis, view.channels(), 1};
  axes.insert(view.channels_fastest ? axes.begin() : axes.end(), channel);
  return axes;
}

enum class Pixels { input, output };

// The pixels of the input or of the output, where `step` of each axis says how far neighbours lie apart.
template <class Step>
std::vector<ProductAxis> pixels(const Contraction& view, Pixels which, Step step) {
  std::vector<ProductAxis> axes;
  for (int i = static_cast<int>(view.axes.size()) - 1; i >= 0; --i) {
    const WindowAxis& axis = view.axes[i];
    axes.push_back({2 + i, which == Pixels::input ? axis.input : axis.output, step(axis)});
  }
  axes.push_back({0, 0, 1});
  axes.back().extent = which == Pixels::input || view.op != ContractionOp::wgrad ? view.m : view.k;
  for (size_t i = 0; i + 1 < axes.size(); ++i) axes.back().extent /= axes[i].extent;
  return axes;
}

int64_t one(const WindowAxis&) { return 1; }

}  // namespace

int64_t Contraction::taps() const {
  int64_t count = 1;
  for (const WindowAxis& axis : axes) count *= axis.window;
  return count;
}

bool Contraction::has_unit_stride() const {
  return std::ranges::all_of(axes, [](const WindowAxis& axis) { return axis.stride == 1; });
}

bool Contraction::is_pointwise() const {
  return is_convolution() && entries == 1 && std::ranges::all_of(axes, [](const WindowAxis& axis) {
           return axis.window == 1 && axis.stride == 1 && axis.start == 0 && axis.input == axis.output;
         });
}

int64_t Contraction::largest_index(int64_t tile) const {
  int64_t largest = std::max({m, n, k, entries * std::max(input_channels, output_channels)}) + 4 * tile;
  for (const WindowAxis& axis : axes)
    largest = std::max(largest, axis.input + axis.output * axis.stride + axis.window * std::abs(axis.step) +
                                    std::abs(axis.start));
  return largest;
}

void Contraction::append_config(std::vector<ConfigValue>& config) const {
  config.push_back({"op", static_cast<int64_t>(op)});
  config.push_back({"spatial", axes.size()});
  config.push_back({"batch", batch.rank()});
  config.push_back({"channels_fastest", channels_fastest});
  config.push_back({"unit_stride", has_unit_stride()});
  config.push_back({"channel_block", planes ? planes->channel_block : padded_channels > 0 ? -1 : 0});
}

void Contraction::append_to(Parameters& p) const {
  p.wide("m", m);
  p.wide("n", n);
  p.wide("k", k);
  p.divisor("channels", planes ? planes->channel_block : padded_channels > 0 ? padded_channels : channels());
  p.wide("input_channels", input_channels);
  p.wide("output_channels", output_channels);
  std::vector<WindowAxis> windows = axes;
  if (windows.empty()) windows.emplace_back();
  p.array("axis", "WindowAxis", std::ssize(windows), [&](size_t i) {
    p.divisor("input", windows[i].input);
    p.divisor("output", windows[i].output);
    p.divisor("window", windows[i].window);
    p.divisor("stride", windows[i].stride);
    p.wide("step", windows[i].step);
    p.wide("start", windows[i].start);
  });
  p.divisors("batch", batch.empty() ? Dims{1} : batch);
}

std::vector<ProductAxis> Contraction::rows_of_first() const {
  if (op == ContractionOp::matmul) return {{batch.rank(), m, 1}};
  if (op == ContractionOp::wgrad) return {{1, m, 1}};
  // Neighbouring input pixels meet the output pixels that a tap leads to; neighbouring outputs, inputs a
  // stride apart.
  if (op == ContractionOp::dgrad) return pixels(*this, Pixels::input, one);
  return pixels(*this, Pixels::output, [](const WindowAxis& axis) { return axis.stride; });
}

std::vector<ProductAxis> Contraction::steps_of_first() const {
  if (op == ContractionOp::matmul) return {{batch.rank() + 1, k, 1}};
  if (op == ContractionOp::wgrad) return pixels(*this, Pixels::output, one);
  return channel_and_tap(*this, 1);
}

std::vector<ProductAxis> Contraction::steps_of_second() const {
  if (op == ContractionOp::matmul) return {{batch.rank(), k, 1}};
  if (op == ContractionOp::wgrad)
    return pixels(*this, Pixels::output, [](const WindowAxis& axis) { return axis.stride; });
  return channel_and_tap(*this, op == ContractionOp::fprop ? 1 : 0);
}

std::vector<ProductAxis> Contraction::columns_of_second() const {
  if (op == ContractionOp::matmul) return {{batch.rank() + 1, n, 1}};
  if (op == ContractionOp::wgrad) return channel_and_tap(*this, 1);
  return {{op == ContractionOp::fprop ? 0 : 1, n, 1}};
}

std::vector<ProductAxis> Contraction::rows_of_result() const {
  if (op == ContractionOp::matmul) return {{batch.rank(), m, 1}};
  if (op == ContractionOp::wgrad) return {{0, m, 1}};
  return pixels(*this, op == ContractionOp::fprop ? Pixels::output : Pixels::input, one);
}

std::vector<ProductAxis> Contraction::columns_of_result() const {
  if (op == ContractionOp::matmul) return {{batch.rank() + 1, n, 1}};
  if (op == ContractionOp::wgrad) return channel_and_tap(*this, 1);
  return {{1, n, 1}};
}

std::optional<Contraction> contraction_of(const Fusion& fusion) {
  if (fusion.anchors.empty() || form_of(fusion) == Form::chain) return std::nullopt;
  const Attributes& attributes = fusion.anchors[0].attributes;
  std::optional<Contraction> view;
  if (const auto* conv = std::get_if<Conv>(&attributes)) view = convolution(fusion, *conv);
  if (const auto* op = std::get_if<Matmul>(&attributes)) view = matmul(fusion, *op);
  if (!view) return std::nullopt;
  view->siblings = static_cast<int64_t>(fusion.anchors.size());
  view->reduces = result_site(fusion).has_reduction();
  view->results = std::ssize(result_site(fusion).stores);
  return view;
}

Expr over_batch(const Expr& site, const Dims& batch) {
  Expr out = site;
  const int missing = batch.rank() + 2 - site.domain.rank();
  for (int i = 0; i < missing; ++i) out.domain.insert(i, batch[i]);
  for (Node& node : out.nodes) {
    if (node.kind == Node::Kind::index) node.axis += missing;
    if (node.access.strides.rank() != site.domain.rank()) continue;
    for (int i = 0; i < missing; ++i) node.access.strides.insert(i, 0);
  }
  for (int i = missing; i < batch.rank(); ++i) {
    if (out.domain[i] == batch[i]) continue;
    out.domain[i] = batch[i];
    for (Node& node : out.nodes)
      if (node.access.strides.rank() == out.domain.rank()) node.access.strides[i] = 0;
  }
  return out;
}

const Access* primary_access(const Expr& site) {
  const Access* primary = nullptr;
  int64_t most = 0;
  const auto consider = [&](const Access& access) {
    int64_t elements = 1;
    for (int i = 0; i < site.domain.rank(); ++i)
      if (access.strides[i] != 0) elements *= site.domain[i];
    if (elements <= most) return;
    most = elements;
    primary = &access;
  };
  for (const Store& result : site.stores) consider(result.access);
  if (primary != nullptr) return primary;
  for (const Node& node : site.nodes)
    if (node.kind == Node::Kind::load) consider(node.access);
  return primary;
}

const ProductAxis& fastest(const std::vector<ProductAxis>& axes) {
  const auto found = std::ranges::find_if(axes, [](const ProductAxis& axis) { return axis.extent > 1; });
  return found == axes.end() ? axes.front() : *found;
}

int64_t neighbour_stride(const Access& access, const std::vector<ProductAxis>& axes) {
  const ProductAxis& axis = fastest(axes);
  return std::abs(access.strides[axis.axis] * axis.step);
}

}  // namespace fusor
