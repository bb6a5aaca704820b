// Owns the recurrent layers that the tests of the recurrent engine share.
#pragma once

#include <string>
#include <vector>

#include "frontend/graph_builder.h"

namespace fusor::recurrent_cases {

struct Layer {
  RnnCell cell = RnnCell::lstm;
  int64_t time = 5, batch = 20, inputs = 24, hidden = 40, layers = 1, projection = 0;
  bool bidirectional = false, bias = true, states = true, lengths = false;
  DataType type = DataType::f16;
};

/// rnn_fwd or rnn_bwd with all results.
inline Graph graph_of(const Layer& layer, bool backward) {
  GraphBuilder g(std::string(to_string(layer.cell)) + (backward ? "_bwd" : "_fwd"));
  RnnAttributes op;
  op.cell = layer.cell;
  op.hidden_size = layer.hidden;
  op.layers = layer.layers;
  op.projection_size = layer.projection;
  op.bidirectional = layer.bidirectional;
  op.bias = layer.bias;
  const int64_t rows = op.gates() * layer.hidden, outputs = op.output_size();
  const Tensor x = g.input("x", {layer.time, layer.batch, layer.inputs}, layer.type);
  std::vector<Tensor> weights;
  for (const std::string_view name : op.weight_names()) {
    const bool input = name.starts_with("weight_ih"), first = name.find("_l0") != std::string_view::npos;
    const Dims dims = name.starts_with("bias")        ? Dims{rows}
                      : name.starts_with("weight_hr") ? Dims{outputs, layer.hidden}
                      : input ? Dims{rows, first ? layer.inputs : op.directions() * outputs}
                              : Dims{rows, outputs};
    weights.push_back(g.input(std::string(name), dims, layer.type));
  }
  RnnOptions options{.cell = layer.cell,
                     .hidden_size = layer.hidden,
                     .layers = layer.layers,
                     .projection_size = layer.projection,
                     .bidirectional = layer.bidirectional,
                     .bias = layer.bias};
  const int64_t stacks = layer.layers * op.directions();
  const Dims h{stacks, layer.batch, outputs}, c{stacks, layer.batch, layer.hidden};
  const bool has_c = layer.cell == RnnCell::lstm;
  if (layer.states) options.h0 = g.input("h0", h, layer.type);
  if (layer.states && has_c) options.c0 = g.input("c0", c, layer.type);
  if (layer.lengths) options.lengths = g.input("lengths", {layer.batch}, DataType::i32);
  const auto output = [&](const Tensor& result, const std::string& name) {
    g.output(result, {.name = name, .type = layer.type});
  };
  if (!backward) {
    const RnnResults all = g.rnn_fwd(x, weights, options);
    output(all.y, "y");
    output(all.hn, "hn");
    if (has_c) output(all.cn, "cn");
    return g.finish();
  }
  if (layer.states) options.dhn = g.input("dhn", h, layer.type);
  if (layer.states && has_c) options.dcn = g.input("dcn", c, layer.type);
  const Tensor dy = g.input("dy", {layer.time, layer.batch, op.directions() * outputs}, layer.type);
  const RnnGradients all = g.rnn_bwd(dy, x, weights, options);
  output(all.dx, "dx");
  if (layer.states) output(all.dh0, "dh0");
  if (layer.states && has_c) output(all.dc0, "dc0");
  for (size_t i = 0; i < all.dweights.size(); ++i) output(all.dweights[i], "d" + std::to_string(i));
  return g.finish();
}

}  // namespace fusor::recurrent_cases
