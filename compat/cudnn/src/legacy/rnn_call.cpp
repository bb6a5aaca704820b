// Owns the sizes of recurrent layers' memory, and the graphs of their passes.
#include "compat/cudnn/src/legacy/rnn_call.h"

#include <span>

#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {
namespace {

int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// The states of one stage.
Tensor part(Sketch& s, const RnnCall& call, const Tensor& states, const RnnStage& stage) {
  if (stage.layers == call.rnn.layer.layers) return states;
  const int64_t each = call.rnn.layer.directions();
  return s.g.slice(states, {stage.first * each, 0, 0},
                   {(stage.first + stage.layers) * each, states.dims[1], states.dims[2]});
}

// The weights of one stage.
std::span<const Tensor> part(const RnnCall& call, const std::vector<Tensor>& weights, const RnnStage& stage) {
  const int64_t each = call.rnn.layer.directions() * call.rnn.layer.weights();
  return std::span(weights).subspan(static_cast<size_t>(stage.first * each),
                                    static_cast<size_t>(stage.layers * each));
}

// The inputs that both passes read.
struct Inputs {
  std::vector<Tensor> weights;
  Tensor h, c, lengths, seed, offset;

  Inputs(Sketch& s, const RnnCall& call, bool drops) {
    int number = kWeight;
    for (const RnnWeight& weight : weights_of(call.rnn))
      weights.push_back(s.input(number++, call.packed(weight.dims)));
    if (call.has_h) h = s.input(kH, call.hidden());
    if (call.has_c) c = s.input(kC, call.cell());
    if (call.x.sequences) lengths = s.input(kLengths, integers(DataType::i32, {call.x.batch}));
    if (!drops) return;
    seed = s.input(kKeptSeed, integers(DataType::i64, {1}));
    offset = s.input(kKeptOffset, integers(DataType::i64, {1}));
  }
  RnnOptions options(Sketch& s, const RnnCall& call, const RnnStage& stage) const {
    const RnnAttributes& layer = call.rnn.layer;
    RnnOptions options;
    options.cell = layer.cell;
    options.hidden_size = layer.hidden_size;
    options.layers = stage.layers;
    options.projection_size = layer.projection_size;
    options.bidirectional = layer.bidirectional;
    options.bias = layer.bias;
    if (call.has_h) options.h0 = part(s, call, h, stage);
    if (call.has_c) options.c0 = part(s, call, c, stage);
    options.lengths = lengths;
    return options;
  }
  // Dropout in front of a stage, of x or of its gradient: both draw the same numbers.
  Tensor dropped(Sketch& s, const RnnCall& call, const Tensor& x, const RnnStage& stage) const {
    const Tensor behind = s.g.add(offset, s.g.constant(static_cast<double>(stage.first), DataType::i64));
    return s.g.dropout(x, seed, behind, double{call.rnn.dropout->probability}).y;
  }
};

Tensor joined(Sketch& s, const std::vector<Tensor>& states) {
  return states.size() == 1 ? states.front() : s.g.concatenate(states, 0);
}

}  // namespace

DataType RnnCall::type() const { return data_type_of(rnn.type); }

std::vector<RnnStage> RnnCall::stages(bool drops) const {
  if (!drops) return {{0, rnn.layer.layers}};
  std::vector<RnnStage> list;
  for (int64_t i = 0; i < rnn.layer.layers; ++i) list.push_back({i, 1});
  return list;
}

bool RnnCall::drops() const {
  return rnn.dropout != nullptr && rnn.dropout->probability > 0 && rnn.dropout->states != nullptr;
}

TensorObject RnnCall::stage_input(int64_t layer) const {
  return packed({x.time, x.batch, layer == 0 ? x.size : output_width()});
}

int64_t RnnCall::kept_offset(int64_t layer) const {
  int64_t bytes = 0;
  for (int64_t i = 0; i < layer; ++i) bytes += tensor_bytes(stage_input(i));
  return bytes;
}

int64_t RnnCall::seed_offset() const {
  return dweight_offset() + rounded(weight_count(rnn) * byte_size(type()));
}

int64_t RnnCall::padded_output_bytes() const {
  return is_packed() ? tensor_bytes(packed({x.time, x.batch, output_width()})) : 0;
}

