// Owns the tests of single calls: convolutions, batch norm, pooling, activation, softmax, spatial
// transformers.
#include <algorithm>
#include <cmath>

#include "tests/compat/held.h"

namespace fusor::compat_test {
namespace {

class TensorDescriptor : public Held<cudnnTensorDescriptor_t> {
 public:
  TensorDescriptor(int n, int c, int h, int w, cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW)
      : Held(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor) {
    EXPECT_CUDNN(cudnnSetTensor4dDescriptor(get(), format, CUDNN_DATA_FLOAT, n, c, h, w));
  }
};

class FilterDescriptor : public Held<cudnnFilterDescriptor_t> {
 public:
  FilterDescriptor(int k, int c, int h, int w)
      : Held(cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor) {
    EXPECT_CUDNN(cudnnSetFilter4dDescriptor(get(), CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, k, c, h, w));
  }
};

class ConvolutionDescriptor : public Held<cudnnConvolutionDescriptor_t> {
 public:
  ConvolutionDescriptor() : Held(cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor) {
    EXPECT_CUDNN(
        cudnnSetConvolution2dDescriptor(get(), 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  }
};

class ActivationDescriptor : public Held<cudnnActivationDescriptor_t> {
 public:
  explicit ActivationDescriptor(cudnnActivationMode_t mode)
      : Held(cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor) {
    EXPECT_CUDNN(cudnnSetActivationDescriptor(get(), mode, CUDNN_PROPAGATE_NAN, 0));
  }
};

class SingleCalls : public Client {
 protected:
  float one = 1, zero = 0;
};

constexpr int kN = 2, kC = 3, kK = 4, kH = 5, kW = 4;

// The sum over all places where an image, a filter's tap and a result meet.
template <class Body>
void for_each_product(Body body) {
  for (int n = 0; n < kN; ++n)
    for (int k = 0; k < kK; ++k)
      for (int p = 0; p < kH; ++p)
        for (int q = 0; q < kW; ++q)
          for (int c = 0; c < kC; ++c)
            for (int r = 0; r < 3; ++r)
              for (int s = 0; s < 3; ++s) {
                const int i = p + r - 1, j = q + s - 1;
                if (i < 0 || i >= kH || j < 0 || j >= kW) continue;
                body(((n * kC + c) * kH + i) * kW + j, ((k * kC + c) * 3 + r) * 3 + s,
                     ((n * kK + k) * kH + p) * kW + q);
              }
}

TEST_F(SingleCalls, ConvolutionsOfAllPasses) {
  const TensorDescriptor x(kN, kC, kH, kW), y(kN, kK, kH, kW);
  const FilterDescriptor w(kK, kC, 3, 3);
  const ConvolutionDescriptor conv;
  const auto xs = numbers(kN * kC * kH * kW, 1), ws = numbers(kK * kC * 9, 2),
             gs = numbers(kN * kK * kH * kW, 3);
  std::vector<double> ys(gs.size()), dxs(xs.size()), dws(ws.size());
  for_each_product([&](int in, int tap, int out) {
    ys[out] += double{xs[in]} * ws[tap];
    dxs[in] += double{gs[out]} * ws[tap];
    dws[tap] += double{gs[out]} * xs[in];
  });

  cudnnConvolutionFwdAlgoPerf_t perf{};
  int count = 0;
  ASSERT_CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(handle, x.get(), w.get(), conv.get(), y.get(), 1,
                                                      &count, &perf));
  EXPECT_EQ(count, 1);
  EXPECT_EQ(perf.status, CUDNN_STATUS_SUCCESS);
  std::vector<unsigned char> room(perf.memory);
  auto result = poison(ys.size());
  ASSERT_CUDNN(cudnnConvolutionForward(handle, &one, x.get(), xs.data(), w.get(), ws.data(), conv.get(),
                                       perf.algo, room.data(), room.size(), &zero, y.get(), result.data()));
  for (size_t i = 0; i < ys.size(); ++i) EXPECT_NEAR(result[i], ys[i], 1e-4);

  // 2 * result + 0.5 * what was there.
  const float two = 2, half = 0.5F;
  ASSERT_CUDNN(cudnnConvolutionForward(handle, &two, x.get(), xs.data(), w.get(), ws.data(), conv.get(),
                                       perf.algo, nullptr, 0, &half, y.get(), result.data()));
  for (size_t i = 0; i < ys.size(); ++i) EXPECT_NEAR(result[i], 2.5 * ys[i], 1e-4);

  auto gradient = poison(dxs.size());
  ASSERT_CUDNN(cudnnConvolutionBackwardData(handle, &one, w.get(), ws.data(), y.get(), gs.data(), conv.get(),
                                            CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, nullptr, 0, &zero, x.get(),
                                            gradient.data()));
  for (size_t i = 0; i < dxs.size(); ++i) EXPECT_NEAR(gradient[i], dxs[i], 1e-4);
  auto weights = poison(dws.size());
  ASSERT_CUDNN(cudnnConvolutionBackwardFilter(handle, &one, x.get(), xs.data(), y.get(), gs.data(),
                                              conv.get(), CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, nullptr, 0,
                                              &zero, w.get(), weights.data()));
  for (size_t i = 0; i < dws.size(); ++i) EXPECT_NEAR(weights[i], dws[i], 1e-4);
}

TEST_F(SingleCalls, ConvolutionWithBiasResidualAndRelu) {
  const TensorDescriptor x(kN, kC, kH, kW), y(kN, kK, kH, kW), channels(1, kK, 1, 1);
  const FilterDescriptor w(kK, kC, 3, 3);
  const ConvolutionDescriptor conv;
  const Held<cudnnActivationDescriptor_t> relu(cudnnCreateActivationDescriptor,
                                               cudnnDestroyActivationDescriptor);
  ASSERT_CUDNN(cudnnSetActivationDescriptor(relu.get(), CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  const auto xs = numbers(kN * kC * kH * kW, 1), ws = numbers(kK * kC * 9, 2),
             zs = numbers(kN * kK * kH * kW, 3), bs = numbers(kK, 4);
  std::vector<double> ys(zs.size());
  for_each_product([&](int in, int tap, int out) { ys[out] += double{xs[in]} * ws[tap]; });
  auto result = poison(ys.size());
  ASSERT_CUDNN(cudnnConvolutionBiasActivationForward(handle, &one, x.get(), xs.data(), w.get(), ws.data(),
                                                     conv.get(), CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                                     nullptr, 0, &one, y.get(), zs.data(), channels.get(),
                                                     bs.data(), relu.get(), y.get(), result.data()));
  for (size_t i = 0; i < ys.size(); ++i)
    EXPECT_NEAR(result[i], std::max(ys[i] + zs[i] + bs[i / (kH * kW) % kK], 0.0), 1e-4);
}

TEST_F(SingleCalls, BatchNormForwardAndBackward) {
  const TensorDescriptor x(3, 2, 4, 5), channels(1, 2, 1, 1);
  const auto xs = numbers(120, 1), gs = numbers(120, 2);
  const std::vector<float> scale{1.5F, -0.5F}, bias{0.25F, 1};
  std::vector<float> mean{1, -1}, variance{2, 3};
  const double factor = 0.1, epsilon = 1e-5;
  size_t bytes = 0;
  ASSERT_CUDNN(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
      handle, CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN, x.get(), nullptr, x.get(),
      channels.get(), nullptr, &bytes));
  std::vector<unsigned char> room(bytes);
  auto ys = poison(120), saved = poison(2), inverse = poison(2);
  ASSERT_CUDNN(cudnnBatchNormalizationForwardTrainingEx(
      handle, CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN, &one, &zero, x.get(), xs.data(),
      nullptr, nullptr, x.get(), ys.data(), channels.get(), scale.data(), bias.data(), factor, mean.data(),
      variance.data(), epsilon, saved.data(), inverse.data(), nullptr, room.data(), room.size(), nullptr, 0));
  auto dxs = poison(120), dscale = poison(2), dbias = poison(2);
  ASSERT_CUDNN(cudnnBatchNormalizationBackward(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, &one, &zero,
                                               x.get(), xs.data(), x.get(), gs.data(), x.get(), dxs.data(),
                                               channels.get(), scale.data(), dscale.data(), dbias.data(),
                                               epsilon, saved.data(), inverse.data()));
  const std::vector<float> start_mean{1, -1}, start_variance{2, 3};
  for (int c = 0; c < 2; ++c) {
    const auto at = [&](int i) { return ((i / 20) * 2 + c) * 20 + i % 20; };
    double average = 0, spread = 0, sum = 0, product = 0;
    for (int i = 0; i < 60; ++i) average += double{xs[at(i)]} / 60;
    for (int i = 0; i < 60; ++i) spread += std::pow(xs[at(i)] - average, 2) / 60;
    const double inv = 1 / std::sqrt(spread + epsilon);
    for (int i = 0; i < 60; ++i) {
      sum += gs[at(i)];
      product += gs[at(i)] * (xs[at(i)] - average) * inv;
    }
    EXPECT_NEAR(saved[c], average, 1e-5);
    EXPECT_NEAR(inverse[c], inv, 1e-4);
    EXPECT_NEAR(mean[c], 0.9 * start_mean[c] + 0.1 * average, 1e-5);
    EXPECT_NEAR(variance[c], 0.9 * start_variance[c] + 0.1 * spread * 60 / 59, 1e-5);
    EXPECT_NEAR(dbias[c], sum, 1e-4);
    EXPECT_NEAR(dscale[c], product, 1e-4);
    for (int i = 0; i < 60; ++i) {
      const double normal = (xs[at(i)] - average) * inv;
      EXPECT_NEAR(ys[at(i)], normal * scale[c] + bias[c], 1e-4);
      EXPECT_NEAR(dxs[at(i)], scale[c] * inv * (gs[at(i)] - sum / 60 - normal * product / 60), 1e-4);
    }
  }
  ASSERT_CUDNN(cudnnBatchNormalizationForwardInference(
      handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, x.get(), xs.data(), x.get(), ys.data(), channels.get(),
      scale.data(), bias.data(), mean.data(), variance.data(), epsilon));
  EXPECT_NEAR(ys[0], (xs[0] - mean[0]) / std::sqrt(variance[0] + epsilon) * scale[0] + bias[0], 1e-4);
}

// Joined with an addition and a ReLU a batch norm gives what the three give one after another.
TEST_F(SingleCalls, BatchNormJoinedWithAnAdditionAndReLU) {
  const TensorDescriptor x(3, 2, 4, 5), channels(1, 2, 1, 1);
  const ActivationDescriptor relu(CUDNN_ACTIVATION_RELU), sigmoid(CUDNN_ACTIVATION_SIGMOID);
  const auto xs = numbers(120, 1), gs = numbers(120, 2), zs = numbers(120, 3);
  const std::vector<float> scale{1.5F, -0.5F}, bias{0.25F, 1};
  const double epsilon = 1e-5;
  const auto mode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;
  auto plain = poison(120), mean = poison(2), inverse = poison(2);
  ASSERT_CUDNN(cudnnBatchNormalizationForwardTraining(
      handle, mode, &one, &zero, x.get(), xs.data(), x.get(), plain.data(), channels.get(), scale.data(),
      bias.data(), 1, nullptr, nullptr, epsilon, mean.data(), inverse.data()));
  for (const auto ops : {CUDNN_BATCHNORM_OPS_BN_ACTIVATION, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION}) {
    const bool adds = ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
    const cudnnTensorDescriptor_t z = adds ? x.get() : nullptr;
    size_t forward = 0, backward = 0;
    ASSERT_CUDNN(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        handle, mode, ops, x.get(), z, x.get(), channels.get(), relu.get(), &forward));
    ASSERT_CUDNN(cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        handle, mode, ops, x.get(), x.get(), x.get(), z, x.get(), channels.get(), relu.get(), &backward));
    std::vector<unsigned char> room(std::max(forward, backward));
    auto ys = poison(120), dxs = poison(120), dzs = poison(120), dscale = poison(2), dbias = poison(2);
    ASSERT_CUDNN(cudnnBatchNormalizationForwardTrainingEx(
        handle, mode, ops, &one, &zero, x.get(), xs.data(), z, adds ? zs.data() : nullptr, x.get(), ys.data(),
        channels.get(), scale.data(), bias.data(), 1, nullptr, nullptr, epsilon, mean.data(), inverse.data(),
        relu.get(), room.data(), room.size(), nullptr, 0));
    ASSERT_CUDNN(cudnnBatchNormalizationBackwardEx(
        handle, mode, ops, &one, &zero, &one, &zero, x.get(), xs.data(), x.get(), ys.data(), x.get(),
        gs.data(), z, adds ? dzs.data() : nullptr, x.get(), dxs.data(), channels.get(), scale.data(),
        bias.data(), dscale.data(), dbias.data(), epsilon, mean.data(), inverse.data(), relu.get(),
        room.data(), room.size(), nullptr, 0));
    std::vector<float> behind(120);
    for (size_t i = 0; i < 120; ++i) {
      const float sum = plain[i] + (adds ? zs[i] : 0);
      EXPECT_NEAR(ys[i], std::max(sum, 0.0F), 1e-5);
      behind[i] = sum > 0 ? gs[i] : 0;
      if (adds) {
        EXPECT_EQ(dzs[i], behind[i]);
      }
    }
    auto dx = poison(120), ds = poison(2), db = poison(2);
    ASSERT_CUDNN(cudnnBatchNormalizationBackward(
        handle, mode, &one, &zero, &one, &zero, x.get(), xs.data(), x.get(), behind.data(), x.get(),
        dx.data(), channels.get(), scale.data(), ds.data(), db.data(), epsilon, mean.data(), inverse.data()));
    for (size_t i = 0; i < 120; ++i) EXPECT_NEAR(dxs[i], dx[i], 1e-5);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(dscale[i], ds[i], 1e-4);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(dbias[i], db[i], 1e-4);
    EXPECT_EQ(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
                  handle, mode, ops, x.get(), z, x.get(), channels.get(), sigmoid.get(), &forward),
              CUDNN_STATUS_NOT_SUPPORTED);
  }
}

TEST_F(SingleCalls, PoolingActivationAndSoftmax) {
  const TensorDescriptor x(1, 2, 4, 4), y(1, 2, 2, 2);
  const auto xs = numbers(32, 1);
  auto ys = poison(8), zs = poison(32);
  const Held<cudnnPoolingDescriptor_t> pooling(cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor);
  ASSERT_CUDNN(cudnnSetPooling2dDescriptor(pooling.get(), CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
                                           CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
  ASSERT_CUDNN(
      cudnnPoolingForward(handle, pooling.get(), &one, x.get(), xs.data(), &zero, y.get(), ys.data()));
  EXPECT_NEAR(ys[3], (xs[10] + xs[11] + xs[14] + xs[15]) / 4, 1e-6);
  const Held<cudnnActivationDescriptor_t> tanh(cudnnCreateActivationDescriptor,
                                               cudnnDestroyActivationDescriptor);
  ASSERT_CUDNN(cudnnSetActivationDescriptor(tanh.get(), CUDNN_ACTIVATION_TANH, CUDNN_PROPAGATE_NAN, 0));
  ASSERT_CUDNN(
      cudnnActivationForward(handle, tanh.get(), &one, x.get(), xs.data(), &zero, x.get(), zs.data()));
  for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(zs[i], std::tanh(xs[i]), 1e-5);
  ASSERT_CUDNN(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, x.get(),
                                   xs.data(), &zero, x.get(), zs.data()));
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(zs[i], 1 / (1 + std::exp(double{xs[i + 16]} - xs[i])), 1e-5);
}

// A row's total is known when all of the row is read: results in the row's place are made of a copy.
TEST_F(SingleCalls, ResultsTakeThePlaceOfOperands) {
  const TensorDescriptor image(4, 8, 100, 100), channels(1, 8, 1, 1);
  const auto xs = numbers(320000, 1), dys = numbers(320000, 2), scales = numbers(8, 3),
             biases = numbers(8, 4);
  const auto expect_same = [&](const std::vector<float>& operand, auto call) {
    auto apart = poison(operand.size());
    auto place = operand;
    ASSERT_CUDNN(call(operand.data(), apart.data()));
    ASSERT_CUDNN(call(place.data(), place.data()));
    EXPECT_EQ(place, apart);
  };
  for (const auto mode : {CUDNN_SOFTMAX_MODE_INSTANCE, CUDNN_SOFTMAX_MODE_CHANNEL}) {
    expect_same(xs, [&](const float* x, float* y) {
      return cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, mode, &one, image.get(), x, &zero,
                                 image.get(), y);
    });
    expect_same(dys, [&](const float* dy, float* dx) {
      return cudnnSoftmaxBackward(handle, CUDNN_SOFTMAX_ACCURATE, mode, &one, image.get(), xs.data(),
                                  image.get(), dy, &zero, image.get(), dx);
    });
  }
  expect_same(xs, [&](const float* x, float* y) {
    return cudnnBatchNormalizationForwardTraining(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, image.get(),
                                                  x, image.get(), y, channels.get(), scales.data(),
                                                  biases.data(), 0, nullptr, nullptr, 1e-5, nullptr, nullptr);
  });
}

TEST_F(SingleCalls, SpatialTransformerOfTheIdentityCopies) {
  const TensorDescriptor x(1, 2, 4, 5);
  const Held<cudnnSpatialTransformerDescriptor_t> transformer(cudnnCreateSpatialTransformerDescriptor,
                                                              cudnnDestroySpatialTransformerDescriptor);
  const int dims[] = {1, 2, 4, 5};
  ASSERT_CUDNN(cudnnSetSpatialTransformerNdDescriptor(transformer.get(), CUDNN_SAMPLER_BILINEAR,
                                                      CUDNN_DATA_FLOAT, 4, dims));
  const auto xs = numbers(40, 1);
  const std::vector<float> theta{1, 0, 0, 0, 1, 0};
  auto grid = poison(40), ys = poison(40), dtheta = poison(6);
  ASSERT_CUDNN(cudnnSpatialTfGridGeneratorForward(handle, transformer.get(), theta.data(), grid.data()));
  EXPECT_FLOAT_EQ(grid[0], -1);
  EXPECT_FLOAT_EQ(grid[39], 1);
  ASSERT_CUDNN(cudnnSpatialTfSamplerForward(handle, transformer.get(), &one, x.get(), xs.data(), grid.data(),
                                            &zero, x.get(), ys.data()));
  for (size_t i = 0; i < 40; ++i) EXPECT_NEAR(ys[i], xs[i], 1e-5);
  ASSERT_CUDNN(cudnnSpatialTfGridGeneratorBackward(handle, transformer.get(), grid.data(), dtheta.data()));
  double squares = 0;
  for (size_t i = 0; i < 40; i += 2) squares += double{grid[i]} * grid[i];
  EXPECT_NEAR(dtheta[0], squares, 1e-4);
  EXPECT_NEAR(dtheta[1], 0, 1e-4);
}

TEST_F(SingleCalls, MisuseIsRefused) {
  const TensorDescriptor x(2, 3, 4, 4);
  const int bad[] = {2, 0};
  EXPECT_EQ(cudnnSetTensorNdDescriptor(x.get(), CUDNN_DATA_FLOAT, 2, bad, bad), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetTensorNdDescriptor(x.get(), CUDNN_DATA_FLOAT, 99, bad, bad), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetTensorNdDescriptor(nullptr, CUDNN_DATA_FLOAT, 2, bad, bad),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(cudnnDestroyTensorDescriptor(reinterpret_cast<cudnnTensorDescriptor_t>(&one)),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, nullptr, x.get(),
                                &one, &zero, x.get(), &one),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  const ConvolutionDescriptor conv;
  const auto set = [&](int padding, int stride, int dilation) {
    return cudnnSetConvolution2dDescriptor(conv.get(), padding, padding, stride, 1, 1, dilation,
                                           CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
  };
  EXPECT_EQ(set(-1, 1, 1), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(0, 0, 1), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(0, 1, 0), CUDNN_STATUS_BAD_PARAM);
  const FilterDescriptor w(2, 3, 3, 3);
  int dims[4];
  EXPECT_CUDNN(cudnnGetConvolutionNdForwardOutputDim(conv.get(), x.get(), w.get(), 4, dims));
  EXPECT_EQ(dims[2], 4);  // what was refused has changed nothing
}

}  // namespace
}  // namespace fusor::compat_test
