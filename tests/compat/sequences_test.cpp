// Owns the tests of recurrent layers over sequences of different lengths, and with dropout between layers.
#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/compat/held.h"

namespace fusor::compat_test::sequences_test {
namespace {

constexpr int kInputs = 2, kHidden = 3;

struct Results {
  std::vector<float> y, hn, dx, dw;
};

class Sequences : public Client {
 protected:
  void describe(int layers, cudnnDirectionMode_t direction, float dropped = 0) {
    if (dropped > 0) seed(dropped, 7);
    directions_ = direction == CUDNN_BIDIRECTIONAL ? 2 : 1;
    layers_ = layers;
    ASSERT_CUDNN(cudnnSetRNNDescriptor_v8(
        rnn_.get(), CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, direction, CUDNN_LINEAR_INPUT,
        CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, kInputs, kHidden, kHidden, layers,
        dropped > 0 ? dropout_.get() : nullptr, 0));
    size_t bytes = 0;
    ASSERT_CUDNN(cudnnGetRNNWeightSpaceSize(handle, rnn_.get(), &bytes));
    weights_ = numbers(bytes / sizeof(float), 11);
  }
  // Begins the random numbers again.
  void seed(float dropped, unsigned long long number) {
    ASSERT_CUDNN(cudnnSetDropoutDescriptor(dropout_.get(), handle, dropped, states_, sizeof states_, number));
  }
  size_t output_size() const { return static_cast<size_t>(directions_) * kHidden; }

  // y, the last hidden state and the gradients of sum(y * gs). xs and gs lie as the layout says.
  Results run(const std::vector<int>& lengths, cudnnRNNDataLayout_t layout, std::vector<float> xs,
              const std::vector<float>& gs, cudnnForwardMode_t mode = CUDNN_FWD_MODE_TRAINING) {
    const int batch = static_cast<int>(lengths.size()), time = *std::ranges::max_element(lengths);
    Results made{poison(gs.size()),
                 poison(static_cast<size_t>(layers_) * static_cast<size_t>(batch) * output_size()),
                 poison(xs.size()), std::vector<float>(weights_.size(), 0)};
    for (const auto& [data, size] :
         {std::pair(x_.get(), kInputs), std::pair(y_.get(), directions_ * kHidden)})
      EXPECT_CUDNN(cudnnSetRNNDataDescriptor(data, CUDNN_DATA_FLOAT, layout, time, batch, size,
                                             lengths.data(), nullptr));
    const int dims[] = {layers_ * directions_, batch, kHidden}, strides[] = {batch * kHidden, kHidden, 1};
    EXPECT_CUDNN(cudnnSetTensorNdDescriptor(state_.get(), CUDNN_DATA_FLOAT, 3, dims, strides));
    size_t workspace = 0, reserve = 0;
    EXPECT_CUDNN(cudnnGetRNNTempSpaceSizes(handle, rnn_.get(), mode, x_.get(), &workspace, &reserve));
    std::vector<unsigned char> kept(reserve, 0xff), room(workspace, 0xff);
    const size_t bytes = weights_.size() * sizeof(float);
    EXPECT_CUDNN(cudnnRNNForward(handle, rnn_.get(), mode, nullptr, x_.get(), xs.data(), y_.get(),
                                 made.y.data(), state_.get(), nullptr, made.hn.data(), state_.get(), nullptr,
                                 nullptr, bytes, weights_.data(), room.size(), room.data(), kept.size(),
                                 kept.data()));
    if (mode == CUDNN_FWD_MODE_INFERENCE) return made;
    EXPECT_CUDNN(cudnnRNNBackwardData_v8(handle, rnn_.get(), nullptr, y_.get(), made.y.data(), gs.data(),
                                         x_.get(), made.dx.data(), state_.get(), nullptr, nullptr, nullptr,
                                         state_.get(), nullptr, nullptr, nullptr, bytes, weights_.data(),
                                         room.size(), room.data(), kept.size(), kept.data()));
    EXPECT_CUDNN(cudnnRNNBackwardWeights_v8(
        handle, rnn_.get(), CUDNN_WGRAD_MODE_ADD, nullptr, x_.get(), xs.data(), state_.get(), nullptr,
        y_.get(), made.y.data(), bytes, made.dw.data(), room.size(), room.data(), kept.size(), kept.data()));
    return made;
  }

