// Owns recurrent layers as single calls. The forward pass keeps the input of each of its ops in the reserve
// space; the gradients of the weights, which belong to a later call, are written there by the first call of
// the backward pass. Packed sequences are padded in front of the ops and packed behind them.
#include <span>

#include "compat/cudnn/src/legacy/cached_plan.h"
#include "compat/cudnn/src/legacy/rnn_objects.h"
#include "compat/cudnn/src/translate/translator.h"
#include "compat/cudnn/src/workspace.h"

namespace fusor::cudnn {
namespace {

enum Number {
  kX,
  kY,
  kH,
  kC,
  kNextH,
  kNextC,
  kDy,
  kDx,
  kDnextH,
  kDnextC,
  kDh,
  kDc,
  kSum,
  kLengths,
  kRows,
  kSeed,
  kKeptSeed,
  kKeptOffset,
  kNext,
  kStepped,
  kKept = 100,  // of each layer
  kWeight = 10000,
  kDweight = 20000
};

int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Layers that one op carries out: all of them, or where dropout lies between them, one.
struct Stage {
  int64_t first = 0, layers = 1;
};

struct Layer {
  RnnObject rnn;
  RnnDataObject x, y;
  bool has_h = false, has_c = false;

  DataType type() const { return data_type_of(rnn.type); }
  /// As the ops read and write them: packed sequences once they are padded.
  TensorObject input() const { return x.tensor(); }
  TensorObject output() const { return y.tensor(); }
  TensorObject hidden() const { return state(rnn.layer.output_size()); }
  TensorObject cell() const { return state(rnn.layer.hidden_size); }
  bool has_cell() const { return rnn.layer.cell == RnnCell::lstm; }
  TensorObject packed(const Dims& dims) const { return {rnn.type, dims, packed_strides(dims)}; }

  std::vector<Stage> stages(bool drops) const {
    if (!drops) return {{0, rnn.layer.layers}};
    std::vector<Stage> list;
    for (int64_t i = 0; i < rnn.layer.layers; ++i) list.push_back({i, 1});
    return list;
  }
  bool drops() const {
    return rnn.dropout != nullptr && rnn.dropout->probability > 0 && rnn.dropout->states != nullptr;
  }
  /// The tensor that the stage which begins with that layer reads.
  TensorObject stage_input(int64_t layer) const {
    return packed({x.time, x.batch, layer == 0 ? x.size : output_width()});
  }

  // The reserve space: inputs of every stage, gradients of the weights, the seed and offset of dropout.
  int64_t kept_offset(int64_t layer) const {
    int64_t bytes = 0;
    for (int64_t i = 0; i < layer; ++i) bytes += tensor_bytes(stage_input(i));
    return bytes;
  }
  int64_t dweight_offset() const { return kept_offset(drops() ? rnn.layer.layers : 1); }
  int64_t seed_offset() const { return dweight_offset() + rounded(weight_count(rnn) * byte_size(type())); }
  size_t reserve_bytes() const { return static_cast<size_t>(seed_offset() + 256 + 256); }

  // The workspace: packed sequences, padded.
  bool is_packed() const { return x.is_packed(); }
  int64_t padded_input_bytes() const { return is_packed() ? tensor_bytes(stage_input(0)) : 0; }
  int64_t padded_output_bytes() const {
    return is_packed() ? tensor_bytes(packed({x.time, x.batch, output_width()})) : 0;
  }
  size_t workspace_bytes() const {
    return static_cast<size_t>(padded_input_bytes() + padded_output_bytes() + 256);
  }

