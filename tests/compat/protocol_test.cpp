// Owns the tests of the protocol: what is answered to calls that are wrong, and to those of which clients are
// sloppy.
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <thread>

#include "tests/compat/client.h"

namespace fusor::compat_test {
namespace {

class Protocol : public Client {};

TEST_F(Protocol, ReportsItsVersion) {
  EXPECT_EQ(cudnnGetVersion(), static_cast<size_t>(CUDNN_VERSION));
  EXPECT_GE(cudnnGetCudartVersion(), 12000U);
  int major = 0, minor = 0;
  EXPECT_CUDNN(cudnnGetProperty(MAJOR_VERSION, &major));
  EXPECT_CUDNN(cudnnGetProperty(MINOR_VERSION, &minor));
  EXPECT_EQ(major, 9);
  EXPECT_EQ(minor, 19);
  EXPECT_EQ(cudnnGetProperty(MAJOR_VERSION, nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(Protocol, StreamsAreKept) {
  auto* const stream = reinterpret_cast<cudaStream_t>(uintptr_t{0x1230});
  EXPECT_CUDNN(cudnnSetStream(handle, stream));
  cudaStream_t got = nullptr;
  EXPECT_CUDNN(cudnnGetStream(handle, &got));
  EXPECT_EQ(got, stream);
  EXPECT_EQ(cudnnGetStream(handle, nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(Protocol, PointersThatAreNoHandlesAreRefused) {
  int thing = 0;
  auto* const wrong = reinterpret_cast<cudnnHandle_t>(&thing);
  EXPECT_EQ(cudnnSetStream(wrong, nullptr), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetStream(nullptr, nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(cudnnDestroy(wrong), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnCreate(nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  cudnnHandle_t other = nullptr;
  ASSERT_CUDNN(cudnnCreate(&other));
  EXPECT_CUDNN(cudnnDestroy(other));
  EXPECT_EQ(cudnnDestroy(other), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(Protocol, TheLastMessageIsTheThreadsOwnAndFitsItsPlace) {
  EXPECT_NE(cudnnCreate(nullptr), CUDNN_STATUS_SUCCESS);
  std::thread([] { EXPECT_EQ(last_message(), ""); }).join();
  std::array<char, 8> small;
  small.fill('x');
  cudnnGetLastErrorString(small.data(), small.size());
  EXPECT_EQ(std::strlen(small.data()), 7U);
  EXPECT_EQ(last_message(), "");
  EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED_SHAPE), "CUDNN_STATUS_NOT_SUPPORTED_SHAPE");
  EXPECT_STREQ(cudnnGetErrorString(static_cast<cudnnStatus_t>(77)), "CUDNN_STATUS_UNKNOWN");
}

TEST_F(Protocol, DescriptorsOfUnknownTypesAreRefused) {
  cudnnBackendDescriptor_t made = nullptr;
  EXPECT_EQ(cudnnBackendCreateDescriptor(static_cast<cudnnBackendDescriptorType_t>(999), &made),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_SIGNAL_DESCRIPTOR, &made),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, nullptr),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(Protocol, AttributesAreCheckedWhenTheyAreSet) {
  const Part part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                       const void* at) {
    return cudnnBackendSetAttribute(part.get(), name, type, count, at);
  };
  const std::array<int64_t, 9> dims{1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, dims.data()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_DOUBLE, 1, dims.data()),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 9, dims.data()),
            CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, -1, dims.data()),
            CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, nullptr),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  const int type = 1000;
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type), CUDNN_STATUS_INVALID_VALUE);
  EXPECT_NE(last_message().find("TENSOR_DATA_TYPE"), std::string::npos);
}

TEST_F(Protocol, FinalizeNamesWhatIsMissing) {
  Part part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_EQ(cudnnBackendFinalize(part.get()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(last_message().find("TENSOR_DATA_TYPE"), std::string::npos);
  part.one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, Dims{2, 0})
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, Dims{2, 1})
      .one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, int64_t{0});
  EXPECT_EQ(cudnnBackendFinalize(part.get()), CUDNN_STATUS_BAD_PARAM);
  part.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, Dims{2, 3, 4});
  EXPECT_EQ(cudnnBackendFinalize(part.get()), CUDNN_STATUS_BAD_PARAM);
  part.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, Dims{2, 3});
  int64_t count = 0;
  EXPECT_EQ(cudnnBackendGetAttribute(part.get(), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, &count,
                                     nullptr),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  EXPECT_CUDNN(cudnnBackendFinalize(part.get()));
  EXPECT_EQ(cudnnBackendFinalize(part.get()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(part.count(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64), 2);
  const int64_t uid = 3;
  EXPECT_EQ(cudnnBackendSetAttribute(part.get(), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(Protocol, PartsMustBeFinalizedAndOfTheRightType) {
  const Part unfinished(CUDNN_BACKEND_TENSOR_DESCRIPTOR), matrix(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  Part op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  const auto set = [&](const void* part) {
    return cudnnBackendSetAttribute(op.get(), CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
  };
  EXPECT_EQ(set(unfinished.get()), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  EXPECT_EQ(set(matrix.get()), CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  EXPECT_EQ(set(nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(set(&op), CUDNN_STATUS_BAD_PARAM);
}

Part simple_graph(cudnnHandle_t handle) {
  return operation_graph(handle, {unary(CUDNN_POINTWISE_RELU_FWD, tensor(1, {4, 8}), tensor(2, {4, 8}))})
      .finalize();
}

TEST_F(Protocol, PartsLiveOnInWhatWasMadeOfThem) {
  // Every op and tensor descriptor of the graph is destroyed by now.
  const Part graph = simple_graph(handle);
  const Part plan = plan_of(heuristics(graph, CUDNN_HEUR_MODE_A).front());
  auto xs = numbers(32, 1), ys = poison(32);
  ASSERT_CUDNN(execute(handle, plan, {{1, xs.data()}, {2, ys.data()}}));
  for (size_t i = 0; i < 32; ++i) EXPECT_FLOAT_EQ(ys[i], std::max(xs[i], 0.0F));
}

TEST_F(Protocol, UnknownUidsAreIgnoredAndMissingOnesNamed) {
  const Part plan = plan_of(heuristics(simple_graph(handle), CUDNN_HEUR_MODE_A).front());
  auto xs = numbers(32, 1), ys = poison(32);
  EXPECT_CUDNN(execute(handle, plan, {{1, xs.data()}, {2, ys.data()}, {77, nullptr}}));
  EXPECT_EQ(execute(handle, plan, {{1, xs.data()}}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(last_message().find("t2"), std::string::npos);
  EXPECT_EQ(cudnnBackendExecute(handle, plan.get(), plan.get()), CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  EXPECT_EQ(cudnnBackendExecute(nullptr, plan.get(), plan.get()), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(Protocol, CountsAreAskedForInEveryIdiom) {
  const Part config = heuristics(simple_graph(handle), CUDNN_HEUR_MODE_A).front();
  const Part engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  auto* place = engine.get();
  ASSERT_CUDNN(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, nullptr, &place));
  int64_t count = -1;
  ASSERT_CUDNN(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                        nullptr));
  EXPECT_EQ(count, 0);
  EXPECT_EQ(engine.ask<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64), 0);
  EXPECT_GE(config.ask<int32_t>(CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, CUDNN_TYPE_INT32), 0);
  EXPECT_EQ(config.ask<int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64), 0);
}

// Filters of errata in cudnn-frontend read the dims of a convolution's tensors from the second on.
TEST_F(Protocol, TensorsOfAConvolutionAreToldWithTheAxisOfGroups) {
  Part conv(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR), filled(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  conv.child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor(1, {2, 3, 5, 6}))
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(2, {4, 3, 3, 3}))
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, tensor(3, {2, 4, 5, 6}))
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution({1, 1}, {1, 1}, {1, 1}))
      .finalize();
  cudnnBackendDescriptor_t place = filled.get();
  int64_t count = 0, dims[5] = {};
  ASSERT_CUDNN(cudnnBackendGetAttribute(conv.get(), CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &place));
  ASSERT_CUDNN(
      cudnnBackendGetAttribute(place, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 5, &count, dims));
  EXPECT_EQ(count, 5);
  EXPECT_EQ(std::vector<int64_t>(dims, dims + 5), (std::vector<int64_t>{1, 2, 3, 5, 6}));
}

TEST_F(Protocol, EnginesAreMadeByNumberAndKnob) {
  Part a = tensor(1, {1, 8, 8}), b = tensor(2, {1, 8, 8}), c = tensor(3, {1, 8, 8});
  const Part graph = operation_graph(handle, {matmul(a, b, c)}).finalize();
  const auto count = graph.ask<int64_t>(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64);
  int made = 0;
  for (int64_t index = 0; index < count; ++index) {
    Part engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine.child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
        .one(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, index);
    const cudnnStatus_t status = cudnnBackendFinalize(engine.get());
    if (status != CUDNN_STATUS_SUCCESS) {
      EXPECT_EQ(status, CUDNN_STATUS_NOT_SUPPORTED);
      continue;
    }
    ++made;
    Part config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    config.child(CUDNN_ATTR_ENGINECFG_ENGINE, engine).finalize();
    plan_of(config);
    Part knob(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob.one(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_KERNEL_CFG)
        .one(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, int64_t{1000})
        .finalize();
    Part far(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    far.child(CUDNN_ATTR_ENGINECFG_ENGINE, engine).child(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knob);
    EXPECT_EQ(cudnnBackendFinalize(far.get()), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
  }
  EXPECT_EQ(made, 3);  // fast, exact and plain: the operands are fp32
}

TEST_F(Protocol, EveryModeOfHeuristicsGivesAConfiguration) {
  const Part graph = simple_graph(handle);
  for (const auto mode :
       {CUDNN_HEUR_MODE_INSTANT, CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK})
    EXPECT_FALSE(heuristics(graph, mode).empty()) << mode;
}

TEST_F(Protocol, PlansGoThroughText) {
  const Part plan = plan_of(heuristics(simple_graph(handle), CUDNN_HEUR_MODE_A).front());
  const int64_t size = plan.count(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR);
  ASSERT_GT(size, 0);
  std::vector<char> text(static_cast<size_t>(size));
  ASSERT_CUDNN(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, size, nullptr, text.data()));
  Part loaded(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  loaded.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text)
      .one(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle)
      .finalize();
  const Part config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  auto *config_place = config.get(), *engine_place = engine.get();
  ASSERT_CUDNN(cudnnBackendGetAttribute(loaded.get(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, nullptr, &config_place));
  ASSERT_CUDNN(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, nullptr, &engine_place));
  EXPECT_EQ(engine.ask<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64), 0);
  auto xs = numbers(32, 1), ys = poison(32);
  ASSERT_CUDNN(execute(handle, loaded, {{1, xs.data()}, {2, ys.data()}}));
  for (size_t i = 0; i < 32; ++i) EXPECT_FLOAT_EQ(ys[i], std::max(xs[i], 0.0F));
  Part broken(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  broken.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
             std::vector<char>{'{', '}', '\n'});
  EXPECT_EQ(cudnnBackendFinalize(broken.get()), CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH);
}

TEST_F(Protocol, DevicesGoThroughText) {
  Part device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.one(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, int32_t{0}).finalize();
  const int64_t size = device.count(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR);
  std::vector<char> text(static_cast<size_t>(size));
  ASSERT_CUDNN(cudnnBackendGetAttribute(device.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, size, nullptr, text.data()));
  Part read(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  read.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text).finalize();
  Part graph = simple_graph(handle);
  Part heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .child(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, read)
      .one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A)
      .finalize();
  EXPECT_GT(heuristic.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR), 0);
}

TEST_F(Protocol, GraphsThatCannotBeAreRefusedWithTheReason) {
  const Part x = tensor(1, {4}), y = tensor(2, {4}), z = tensor(3, {4});
  const auto refused = [&](const std::vector<Part>& ops, const char* reason) {
    EXPECT_NE(cudnnBackendFinalize(operation_graph(handle, ops).get()), CUDNN_STATUS_SUCCESS);
    const std::string text = last_message();
    EXPECT_NE(text.find(reason), std::string::npos) << text;
  };
  refused({unary(CUDNN_POINTWISE_ABS, x, y), unary(CUDNN_POINTWISE_NEG, x, y)}, "two ops write the tensor 2");
  refused({unary(CUDNN_POINTWISE_ABS, y, z), unary(CUDNN_POINTWISE_NEG, z, y)}, "in a circle");
  refused({unary(CUDNN_POINTWISE_ABS, virtual_tensor(9, {4}), y)}, "virtual tensor 9");
  refused({binary(CUDNN_POINTWISE_ATAN2, x, x, y)}, "pointwise mode 23 is not supported");
  refused({unary(CUDNN_POINTWISE_ABS, tensor(1, {4}, {.type = CUDNN_DATA_UINT32}), y)}, "data type 19");
  refused({unary(CUDNN_POINTWISE_ABS, tensor(1, {3}, {.type = CUDNN_DATA_UINT4}), tensor(2, {3}))},
          "has no even axis of stride 1");
  refused({unary(CUDNN_POINTWISE_ABS, x, virtual_tensor(2, {4}))}, "no result that is not virtual");
}

TEST_F(Protocol, NamesThatAreNotCarriedOutSaySo) {
  void* const library = dlopen(FUSOR_CUDNN_FOLDER "/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto call = reinterpret_cast<cudnnStatus_t (*)()>(dlsym(library, "cudnnMultiHeadAttnForward"));
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call(), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_NE(last_message().find("cudnnMultiHeadAttnForward"), std::string::npos);
}

TEST_F(Protocol, NamesCarryTheVersionThatProgramsAskFor) {
  void* const library = dlopen(FUSOR_CUDNN_FOLDER "/libcudnn_graph.so.9", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  EXPECT_NE(dlvsym(library, "cudnnBackendExecute", "libcudnn.so.9"), nullptr);
}

}  // namespace
}  // namespace fusor::compat_test
