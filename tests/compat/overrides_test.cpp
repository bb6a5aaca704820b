// Owns the tests of runs with other dims than the plan's.
#include <algorithm>
#include <cmath>

#include "tests/compat/client.h"

namespace fusor::compat_test {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

// relu(a b + bias), of which what lies between is virtual.
class OtherDims : public Client {
 protected:
  void SetUp() override {
    Client::SetUp();
    const Part product = virtual_tensor(10, {2, 3, 4}), sum = virtual_tensor(11, {2, 3, 4});
    graph = std::make_unique<Part>(
        operation_graph(handle, {matmul(tensor(1, {2, 3, 5}), tensor(2, {2, 5, 4}), product),
                                 binary(CUDNN_POINTWISE_ADD, product, tensor(3, {1, 1, 4}), sum),
                                 unary(CUDNN_POINTWISE_RELU_FWD, sum, tensor(4, {2, 3, 4}))})
            .finalize());
    plan = std::make_unique<Part>(plan_of(heuristics(*graph, CUDNN_HEUR_MODE_A).front()));
  }

  // The pack of a run with these dims of batch, m and k.
  Part pack(int64_t batch, int64_t m, int64_t k) {
    dims = {{batch, m, k}, {batch, k, 4}, {batch, m, 4}};
    strides = {{m * k, k, 1}, {k * 4, 4, 1}, {m * 4, 4, 1}};
    return Part(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::vector<int64_t>{1, 2, 3, 4})
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             std::vector<void*>{a.data(), b.data(), bias.data(), y.data()})
        .one(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(workspace.data()));
  }
  static Part variant_pack_of(const Pointers& pointers) {
    std::vector<int64_t> uids;
    std::vector<void*> addresses;
    for (const auto& [uid, address] : pointers) {
      uids.push_back(uid);
      addresses.push_back(address);
    }
    return Part(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses);
  }
  // The attributes' values are the addresses of the lists.
  static void add_lists(const Part& to, const std::vector<int64_t>& uids, const Lists& dims,
                        const Lists& strides) {
    ASSERT_CUDNN(cudnnBackendSetAttribute(to.get(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, static_cast<int64_t>(uids.size()), uids.data()));
    ASSERT_CUDNN(cudnnBackendSetAttribute(to.get(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES,
                                          CUDNN_TYPE_VOID_PTR, 1, &dims));
    ASSERT_CUDNN(cudnnBackendSetAttribute(to.get(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES,
                                          CUDNN_TYPE_VOID_PTR, 1, &strides));
  }
  void expect(size_t batch, size_t m, size_t k) const {
    for (size_t i = 0; i < batch; ++i)
      for (size_t row = 0; row < m; ++row)
        for (size_t n = 0; n < 4; ++n) {
          double sum = bias[n];
          for (size_t at = 0; at < k; ++at)
            sum += double{a[(i * m + row) * k + at]} * b[(i * k + at) * 4 + n];
          EXPECT_NEAR(y[(i * m + row) * 4 + n], std::max(sum, 0.0), 1e-5);
        }
    EXPECT_TRUE(std::isnan(y[batch * m * 4])) << "nothing is written behind";
  }

  std::unique_ptr<Part> graph, plan;
  std::vector<float> a = numbers(1000, 1), b = numbers(1000, 2), bias = numbers(4, 3), y = poison(1000);
  Lists dims, strides;
  std::vector<unsigned char> workspace = std::vector<unsigned char>(1 << 16);
};

// Clients choose engines by their workspace: a residual is read where its sum is written, and counts for
// nothing; an operand that is summed by rows first counts.
TEST_F(OtherDims, EnginesCountCopiesThatRunsMayNeed) {
  const auto workspace_of = [&](const Part& first, const Part& second) {
    const Part whole = operation_graph(handle, {first, second}).finalize();
    return heuristics(whole, CUDNN_HEUR_MODE_A)
        .front()
        .ask<int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  };
  const Dims square{1, 64, 64};
  const Part product = virtual_tensor(3, square), sums = virtual_tensor(5, {1, 64, 1}), x = tensor(1, square);
  EXPECT_EQ(workspace_of(matmul(x, tensor(2, square), product),
                         binary(CUDNN_POINTWISE_ADD, product, tensor(4, square), tensor(6, square))),
            0);
  EXPECT_GE(workspace_of(reduction(CUDNN_REDUCE_TENSOR_ADD, x, sums),
                         binary(CUDNN_POINTWISE_SUB, x, sums, tensor(6, square))),
            64 * 64 * 4);
}

// Copies of operands that results replace are for plans that count them: a smaller run within a workspace
// that has no room for them goes on without.
TEST_F(OtherDims, RunsThatReplaceNothingNeedNoRoomForCopies) {
  const int64_t rows = 600, width = 512, fewer = 100;
  const Part x = tensor(1, {rows, width}), sums = virtual_tensor(3, {rows, 1});
  const Part large = plan_of(
      heuristics(operation_graph(handle, {reduction(CUDNN_REDUCE_TENSOR_ADD, x, sums),
                                          binary(CUDNN_POINTWISE_SUB, x, sums, tensor(2, {rows, width}))})
                     .finalize(),
                 CUDNN_HEUR_MODE_A)
          .front());
  EXPECT_EQ(large.ask<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64), 0);
  const auto xs = numbers(static_cast<size_t>(fewer * width), 1);
  auto in = xs, out = poison(xs.size());
  const Lists some(2, {fewer, width}), steps(2, {width, 1});
  const auto run = [&](float* result) {
    Part of_run = variant_pack_of({{1, in.data()}, {2, result}});
    add_lists(of_run, {1, 2}, some, steps);
    EXPECT_CUDNN(cudnnBackendFinalize(of_run.get()));
    return cudnnBackendExecute(handle, large.get(), of_run.get());
  };
  ASSERT_CUDNN(run(out.data()));
  double sum = 0;
  for (size_t i = 0; i < static_cast<size_t>(width); ++i) sum += double{xs[i]};
  EXPECT_NEAR(out[5], xs[5] - sum, 1e-3);
  // On the CPU device, the plan reads its operand to the end.
  EXPECT_EQ(run(in.data()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(in, xs);
}

TEST_F(OtherDims, AreThoseOfTheRun) {
  struct Run {
    int64_t batch, m, k;
  };
  int ran = 0;
  for (const Run run : {Run{4, 3, 5}, {1, 7, 5}, {3, 2, 9}, {2, 3, 5}, {4, 3, 5}, {1, 2, 3}}) {
    y = poison(1000);
    const Part of_run = pack(run.batch, run.m, run.k);
    add_lists(of_run, {1, 2, 4}, dims, strides);
    ASSERT_CUDNN(cudnnBackendFinalize(of_run.get()));
    const cudnnStatus_t status = cudnnBackendExecute(handle, plan->get(), of_run.get());
    if (status == CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE) {
      EXPECT_NE(last_message().find("bytes of workspace"), std::string::npos);
      continue;
    }
    ASSERT_EQ(status, CUDNN_STATUS_SUCCESS) << last_message();
    expect(static_cast<size_t>(run.batch), static_cast<size_t>(run.m), static_cast<size_t>(run.k));
    ++ran;
  }
  EXPECT_GE(ran, 3);
  // The plan's own dims.
  y = poison(1000);
  Part plain = pack(2, 3, 5);
  ASSERT_CUDNN(cudnnBackendExecute(handle, plan->get(), plain.finalize().get()));
  expect(2, 3, 5);
}

TEST_F(OtherDims, ThatDoNotFitAreRefused) {
  const auto status_of = [&](const std::vector<int64_t>& uids, const Lists& shapes, const Lists& steps) {
    const Part of_run = pack(2, 3, 5);
    add_lists(of_run, uids, shapes, steps);
    const cudnnStatus_t status = cudnnBackendFinalize(of_run.get());
    return status != CUDNN_STATUS_SUCCESS ? status : cudnnBackendExecute(handle, plan->get(), of_run.get());
  };
  EXPECT_EQ(status_of({1, 2}, {{2, 3, 5}}, {{15, 5, 1}}), CUDNN_STATUS_BAD_PARAM) << "a list is too short";
  EXPECT_EQ(status_of({1, 1}, {{2, 3, 5}, {2, 3, 5}}, {{15, 5, 1}, {15, 5, 1}}),
            CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
  EXPECT_EQ(status_of({1}, {{2, 15}}, {{15, 1}}), CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE) << "rank";
  EXPECT_NE(status_of({1}, {{2, 3, 6}}, {{18, 6, 1}}), CUDNN_STATUS_SUCCESS) << "b has 5 rows";
  EXPECT_NE(status_of({1}, {{2, 0, 5}}, {{15, 5, 1}}), CUDNN_STATUS_SUCCESS) << "an extent of 0";
  // Lists that are missing.
  const Part of_run = pack(2, 3, 5);
  const std::vector<int64_t> uids{1};
  ASSERT_CUDNN(cudnnBackendSetAttribute(of_run.get(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS,
                                        CUDNN_TYPE_INT64, 1, uids.data()));
  EXPECT_EQ(cudnnBackendFinalize(of_run.get()), CUDNN_STATUS_BAD_PARAM);
}

// Whether an extent of 1 between them follows is not said: here it does along the batch, and not along the
// sum.
TEST_F(Client, OtherDimsOfAPlanForBatchOneAreRefused) {
  const Part x = tensor(1, {1, 3, 4}), sum = virtual_tensor(2, {1, 3, 1}), y = tensor(3, {1, 3, 4});
  const Part graph = operation_graph(handle, {reduction(CUDNN_REDUCE_TENSOR_ADD, x, sum),
                                              binary(CUDNN_POINTWISE_SUB, x, sum, y)})
                         .finalize();
  const Part plan = plan_of(heuristics(graph, CUDNN_HEUR_MODE_A).front());
  std::vector<float> in = numbers(48, 1), out = poison(48);
  const Lists dims{{4, 3, 4}, {4, 3, 4}}, strides{{12, 4, 1}, {12, 4, 1}};
  const std::vector<int64_t> uids{1, 3};
  Part of_run(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  of_run.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           std::vector<void*>{in.data(), out.data()});
  ASSERT_CUDNN(cudnnBackendSetAttribute(of_run.get(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS,
                                        CUDNN_TYPE_INT64, 2, uids.data()));
  ASSERT_CUDNN(cudnnBackendSetAttribute(of_run.get(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES,
                                        CUDNN_TYPE_VOID_PTR, 1, &dims));
  ASSERT_CUDNN(cudnnBackendSetAttribute(of_run.get(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES,
                                        CUDNN_TYPE_VOID_PTR, 1, &strides));
  ASSERT_CUDNN(cudnnBackendFinalize(of_run.get()));
  EXPECT_EQ(cudnnBackendExecute(handle, plan.get(), of_run.get()),
            CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE);
  EXPECT_NE(last_message().find("1 element along axis 0"), std::string::npos) << last_message();
  EXPECT_TRUE(std::isnan(out[0]));
}

// A text holds a plan, and not the ops that other dims need.
TEST_F(OtherDims, NeedMoreThanAPlansText) {
  const int64_t size = plan->count(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR);
  std::vector<char> text(static_cast<size_t>(size));
  int64_t count = 0;
  ASSERT_CUDNN(cudnnBackendGetAttribute(plan->get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, size, &count, text.data()));
  Part loaded(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  loaded.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text).finalize();
  const Part of_run = pack(4, 3, 5);
  add_lists(of_run, {1, 2, 4}, dims, strides);
  ASSERT_CUDNN(cudnnBackendFinalize(of_run.get()));
  EXPECT_EQ(cudnnBackendExecute(handle, loaded.get(), of_run.get()),
            CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE);
}

}  // namespace
}  // namespace fusor::compat_test
