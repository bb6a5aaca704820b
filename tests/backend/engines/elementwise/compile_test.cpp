// Owns the check that the elementwise engine's kernels compile for every target, without spills, local memory
// or warnings, and in little time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "backend/engines/list.h"
#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"
#include "core/environment.h"
#include "core/parallel.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/elementwise/cases.h"

namespace fusor {
namespace {

using namespace elementwise_cases;

struct Case {
  std::string name;
  std::shared_ptr<const KernelSource> source;
};

bool uses_local_memory(const std::string& log) {
  const std::string frame = "bytes stack frame";
  for (size_t at = log.find(frame); at != std::string::npos; at = log.find(frame, at + 1))
    if (!log.substr(at - 3).starts_with(" 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"))
      return true;
  return false;
}

class ElementwiseKernels : public testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  }

  // The kernels of the first candidates, each structure once.
  void add(const std::string& name, const Fusion& fusion, const DeviceInfo& device, size_t candidates = 1) {
    const Engine& engine = elementwise_engine();
    for (const EngineCandidate& candidate : test::candidates(engine, fusion, device)) {
      if (candidates-- == 0) return;
      for (const Step& step : test::lower(engine, fusion, candidate.config, device).steps) {
        const auto& source = std::get<Launch>(step).source;
        if (known_.insert(structure_hash(*source)).second)
          cases_.push_back(
              {fmt::format("{} {} {}", name, source->target, to_string(candidate.config)), source});
      }
    }
  }

  void expect_all_compile() {
    parallel_for(static_cast<int64_t>(cases_.size()), environment::threads(),
                 [&](int64_t i) { expect_compiles(cases_[static_cast<size_t>(i)]); });
    RecordProperty("slowest_ms", static_cast<int>(slowest_));
    fmt::print("{} kernels, the slowest in {:.0f} ms: {}\n", cases_.size(), slowest_, slowest_name_);
  }

  // sin, cos and tan reduce large arguments through local memory.
  bool may_use_local_memory_ = false;

 private:
  void expect_compiles(const Case& one) {
    const nvrtc::Compilation done =
        nvrtc::compile(one.source->root, emit_header(*one.source), one.source->target);
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(done.log.find("warning"), std::string::npos) << one.name << "\n" << done.log;
    EXPECT_TRUE(may_use_local_memory_ || !uses_local_memory(done.log)) << one.name << "\n" << done.log;
    if (done.milliseconds > slowest_) {
      slowest_ = done.milliseconds;
      slowest_name_ = one.name;
    }
  }

  std::vector<Case> cases_;
  std::set<std::string> known_;
  std::mutex mutex_;
  double slowest_ = 0;
  std::string slowest_name_;
};

TEST_F(ElementwiseKernels, EveryKernelForEveryTarget) {
  for (const int target : nvrtc::targets()) {
    DeviceInfo device = h200();
    device.compute_capability = target;
    add("bias", bias(DataType::bf16, {16383, 8190}), device);
    add("larger than L2", bias(DataType::bf16, {16384, 8192}), device);
    add("larger than L2, with a tail", chain(DataType::bf16, {(1 << 27) + 3}), device);
    add("transpose", to_nhwc(DataType::f16, {37, 53, 7, 9}), device);
    add("rows", reduction(DataType::f8_e4m3, {511, 8191}, {1}), device);
    add("columns", reduction(DataType::bf16, {8192, 512}, {0}), device);
  }
  expect_all_compile();
}

TEST_F(ElementwiseKernels, EveryCandidateOfEveryVariant) {
  for (const auto& [name, fusion] : every_variant()) add(name, fusion, h200(), 100);
  expect_all_compile();
}

TEST_F(ElementwiseKernels, EveryTypeThroughEveryKernel) {
  for (const int target : {75, 90}) {
    DeviceInfo device = h200();
    device.compute_capability = target;
    for (const DataType type :
         {DataType::f64, DataType::f32, DataType::f16, DataType::f8_e4m3, DataType::f8_e5m2, DataType::i64,
          DataType::i32, DataType::i8, DataType::u8}) {
      add("chain", chain(type, {1000003}), device);
      add("transpose", to_nhwc(type, {37, 53, 7, 9}), device);
      add("rows", reduction(type, {511, 8191}, {1}, ReductionMode::amax), device);
      add("columns", reduction(type, {8192, 512}, {0}, ReductionMode::mul_no_zeros), device);
    }
  }
  expect_all_compile();
}

TEST_F(ElementwiseKernels, EveryModeInEveryForm) {
  may_use_local_memory_ = true;
  for (const DataType type : {DataType::f64, DataType::f32, DataType::f16}) {
    for (int i = 0; i < pointwise_mode_count(); ++i) {
      const auto mode = static_cast<PointwiseMode>(i);
      GraphBuilder g;
      std::vector<Tensor> operands;
      operands.reserve(static_cast<size_t>(info(mode).inputs));
      for (int k = 0; k < info(mode).inputs; ++k)
        operands.push_back(g.input(fmt::format("x{}", k), {5, 77}, type));
      const Tensor y =
          mode == PointwiseMode::gen_index ? g.gen_index(operands[0], 1) : g.pointwise(mode, operands);
      add(std::string(to_string(mode)), fusion_of(g.finish({y})), h200());
    }
  }
  expect_all_compile();
}

TEST_F(ElementwiseKernels, EveryReductionMode) {
  for (int i = 0; i < reduction_mode_count(); ++i)
    for (const Dims& axes : {Dims{0}, Dims{1}})
      add("reduction", reduction(DataType::f16, {4096, 512}, axes, static_cast<ReductionMode>(i)), h200());
  expect_all_compile();
}

TEST_F(ElementwiseKernels, HundredsOfOpsInOneFusion) {
  add("300 ops", long_chain(300), h200());
  expect_all_compile();
}

}  // namespace
}  // namespace fusor
