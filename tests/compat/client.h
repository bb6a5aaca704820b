// Owns a small client of cuDNN's graph interface for tests: descriptors by value, a graph built op by op, one
// run.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compat/cudnn/include/cudnn.h"

namespace fusor::compat_test {

using Dims = std::vector<int64_t>;

inline std::string last_message() {
  char text[4096] = "";
  cudnnGetLastErrorString(text, sizeof text);
  return text;
}

#define EXPECT_CUDNN(call) EXPECT_EQ(call, CUDNN_STATUS_SUCCESS) << fusor::compat_test::last_message()
#define ASSERT_CUDNN(call) ASSERT_EQ(call, CUDNN_STATUS_SUCCESS) << fusor::compat_test::last_message()

/// A descriptor that destroys itself; copies share it.
class Part {
 public:
  explicit Part(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    EXPECT_CUDNN(cudnnBackendCreateDescriptor(type, &made));
    held_ = std::shared_ptr<void>(made, [](void* d) {
      if (d != nullptr) cudnnBackendDestroyDescriptor(d);
    });
  }
  cudnnBackendDescriptor_t get() const { return held_.get(); }

  template <class Element>
  Part& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
            const std::vector<Element>& list) {
    EXPECT_CUDNN(cudnnBackendSetAttribute(get(), name, type, static_cast<int64_t>(list.size()), list.data()));
    return *this;
  }
  template <class Element>
  Part& one(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Element& element) {
    EXPECT_CUDNN(cudnnBackendSetAttribute(get(), name, type, 1, &element));
    return *this;
  }
  Part& child(cudnnBackendAttributeName_t name, const Part& part) {
    return one(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, part.get());
  }
  Part& finalize() {
    EXPECT_CUDNN(cudnnBackendFinalize(get()));
    return *this;
  }
  int64_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    int64_t count = -1;
    EXPECT_CUDNN(cudnnBackendGetAttribute(get(), name, type, 0, &count, nullptr));
    return count;
  }
  template <class Element>
  Element ask(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    Element element{};
    int64_t count = 0;
    EXPECT_CUDNN(cudnnBackendGetAttribute(get(), name, type, 1, &count, &element));
    EXPECT_EQ(count, 1);
    return element;
  }

 private:
  std::shared_ptr<void> held_;
};

