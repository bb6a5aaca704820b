// Owns recurrent layers as single calls. The forward pass keeps its input in the reserve space, and the
// gradients of the weights, which belong to a later call, are written there by the first call of the backward
// pass.
#include "compat/cudnn/src/legacy/cached_plan.h"
#include "compat/cudnn/src/legacy/rnn_objects.h"
#include "compat/cudnn/src/translate/translator.h"
#include "compat/cudnn/src/workspace.h"

namespace fusor::cudnn {
namespace {

enum Number {
  kX,
  kY,
  kKept,
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
  kWeight = 100,
  kDweight = 500
};

int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

struct Layer {
  RnnObject rnn;
  RnnDataObject x, y;
  bool has_h = false, has_c = false;

  DataType type() const { return data_type_of(rnn.type); }
  TensorObject input() const { return x.tensor(); }
  TensorObject kept() const { return packed(x.tensor().dims); }
  TensorObject output() const { return y.tensor(); }
  TensorObject hidden() const { return state(rnn.layer.output_size()); }
  TensorObject cell() const { return state(rnn.layer.hidden_size); }
  bool has_cell() const { return rnn.layer.cell == RnnCell::lstm; }
  TensorObject packed(const Dims& dims) const { return {rnn.type, dims, packed_strides(dims)}; }

  int64_t kept_bytes() const { return rounded(element_count(x.tensor().dims) * byte_size(type())); }
  int64_t weight_bytes() const { return weight_count(rnn) * byte_size(type()); }
  size_t reserve_bytes() const { return static_cast<size_t>(kept_bytes() + rounded(weight_bytes()) + 256); }

  PlanKey key(const char* call) const {
    const RnnAttributes& layer = rnn.layer;
    PlanKey key(call);
    for (const int64_t number : {static_cast<int64_t>(layer.cell), layer.hidden_size, layer.layers,
                                 layer.projection_size, int64_t{layer.bidirectional}, int64_t{layer.bias},
                                 rnn.input_size, int64_t{rnn.math}, int64_t{has_h}, int64_t{has_c}})
      key.add(number);
    return key.add(x.tensor()).add(y.tensor());
  }
  RnnOptions options(Sketch& s) const {
    const RnnAttributes& layer = rnn.layer;
    RnnOptions options;
    options.cell = layer.cell;
    options.hidden_size = layer.hidden_size;
    options.layers = layer.layers;
    options.projection_size = layer.projection_size;
    options.bidirectional = layer.bidirectional;
    options.bias = layer.bias;
    if (has_h) options.h0 = s.input(kH, hidden());
    if (has_c) options.c0 = s.input(kC, cell());
    return options;
  }
  std::vector<Tensor> weights(Sketch& s) const {
    std::vector<Tensor> list;
    int number = kWeight;
    for (const RnnWeight& weight : weights_of(rnn)) list.push_back(s.input(number++, packed(weight.dims)));
    return list;
  }
  /// Binds what lies in a space of weights, each at its place.
  void bind(Bindings& bindings, int first, const void* space) const {
    for (const RnnWeight& weight : weights_of(rnn))
      bindings.bind(first++, static_cast<const std::byte*>(space) + weight.offset * byte_size(type()));
  }