int64_t RnnCall::tensor_bytes(const TensorObject& tensor) const {
  return rounded(element_count(tensor.dims) * byte_size(type()));
}

PlanKey RnnCall::key(const char* call) const {
  const RnnAttributes& layer = rnn.layer;
  PlanKey key(call);
  for (const int64_t number :
       {static_cast<int64_t>(layer.cell), layer.hidden_size, layer.layers, layer.projection_size,
        int64_t{layer.bidirectional}, int64_t{layer.bias}, rnn.input_size, int64_t{rnn.math}, int64_t{has_h},
        int64_t{has_c}, int64_t{x.sequences != nullptr}})
    key.add(number);
  return key.add(drops() ? double{rnn.dropout->probability} : 0.0).add(x.tensor()).add(y.tensor());
}

TensorObject integers(DataType type, const Dims& dims) {
  return {type == DataType::i64 ? CUDNN_DATA_INT64 : CUDNN_DATA_INT32, dims, packed_strides(dims)};
}

void sketch_forward(Sketch& s, const RnnCall& call, const RnnWanted& wanted) {
  const bool drops = wanted.kept && call.drops();
  const Inputs inputs(s, call, drops);
  Tensor y = s.input(kX, call.input());
  std::vector<Tensor> last_h, last_c;
  for (const RnnStage& stage : call.stages(drops)) {
    if (stage.first > 0) y = inputs.dropped(s, call, y, stage);
    // Packed sequences are padded into the reserve space before.
    if (wanted.kept && !(stage.first == 0 && call.is_packed()))
      s.output(kKept + static_cast<int>(stage.first), stage.first == 0 ? s.g.identity(y) : y,
               call.stage_input(stage.first));
    const RnnResults made = s.g.rnn_fwd(y, part(call, inputs.weights, stage), inputs.options(s, call, stage));
    y = made.y;
    last_h.push_back(made.hn);
    if (call.has_cell()) last_c.push_back(made.cn);
  }
  s.output(kY, y, call.output());
  if (wanted.h) s.output(kNextH, joined(s, last_h), call.hidden());
  if (wanted.c) s.output(kNextC, joined(s, last_c), call.cell());
}

void sketch_backward(Sketch& s, const RnnCall& call, const RnnGradientsWanted& wanted) {
  const Inputs inputs(s, call, call.drops());
  const Tensor dh = wanted.has_dh ? s.input(kDnextH, call.hidden()) : Tensor{},
               dc = wanted.has_dc ? s.input(kDnextC, call.cell()) : Tensor{};
  Tensor dy = s.input(kDy, call.output());
  std::vector<Tensor> first_h, first_c, dweights;
  const std::vector<RnnStage> stages = call.stages(call.drops());
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    RnnOptions options = inputs.options(s, call, *stage);
    if (wanted.has_dh) options.dhn = part(s, call, dh, *stage);
    if (wanted.has_dc) options.dcn = part(s, call, dc, *stage);
    const Tensor x = s.input(kKept + static_cast<int>(stage->first), call.stage_input(stage->first));
    const RnnGradients made = s.g.rnn_bwd(dy, x, part(call, inputs.weights, *stage), options);
    dweights.insert(dweights.begin(), made.dweights.begin(), made.dweights.end());
    first_h.insert(first_h.begin(), made.dh0);
    first_c.insert(first_c.begin(), made.dc0);
    dy = made.dx;
    if (stage->first > 0) dy = inputs.dropped(s, call, dy, *stage);
  }
  s.output(kDx, dy, call.input());
  if (wanted.tells_h) s.output(kDh, joined(s, first_h), call.hidden());
  if (wanted.tells_c) s.output(kDc, joined(s, first_c), call.cell());
  const std::vector<RnnWeight> places = weights_of(call.rnn);
  for (size_t i = 0; i < places.size(); ++i)
    s.output(kDweight + static_cast<int>(i), dweights[i], call.packed(places[i].dims));
}

void sketch_weight_gradients(Sketch& s, const TensorObject& all, bool adds) {
  s.output(kSum, s.input(kDweight, all), all, 1, adds ? 1 : 0);
}

}  // namespace fusor::cudnn
