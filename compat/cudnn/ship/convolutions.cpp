// Owns the convolutions whose kernels are shipped: those of usual networks, in all passes.
#include <array>

#include "compat/cudnn/ship/graphs.h"
#include "compat/cudnn/ship/networks.h"
#include "frontend/graph_builder.h"

namespace fusor::cudnn {

namespace {

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
  const int64_t out = layer.result_image(), padding = layer.side / 2;
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
    for (const Layer& layer : usual_layers())
      for (const Tensors& tensors : kTensors)
        for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
          makers.emplace_back([=] { return convolution(layer, tensors, pass, batch); });
  return makers;
}

}  // namespace fusor::cudnn
