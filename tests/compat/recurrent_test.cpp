// Owns the tests of recurrent layers and the CTC loss as single calls.
#include <cmath>
#include <functional>

#include "tests/compat/held.h"

namespace fusor::compat_test::recurrent_test {
namespace {

constexpr int kTime = 3, kBatch = 2, kInputs = 2, kHidden = 3;
constexpr int kWeights = kHidden * kInputs + kHidden * kHidden + 2 * kHidden;

class Recurrent : public Client {
 protected:
  void SetUp() override {
    Client::SetUp();
    ASSERT_CUDNN(cudnnSetRNNDescriptor_v8(rnn.get(), CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_TANH,
                                          CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
                                          CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, kInputs,
                                          kHidden, kHidden, 1, nullptr, 0));
    const int lengths[] = {kTime, kTime};
    for (const auto& [data, size] : {std::pair(x.get(), kInputs), std::pair(y.get(), kHidden)})
      ASSERT_CUDNN(cudnnSetRNNDataDescriptor(data, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
                                             kTime, kBatch, size, lengths, nullptr));
    const int dims[] = {1, kBatch, kHidden}, strides[] = {kBatch * kHidden, kHidden, 1};
    ASSERT_CUDNN(cudnnSetTensorNdDescriptor(state.get(), CUDNN_DATA_FLOAT, 3, dims, strides));
    size_t bytes = 0;
    ASSERT_CUDNN(cudnnGetRNNWeightSpaceSize(handle, rnn.get(), &bytes));
    ASSERT_EQ(bytes, kWeights * sizeof(float));
  }

  // Outputs by plain loops.
  static std::vector<double> expected(const std::vector<float>& xs, const std::vector<float>& ws,
                                      const std::vector<float>& h0) {
    const float *wi = ws.data(), *wh = wi + kHidden * kInputs, *bi = wh + kHidden * kHidden,
                *bh = bi + kHidden;
    std::vector<double> state(h0.begin(), h0.end()), ys;
    for (int t = 0; t < kTime; ++t) {
      std::vector<double> next(kBatch * kHidden);
      for (int b = 0; b < kBatch; ++b)
        for (int i = 0; i < kHidden; ++i) {
          double sum = double{bi[i]} + bh[i];
          for (int j = 0; j < kInputs; ++j)
            sum += double{wi[i * kInputs + j]} * xs[(t * kBatch + b) * kInputs + j];
          for (int j = 0; j < kHidden; ++j) sum += double{wh[i * kHidden + j]} * state[b * kHidden + j];
          next[b * kHidden + i] = std::tanh(sum);
        }
      state = next;
      ys.insert(ys.end(), next.begin(), next.end());
    }
    return ys;
  }

