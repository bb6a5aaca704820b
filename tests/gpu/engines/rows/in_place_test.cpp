// Owns the tests on the GPU of results that take the place of what their rows are made of: every candidate
// that allows it gives the bits that it gives apart.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/environment.h"
#include "core/parallel.h"
#include "tests/backend/engines/rows/cases.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

using namespace rows_cases;

// A graph, and the operand in whose place its result is put.
struct Case {
  const char* name;
  Graph (*graph)();
  const char *operand, *result;
};

const Case kCases[] = {{"softmax",
                        [] {
                          return softmax(DataType::bf16, {1000, 1000}, 1);
                        },
                        "x", "y"},
                       {"softmax_of_4096",
                        [] {
                          return softmax(DataType::bf16, {512, 4096}, 1);
                        },
                        "x", "y"},
                       {"softmax_of_33000",
                        [] {
                          return softmax(DataType::bf16, {300, 33000}, 1);
                        },
                        "x", "y"},
                       {"softmax_between_axes",
                        [] {
                          return softmax(DataType::f32, {16, 77, 1024}, 1);
                        },
                        "x", "y"},
                       {"gradient_over_the_softmax",
                        [] {
                          return softmax_bwd(DataType::f16, {2000, 2056}, 1);
                        },
                        "y", "dx"},
                       {"gradient_over_the_gradient",
                        [] {
                          return softmax_bwd(DataType::f16, {2000, 2056}, 1);
                        },
                        "dy", "dx"},
                       {"layer_norm",
                        [] {
                          return layer_norm(DataType::bf16, {8192, 768});
                        },
                        "x", "y"},
                       {"rms_norm",
                        [] {
                          return rms_norm(DataType::f32, {1024, 5120});
                        },
                        "x", "y"},
                       {"batch_norm",
                        [] {
                          return batch_norm(DataType::f16, {16, 64, 784}, false);
                        },
                        "x", "y"},
                       {"batch_norm_channels_last",
                        [] {
                          return batch_norm(DataType::f16, {16, 64, 784}, true);
                        },
                        "x", "y"},
                       {"group_norm",
                        [] {
                          return group_norm(DataType::bf16, {8, 32, 4, 1024}, false);
                        },
                        "x", "y"}};

constexpr size_t kMostCandidates = 4;

class RowsInPlaceGpu : public testing::TestWithParam<Case> {};

TEST_P(RowsInPlaceGpu, GivesTheSameBits) {
  FUSOR_NEEDS_GPU();
  const Case& test = GetParam();
  const Graph graph = test.graph();
  const int64_t from = graph.tensors[static_cast<size_t>(graph.find(test.operand))].uid,
                to = graph.tensors[static_cast<size_t>(graph.find(test.result))].uid;
  std::vector<Candidate> some = candidates(graph, DeviceInfo::current());
  if (some.size() > kMostCandidates) some.resize(kMostCandidates);
  std::vector<Plan> plans(some.size());
  parallel_for(std::ssize(some), environment::threads(), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    plans[at] = build(graph, DeviceInfo::current(), some[at]);
  });
  int allowed = 0;
  for (const Plan& plan : plans) {
    DeviceRun run(graph, plan);
    const Executable& exe = run.executable();
    if (!exe.may_replace(to, from)) continue;
    ++allowed;
    SCOPED_TRACE(plan.graph.name + " candidate " + std::to_string(&plan - plans.data()));
    std::vector<void*> slots = run.slots();
    void* const apart = slots[static_cast<size_t>(exe.slot(test.operand))];
    void* const place = slots[static_cast<size_t>(exe.slot(test.result))];
    const cuda::DeviceBuffer workspace(std::max<int64_t>(exe.workspace_bytes(), 256));
    const int64_t bytes = graph.tensors[static_cast<size_t>(graph.find(test.operand))].bytes();
    run.run();
    const std::vector<std::byte> expected = run.host(test.result);
    slots[static_cast<size_t>(exe.slot(test.operand))] = place;
    // More than once: a race may go well.
    for (int i = 0; i < 5; ++i) {
      cuda::copy(place, apart, bytes, nullptr);
      exe.run(slots, workspace.get());
      run.fetch();
      EXPECT_EQ(run.host(test.result), expected);
    }
  }
  EXPECT_GT(allowed, 0);
  RecordProperty("candidates", allowed);
}

INSTANTIATE_TEST_SUITE_P(Cases, RowsInPlaceGpu, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& chosen) { return chosen.param.name; });

}  // namespace
}  // namespace fusor