  // The results that a batch must give: every sequence run alone, its step t in row place(b, t) of the batch.
  void expect_as_alone(const Results& batch, const std::vector<int>& lengths, const std::vector<float>& xs,
                       const std::vector<float>& gs, const std::function<size_t(int, int)>& place) {
    std::vector<float> dw(weights_.size(), 0);
    for (int b = 0; b < static_cast<int>(lengths.size()); ++b) {
      const auto of_sequence = [&](const std::vector<float>& all, size_t size) {
        std::vector<float> rows;
        for (int t = 0; t < lengths[static_cast<size_t>(b)]; ++t) {
          const auto row = all.begin() + static_cast<std::ptrdiff_t>(place(b, t) * size);
          rows.insert(rows.end(), row, row + static_cast<std::ptrdiff_t>(size));
        }
        return rows;
      };
      const Results alone = run({lengths[static_cast<size_t>(b)]}, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
                                of_sequence(xs, kInputs), of_sequence(gs, output_size()));
      expect_near(of_sequence(batch.y, output_size()), alone.y);
      expect_near(of_sequence(batch.dx, kInputs), alone.dx);
      for (int i = 0; i < layers_ * directions_ * kHidden; ++i) {
        const size_t stack = static_cast<size_t>(i / kHidden), each = static_cast<size_t>(i % kHidden);
        EXPECT_NEAR(batch.hn[(stack * lengths.size() + static_cast<size_t>(b)) * kHidden + each],
                    alone.hn[stack * kHidden + each], 1e-5);
      }
      for (size_t i = 0; i < dw.size(); ++i) dw[i] += alone.dw[i];
    }
    expect_near(batch.dw, dw);
  }
  static void expect_near(const std::vector<float>& got, const std::vector<float>& right) {
    ASSERT_EQ(got.size(), right.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], right[i], 1e-5) << "element " << i;
  }

  const Held<cudnnRNNDescriptor_t> rnn_{cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor};
  const Held<cudnnRNNDataDescriptor_t> x_{cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor};
  const Held<cudnnRNNDataDescriptor_t> y_{cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor};
  const Held<cudnnTensorDescriptor_t> state_{cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor};
  const Held<cudnnDropoutDescriptor_t> dropout_{cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor};
  std::vector<float> weights_;
  int directions_ = 1, layers_ = 1;
  unsigned char states_[24] = {};
};

TEST_F(Sequences, PackedOnesGiveWhatEachGivesAlone) {
  const std::vector<int> lengths{4, 3, 1};
  const std::vector<size_t> starts{0, 3, 5, 7};  // of each time step
  const size_t count = 8;
  describe(2, CUDNN_BIDIRECTIONAL);
  const auto xs = numbers(count * kInputs, 1), gs = numbers(count * output_size(), 2);
  const Results batch = run(lengths, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, xs, gs);
  expect_as_alone(batch, lengths, xs, gs,
                  [&](int b, int t) { return starts[static_cast<size_t>(t)] + static_cast<size_t>(b); });
  const Results inference =
      run(lengths, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, xs, gs, CUDNN_FWD_MODE_INFERENCE);
  expect_near(inference.y, batch.y);
}

TEST_F(Sequences, PaddedOnesGiveWhatEachGivesAloneAndZerosBehind) {
  const std::vector<int> lengths{1, 4, 2};
  describe(1, CUDNN_UNIDIRECTIONAL);
  const auto xs = numbers(12 * kInputs, 1), gs = numbers(12 * output_size(), 2);
  const Results batch = run(lengths, CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED, xs, gs);
  expect_as_alone(batch, lengths, xs, gs,
                  [](int b, int t) { return static_cast<size_t>(b) * 4 + static_cast<size_t>(t); });
  EXPECT_EQ(batch.y[1 * output_size()], 0);
  EXPECT_EQ(batch.dx[1 * kInputs], 0);
}

TEST_F(Sequences, LengthsThatDoNotFitAreRefused) {
  const auto set = [&](std::vector<int> lengths) {
    return cudnnSetRNNDataDescriptor(x_.get(), CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 4,
                                     static_cast<int>(lengths.size()), kInputs, lengths.data(), nullptr);
  };
  EXPECT_EQ(set({4, 5}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set({4, -1}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set({3, 4}), CUDNN_STATUS_BAD_PARAM);  // packed sequences are sorted
  EXPECT_EQ(set({4, 3}), CUDNN_STATUS_SUCCESS);
}

TEST_F(Sequences, DropoutActsInTrainingAndItsGradientSeesTheSameElements) {
  constexpr float kDropped = 0.5F;
  describe(3, CUDNN_UNIDIRECTIONAL, kDropped);
  const std::vector<int> lengths{4, 4};
  const auto layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  auto xs = numbers(8 * kInputs, 1);
  const auto gs = numbers(8 * output_size(), 2);
  const auto again = [&] {
    seed(kDropped, 7);
    return run(lengths, layout, xs, gs);
  };
  const Results first = again();
  expect_near(again().y, first.y);
  EXPECT_NE(run(lengths, layout, xs, gs).y, first.y);  // the next call drops others
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto total = [&](float step) {
      xs[i] += step;
      const std::vector<float> y = again().y;
      xs[i] -= step;
      return std::inner_product(y.begin(), y.end(), gs.begin(), 0.0);
    };
    EXPECT_NEAR(first.dx[i], (total(1e-2F) - total(-1e-2F)) / 2e-2, 2e-3) << "element " << i;
  }
  const Results whole = run(lengths, layout, xs, gs, CUDNN_FWD_MODE_INFERENCE);
  const std::vector<float> weights = weights_;
  describe(3, CUDNN_UNIDIRECTIONAL);
  weights_ = weights;
  expect_near(run(lengths, layout, xs, gs).y, whole.y);
}

}  // namespace
}  // namespace fusor::compat_test::sequences_test