  PlanKey key(const char* call) const {
    const RnnAttributes& layer = rnn.layer;
    PlanKey key(call);
    for (const int64_t number :
         {static_cast<int64_t>(layer.cell), layer.hidden_size, layer.layers, layer.projection_size,
          int64_t{layer.bidirectional}, int64_t{layer.bias}, rnn.input_size, int64_t{rnn.math},
          int64_t{has_h}, int64_t{has_c}, int64_t{x.sequences != nullptr}})
      key.add(number);
    return key.add(drops() ? double{rnn.dropout->probability} : 0.0).add(x.tensor()).add(y.tensor());
  }
  /// The options of a stage; h and c are the states of all layers.
  RnnOptions options(Sketch& s, const Stage& stage, const Tensor& h, const Tensor& c) const {
    const RnnAttributes& layer = rnn.layer;
    RnnOptions options;
    options.cell = layer.cell;
    options.hidden_size = layer.hidden_size;
    options.layers = stage.layers;
    options.projection_size = layer.projection_size;
    options.bidirectional = layer.bidirectional;
    options.bias = layer.bias;
    if (has_h) options.h0 = part(s, h, stage);
    if (has_c) options.c0 = part(s, c, stage);
    return options;
  }
  /// The states of one stage.
  Tensor part(Sketch& s, const Tensor& states, const Stage& stage) const {
    if (stage.layers == rnn.layer.layers) return states;
    const int64_t each = rnn.layer.directions();
    return s.g.slice(states, {stage.first * each, 0, 0},
                     {(stage.first + stage.layers) * each, states.dims[1], states.dims[2]});
  }
  std::vector<Tensor> weights(Sketch& s) const {
    std::vector<Tensor> list;
    int number = kWeight;
    for (const RnnWeight& weight : weights_of(rnn)) list.push_back(s.input(number++, packed(weight.dims)));
    return list;
  }
  std::span<const Tensor> part(const std::vector<Tensor>& weights, const Stage& stage) const {
    const int64_t each = rnn.layer.directions() * rnn.layer.weights();
    return std::span(weights).subspan(static_cast<size_t>(stage.first * each),
                                      static_cast<size_t>(stage.layers * each));
  }
  /// Binds what lies in a space of weights, each at its place.
  void bind(Bindings& bindings, int first, const void* space) const {
    for (const RnnWeight& weight : weights_of(rnn))
      bindings.bind(first++, static_cast<const std::byte*>(space) + weight.offset * byte_size(type()));
  }

 private:
  int64_t output_width() const { return rnn.layer.directions() * rnn.layer.output_size(); }
  int64_t tensor_bytes(const TensorObject& tensor) const {
    return rounded(element_count(tensor.dims) * byte_size(type()));
  }
  TensorObject state(int64_t size) const {
    return packed({rnn.layer.layers * rnn.layer.directions(), x.batch, size});
  }
};

Layer layer_of(cudnnRNNDescriptor_t rnn, cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y) {
  Layer layer{*object_at<RnnObject>(rnn), *object_at<RnnDataObject>(x), *object_at<RnnDataObject>(y)};
  if (layer.x.size != layer.rnn.input_size)
    refuse(CUDNN_STATUS_BAD_PARAM, "inputs of {} elements for a layer of {}", layer.x.size,
           layer.rnn.input_size);
  if (layer.x.is_packed() != layer.y.is_packed())
    refuse(CUDNN_STATUS_BAD_PARAM, "packed and padded sequences in one call");
  return layer;
}

TensorObject integers(DataType type, const Dims& dims) {
  return {type == DataType::i64 ? CUDNN_DATA_INT64 : CUDNN_DATA_INT32, dims, packed_strides(dims)};
}

Tensor lengths_of(Sketch& s, const Layer& layer) {
  return s.input(kLengths, integers(DataType::i32, {layer.x.batch}));
}

void bind_lengths(Bindings& bindings, const Layer& layer) {
  if (layer.x.sequences) bindings.bind(kLengths, layer.x.sequences->lengths.get());
}

// Row i of `to` is row rows[i] of `from`, or 0 where that is -1.
void move_rows(Handle& handle, const Layer& layer, int64_t size, const DeviceMemory& rows, int64_t from_rows,
               const void* from, void* to) {
  const int64_t count = rows.bytes() / int64_t{sizeof(int32_t)};
  const TensorObject source = layer.packed({from_rows, size}), target = layer.packed({count, size});
  const PlanKey key = PlanKey("rnn rows").add(source).add(target);
  const auto plan = plan_for(handle, key, Precision::exact, [&](Sketch& s) {
    const Tensor index = s.input(kRows, integers(DataType::i32, {count, 1}));
    s.output(kY, s.g.gather(s.input(kX, source), index), target);
  });
  run_call(handle, *plan, Bindings().bind(kX, from).bind(kRows, rows.get()).bind(kY, to));
}

void pad(Handle& handle, const Layer& layer, int64_t size, const void* from, void* to) {
  const RnnSequences& sequences = *layer.x.sequences;
  move_rows(handle, layer, size, sequences.padded_rows, sequences.count, from, to);
}

void pack(Handle& handle, const Layer& layer, int64_t size, const void* from, void* to) {
  const RnnSequences& sequences = *layer.x.sequences;
  move_rows(handle, layer, size, sequences.packed_rows, layer.x.time * layer.x.batch, from, to);
}

// The room that a client lends for padded sequences: input in front, output behind it.
struct Padded {
  std::byte *input = nullptr, *output = nullptr;
};

Padded padded_in(void* workspace, size_t bytes, const Layer& layer) {
  if (!layer.is_packed()) return {};
  if (workspace == nullptr || bytes < layer.workspace_bytes())
    refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a workspace of {} bytes; {} are needed", bytes,
           layer.workspace_bytes());
  auto* const start = static_cast<std::byte*>(aligned(workspace));
  return {start, start + layer.padded_input_bytes()};
}

void expect_reserve(const void* reserve, size_t bytes, const Layer& layer) {
  if (reserve == nullptr || bytes < layer.reserve_bytes())
    refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a reserve space of {} bytes; {} are needed", bytes,
           layer.reserve_bytes());
}

