// Owns the test of hostile use of single calls: descriptors that nobody set, small numbers everywhere, any
// descriptor in the place of another. Nothing crashes.
#include <cstdlib>
#include <random>

#include "tests/compat/client.h"

namespace fusor::compat_test {
namespace {

// Descriptors of one kind; some are destroyed and used again.
template <class Handle>
struct Kept {
  cudnnStatus_t (*create)(Handle*);
  cudnnStatus_t (*destroy)(Handle);
  std::vector<Handle> list = {};

  Kept(cudnnStatus_t (*make)(Handle*), cudnnStatus_t (*end)(Handle)) : create(make), destroy(end) {}
  ~Kept() {
    for (const Handle each : list) destroy(each);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
};

// A client that calls whatever there is. Memory is large enough for all tensors that its numbers make.
class Caller {
 public:
  Caller(cudnnHandle_t handle, uint32_t seed) : handle_(handle), random_(seed) {}

  int carried_out() const { return carried_out_; }

  void call() {
    switch (below(16)) {
      case 0:
        return set_tensor();
      case 1:
        return set_filter();
      case 2:
        return set_convolution();
      case 3:
        return set_pooling();
      case 4:
        cudnnSetActivationDescriptor(any(activations_), enumerator<cudnnActivationMode_t>(9),
                                     enumerator<cudnnNanPropagation_t>(3), below(4) - 1);
        return;
      case 5:
        return convolve();
      case 6:
        return pool();
      case 7:
        return activate();
      case 8:
        return soften();
      case 9:
        return normalize();
      case 10:
        return transform();
      case 11:
        return set_recurrent();
      case 12:
        return recur();
      case 13:
        return ask();
      case 14:
        return lose();
      default:
        return forget();
    }
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 16;

  int below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }
  template <class Enumerator>
  Enumerator enumerator(int limit) {
    return static_cast<Enumerator>(below(40) == 0 ? below(1000) - 500 : below(limit));
  }
  cudnnDataType_t type() { return below(10) == 0 ? enumerator<cudnnDataType_t>(22) : CUDNN_DATA_FLOAT; }

  void tally(cudnnStatus_t status) { carried_out_ += status == CUDNN_STATUS_SUCCESS ? 1 : 0; }

  template <class Handle>
  Handle any(Kept<Handle>& kept) {
    const int which = below(100);
    if (which == 0) return nullptr;
    if (which == 1) return reinterpret_cast<Handle>(this);  // a stranger's pointer
    if (kept.list.size() < 6) {
      Handle made = nullptr;
      if (kept.create(&made) == CUDNN_STATUS_SUCCESS) kept.list.push_back(made);
      return made;
    }
    return kept.list[static_cast<size_t>(below(static_cast<int>(kept.list.size())))];
  }
  template <class Handle>
  void lose_one(Kept<Handle>& kept) {
    if (kept.list.empty()) return;
    const auto at = kept.list.begin() + below(static_cast<int>(kept.list.size()));
    kept.destroy(*at);
    if (below(2) == 0) kept.destroy(*at);
    kept.list.erase(at);
  }

  // Places of 64 KiB each.
  void* memory() {
    return below(60) == 0 ? nullptr
                          : places_.data() + static_cast<size_t>(below(12)) * kBytes / sizeof(int64_t);
  }
  void* workspace() { return below(8) == 0 ? nullptr : workspace_.data(); }
  size_t workspace_bytes() {
    return below(8) == 0 ? static_cast<size_t>(below(64)) : workspace_.size() * sizeof(int64_t);
  }
  const void* factor(float usual) {
    factors_[0] = usual;
    factors_[1] = static_cast<float>(below(3));
    return below(30) == 0 ? nullptr : below(4) == 0 ? &factors_[1] : &factors_[0];
  }
  const int* numbers(int least, int most) {
    for (int& number : numbers_) number = below(30) == 0 ? below(3) - 2 : least + below(most - least + 1);
    return below(60) == 0 ? nullptr : numbers_;
  }
  int rank(int usual) { return below(12) == 0 ? below(11) - 1 : usual; }