inline Dims packed(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

/// Channels last.
inline Dims channels_last(const Dims& dims) {
  Dims strides(dims.size(), 1);
  int64_t step = dims[1];
  for (size_t i = dims.size() - 1; i > 1; --i) {
    strides[i] = step;
    step *= dims[i];
  }
  strides[0] = step;
  return strides;
}

struct TensorOptions {
  Dims strides = {};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_virtual = false;
  bool by_value = false;
  int64_t vector_count = 1;  // along axis 1
};

inline Part tensor(int64_t uid, const Dims& dims, const TensorOptions& options = {}) {
  Part part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  part.one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, options.type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
           options.strides.empty() ? packed(dims) : options.strides)
      .one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid)
      .one(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
  if (options.is_virtual) part.one(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  if (options.vector_count > 1)
    part.one(CUDNN_ATTR_TENSOR_VECTOR_COUNT, CUDNN_TYPE_INT64, options.vector_count)
        .one(CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, CUDNN_TYPE_INT64, int64_t{1});
  if (options.by_value) part.one(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true);
  return part.finalize();
}

inline Part virtual_tensor(int64_t uid, const Dims& dims) { return tensor(uid, dims, {.is_virtual = true}); }

inline Part pointwise(cudnnPointwiseMode_t mode) {
  Part part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  part.one(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
      .one(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  return part;
}

inline Part unary(cudnnPointwiseMode_t mode, const Part& x, const Part& y) {
  Part op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(mode).finalize())
      .child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  return op.finalize();
}

inline Part binary(cudnnPointwiseMode_t mode, const Part& x, const Part& b, const Part& y) {
  Part op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(mode).finalize())
      .child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
      .child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  return op.finalize();
}

inline Part matmul(const Part& a, const Part& b, const Part& c) {
  Part description(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  description.one(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT).finalize();
  Part op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_MATMUL_DESC, description)
      .child(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
      .child(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
      .child(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  return op.finalize();
}

inline Part reduction(cudnnReduceTensorOp_t mode, const Part& x, const Part& y) {
  Part description(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  description.one(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .one(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode)
      .finalize();
  Part op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_REDUCTION_DESC, description)
      .child(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
      .child(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  return op.finalize();
}

inline Part convolution(const Dims& padding, const Dims& stride, const Dims& dilation,
                        cudnnDataType_t compute = CUDNN_DATA_FLOAT) {
  Part part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  return part.one(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, compute)
      .one(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
      .one(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, static_cast<int64_t>(padding.size()))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, padding)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, padding)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, stride)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dilation)
      .finalize();
}

inline Part operation_graph(cudnnHandle_t handle, const std::vector<Part>& ops) {
  std::vector<cudnnBackendDescriptor_t> list;
  list.reserve(ops.size());
  for (const Part& op : ops) list.push_back(op.get());
  Part graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.one(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle)
      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, list);
  return graph;
}

/// The engine configurations that a mode gives.
inline std::vector<Part> heuristics(const Part& graph, cudnnBackendHeurMode_t mode) {
  Part heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode)
      .finalize();
  const int64_t count = heuristic.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  std::vector<Part> configs;
  std::vector<cudnnBackendDescriptor_t> places;
  for (int64_t i = 0; i < count; ++i)
    places.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  int64_t filled = 0;
  EXPECT_CUDNN(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &filled, places.data()));
  EXPECT_EQ(filled, count);
  return configs;
}

inline Part plan_of(const Part& config) {
  Part plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  return plan.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).finalize();
}

/// Pointers by uid.
using Pointers = std::map<int64_t, void*>;

inline Part variant_pack(const Pointers& pointers, void* workspace) {
  std::vector<int64_t> uids;
  std::vector<void*> addresses;
  for (const auto& [uid, address] : pointers) {
    uids.push_back(uid);
    addresses.push_back(address);
  }
  Part pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  return pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses)
      .one(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
      .finalize();
}

/// Executes with a workspace of garbage.
inline cudnnStatus_t execute(cudnnHandle_t handle, const Part& plan, const Pointers& pointers) {
  const auto bytes = plan.ask<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  std::vector<unsigned char> workspace(static_cast<size_t>(bytes), 0xff);
  return cudnnBackendExecute(handle, plan.get(),
                             variant_pack(pointers, bytes > 0 ? workspace.data() : nullptr).get());
}

/// A handle on the CPU device, which a driver that cannot be opened makes the current one (main.cpp).
class Client : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_CUDNN(cudnnCreate(&handle)); }
  void TearDown() override { cudnnDestroy(handle); }

  /// Builds the ops by the first configuration of a mode, and runs them.
  void run(const std::vector<Part>& ops, const Pointers& pointers,
           cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A) {
    Part graph = operation_graph(handle, ops).finalize();
    const std::vector<Part> configs = heuristics(graph, mode);
    ASSERT_FALSE(configs.empty());
    ASSERT_CUDNN(execute(handle, plan_of(configs.front()), pointers));
  }

  cudnnHandle_t handle = nullptr;
};

/// Numbers in -1 to 1, the same in every run of a seed; 16-byte aligned as the descriptors promise.
inline std::vector<float> numbers(size_t count, uint32_t seed) {
  std::vector<float> list(count);
  uint32_t state = seed * 2654435761U + 12345U;
  for (float& x : list) {
    state = state * 1664525U + 1013904223U;
    x = static_cast<float>(state >> 8) / static_cast<float>(1U << 23) - 1.0F;
  }
  return list;
}

inline std::vector<float> poison(size_t count) { return std::vector<float>(count, NAN); }

}  // namespace fusor::compat_test
