// Owns the tests that shipped kernels are those that a client of the graph interface is given.
#include <set>
#include <string>
#include <vector>

#include "backend/build.h"
#include "backend/planning.h"
#include "codegen/kernel_cache.h"
#include "compat/cudnn/ship/graphs.h"
#include "tests/compat/attention_parts.h"
#include "tests/compat/stub/stub_client.h"

namespace fusor::compat_test {
namespace {

class Shipped : public Client {
 protected:
  // The portable keys of the kernels of a graph on an H200.
  static std::set<std::string> keys_of(const Graph& graph) {
    std::set<std::string> keys;
    for (const PlannedKernel& kernel : kernels(build(graph, DeviceInfo::named("h200"), {.compile = false})))
      keys.insert(portable_key(*kernel.launch.source));
    return keys;
  }
  static std::set<std::string> keys_of(const std::vector<cudnn::GraphMaker>& makers) {
    std::set<std::string> keys;
    for (const cudnn::GraphMaker& make : makers) keys.merge(keys_of(make()));
    return keys;
  }
  void expect_shipped(const std::vector<Part>& ops, const std::set<std::string>& shipped) {
    const std::set<std::string> asked = keys_of(planned_graph(handle, ops));
    EXPECT_FALSE(asked.empty());
    for (const std::string& key : asked) EXPECT_TRUE(shipped.contains(key)) << key;
  }
};

TEST_F(Shipped, AttentionIsAClients) {
  const std::set<std::string> shipped = keys_of(cudnn::shipped_attention());
  for (const int64_t depth : {64, 128})
    for (const bool is_causal : {true, false}) {
      SCOPED_TRACE(testing::Message() << depth << ' ' << is_causal);
      const AttentionShape shape{.batch = 8,
                                 .heads = 16,
                                 .key_heads = 16,
                                 .queries = 2048,
                                 .keys = 2048,
                                 .depth = depth,
                                 .is_causal = is_causal};
      expect_shipped(AttentionOps(shape).forward(), shipped);
      expect_shipped(AttentionOps(shape).backward(), shipped);
    }
}

// The three passes of a layer of 256 channels, 14 x 14, 3 x 3.
TEST_F(Shipped, ConvolutionsAreAClients) {
  const std::set<std::string> shipped = keys_of(cudnn::shipped_convolutions({32}));
  const Dims images{32, 256, 14, 14}, filters{256, 256, 3, 3};
  const TensorOptions on_images{.strides = channels_last(images), .type = CUDNN_DATA_BFLOAT16},
      on_filters{.strides = channels_last(filters), .type = CUDNN_DATA_BFLOAT16};
  const Part x = tensor(1, images, on_images), w = tensor(2, filters, on_filters),
             y = tensor(3, images, on_images), conv = convolution({1, 1}, {1, 1}, {1, 1});
  Part forward(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
      data(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR),
      filter(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  forward.child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  data.child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, conv)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, x)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, y);
  filter.child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, conv)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, w)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, y);
  for (Part* op : {&forward, &data, &filter}) expect_shipped({op->finalize()}, shipped);
}

}  // namespace
}  // namespace fusor::compat_test
