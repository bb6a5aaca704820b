// Owns the convolutions whose kernels are shipped: those of usual networks, in all passes.
#include <array>

#include "compat/cudnn/ship/graphs.h"
#include "frontend/graph_builder.h"

namespace fusor::cudnn {

namespace {

// Channels in and out, the filter's side, its stride, the image's side, groups.
struct Layer {
  int64_t in, out, side, stride, image, groups = 1;
};

// A residual network of basic blocks and bottlenecks, and one of inverted bottlenecks.
std::vector<Layer> layers() {
  std::vector<Layer> list{{3, 64, 7, 2, 224}, {3, 32, 3, 2, 224}};
  int64_t before = 64;
  for (const int64_t width : {64, 128, 256, 512}) {
    const int64_t image = 56 * 64 / width, wide = 4 * width;
    const bool halves = width > 64;
    const int64_t from = halves ? 2 * image : image, stride = halves ? 2 : 1;
    list.push_back({before, width, 1, 1, from});
    list.push_back({width, width, 3, stride, from});
    list.push_back({before, wide, 1, stride, from});
    list.push_back({width, wide, 1, 1, image});
    list.push_back({wide, width, 1, 1, image});
    list.push_back({width, width, 3, 1, image});
    if (halves) list.push_back({width / 2, width, 3, 2, from});
    if (halves) list.push_back({width / 2, width, 1, 2, from});
    before = wide;
  }
  struct Stage {
    int64_t in, out, expansion, stride, image;
  };
  for (const Stage& s : {Stage{32, 16, 1, 1, 112},
                         {16, 24, 6, 2, 112},
                         {24, 24, 6, 1, 56},
                         {24, 32, 6, 2, 56},
                         {32, 32, 6, 1, 28},
                         {32, 64, 6, 2, 28},
                         {64, 64, 6, 1, 14},
                         {64, 96, 6, 1, 14},
                         {96, 96, 6, 1, 14},
                         {96, 160, 6, 2, 14},
                         {160, 160, 6, 1, 7},
                         {160, 320, 6, 1, 7}}) {
    const int64_t hidden = s.in * s.expansion;
    if (s.expansion > 1) list.push_back({s.in, hidden, 1, 1, s.image});
    list.push_back({hidden, hidden, 3, s.stride, s.image, hidden});
    list.push_back({hidden, s.out, 1, 1, s.image / s.stride});
  }
  list.push_back({320, 1280, 1, 1, 7});
  return list;
}

// How frameworks hand over tensors.
struct Tensors {
  DataType type;
  bool channels_last;
  Precision precision;
};

constexpr Tensors kTensors[] = {{DataType::bf16, true, Precision::exact},
                                {DataType::f16, true, Precision::exact},
                                {DataType::f32, false, Precision::allow_tf32},
                                {DataType::f32, true, Precision::allow_tf32}};

Graph convolution(const Layer& layer, const Tensors& tensors, ConvPass pass, int64_t batch) {
  GraphBuilder g("convolution", tensors.precision);
  const int64_t out = (layer.image - 1) / layer.stride + 1, padding = layer.side / 2;
  const Dims x{batch, layer.in, layer.image, layer.image}, y{batch, layer.out, out, out},
      w{layer.out, layer.in / layer.groups, layer.side, layer.side};
  const auto strides = [&](const Dims& dims) {
    return tensors.channels_last ? Strides{dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]}
                                 : packed_strides(dims);
  };
  const auto input = [&](const char* name, const Dims& dims) {
    return g.input(name, dims, tensors.type, {.strides = strides(dims)});
  };
  const bool is_dgrad = pass == ConvPass::dgrad;
  const Dims made = pass == ConvPass::fprop ? y : is_dgrad ? x : w;
  Conv attributes;
  attributes.pass = pass;
  attributes.pre_padding = attributes.post_padding = Dims{padding, padding};
  attributes.stride = Dims{layer.stride, layer.stride};
  attributes.dilation = Dims{1, 1};
  const std::array<Tensor, 2> operands{pass == ConvPass::fprop ? input("x", x) : input("dy", y),
                                       pass == ConvPass::wgrad ? input("x", x) : input("w", w)};
  const OpOptions options{.type = tensors.type, .compute = DataType::f32};
  g.output(g.op(attributes, operands, options, {&made, 1}).front(),
           {.name = "result", .type = tensors.type, .strides = strides(made)});
  return g.finish();
}

}  // namespace

std::vector<GraphMaker> shipped_convolutions(const std::vector<int64_t>& batches) {
  std::vector<GraphMaker> makers;
  for (const int64_t batch : batches)
    for (const Layer& layer : layers())
      for (const Tensors& tensors : kTensors)
        for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
          makers.emplace_back([=] { return convolution(layer, tensors, pass, batch); });
  return makers;
}

}  // namespace fusor::cudnn