// The reserve space begins on a multiple of 256.
std::byte* start_of(void* reserve) { return static_cast<std::byte*>(aligned(reserve)); }

void bind_kept(Bindings& bindings, const Layer& layer, std::byte* kept) {
  for (const Stage& stage : layer.stages(layer.drops()))
    bindings.bind(kKept + static_cast<int>(stage.first), kept + layer.kept_offset(stage.first));
  if (!layer.drops()) return;
  std::byte* const seed = kept + layer.seed_offset();
  bindings.bind(kKeptSeed, seed).bind(kKeptOffset, seed + sizeof(int64_t));
}

// The results that a forward pass is asked for.
struct Wanted {
  bool kept = false, h = false, c = false;
};

Tensor joined(Sketch& s, const std::vector<Tensor>& states) {
  return states.size() == 1 ? states.front() : s.g.concatenate(states, 0);
}

// Seed and offset of this call's random numbers, for its backward pass as well. The offset of the next call
// is behind those of all layers.
void draw_numbers(Handle& handle, const Layer& layer, std::byte* kept) {
  const int64_t layers = layer.rnn.layer.layers;
  const auto plan =
      plan_for(handle, PlanKey("dropout step").add(layers), fusor::Precision::exact, [&](Sketch& s) {
        const TensorObject number = integers(DataType::i64, {1});
        s.keep(kKeptSeed, s.input(kSeed, number));
        const Tensor offset = s.keep(kKeptOffset, s.input(kNext, number));
        s.keep(kStepped, s.g.add(offset, s.g.constant(static_cast<double>(layers), DataType::i64)));
      });
  std::byte *const seed = layer.rnn.dropout->states, *const next = seed + DropoutObject::kNextOffset;
  std::byte* const place = kept + layer.seed_offset();
  Bindings bindings;
  bindings.bind(kSeed, seed).bind(kNext, next).bind(kStepped, next);
  run_call(handle, *plan, bindings.bind(kKeptSeed, place).bind(kKeptOffset, place + sizeof(int64_t)));
}

// The offset of the random numbers behind a stage.
Tensor offset_of(Sketch& s, const Tensor& offset, const Stage& stage) {
  return s.g.add(offset, s.g.constant(static_cast<double>(stage.first), DataType::i64));
}

void sketch_forward(Sketch& s, const Layer& layer, const Wanted& wanted) {
  const std::vector<Tensor> weights = layer.weights(s);
  const Tensor h = layer.has_h ? s.input(kH, layer.hidden()) : Tensor{},
               c = layer.has_c ? s.input(kC, layer.cell()) : Tensor{};
  const Tensor lengths = layer.x.sequences ? lengths_of(s, layer) : Tensor{};
  const bool drops = wanted.kept && layer.drops();
  Tensor seed, offset;
  if (drops) {
    seed = s.input(kKeptSeed, integers(DataType::i64, {1}));
    offset = s.input(kKeptOffset, integers(DataType::i64, {1}));
  }
  Tensor y = s.input(kX, layer.input());
  std::vector<Tensor> last_h, last_c;
  for (const Stage& stage : layer.stages(drops)) {
    if (stage.first > 0)
      y = s.g.dropout(y, seed, offset_of(s, offset, stage), double{layer.rnn.dropout->probability}).y;
    // Packed sequences are padded into the reserve space before.
    if (wanted.kept && !(stage.first == 0 && layer.is_packed()))
      s.output(kKept + static_cast<int>(stage.first), stage.first == 0 ? s.g.identity(y) : y,
               layer.stage_input(stage.first));
    RnnOptions options = layer.options(s, stage, h, c);
    options.lengths = lengths;
    const RnnResults made = s.g.rnn_fwd(y, layer.part(weights, stage), options);
    y = made.y;
    last_h.push_back(made.hn);
    if (layer.has_cell()) last_c.push_back(made.cn);
  }
  s.output(kY, y, layer.output());
  if (wanted.h) s.output(kNextH, joined(s, last_h), layer.hidden());
  if (wanted.c) s.output(kNextC, joined(s, last_c), layer.cell());
}

