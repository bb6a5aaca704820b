// Owns the check that the kernels of the rows engine compile without spills or warnings, and in little time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/engines/list.h"
#include "codegen/nvrtc.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/rows/cases.h"

namespace fusor {
namespace {

using namespace rows_cases;

class RowsKernels : public testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  }
  void add(const std::string& name, const Graph& graph, const DeviceInfo& device = h200()) {
    test::add_kernels(rows_engine(), name, whole(graph), device, cases_);
  }
  std::vector<test::KernelCase> cases_;
};

TEST_F(RowsKernels, EveryCaseForHopper) {
  for (const DataType type : {DataType::bf16, DataType::f32}) {
    add("softmax", softmax(type, {4096, 4096}, 1));
    add("long softmax", softmax(type, {128, 128256}, 1));
    add("softmax of columns", softmax(type, {64, 333, 1024}, 1));
    add("softmax backward", softmax_bwd(type, {1000, 1024}, 1));
    add("layer norm", layer_norm(type, {4096, 4096}));
    add("layer norm backward", layer_norm_bwd(type, {1024, 12288}));
    add("rms norm", rms_norm(type, {131072, 128}));
    add("rms norm backward", rms_norm_bwd(type, {131072, 128}));
    add("quantize", residual_norm_quantize(type, {4096, 4096}));
    add("cross entropy", cross_entropy(type, 512, 128256));
    add("group norm", group_norm(type, {2, 32, 10, 4096}, true));
    add("group norm in training", group_norm_saved(type, {2, 32, 20, 4096}, true, true));
    add("group norm that turns", group_norm_saved(type, {2, 32, 10, 4096}, true, false));
    add("group norm backward", group_norm_bwd(type, {2, 32, 10, 4096}, true));
    add("batch norm", batch_norm(type, {32, 256, 3136}, true));
    add("batch norm backward", batch_norm_bwd(type, {32, 256, 3136}, true));
    add("batch norm of planes", batch_norm(type, {32, 16, 12544}, false));
    add("odd", layer_norm(type, {77, 1001}));
    add("larger than L2", softmax(type, {32768, 4096}, 1));
  }
  test::expect_distinct_compiled(cases_);
}

TEST_F(RowsKernels, EveryTargetAndType) {
  for (const int target : {80, 90})
    for (const DataType type : {DataType::f64, DataType::f16, DataType::f8_e4m3}) {
      DeviceInfo device = h200();
      device.compute_capability = target;
      add("softmax", softmax(type, {300, 999}, 1), device);
      add("softmax of columns", softmax(type, {30, 33, 1024}, 1), device);
    }
  test::expect_distinct_compiled(cases_);
}

}  // namespace
}  // namespace fusor