 private:
  TensorObject state(int64_t size) const {
    return packed({rnn.layer.layers * rnn.layer.directions(), x.batch, size});
  }
};

Layer layer_of(cudnnRNNDescriptor_t rnn, cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y) {
  Layer layer{*object_at<RnnObject>(rnn), *object_at<RnnDataObject>(x), *object_at<RnnDataObject>(y)};
  if (layer.x.is_ragged || layer.y.is_ragged)
    refuse(CUDNN_STATUS_NOT_SUPPORTED,
           "sequences of different lengths are not supported by recurrent layers");
  if (layer.x.size != layer.rnn.input_size)
    refuse(CUDNN_STATUS_BAD_PARAM, "inputs of {} elements for a layer of {}", layer.x.size,
           layer.rnn.input_size);
  return layer;
}

void expect_reserve(const void* reserve, size_t bytes, const Layer& layer) {
  if (reserve == nullptr || bytes < layer.reserve_bytes())
    refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a reserve space of {} bytes; {} are needed", bytes,
           layer.reserve_bytes());
}

// The reserve space begins on a multiple of 256.
std::byte* start_of(void* reserve) { return static_cast<std::byte*>(aligned(reserve)); }

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

extern "C" {

// The handle's own memory is the workspace: what a call needs depends on which states the client hands over.
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t* workspace, size_t* reserve) {
  return guarded("cudnnGetRNNTempSpaceSizes", [&] {
    handle_at(handle);
    const Layer layer = layer_of(rnn, x, x);
    if (workspace != nullptr) *workspace = 256;
    if (reserve != nullptr) *reserve = mode == CUDNN_FWD_MODE_TRAINING ? layer.reserve_bytes() : 0;
  });
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                              const int32_t[], cudnnRNNDataDescriptor_t x, const void* x_data,
                              cudnnRNNDataDescriptor_t y, void* y_data, cudnnTensorDescriptor_t,
                              const void* h, void* next_h, cudnnTensorDescriptor_t, const void* c,
                              void* next_c, size_t, const void* weights, size_t, void*, size_t reserve_bytes,
                              void* reserve) {
  return guarded("cudnnRNNForward", [&] {
    const auto object = handle_at(handle);
    Layer layer = layer_of(rnn, x, y);
    layer.has_h = h != nullptr;
    layer.has_c = c != nullptr && layer.has_cell();
    const bool trains = mode == CUDNN_FWD_MODE_TRAINING, tells_h = next_h != nullptr,
               tells_c = next_c != nullptr && layer.has_cell();
    if (trains) expect_reserve(reserve, reserve_bytes, layer);
    const PlanKey key = layer.key("rnn").add(int64_t{trains}).add(int64_t{tells_h}).add(int64_t{tells_c});
    const auto plan = plan_for(*object, key, precision_of(layer.rnn.math), [&](Sketch& s) {
      const fusor::Tensor input = s.input(kX, layer.input());
      const fusor::RnnResults made = s.g.rnn_fwd(input, layer.weights(s), layer.options(s));
      s.output(kY, made.y, layer.output());
      if (trains) s.output(kKept, s.g.identity(input), layer.kept());
      if (tells_h) s.output(kNextH, made.hn, layer.hidden());
      if (tells_c) s.output(kNextC, made.cn, layer.cell());
    });
    Bindings bindings;
    bindings.bind(kX, x_data)
        .bind(kY, y_data)
        .bind(kH, h)
        .bind(kC, c)
        .bind(kNextH, next_h)
        .bind(kNextC, next_c);
    if (trains) bindings.bind(kKept, start_of(reserve));
    layer.bind(bindings, kWeight, weights);
    run_call(*object, *plan, bindings);
  });
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t[],
                                      cudnnRNNDataDescriptor_t y, const void*, const void* dy,
                                      cudnnRNNDataDescriptor_t x, void* dx, cudnnTensorDescriptor_t,
                                      const void* h, const void* dnext_h, void* dh, cudnnTensorDescriptor_t,
                                      const void* c, const void* dnext_c, void* dc, size_t,
                                      const void* weights, size_t, void*, size_t reserve_bytes,
                                      void* reserve) {
  return guarded("cudnnRNNBackwardData_v8", [&] {
    const auto object = handle_at(handle);
    Layer layer = layer_of(rnn, x, y);
    expect_reserve(reserve, reserve_bytes, layer);
    layer.has_h = h != nullptr;
    layer.has_c = c != nullptr && layer.has_cell();
    const bool has_dh = dnext_h != nullptr, has_dc = dnext_c != nullptr && layer.has_cell();
    // Gradients of states that were left out have nowhere to go.
    const bool tells_h = dh != nullptr && layer.has_h, tells_c = dc != nullptr && layer.has_c;
    PlanKey key = layer.key("rnn backward");
    key.add(int64_t{has_dh}).add(int64_t{has_dc}).add(int64_t{tells_h}).add(int64_t{tells_c});
    const auto plan = plan_for(*object, key, precision_of(layer.rnn.math), [&](Sketch& s) {
      fusor::RnnOptions options = layer.options(s);
      if (has_dh) options.dhn = s.input(kDnextH, layer.hidden());
      if (has_dc) options.dcn = s.input(kDnextC, layer.cell());
      const fusor::RnnGradients made =
          s.g.rnn_bwd(s.input(kDy, layer.output()), s.input(kKept, layer.kept()), layer.weights(s), options);
      s.output(kDx, made.dx, layer.input());
      if (tells_h) s.output(kDh, made.dh0, layer.hidden());
      if (tells_c) s.output(kDc, made.dc0, layer.cell());
      int number = kDweight;
      const std::vector<RnnWeight> places = weights_of(layer.rnn);
      for (size_t i = 0; i < places.size(); ++i)
        s.output(number++, made.dweights[i], layer.packed(places[i].dims));
    });
    Bindings bindings;
    bindings.bind(kDy, dy).bind(kKept, start_of(reserve)).bind(kDx, dx).bind(kH, h).bind(kC, c);
    bindings.bind(kDnextH, dnext_h).bind(kDnextC, dnext_c).bind(kDh, dh).bind(kDc, dc);
    layer.bind(bindings, kWeight, weights);
    layer.bind(bindings, kDweight, start_of(reserve) + layer.kept_bytes());
    run_call(*object, *plan, bindings);
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
    bindings.bind(kDweight, start_of(reserve) + layer.kept_bytes()).bind(kSum, dweights);
    bindings.bind(Sketch::held(kSum), dweights);
    run_call(*object, *plan, bindings);
  });
}

}  // extern "C"
