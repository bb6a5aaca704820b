// Owns the calls on descriptors of recurrent layers and on their weights.
#include "compat/cudnn/src/legacy/rnn_objects.h"

#include <algorithm>
#include <limits>

#include "compat/cudnn/src/handle.h"
#include "compat/cudnn/src/translate/translator.h"
#include "core/convert.h"

namespace fusor::cudnn {

namespace {

RnnCell cell_of(cudnnRNNMode_t mode) {
  switch (mode) {
    case CUDNN_RNN_RELU:
      return RnnCell::rnn_relu;
    case CUDNN_RNN_TANH:
      return RnnCell::rnn_tanh;
    case CUDNN_LSTM:
      return RnnCell::lstm;
    case CUDNN_GRU:
      return RnnCell::gru;
  }
  refuse(CUDNN_STATUS_BAD_PARAM, "{} is no recurrent cell", static_cast<int>(mode));
}

// The place of a matrix or bias that a client asks for by its linear layer: a part of all gates' together.
struct Part {
  int64_t offset = 0, rows = 0, columns = 0;
};

Part part_of(const RnnWeight& weight, int64_t gate, int64_t rows) {
  const int64_t columns = weight.dims.rank() == 2 ? weight.dims[1] : 1;
  return {weight.offset + gate * rows * columns, rows, columns};
}

void tell_part(const RnnObject& rnn, const Part& part, const void* space, cudnnTensorDescriptor_t descriptor,
               void** place) {
  const auto bytes = byte_size(data_type_of(rnn.type));
  if (descriptor != nullptr) {
    const Dims dims{1, part.rows, part.columns};
    *object_at<TensorObject>(descriptor) = {rnn.type, dims, packed_strides(dims)};
  }
  if (place == nullptr) return;  // of no interest to the client
  *place = const_cast<std::byte*>(static_cast<const std::byte*>(space)) + part.offset * bytes;
}

double fill_at(const void* fill, cudnnDataType_t type) {
  const DataType stored = data_type_of(type);
  return load_real(stored, fill, 0);
}

void expect_lengths(const std::vector<int32_t>& lengths, int64_t time, cudnnRNNDataLayout_t layout) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > time)
      refuse(CUDNN_STATUS_BAD_PARAM, "sequence {} has {} of {} steps", i, lengths[i], time);
    if (layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED && i > 0 && lengths[i] > lengths[i - 1])
      refuse(CUDNN_STATUS_BAD_PARAM, "packed sequences are not sorted: {} has {} steps, the one before it {}",
             i, lengths[i], lengths[i - 1]);
  }
}

DeviceMemory on_device(const DeviceInfo& device, const std::vector<int32_t>& numbers) {
  DeviceMemory memory(device, static_cast<int64_t>(numbers.size() * sizeof(int32_t)));
  memory.write(numbers);
  return memory;
}

std::shared_ptr<const RnnSequences> sequences_of(const std::vector<int32_t>& lengths, int64_t time) {
  if (time * static_cast<int64_t>(lengths.size()) > std::numeric_limits<int32_t>::max())
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "{} sequences of {} steps have more rows than an int32 counts",
           lengths.size(), time);
  std::vector<int32_t> padded, packed;
  for (int64_t t = 0; t < time; ++t)
    for (size_t b = 0; b < lengths.size(); ++b) {
      const bool is_step = t < lengths[b];
      if (is_step) packed.push_back(static_cast<int32_t>(padded.size()));
      padded.push_back(is_step ? static_cast<int32_t>(packed.size()) - 1 : -1);
    }
  if (packed.empty()) refuse(CUDNN_STATUS_BAD_PARAM, "all sequences are empty");
  const auto device = current_device_info();
  return std::make_shared<const RnnSequences>(
      RnnSequences{on_device(*device, lengths), on_device(*device, padded), on_device(*device, packed),
                   static_cast<int64_t>(packed.size())});
}

}  // namespace

TensorObject RnnDataObject::tensor() const {
  const Dims dims{time, batch, size};
  if (layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) return {type, dims, {size, time * size, 1}};
  return {type, dims, packed_strides(dims)};
}

std::vector<RnnWeight> weights_of(const RnnObject& rnn) {
  const RnnAttributes& layer = rnn.layer;
  const int64_t rows = layer.gates() * layer.hidden_size;
  std::vector<RnnWeight> weights;
  int64_t offset = 0;
  const auto add = [&](const Dims& dims) {
    weights.push_back({dims, offset});
    offset += element_count(dims);
  };
  for (int64_t i = 0; i < layer.layers * layer.directions(); ++i) {
    add({rows, i < layer.directions() ? rnn.input_size : layer.directions() * layer.output_size()});
    add({rows, layer.output_size()});
    if (layer.bias) add({rows});
    if (layer.bias) add({rows});
    if (layer.projection_size > 0) add({layer.projection_size, layer.hidden_size});
  }
  return weights;
}

int64_t weight_count(const RnnObject& rnn) {
  const RnnWeight last = weights_of(rnn).back();
  return last.offset + element_count(last.dims);
}

}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