// The tensors that a backward pass is handed and asked for.
struct Gradients {
  bool has_dh = false, has_dc = false, tells_h = false, tells_c = false;
};

void sketch_backward(Sketch& s, const Layer& layer, const Gradients& wanted) {
  const std::vector<Tensor> weights = layer.weights(s);
  const Tensor h = layer.has_h ? s.input(kH, layer.hidden()) : Tensor{},
               c = layer.has_c ? s.input(kC, layer.cell()) : Tensor{};
  const Tensor dh = wanted.has_dh ? s.input(kDnextH, layer.hidden()) : Tensor{},
               dc = wanted.has_dc ? s.input(kDnextC, layer.cell()) : Tensor{};
  const Tensor lengths = layer.x.sequences ? lengths_of(s, layer) : Tensor{};
  Tensor seed, offset;
  if (layer.drops()) {
    seed = s.input(kKeptSeed, integers(DataType::i64, {1}));
    offset = s.input(kKeptOffset, integers(DataType::i64, {1}));
  }
  Tensor dy = s.input(kDy, layer.output());
  std::vector<Tensor> first_h, first_c, dweights;
  const std::vector<Stage> stages = layer.stages(layer.drops());
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    RnnOptions options = layer.options(s, *stage, h, c);
    options.lengths = lengths;
    if (wanted.has_dh) options.dhn = layer.part(s, dh, *stage);
    if (wanted.has_dc) options.dcn = layer.part(s, dc, *stage);
    const Tensor x = s.input(kKept + static_cast<int>(stage->first), layer.stage_input(stage->first));
    const RnnGradients made = s.g.rnn_bwd(dy, x, layer.part(weights, *stage), options);
    dweights.insert(dweights.begin(), made.dweights.begin(), made.dweights.end());
    first_h.insert(first_h.begin(), made.dh0);
    first_c.insert(first_c.begin(), made.dc0);
    dy = made.dx;
    if (stage->first > 0)
      dy = s.g.dropout(dy, seed, offset_of(s, offset, *stage), double{layer.rnn.dropout->probability}).y;
  }
  s.output(kDx, dy, layer.input());
  if (wanted.tells_h) s.output(kDh, joined(s, first_h), layer.hidden());
  if (wanted.tells_c) s.output(kDc, joined(s, first_c), layer.cell());
  const std::vector<RnnWeight> places = weights_of(layer.rnn);
  for (size_t i = 0; i < places.size(); ++i)
    s.output(kDweight + static_cast<int>(i), dweights[i], layer.packed(places[i].dims));
}

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

