// Owns the CTC loss as a single call, with labels in host memory or on the device.
#include <algorithm>

#include "backend/device_memory.h"
#include "compat/cudnn/src/legacy/cached_plan.h"

namespace fusor::cudnn {

struct CtcObject {
  static constexpr const char* kWhat = "CTC loss descriptor";
  using Pointer = cudnnCTCLossDescriptor_t;
  cudnnLossNormalizationMode_t normalization = CUDNN_LOSS_NORMALIZATION_NONE;
  int64_t most_labels = 0;  ///< of one sequence; calls with labels on the device cannot count them
};

namespace {

enum Number { kX, kLabels, kLabelLengths, kInputLengths, kLoss, kDx };

void set_ctc(cudnnCTCLossDescriptor_t pointer, cudnnDataType_t type,
             cudnnLossNormalizationMode_t normalization, int most_labels = 0) {
  const auto ctc = object_at<CtcObject>(pointer);
  if (type != CUDNN_DATA_FLOAT) refuse(CUDNN_STATUS_NOT_SUPPORTED, "the CTC loss is computed in fp32");
  *ctc = {normalization, most_labels};
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

// One call on tensors [time, batch, classes].
struct Loss {
  CtcObject kind;
  TensorObject from, to;
  bool has_gradient = false;
  int64_t most = 1;        // labels of a sequence
  bool is_packed = false;  // labels lie one sequence behind the other, else in rows of `most`

  int64_t batch() const { return from.dims[1]; }
  PlanKey key() const {
    return PlanKey("ctc")
        .add(int64_t{kind.normalization})
        .add(from)
        .add(to)
        .add(most)
        .add(int64_t{has_gradient})
        .add(int64_t{is_packed});
  }
  std::shared_ptr<const CallPlan> plan(const Handle& handle) const {
    return plan_for(handle, key(), Precision::exact, [&](Sketch& s) { sketch(s); });
  }

 private:
  void sketch(Sketch& s) const {
    const bool normalizes = kind.normalization == CUDNN_LOSS_NORMALIZATION_SOFTMAX;
    const Tensor input = s.input(kX, from);
    // Activations become logarithms of probabilities; without that they are probabilities.
    const Tensor logs = normalizes ? s.g.softmax(input, {.axis = 2, .log = true}).y : s.g.log(input);
    CtcLossOptions options;
    options.input_lengths = s.input(kInputLengths, integers({batch()}));
    options.label_lengths = s.input(kLabelLengths, integers({batch()}));
    const Tensor labels =
        is_packed ? table(s, options.label_lengths) : s.input(kLabels, integers({batch(), most}));
    const CtcLossResults made = s.g.ctc_loss(logs, labels, options);
    s.output(kLoss, made.loss, {CUDNN_DATA_FLOAT, {batch()}, {1}});
    if (!has_gradient) return;
    s.output(
        kDx,
        normalizes ? s.g.softmax_bwd(made.dx, logs, {.axis = 2, .log = true}).dx : s.g.div(made.dx, input),
        to);
  }
  // Packed labels in rows of `most`: a sequence begins where all before it end.
  Tensor table(Sketch& s, const Tensor& lengths) const {
    const auto whole = [&](double value) { return s.g.constant(value, DataType::i32); };
    const std::array<Dims, 1> square{Dims{batch(), batch()}};
    const std::array<Tensor, 1> row{s.g.reshape(lengths, {1, batch()})};
    const Pointwise identity{.mode = PointwiseMode::identity};
    const Tensor others = s.g.op(identity, row, {.type = DataType::i32}, square).front();
    const Tensor is_before = s.g.cmp_lt(s.g.gen_index(others, 1), s.g.gen_index(others, 0));
    const Tensor start = s.g.reduce(s.g.binary_select(others, whole(0), is_before), ReductionMode::add, {1});
    const std::array<Dims, 1> rows{Dims{batch(), most}};
    const std::array<Tensor, 1> starts{start};
    const Tensor wide = s.g.op(identity, starts, {.type = DataType::i32}, rows).front();
    const Tensor place = s.g.gen_index(wide, 1);
    const Tensor is_label = s.g.cmp_lt(place, s.g.reshape(lengths, {batch(), 1}));
    const Tensor index = s.g.binary_select(s.g.add(wide, place), whole(-1), is_label);
    const Tensor all = s.input(kLabels, integers({batch() * most}));
    return s.g.reshape(s.g.gather(all, s.g.reshape(index, {batch() * most})), {batch(), most});
  }
};

Loss loss_of(const CtcObject& kind, cudnnTensorDescriptor_t probabilities, cudnnTensorDescriptor_t gradients,
             const void* dx) {
  Loss loss{kind, *object_at<TensorObject>(probabilities), {}};
  if (loss.from.dims.rank() != 3 || loss.from.type != CUDNN_DATA_FLOAT)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "the CTC loss of {}: fp32 [time, batch, classes] is supported",
           to_string(loss.from.dims));
  loss.has_gradient = dx != nullptr;
  loss.to = loss.has_gradient ? *object_at<TensorObject>(gradients) : loss.from;
  return loss;
}

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
                                           int most_labels) {
  return guarded("cudnnSetCTCLossDescriptor_v9", [&] {
    if (most_labels < 0) refuse(CUDNN_STATUS_BAD_PARAM, "at most {} labels", most_labels);
    set_ctc(ctc, type, normalization, most_labels);
  });
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
    Loss loss = loss_of(*object_at<CtcObject>(ctc), probabilities, gradients, dx);
    const Labels list = labels_of(*object->device, loss.batch(), labels, label_lengths, input_lengths);
    loss.most = list.most;
    Bindings bindings;
    bindings.bind(kX, x).bind(kLoss, costs).bind(kDx, dx).bind(kLabels, list.table.get());
    bindings.bind(kLabelLengths, list.label_lengths.get()).bind(kInputLengths, list.input_lengths.get());
    run_call(*object, *loss.plan(*object), bindings);
    synchronize(*object->device, object->stream);  // the labels' memory is given back
  });
}

cudnnStatus_t cudnnGetCTCLossWorkspaceSize_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t,
                                              cudnnCTCLossDescriptor_t ctc,
                                              const cudnnTensorDescriptor_t probabilities,
                                              const cudnnTensorDescriptor_t, size_t* bytes) {
  return cudnnGetCTCLossWorkspaceSize(handle, probabilities, nullptr, nullptr, nullptr, nullptr,
                                      CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, ctc, bytes);
}

cudnnStatus_t cudnnCTCLoss_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t, cudnnCTCLossDescriptor_t ctc,
                              const cudnnTensorDescriptor_t probabilities, const void* x, const int labels[],
                              const int label_lengths[], const int input_lengths[], void* costs,
                              const cudnnTensorDescriptor_t gradients, void* dx, size_t, void*) {
  return guarded("cudnnCTCLoss_v8", [&] {
    const auto object = handle_at(handle);
    Loss loss = loss_of(*object_at<CtcObject>(ctc), probabilities, gradients, dx);
    loss.is_packed = true;
    if (loss.kind.most_labels < 1)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "labels on the device need the most labels of a sequence");
    loss.most = loss.kind.most_labels;
    Bindings bindings;
    bindings.bind(kX, x).bind(kLoss, costs).bind(kDx, dx).bind(kLabels, labels);
    bindings.bind(kLabelLengths, label_lengths).bind(kInputLengths, input_lengths);
    run_call(*object, *loss.plan(*object), bindings);
  });
}

}  // extern "C"
