// Owns the CTC loss as a single call with labels in host memory.
#include <algorithm>

#include "backend/device_memory.h"
#include "compat/cudnn/src/legacy/cached_plan.h"

namespace fusor::cudnn {

struct CtcObject {
  static constexpr const char* kWhat = "CTC loss descriptor";
  using Pointer = cudnnCTCLossDescriptor_t;
  cudnnLossNormalizationMode_t normalization = CUDNN_LOSS_NORMALIZATION_NONE;
};

namespace {

enum Number { kX, kLabels, kLabelLengths, kInputLengths, kLoss, kDx };

void set_ctc(cudnnCTCLossDescriptor_t pointer, cudnnDataType_t type,
             cudnnLossNormalizationMode_t normalization) {
  const auto ctc = object_at<CtcObject>(pointer);
  if (type != CUDNN_DATA_FLOAT) refuse(CUDNN_STATUS_NOT_SUPPORTED, "the CTC loss is computed in fp32");
  *ctc = {normalization};
}

// The labels of a batch as a table of equally long rows, and the lengths, in memory of the device.
struct Labels {
  int64_t most = 1;
  DeviceMemory table, label_lengths, input_lengths;
};

DeviceMemory copied(const DeviceInfo& device, const std::vector<int32_t>& list) {
  DeviceMemory memory(device, static_cast<int64_t>(list.size() * sizeof(int32_t)));
  memory.write(list);
  return memory;
}

Labels labels_of(const DeviceInfo& device, int64_t batch, const int labels[], const int label_lengths[],
                 const int input_lengths[]) {
  for (const int* list : {labels, label_lengths, input_lengths})
    if (list == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "labels or lengths are null");
  const std::vector<int32_t> lengths(label_lengths, label_lengths + batch);
  Labels result;
  for (const int32_t length : lengths) {
    if (length < 0) refuse(CUDNN_STATUS_BAD_PARAM, "{} labels", length);
    result.most = std::max<int64_t>(result.most, length);
  }
  std::vector<int32_t> table(static_cast<size_t>(batch * result.most), 0);
  for (int64_t b = 0, next = 0; b < batch; next += lengths[static_cast<size_t>(b)], ++b)
    std::copy_n(labels + next, lengths[static_cast<size_t>(b)], table.begin() + b * result.most);
  result.table = copied(device, table);
  result.label_lengths = copied(device, lengths);
  result.input_lengths = copied(device, {input_lengths, input_lengths + batch});
  return result;
}

TensorObject integers(const Dims& dims) { return {CUDNN_DATA_INT32, dims, packed_strides(dims)}; }

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

extern "C" {

cudnnStatus_t cudnnCreateCTCLossDescriptor(cudnnCTCLossDescriptor_t* ctc) {
  return guarded("cudnnCreateCTCLossDescriptor", [&] { create_object<CtcObject>(ctc); });
}

cudnnStatus_t cudnnDestroyCTCLossDescriptor(cudnnCTCLossDescriptor_t ctc) {
  return guarded("cudnnDestroyCTCLossDescriptor", [&] { registry<CtcObject>().remove(ctc); });
}

cudnnStatus_t cudnnSetCTCLossDescriptorEx(cudnnCTCLossDescriptor_t ctc, cudnnDataType_t type,
                                          cudnnLossNormalizationMode_t normalization, cudnnNanPropagation_t) {
  return guarded("cudnnSetCTCLossDescriptorEx", [&] { set_ctc(ctc, type, normalization); });
}

cudnnStatus_t cudnnSetCTCLossDescriptor_v9(cudnnCTCLossDescriptor_t ctc, cudnnDataType_t type,
                                           cudnnLossNormalizationMode_t normalization, cudnnCTCGradMode_t,
                                           int) {
  return guarded("cudnnSetCTCLossDescriptor_v9", [&] { set_ctc(ctc, type, normalization); });
}

// The handle's own memory is the workspace.
cudnnStatus_t cudnnGetCTCLossWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t,
                                           const cudnnTensorDescriptor_t, const int*, const int*, const int*,
                                           cudnnCTCLossAlgo_t, cudnnCTCLossDescriptor_t ctc, size_t* bytes) {
  return guarded("cudnnGetCTCLossWorkspaceSize", [&] {
    handle_at(handle);
    object_at<CtcObject>(ctc);
    place_of(bytes, "sizeInBytes") = 256;
  });
}

cudnnStatus_t cudnnCTCLoss(cudnnHandle_t handle, const cudnnTensorDescriptor_t probabilities, const void* x,
                           const int labels[], const int label_lengths[], const int input_lengths[],
                           void* costs, const cudnnTensorDescriptor_t gradients, void* dx, cudnnCTCLossAlgo_t,
                           cudnnCTCLossDescriptor_t ctc, void*, size_t) {
  return guarded("cudnnCTCLoss", [&] {
    const auto object = handle_at(handle);
    const CtcObject kind = *object_at<CtcObject>(ctc);
    const TensorObject from = *object_at<TensorObject>(probabilities);
    if (from.dims.rank() != 3 || from.type != CUDNN_DATA_FLOAT)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "the CTC loss of {}: fp32 [time, batch, classes] is supported",
             to_string(from.dims));
    const TensorObject to = dx != nullptr ? *object_at<TensorObject>(gradients) : from;
    const int64_t batch = from.dims[1];
    const Labels list = labels_of(*object->device, batch, labels, label_lengths, input_lengths);
    const bool normalizes = kind.normalization == CUDNN_LOSS_NORMALIZATION_SOFTMAX;
    const PlanKey key =
        PlanKey("ctc").add(int64_t{normalizes}).add(from).add(to).add(list.most).add(int64_t{dx != nullptr});
    const auto plan = plan_for(*object, key, fusor::Precision::exact, [&](Sketch& s) {
      const fusor::Tensor input = s.input(kX, from);
      // Activations become logarithms of probabilities; without that they are probabilities.
      const fusor::Tensor logs = normalizes ? s.g.softmax(input, {.axis = 2, .log = true}).y : s.g.log(input);
      fusor::CtcLossOptions options;
      options.input_lengths = s.input(kInputLengths, integers({batch}));
      options.label_lengths = s.input(kLabelLengths, integers({batch}));
      const fusor::CtcLossResults made =
          s.g.ctc_loss(logs, s.input(kLabels, integers({batch, list.most})), options);
      s.output(kLoss, made.loss, {CUDNN_DATA_FLOAT, {batch}, {1}});
      if (dx == nullptr) return;
      s.output(
          kDx,
          normalizes ? s.g.softmax_bwd(made.dx, logs, {.axis = 2, .log = true}).dx : s.g.div(made.dx, input),
          to);
    });
    Bindings bindings;
    bindings.bind(kX, x).bind(kLoss, costs).bind(kDx, dx).bind(kLabels, list.table.get());
    bindings.bind(kLabelLengths, list.label_lengths.get()).bind(kInputLengths, list.input_lengths.get());
    run_call(*object, *plan, bindings);
    synchronize(*object->device, object->stream);  // the labels' memory is given back
  });
}

}  // extern "C"