extern "C" {

// The handle's own memory is the workspace of the plans: what a call needs depends on which states the client
// hands over. The client's holds padded sequences.
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t* workspace, size_t* reserve) {
  return guarded("cudnnGetRNNTempSpaceSizes", [&] {
    handle_at(handle);
    const Layer layer = layer_of(rnn, x, x);
    if (workspace != nullptr) *workspace = layer.workspace_bytes();
    if (reserve != nullptr) *reserve = mode == CUDNN_FWD_MODE_TRAINING ? layer.reserve_bytes() : 0;
  });
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                              const int32_t[], cudnnRNNDataDescriptor_t x, const void* x_data,
                              cudnnRNNDataDescriptor_t y, void* y_data, cudnnTensorDescriptor_t,
                              const void* h, void* next_h, cudnnTensorDescriptor_t, const void* c,
                              void* next_c, size_t, const void* weights, size_t bytes, void* workspace,
                              size_t reserve_bytes, void* reserve) {
  return guarded("cudnnRNNForward", [&] {
    const auto object = handle_at(handle);
    Layer layer = layer_of(rnn, x, y);
    layer.has_h = h != nullptr;
    layer.has_c = c != nullptr && layer.has_cell();
    const Wanted wanted{.kept = mode == CUDNN_FWD_MODE_TRAINING,
                        .h = next_h != nullptr,
                        .c = next_c != nullptr && layer.has_cell()};
    if (wanted.kept) expect_reserve(reserve, reserve_bytes, layer);
    const PlanKey key =
        layer.key("rnn").add(int64_t{wanted.kept}).add(int64_t{wanted.h}).add(int64_t{wanted.c});
    const auto plan = plan_for(*object, key, precision_of(layer.rnn.math),
                               [&](Sketch& s) { sketch_forward(s, layer, wanted); });
    const Padded padded = padded_in(workspace, bytes, layer);
    std::byte* const kept = wanted.kept ? start_of(reserve) : nullptr;
    const void* input = x_data;
    if (layer.is_packed()) {
      std::byte* const room = wanted.kept ? kept : padded.input;
      pad(*object, layer, layer.x.size, x_data, room);
      input = room;
    }
    Bindings bindings;
    bindings.bind(kX, input).bind(kY, layer.is_packed() ? padded.output : y_data);
    bindings.bind(kH, h).bind(kC, c).bind(kNextH, next_h).bind(kNextC, next_c);
    bind_lengths(bindings, layer);
    if (wanted.kept) {
      bind_kept(bindings, layer, kept);
      if (layer.drops()) draw_numbers(*object, layer, kept);
    }
    layer.bind(bindings, kWeight, weights);
    run_call(*object, *plan, bindings);
    if (layer.is_packed()) pack(*object, layer, layer.y.size, padded.output, y_data);
  });
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t[],
                                      cudnnRNNDataDescriptor_t y, const void*, const void* dy,
                                      cudnnRNNDataDescriptor_t x, void* dx, cudnnTensorDescriptor_t,
                                      const void* h, const void* dnext_h, void* dh, cudnnTensorDescriptor_t,
                                      const void* c, const void* dnext_c, void* dc, size_t,
                                      const void* weights, size_t bytes, void* workspace,
                                      size_t reserve_bytes, void* reserve) {
  return guarded("cudnnRNNBackwardData_v8", [&] {
    const auto object = handle_at(handle);
    Layer layer = layer_of(rnn, x, y);
    expect_reserve(reserve, reserve_bytes, layer);
    layer.has_h = h != nullptr;
    layer.has_c = c != nullptr && layer.has_cell();
    // Gradients of states that were left out have nowhere to go.
    const Gradients wanted{.has_dh = dnext_h != nullptr,
                           .has_dc = dnext_c != nullptr && layer.has_cell(),
                           .tells_h = dh != nullptr && layer.has_h,
                           .tells_c = dc != nullptr && layer.has_c};
    PlanKey key = layer.key("rnn backward");
    for (const bool is : {wanted.has_dh, wanted.has_dc, wanted.tells_h, wanted.tells_c}) key.add(int64_t{is});
    const auto plan = plan_for(*object, key, precision_of(layer.rnn.math),
                               [&](Sketch& s) { sketch_backward(s, layer, wanted); });
    const Padded padded = padded_in(workspace, bytes, layer);
    if (layer.is_packed()) pad(*object, layer, layer.y.size, dy, padded.output);
    std::byte* const kept = start_of(reserve);
    Bindings bindings;
    bindings.bind(kDy, layer.is_packed() ? padded.output : dy);
    bindings.bind(kDx, layer.is_packed() ? padded.input : dx).bind(kH, h).bind(kC, c);
    bindings.bind(kDnextH, dnext_h).bind(kDnextC, dnext_c).bind(kDh, dh).bind(kDc, dc);
    bind_lengths(bindings, layer);
    bind_kept(bindings, layer, kept);
    layer.bind(bindings, kWeight, weights);
    layer.bind(bindings, kDweight, kept + layer.dweight_offset());
    run_call(*object, *plan, bindings);
    if (layer.is_packed()) pack(*object, layer, layer.x.size, padded.input, dx);
  });
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         cudnnWgradMode_t mode, const int32_t[], cudnnRNNDataDescriptor_t x,
                                         const void*, cudnnTensorDescriptor_t, const void*,
                                         cudnnRNNDataDescriptor_t y, const void*, size_t, void* dweights,
                                         size_t, void*, size_t reserve_bytes, void* reserve) {
  return guarded("cudnnRNNBackwardWeights_v8", [&] {
    const auto object = handle_at(handle);
    const Layer layer = layer_of(rnn, x, y);
    expect_reserve(reserve, reserve_bytes, layer);
    const TensorObject all = layer.packed({weight_count(layer.rnn)});
    const bool adds = mode == CUDNN_WGRAD_MODE_ADD;
    const PlanKey key = PlanKey("rnn weights").add(int64_t{adds}).add(all);
    const auto plan = plan_for(*object, key, fusor::Precision::exact, [&](Sketch& s) {
      s.output(kSum, s.input(kDweight, all), all, 1, adds ? 1 : 0);
    });
    Bindings bindings;
    bindings.bind(kDweight, start_of(reserve) + layer.dweight_offset()).bind(kSum, dweights);
    bindings.bind(Sketch::held(kSum), dweights);
    run_call(*object, *plan, bindings);
  });
}

}  // extern "C"