extern "C" {

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* rnn) {
  return guarded("cudnnCreateRNNDescriptor", [&] { create_object<RnnObject>(rnn); });
}

cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn) {
  return guarded("cudnnDestroyRNNDescriptor", [&] { registry<RnnObject>().remove(rnn); });
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t, cudnnRNNMode_t cell,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction,
                                       cudnnRNNInputMode_t input_mode, cudnnDataType_t type, cudnnDataType_t,
                                       cudnnMathType_t math, int32_t input_size, int32_t hidden_size,
                                       int32_t projection_size, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t) {
  return guarded("cudnnSetRNNDescriptor_v8", [&] {
    const auto object = object_at<RnnObject>(rnn);
    if (input_size < 1 || hidden_size < 1 || projection_size < 0 || projection_size > hidden_size ||
        layers < 1)
      refuse(CUDNN_STATUS_BAD_PARAM, "a recurrent layer of {} inputs, {} hidden, {} projected, {} layers",
             input_size, hidden_size, projection_size, layers);
    if (bias != CUDNN_RNN_NO_BIAS && bias != CUDNN_RNN_DOUBLE_BIAS)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "recurrent layers have two biases or none here");
    if (input_mode != CUDNN_LINEAR_INPUT)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "recurrent layers that skip the input's matrix are not supported");
    data_type_of(type);
    fusor::RnnAttributes layer;
    layer.cell = cell_of(cell);
    layer.hidden_size = hidden_size;
    layer.layers = layers;
    layer.projection_size = projection_size == hidden_size ? 0 : projection_size;
    layer.bidirectional = direction == CUDNN_BIDIRECTIONAL;
    layer.bias = bias == CUDNN_RNN_DOUBLE_BIAS;
    *object = {layer, input_size, type, math, nullptr};
    if (dropout == nullptr || layers < 2) return;
    const auto between = object_at<DropoutObject>(dropout);
    if (between->probability > 0) object->dropout = between;
  });
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* data) {
  return guarded("cudnnCreateRNNDataDescriptor", [&] { create_object<RnnDataObject>(data); });
}

cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t data) {
  return guarded("cudnnDestroyRNNDataDescriptor", [&] { registry<RnnDataObject>().remove(data); });
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int time, int batch, int size,
                                        const int lengths[], void* fill) {
  return guarded("cudnnSetRNNDataDescriptor", [&] {
    const auto object = object_at<RnnDataObject>(data);
    if (time < 1 || batch < 1 || size < 1)
      refuse(CUDNN_STATUS_BAD_PARAM, "sequences of {} steps, {} entries, {} elements", time, batch, size);
    if (lengths == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "seqLengthArray is null");
    data_type_of(type);
    if (fill != nullptr && fill_at(fill, type) != 0)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "sequences are padded with 0 here, not with {}",
             fill_at(fill, type));
    *object = {type, layout, time, batch, size, nullptr};
    const std::vector<int32_t> list(lengths, lengths + batch);
    expect_lengths(list, time, layout);
    if (std::ranges::any_of(list, [&](int32_t length) { return length != time; }))
      object->sequences = sequences_of(list, time);
  });
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t* bytes) {
  return guarded("cudnnGetRNNWeightSpaceSize", [&] {
    handle_at(handle);
    const auto object = object_at<RnnObject>(rnn);
    place_of(bytes, "weightSpaceSize") =
        static_cast<size_t>(weight_count(*object) * fusor::byte_size(data_type_of(object->type)));
  });
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t pseudo_layer,
                                      size_t, const void* space, int32_t linear,
                                      cudnnTensorDescriptor_t matrix, void** matrix_at,
                                      cudnnTensorDescriptor_t bias, void** bias_at) {
  return guarded("cudnnGetRNNWeightParams", [&] {
    handle_at(handle);
    const auto object = object_at<RnnObject>(rnn);
    const fusor::RnnAttributes& layer = object->layer;
    const int64_t gates = layer.gates();
    const bool projects = layer.projection_size > 0;
    if (pseudo_layer < 0 || pseudo_layer >= layer.layers * layer.directions() || linear < 0 ||
        linear >= 2 * gates + (projects ? 1 : 0))
      refuse(CUDNN_STATUS_BAD_PARAM, "linear layer {} of layer {}", linear, pseudo_layer);
    const std::vector<RnnWeight> weights = weights_of(*object);
    const auto first = static_cast<size_t>(pseudo_layer * layer.weights());
    if (linear == 2 * gates) {
      const RnnWeight& projection = weights[first + static_cast<size_t>(layer.weights()) - 1];
      tell_part(*object, part_of(projection, 0, layer.projection_size), space, matrix, matrix_at);
      if (bias_at != nullptr) *bias_at = nullptr;
      return;
    }
    const auto side = static_cast<size_t>(linear / gates);
    tell_part(*object, part_of(weights[first + side], linear % gates, layer.hidden_size), space, matrix,
              matrix_at);
    if (layer.bias)
      tell_part(*object, part_of(weights[first + 2 + side], linear % gates, layer.hidden_size), space, bias,
                bias_at);
    else if (bias_at != nullptr)
      *bias_at = nullptr;
  });
}

}  // extern "C"
