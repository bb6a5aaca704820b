// Owns the check that the kernels of the window engine compile without spills or warnings.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/engines/list.h"
#include "codegen/nvrtc.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/window/cases.h"

namespace fusor {
namespace {

using namespace window_cases;

class WindowKernels : public testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  }
  void add(const std::string& name, const Graph& graph, const DeviceInfo& device = h200()) {
    for (const Fusion& fusion : fusions_of(graph))
      test::add_kernels(window_engine(), name, fusion, device, cases_);
  }
  std::vector<test::KernelCase> cases_;
};

TEST_F(WindowKernels, EveryPassAndLayout) {
  for (const bool channels_last : {true, false})
    for (const Pool& small : {maximum({4, 16, 20, 20}, 3, 2, 1), average({4, 16, 20, 20}, 3, 2, 1, false),
                              average({4, 16, 20, 20}, 2, 2, 0, true)}) {
      Pool pool = small;
      pool.channels_last = channels_last;
      const bool is_maximum = pool.options.mode == ResampleMode::maxpool;
      add("forward", forward(pool));
      if (is_maximum) add("forward with index", forward(pool, true));
      if (pool.overlaps()) add("backward", backward(pool, is_maximum));
    }
  test::expect_distinct_compiled(cases_);
}

TEST_F(WindowKernels, EveryTargetAndType) {
  for (const int target : {80, 90})
    for (const DataType type : {DataType::f64, DataType::f32, DataType::bf16, DataType::f8_e4m3}) {
      DeviceInfo device = h200();
      device.compute_capability = target;
      Pool pool = maximum({2, 24, 13, 11}, 3, 2, 1);
      pool.type = type;
      add("forward", forward(pool), device);
      add("backward", backward(pool), device);
    }
  test::expect_distinct_compiled(cases_);
}

}  // namespace
}  // namespace fusor
