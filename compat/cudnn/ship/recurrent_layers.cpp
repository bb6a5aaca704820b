// Owns the recurrent layers whose kernels are shipped. Dims are arguments of a kernel: the width of the
// states, the batch and the number of steps only decide which kernels the planner chooses.
#include "compat/cudnn/ship/graphs.h"
#include "compat/cudnn/src/legacy/rnn_call.h"

namespace fusor::cudnn {
namespace {

struct Layers {
  RnnCell cell;
  cudnnDataType_t type;
  int64_t count, hidden, batch;
};

RnnCall call_of(const Layers& layers) {
  constexpr int64_t kSteps = 64;
  RnnCall call;
  call.rnn.layer.cell = layers.cell;
  call.rnn.layer.hidden_size = layers.hidden;
  call.rnn.layer.layers = layers.count;
  call.rnn.layer.bias = true;
  call.rnn.input_size = layers.hidden;
  call.rnn.type = layers.type;
  call.rnn.math = CUDNN_TENSOR_OP_MATH;
  for (RnnDataObject* data : {&call.x, &call.y}) {
    data->type = layers.type;
    data->time = kSteps;
    data->batch = layers.batch;
    data->size = layers.hidden;
  }
  call.has_h = true;
  call.has_c = call.has_cell();
  return call;
}

Graph forward(const RnnCall& call, bool trains) {
  return graph_of(precision_of(call.rnn.math), [&](Sketch& s) {
    sketch_forward(s, call, {.kept = trains, .h = true, .c = call.has_cell()});
  });
}

Graph backward(const RnnCall& call) {
  const bool has_cell = call.has_cell();
  return graph_of(precision_of(call.rnn.math), [&](Sketch& s) {
    sketch_backward(s, call, {.has_dh = true, .has_dc = has_cell, .tells_h = true, .tells_c = has_cell});
  });
}

// The copy of the weights' gradients from the reserve space, where the backward pass leaves them.
Graph weights(const RnnCall& call) {
  const TensorObject all = call.packed({weight_count(call.rnn)});
  return graph_of(Precision::exact, [&](Sketch& s) { sketch_weight_gradients(s, all, true); });
}

}  // namespace

std::vector<GraphMaker> shipped_recurrent_layers() {
  std::vector<GraphMaker> makers;
  for (const RnnCell cell : {RnnCell::lstm, RnnCell::gru})
    for (const cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
      for (const int64_t count : {1, 2})
        for (const int64_t hidden : {128, 256, 512, 1024})
          for (const int64_t batch : {16, 32, 64, 128}) {
            const RnnCall call = call_of({cell, type, count, hidden, batch});
            for (const bool trains : {false, true})
              makers.emplace_back([=] { return forward(call, trains); });
            makers.emplace_back([=] { return backward(call); });
            makers.emplace_back([=] { return weights(call); });
          }
  return makers;
}

}  // namespace fusor::cudnn