  void set_tensor() {
    const int axes = rank(4);
    int dims[16], strides[16];
    for (int i = 0; i < 16; ++i) dims[i] = below(60) == 0 ? below(2) - 1 : below(3) + 1;
    int step = 1;
    for (int i = std::min(axes, 16) - 1; i >= 0; --i) {
      strides[i] = below(20) == 0 ? below(9) - 1 : step;
      step *= std::max(dims[i], 1);
    }
    if (below(6) == 0)
      cudnnSetTensorNdDescriptorEx(any(tensors_), enumerator<cudnnTensorFormat_t>(3), type(), axes, dims);
    else
      cudnnSetTensorNdDescriptor(any(tensors_), type(), axes, dims, strides);
  }
  void set_filter() {
    cudnnSetFilterNdDescriptor(any(filters_), type(), enumerator<cudnnTensorFormat_t>(3), rank(4),
                               numbers(1, 3));
  }
  void set_convolution() {
    int padding[8], stride[8], dilation[8];
    for (int i = 0; i < 8; ++i) {
      padding[i] = below(3);
      stride[i] = below(12) == 0 ? below(4) - 1 : 1;
      dilation[i] = below(12) == 0 ? below(4) - 1 : 1;
    }
    const cudnnConvolutionDescriptor_t conv = any(convolutions_);
    cudnnSetConvolutionNdDescriptor(conv, rank(2), padding, stride, dilation,
                                    enumerator<cudnnConvolutionMode_t>(2), type());
    if (below(4) == 0) cudnnSetConvolutionGroupCount(conv, below(4));
    if (below(4) == 0) cudnnSetConvolutionMathType(conv, enumerator<cudnnMathType_t>(4));
  }
  void set_pooling() {
    int window[8], padding[8], stride[8];
    for (int i = 0; i < 8; ++i) {
      window[i] = below(3) + (below(20) == 0 ? 0 : 1);
      padding[i] = below(2);
      stride[i] = below(3) + (below(20) == 0 ? 0 : 1);
    }
    cudnnSetPoolingNdDescriptor(any(poolings_), enumerator<cudnnPoolingMode_t>(4),
                                enumerator<cudnnNanPropagation_t>(2), rank(2), window, padding, stride);
  }
  // A result as the convolution wants it, often.
  cudnnTensorDescriptor_t result_of(cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t x,
                                    cudnnFilterDescriptor_t w) {
    const cudnnTensorDescriptor_t y = any(tensors_);
    int dims[4] = {};
    if (below(4) != 0 && y != x &&
        cudnnGetConvolutionNdForwardOutputDim(conv, x, w, 4, dims) == CUDNN_STATUS_SUCCESS)
      cudnnSetTensorNdDescriptorEx(y, CUDNN_TENSOR_NCHW, type(), 4, dims);
    return y;
  }
  void convolve() {
    const cudnnConvolutionDescriptor_t conv = any(convolutions_);
    const cudnnTensorDescriptor_t x = any(tensors_);
    const cudnnFilterDescriptor_t w = any(filters_);
    const cudnnTensorDescriptor_t y = result_of(conv, x, w);
    switch (below(4)) {
      case 0:
        tally(cudnnConvolutionForward(handle_, factor(1), x, memory(), w, memory(), conv,
                                      enumerator<cudnnConvolutionFwdAlgo_t>(8), workspace(),
                                      workspace_bytes(), factor(0), y, memory()));
        return;
      case 1:
        tally(cudnnConvolutionBackwardData(handle_, factor(1), w, memory(), y, memory(), conv,
                                           enumerator<cudnnConvolutionBwdDataAlgo_t>(6), workspace(),
                                           workspace_bytes(), factor(0), x, memory()));
        return;
      case 2:
        tally(cudnnConvolutionBackwardFilter(handle_, factor(1), x, memory(), y, memory(), conv,
                                             enumerator<cudnnConvolutionBwdFilterAlgo_t>(6), workspace(),
                                             workspace_bytes(), factor(0), w, memory()));
        return;
      default:
        tally(cudnnConvolutionBiasActivationForward(handle_, factor(1), x, memory(), w, memory(), conv,
                                                    enumerator<cudnnConvolutionFwdAlgo_t>(8), workspace(),
                                                    workspace_bytes(), factor(0), y, memory(), any(tensors_),
                                                    memory(), any(activations_), y, memory()));
    }
  }
  void pool() {
    const cudnnTensorDescriptor_t x = any(tensors_), y = any(tensors_);
    if (below(2) == 0)
      tally(cudnnPoolingForward(handle_, any(poolings_), factor(1), x, memory(), factor(0), y, memory()));
    else
      tally(cudnnPoolingBackward(handle_, any(poolings_), factor(1), y, memory(), below(4) == 0 ? x : y,
                                 memory(), x, memory(), factor(0), below(4) == 0 ? y : x, memory()));
  }
  void activate() {
    const cudnnTensorDescriptor_t x = any(tensors_), y = below(3) == 0 ? any(tensors_) : x;
    if (below(2) == 0)
      tally(
          cudnnActivationForward(handle_, any(activations_), factor(1), x, memory(), factor(0), y, memory()));
    else
      tally(cudnnActivationBackward(handle_, any(activations_), factor(1), y, memory(), y, memory(), x,
                                    memory(), factor(0), x, memory()));
  }
  void soften() {
    const cudnnTensorDescriptor_t x = any(tensors_), y = below(3) == 0 ? any(tensors_) : x;
    const auto algorithm = enumerator<cudnnSoftmaxAlgorithm_t>(3);
    const auto mode = enumerator<cudnnSoftmaxMode_t>(2);
    if (below(2) == 0)
      tally(cudnnSoftmaxForward(handle_, algorithm, mode, factor(1), x, memory(), factor(0), y, memory()));
    else
      tally(cudnnSoftmaxBackward(handle_, algorithm, mode, factor(1), y, memory(), y, memory(), factor(0), x,
                                 memory()));
  }
  void normalize() {
    const cudnnTensorDescriptor_t x = any(tensors_), y = below(3) == 0 ? any(tensors_) : x, s = any(tensors_);
    const auto mode = enumerator<cudnnBatchNormMode_t>(3);
    if (below(4) != 0 && s != x && s != y) cudnnDeriveBNTensorDescriptor(s, x, mode);
    switch (below(3)) {
      case 0:
        tally(cudnnBatchNormalizationForwardTraining(handle_, mode, factor(1), factor(0), x, memory(), y,
                                                     memory(), s, memory(), memory(), 0.25 * below(6),
                                                     memory(), memory(), 1e-5, memory(), memory()));
        return;
      case 1:
        tally(cudnnBatchNormalizationForwardInference(handle_, mode, factor(1), factor(0), x, memory(), y,
                                                      memory(), s, memory(), memory(), memory(), memory(),
                                                      1e-5));
        return;
      default:
        tally(cudnnBatchNormalizationBackward(handle_, mode, factor(1), factor(0), factor(1), factor(0), x,
                                              memory(), y, memory(), y, memory(), s, memory(), memory(),
                                              memory(), 1e-5, memory(), memory()));
    }
  }
  void transform() {
    const cudnnSpatialTransformerDescriptor_t transformer = any(transformers_);
    if (below(2) == 0)
      cudnnSetSpatialTransformerNdDescriptor(transformer, enumerator<cudnnSamplerType_t>(2), type(), rank(4),
                                             numbers(1, 3));
    if (below(2) == 0) {
      tally(cudnnSpatialTfGridGeneratorForward(handle_, transformer, memory(), memory()));
      return;
    }
    tally(cudnnSpatialTfSamplerForward(handle_, transformer, factor(1), any(tensors_), memory(), memory(),
                                       factor(0), any(tensors_), memory()));
  }
  void set_recurrent() {
    cudnnSetRNNDescriptor_v8(any(layers_), enumerator<cudnnRNNAlgo_t>(5), enumerator<cudnnRNNMode_t>(4),
                             enumerator<cudnnRNNBiasMode_t>(4), enumerator<cudnnDirectionMode_t>(2),
                             enumerator<cudnnRNNInputMode_t>(2), type(), type(),
                             enumerator<cudnnMathType_t>(4), below(4), below(4), below(4), below(3),
                             below(3) == 0 ? any(dropouts_) : nullptr, static_cast<uint32_t>(below(3)));
    cudnnSetRNNDataDescriptor(any(sequences_), type(), enumerator<cudnnRNNDataLayout_t>(3), below(4),
                              below(4), below(4), numbers(1, 2), below(2) == 0 ? nullptr : memory());
  }
  void recur() {
    const cudnnRNNDescriptor_t layer = any(layers_);
    const cudnnRNNDataDescriptor_t x = any(sequences_);
    const auto mode = enumerator<cudnnForwardMode_t>(2);
    size_t weights = 0, workspace = 0, reserve = 0;
    cudnnGetRNNWeightSpaceSize(handle_, layer, &weights);
    cudnnGetRNNTempSpaceSizes(handle_, layer, mode, x, &workspace, &reserve);
    if (std::max({weights, workspace, reserve}) > kBytes) return;
    tally(cudnnRNNForward(
        handle_, layer, mode, below(2) == 0 ? nullptr : static_cast<const int32_t*>(memory()), x, memory(),
        any(sequences_), memory(), any(tensors_), memory(), memory(), any(tensors_), memory(), memory(),
        below(9) == 0 ? 1 : weights, memory(), workspace, memory(), reserve, memory()));
  }
  void ask() {
    size_t bytes = 0;
    int count = 0, dims[8], strides[8];
    cudnnDataType_t asked = CUDNN_DATA_FLOAT;
    cudnnGetTensorSizeInBytes(any(tensors_), &bytes);
    cudnnGetTensorNdDescriptor(any(tensors_), below(9), &asked, &count, dims, strides);
    cudnnGetConvolutionForwardWorkspaceSize(handle_, any(tensors_), any(filters_), any(convolutions_),
                                            any(tensors_), enumerator<cudnnConvolutionFwdAlgo_t>(8),
                                            below(9) == 0 ? nullptr : &bytes);
  }
  void lose() {
    const int few[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const cudnnTensorDescriptor_t x = any(tensors_);
    const cudnnCTCLossDescriptor_t loss = any(losses_);
    cudnnSetCTCLossDescriptorEx(loss, type(), enumerator<cudnnLossNormalizationMode_t>(2),
                                enumerator<cudnnNanPropagation_t>(2));
    size_t bytes = 0;
    const auto algorithm = enumerator<cudnnCTCLossAlgo_t>(2);
    if (cudnnGetCTCLossWorkspaceSize(handle_, x, x, few, few, few, algorithm, loss, &bytes) !=
            CUDNN_STATUS_SUCCESS ||
        bytes > workspace_.size() * sizeof(int64_t))
      return;
    tally(cudnnCTCLoss(handle_, x, memory(), few, few, few, memory(), below(4) == 0 ? any(tensors_) : x,
                       memory(), algorithm, loss, workspace(), workspace_bytes()));
  }
  void forget() {
    lose_one(tensors_);
    lose_one(filters_);
    if (below(4) == 0) lose_one(convolutions_);
    if (below(4) == 0) lose_one(poolings_);
    if (below(4) == 0) lose_one(layers_);
    if (below(4) == 0) lose_one(sequences_);
    if (below(4) == 0) lose_one(transformers_);
    if (below(4) == 0) lose_one(dropouts_);
  }

  cudnnHandle_t handle_;
  std::mt19937 random_;
  int carried_out_ = 0;
  Kept<cudnnTensorDescriptor_t> tensors_{cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor};
  Kept<cudnnFilterDescriptor_t> filters_{cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor};
  Kept<cudnnConvolutionDescriptor_t> convolutions_{cudnnCreateConvolutionDescriptor,
                                                   cudnnDestroyConvolutionDescriptor};
  Kept<cudnnPoolingDescriptor_t> poolings_{cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor};
  Kept<cudnnActivationDescriptor_t> activations_{cudnnCreateActivationDescriptor,
                                                 cudnnDestroyActivationDescriptor};
  Kept<cudnnSpatialTransformerDescriptor_t> transformers_{cudnnCreateSpatialTransformerDescriptor,
                                                          cudnnDestroySpatialTransformerDescriptor};
  Kept<cudnnRNNDescriptor_t> layers_{cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor};
  Kept<cudnnRNNDataDescriptor_t> sequences_{cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor};
  Kept<cudnnDropoutDescriptor_t> dropouts_{cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor};
  Kept<cudnnCTCLossDescriptor_t> losses_{cudnnCreateCTCLossDescriptor, cudnnDestroyCTCLossDescriptor};
  int numbers_[16] = {};
  float factors_[2] = {};
  std::vector<int64_t> places_ = std::vector<int64_t>(13 * kBytes / sizeof(int64_t)),
                       workspace_ = std::vector<int64_t>(kBytes);
};

class HostileCalls : public Client {};

// FUSOR_COMPAT_CALLS: how many; FUSOR_COMPAT_SEED: which.
TEST_F(HostileCalls, CrashNothing) {
  const char* const asked = std::getenv("FUSOR_COMPAT_CALLS");
  const char* const seed = std::getenv("FUSOR_COMPAT_SEED");
  const int calls = asked == nullptr ? 20000 : std::atoi(asked);
  const uint32_t start = seed == nullptr ? 0 : static_cast<uint32_t>(std::atoi(seed));
  constexpr int kOfOne = 2000;
  int carried_out = 0;
  for (int first = 0; first < calls; first += kOfOne) {
    Caller caller(handle, start + static_cast<uint32_t>(first));
    for (int i = 0; i < kOfOne; ++i) caller.call();
    carried_out += caller.carried_out();
  }
  EXPECT_GT(carried_out, calls / 40);
  RecordProperty("carried_out", carried_out);
  // The library still works.
  auto xs = numbers(4, 1), ys = poison(4);
  run({unary(CUDNN_POINTWISE_NEG, tensor(1, {4}), tensor(2, {4}))}, {{1, xs.data()}, {2, ys.data()}});
  EXPECT_FLOAT_EQ(ys[3], -xs[3]);
}

}  // namespace
}  // namespace fusor::compat_test