  const Held<cudnnRNNDescriptor_t> rnn{cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor};
  const Held<cudnnRNNDataDescriptor_t> x{cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor};
  const Held<cudnnRNNDataDescriptor_t> y{cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor};
  const Held<cudnnTensorDescriptor_t> state{cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor};
};

TEST_F(Recurrent, ForwardAndGradientsOfTheWeightedSum) {
  auto xs = numbers(kTime * kBatch * kInputs, 1), ws = numbers(kWeights, 2),
       h0 = numbers(kBatch * kHidden, 3);
  const auto gs = numbers(kTime * kBatch * kHidden, 4);
  size_t workspace = 0, reserve = 0;
  ASSERT_CUDNN(
      cudnnGetRNNTempSpaceSizes(handle, rnn.get(), CUDNN_FWD_MODE_TRAINING, x.get(), &workspace, &reserve));
  std::vector<unsigned char> kept(reserve, 0xff), room(workspace);
  auto ys = poison(gs.size()), hn = poison(h0.size()), dxs = poison(xs.size()), dh0 = poison(h0.size());
  std::vector<float> dws(kWeights, 0.5F);
  const size_t weight_bytes = ws.size() * sizeof(float);
  ASSERT_CUDNN(cudnnRNNForward(handle, rnn.get(), CUDNN_FWD_MODE_TRAINING, nullptr, x.get(), xs.data(),
                               y.get(), ys.data(), state.get(), h0.data(), hn.data(), state.get(), nullptr,
                               nullptr, weight_bytes, ws.data(), room.size(), room.data(), kept.size(),
                               kept.data()));
  const std::vector<double> right = expected(xs, ws, h0);
  for (size_t i = 0; i < ys.size(); ++i) EXPECT_NEAR(ys[i], right[i], 1e-5);
  for (size_t i = 0; i < hn.size(); ++i) EXPECT_NEAR(hn[i], right[right.size() - hn.size() + i], 1e-5);
  ASSERT_CUDNN(cudnnRNNBackwardData_v8(handle, rnn.get(), nullptr, y.get(), ys.data(), gs.data(), x.get(),
                                       dxs.data(), state.get(), h0.data(), nullptr, dh0.data(), state.get(),
                                       nullptr, nullptr, nullptr, weight_bytes, ws.data(), room.size(),
                                       room.data(), kept.size(), kept.data()));
  ASSERT_CUDNN(cudnnRNNBackwardWeights_v8(handle, rnn.get(), CUDNN_WGRAD_MODE_ADD, nullptr, x.get(),
                                          xs.data(), state.get(), h0.data(), y.get(), ys.data(), weight_bytes,
                                          dws.data(), room.size(), room.data(), kept.size(), kept.data()));
  const auto slope = [&](float& value) {
    const auto total = [&] {
      const std::vector<double> outputs = expected(xs, ws, h0);
      double sum = 0;
      for (size_t i = 0; i < outputs.size(); ++i) sum += outputs[i] * gs[i];
      return sum;
    };
    const float at = value;
    value = at + 1e-3F;
    const double above = total();
    value = at - 1e-3F;
    const double below = total();
    value = at;
    return (above - below) / 2e-3;
  };
  for (size_t i = 0; i < xs.size(); ++i) EXPECT_NEAR(dxs[i], slope(xs[i]), 1e-3);
  for (size_t i = 0; i < h0.size(); ++i) EXPECT_NEAR(dh0[i], slope(h0[i]), 1e-3);
  for (size_t i = 0; i < ws.size(); ++i) EXPECT_NEAR(dws[i] - 0.5F, slope(ws[i]), 1e-3);
}

TEST_F(Recurrent, WeightsHaveTheirPlaces) {
  std::vector<float> ws(kWeights);
  const Held<cudnnTensorDescriptor_t> matrix(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor),
      bias(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor);
  void *matrix_at = nullptr, *bias_at = nullptr;
  ASSERT_CUDNN(cudnnGetRNNWeightParams(handle, rnn.get(), 0, ws.size() * sizeof(float), ws.data(), 1,
                                       matrix.get(), &matrix_at, bias.get(), &bias_at));
  EXPECT_EQ(matrix_at, ws.data() + kHidden * kInputs);
  EXPECT_EQ(bias_at, ws.data() + kHidden * (kInputs + kHidden) + kHidden);
  // PyTorch asks for one of the two alone.
  ASSERT_CUDNN(cudnnGetRNNWeightParams(handle, rnn.get(), 0, ws.size() * sizeof(float), ws.data(), 0,
                                       bias.get(), &matrix_at, nullptr, nullptr));
  EXPECT_EQ(matrix_at, ws.data());
  int count = 0, dims[3] = {}, strides[3] = {};
  cudnnDataType_t type = CUDNN_DATA_HALF;
  ASSERT_CUDNN(cudnnGetTensorNdDescriptor(matrix.get(), 3, &type, &count, dims, strides));
  EXPECT_EQ(count, 3);
  EXPECT_EQ(dims[1], kHidden);
  EXPECT_EQ(dims[2], kHidden);
  EXPECT_EQ(cudnnGetRNNWeightParams(handle, rnn.get(), 1, 0, ws.data(), 0, matrix.get(), &matrix_at,
                                    bias.get(), &bias_at),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(Recurrent, CtcLossOfOneLabel) {
  // Two steps, two classes, the label 1: every path but blank blank spells it.
  const std::vector<float> xs{0.3F, -0.2F, 0.9F, 0.1F};
  const int labels[] = {1}, label_lengths[] = {1}, input_lengths[] = {2};
  const int dims[] = {2, 1, 2}, strides[] = {2, 2, 1};
  const Held<cudnnTensorDescriptor_t> tensor(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor);
  ASSERT_CUDNN(cudnnSetTensorNdDescriptor(tensor.get(), CUDNN_DATA_FLOAT, 3, dims, strides));
  const Held<cudnnCTCLossDescriptor_t> ctc(cudnnCreateCTCLossDescriptor, cudnnDestroyCTCLossDescriptor);
  ASSERT_CUDNN(cudnnSetCTCLossDescriptorEx(ctc.get(), CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX,
                                           CUDNN_PROPAGATE_NAN));
  float loss = 0;
  auto dxs = poison(4);
  ASSERT_CUDNN(cudnnCTCLoss(handle, tensor.get(), xs.data(), labels, label_lengths, input_lengths, &loss,
                            tensor.get(), dxs.data(), CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, ctc.get(), nullptr,
                            0));
  const auto total = [](const std::vector<float>& values) {
    const auto blank = [&](int t) {
      return std::exp(double{values[t * 2]}) /
             (std::exp(double{values[t * 2]}) + std::exp(double{values[t * 2 + 1]}));
    };
    return -std::log(1 - blank(0) * blank(1));
  };
  EXPECT_NEAR(loss, total(xs), 1e-5);
  for (size_t i = 0; i < 4; ++i) {
    auto above = xs, below = xs;
    above[i] += 1e-3F;
    below[i] -= 1e-3F;
    EXPECT_NEAR(dxs[i], (total(above) - total(below)) / 2e-3, 1e-3);
  }
}

// Labels on the device, packed, give what the same labels on the host give.
TEST_F(Recurrent, CtcLossOfLabelsOnTheDevice) {
  constexpr int kSteps = 6, kSequences = 3, kClasses = 4;
  const auto xs = numbers(kSteps * kSequences * kClasses, 5);
  const std::vector<int> labels{1, 2, 3, 3, 1, 2}, label_lengths{2, 3, 1}, input_lengths{6, 6, 4};
  const int dims[] = {kSteps, kSequences, kClasses}, strides[] = {kSequences * kClasses, kClasses, 1};
  const Held<cudnnTensorDescriptor_t> tensor(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor);
  ASSERT_CUDNN(cudnnSetTensorNdDescriptor(tensor.get(), CUDNN_DATA_FLOAT, 3, dims, strides));
  const Held<cudnnCTCLossDescriptor_t> ctc(cudnnCreateCTCLossDescriptor, cudnnDestroyCTCLossDescriptor);
  ASSERT_CUDNN(cudnnSetCTCLossDescriptor_v9(ctc.get(), CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX,
                                            CUDNN_CTC_ZERO_OOB_GRADIENTS, 4));
  auto loss = poison(kSequences), right = poison(kSequences), dxs = poison(xs.size()), dx = poison(xs.size());
  ASSERT_CUDNN(cudnnCTCLoss(handle, tensor.get(), xs.data(), labels.data(), label_lengths.data(),
                            input_lengths.data(), right.data(), tensor.get(), dx.data(),
                            CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, ctc.get(), nullptr, 0));
  // The memory behind the labels holds what no class is.
  std::vector<int> packed(labels);
  packed.resize(kSequences * 4, 1000);
  ASSERT_CUDNN(cudnnCTCLoss_v8(handle, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, ctc.get(), tensor.get(), xs.data(),
                               packed.data(), label_lengths.data(), input_lengths.data(), loss.data(),
                               tensor.get(), dxs.data(), 0, nullptr));
  for (size_t i = 0; i < loss.size(); ++i) EXPECT_NEAR(loss[i], right[i], 1e-5);
  for (size_t i = 0; i < dxs.size(); ++i) EXPECT_NEAR(dxs[i], dx[i], 1e-5);
  ASSERT_CUDNN(cudnnSetCTCLossDescriptorEx(ctc.get(), CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX,
                                           CUDNN_PROPAGATE_NAN));
  EXPECT_EQ(cudnnCTCLoss_v8(handle, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, ctc.get(), tensor.get(), xs.data(),
                            packed.data(), label_lengths.data(), input_lengths.data(), loss.data(),
                            tensor.get(), dxs.data(), 0, nullptr),
            CUDNN_STATUS_NOT_SUPPORTED);
}

}  // namespace
}  // namespace fusor::compat_test::recurrent_test
