// Tests `fusor bench` and `fusor tune` as a user meets them, on the CPU and on a driver that computes
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "codegen/nvrtc.h"
#include "serialization/bench_cases.h"
#include "tests/tools/command_fixture.h"
#include "tools/bench/case_graph.h"

namespace fusor {
namespace {

using command::cost_of;
using command::floor_seconds;
using command::graph_of;
using command::variant_of;
using testing::HasSubstr;
using testing::Not;

const std::string kTiny = std::string(FUSOR_TEST_DIR) + "/cases/tiny.json";
const std::string kSuite = std::string(FUSOR_TEST_DIR) + "/../../bench/cases";
constexpr const char* kQuick = " --device cpu --runs 3 --flush 1";

int64_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }

int64_t occurrences(const std::string& text, const std::string& what) {
  int64_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
}

BenchCase suite_case(const std::string& file, const std::string& id) {
  const auto cases = read_bench_cases(kSuite + "/" + file + ".json");
  const auto found = std::ranges::find(cases, id, &BenchCase::id);
  if (found == cases.end()) throw std::runtime_error("no case " + id);
  return *found;
}

// Against figures worked out by hand.
TEST(BenchSuite, CasesCostWhatTheyAreKnownToCost) {
  const auto expect_cost = [](const std::string& file, const std::string& id, double gflop, double mb) {
    const command::CaseCost cost = cost_of(suite_case(file, id), graph_of(suite_case(file, id)));
    EXPECT_NEAR(cost.flops * 1e-9, gflop, 0.006 * gflop) << id;
    EXPECT_NEAR(cost.bytes * 1e-6, mb, 0.006 * mb) << id;
  };
  expect_cost("matmul", "G1", 1099.5, 403);
  expect_cost("matmul", "G3", 1924, 537);
  expect_cost("matmul", "G4", 962, 486);
  expect_cost("matmul", "G13", 1.88, 59);
  expect_cost("matmul", "G14-fp8", 1099.5, 268);
  expect_cost("conv", "C1-wgrad", 60.4, 488);
  expect_cost("conv", "C4-dgrad", 59.2, 257);
  expect_cost("conv", "C14b-fprop", 1.07, 537);
  expect_cost("resnet50", "R-1x1s2-56-wgrad", 26.3, 308.5);
  expect_cost("attention", "A-d128-4096-causal", 275, 268);
  expect_cost("attention", "AS-d128-window", 128.9, 268);
  expect_cost("attention", "AS-d64-documents", 183, 268.5);
  expect_cost("attention", "AS-d64-ragged", 438, 302);
}

TEST(BenchSuite, FloorsTakeTheRateOfTheType) {
  const DeviceInfo h200 = DeviceInfo::named("H200");
  const auto floor_us = [&](const std::string& id) {
    const BenchCase row = suite_case("matmul", id);
    return floor_seconds(row, cost_of(row, graph_of(row)), h200) * 1e6;
  };
  EXPECT_NEAR(floor_us("G1"), 1392, 1);
  EXPECT_NEAR(floor_us("G10"), 55, 0.5);
  EXPECT_NEAR(floor_us("G14-fp8"), 696, 1);
  EXPECT_NEAR(floor_us("G14-tf32"), 348, 1);
}

TEST(BenchSuite, VariantsAreOtherShapesOfTheSameStructure) {
  const BenchCase matmul = suite_case("matmul", "G8");
  EXPECT_EQ(variant_of(matmul, 0).m, 16384);
  EXPECT_EQ(variant_of(matmul, 1).m, 8192);
  EXPECT_EQ(variant_of(matmul, 19).m, 32768 + 13);
  const BenchCase conv = suite_case("conv", "C7-fprop-bias");
  EXPECT_EQ(variant_of(conv, 7).x, (Dims{24, 64, 57, 57}));
}

class Bench : public CommandTest {};

TEST_F(Bench, EveryOpAndStepRunsAndIsChecked) {
  const Outcome outcome = fusor("bench " + kTiny + kQuick);
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_EQ(lines(outcome.out), 11);
  EXPECT_EQ(occurrences(outcome.out, "\"passed\": true"), 11);
  EXPECT_THAT(outcome.out, HasSubstr("\"checked\": [\"y: 384 of 384\", \"amax: 1 of 1\"]"));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Bench, EveryMaskAndScoreOfAttentionRunsAndIsChecked) {
  std::ofstream file(path("scores.json"));
  file << R"({"format": 1, "kind": "bench_cases", "cases": [)";
  const auto add = [&](const char* id, const std::string& options) {
    file << R"({"id": ")" << id << R"(", "group": "g", "op": "attention", "type": "bf16",
        "q": [3, 2, 40, 16], "k": [3, 2, 40, 16], )"
         << options << "}";
  };
  add("window", R"("causal": true, "newest": 7)");
  file << ",";
  add("bias", R"("scores": ["bias"])");
  file << ",";
  add("alibi", R"("causal": true, "scores": ["alibi"])");
  file << ",";
  add("soft_cap", R"("scores": ["soft_cap"])");
  file << ",";
  add("documents", R"("causal": true, "documents": 4)");
  file << ",";
  add("ragged", R"("causal": true, "ragged": true)");
  file << "]}";
  file.close();
  const Outcome outcome = fusor("bench " + path("scores.json") + kQuick);
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "\"passed\": true"), 6);
}

TEST_F(Bench, CasesAreChosenByIdBeginningAndGroup) {
  EXPECT_EQ(lines(fusor("bench --no-verify gated plain " + kTiny + kQuick).out), 2);
  EXPECT_EQ(lines(fusor("bench --list conv " + kTiny).out), 3);
  EXPECT_EQ(lines(fusor("bench --list convs " + kTiny).out), 4);
  EXPECT_EQ(lines(fusor("bench --list hard-conv --folder " + kSuite).out), 48);
  const Outcome unknown = fusor("bench --list dance " + kTiny);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no case or group 'dance'"));
  EXPECT_THAT(fusor("bench --folder " + path("none")).err, HasSubstr("name the folder with --folder"));
}

TEST_F(Bench, AGraphOrAPlanIsACase) {
  const Outcome outcome = fusor("bench " + graph("matmul") + kQuick);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\"group\": \"graph\""));
  EXPECT_THAT(outcome.out, HasSubstr("\"passed\": true"));
  ASSERT_EQ(fusor("plan " + graph("matmul") + " --device cpu -o " + path("p.json")).code, 0);
  EXPECT_EQ(lines(fusor("bench " + path("p.json") + " " + kTiny + " --list").out),
            lines(fusor("bench " + kTiny + " --list").out) + 1);
}

TEST_F(Bench, ServesTheCasesThatItIsAskedFor) {
  std::ofstream(path("asked")) << "plain 3\nnothing\n\nplain 4\n";
  const Outcome outcome = fusor("bench --serve " + kTiny + kQuick + " <" + path("asked"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(lines(outcome.out), 3);
  EXPECT_EQ(occurrences(outcome.out, "\"passed\": true"), 1);  // when it is loaded
  EXPECT_THAT(outcome.out, HasSubstr("\"runs\": 4"));
  EXPECT_THAT(outcome.out, HasSubstr("\"error\": \"there is no case 'nothing'\""));
}

TEST_F(Bench, CountsTheKernelsOfTheSuiteWithoutAGpu) {
  const Outcome outcome = fusor("bench --cubins --device H200 --folder " + kSuite);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto total = outcome.out.substr(outcome.out.rfind("{\"cases\""));
  int64_t cases = 0, shapes = 0, cubins = 0;
  ASSERT_EQ(
      std::sscanf(total.c_str(), R"({"cases": %ld, "shapes": %ld, "cubins": %ld})", &cases, &shapes, &cubins),
      3)
      << total;
  EXPECT_EQ(shapes, cases * 20);
  EXPECT_LE(cubins * 5, shapes);
}

class Tune : public CommandTest {};

TEST_F(Tune, ASecondRunMeasuresNothing) {
  const std::string line = "tune " + graph("matmul") + " " + graph("scale_relu") + kQuick;
  const Outcome first = fusor(line);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr(" fusions measured, 0 known already"));
  EXPECT_EQ(first.err, "");  // no terminal, no bar
  // Two, or the parts of one beside it where the machine was slow: how many depends on times.
  EXPECT_THAT(fusor(line).out, HasSubstr("nothing was measured: "));
  EXPECT_THAT(fusor(line + " --again").out, HasSubstr(" fusions measured, 0 known already"));
  EXPECT_THAT(fusor("explain " + graph("matmul") + " --device cpu --all").out,
              HasSubstr("measured with cpu"));
}

TEST_F(Tune, ADamagedTableIsToldOnceAndIgnored) {
  const std::string line = "tune " + graph("matmul") + kQuick;
  fusor(line);
  std::ofstream(path("cache/tuning.json")) << "{";
  const Outcome outcome = fusor("run " + graph("matmul") + " --device cpu");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(lines(outcome.err), 1);
  EXPECT_THAT(outcome.err, HasSubstr("the tuning table is ignored: " + path("cache/tuning.json")));
  EXPECT_THAT(fusor(line).out, HasSubstr(" measured, 0 known already"));
  EXPECT_EQ(fusor(line).err, "");
}

TEST_F(Tune, WithoutAFolderThereIsNothingToKeepItIn) {
  const Outcome outcome = fusor("tune " + graph("matmul") + kQuick, "FUSOR_CACHE_DIR=");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("FUSOR_CACHE_DIR"));
}

#ifdef FUSOR_STUB_DRIVER
TEST_F(Bench, AGpuThatComputesNothingIsFoundOutInEveryCandidate) {
  if (!nvrtc::available()) GTEST_SKIP() << "no NVRTC";
  const Outcome outcome = fusor("bench --all-candidates --candidates 2 plain " + kTiny + " --runs 3",
                                "FUSOR_LIBCUDA='" FUSOR_STUB_DRIVER "'");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(occurrences(outcome.out, "\"passed\": false"), 2);
  EXPECT_THAT(outcome.out, HasSubstr("\"candidate\": 1"));
}

TEST_F(Bench, AllCandidatesTellWhatTheModelsChoiceCosts) {
  if (!nvrtc::available()) GTEST_SKIP() << "no NVRTC";
  const Outcome outcome =
      fusor("bench --all-candidates --candidates 2 --no-verify plain " + kTiny + " --runs 3",
            "FUSOR_LIBCUDA='" FUSOR_STUB_DRIVER "'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(occurrences(outcome.out, "\"choice_over_best\""), 1);
  EXPECT_EQ(occurrences(outcome.out, "\"worst_choice_over_best\""), 1);
}

TEST_F(Tune, CandidatesOfAGpuAreMeasuredInTurn) {
  if (!nvrtc::available()) GTEST_SKIP() << "no NVRTC";
  const std::string stub = "FUSOR_LIBCUDA='" FUSOR_STUB_DRIVER "'";
  const std::string line = "tune " + graph("matmul") + " --runs 6 --candidates 2";
  const Outcome first = fusor(line, stub);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("best of 2"));
  EXPECT_THAT(first.out, Not(HasSubstr("remark")));
  EXPECT_THAT(fusor(line, stub).out, HasSubstr("nothing was measured"));
  EXPECT_THAT(fusor("explain " + graph("matmul") + " --all", stub).out, HasSubstr("measured with"));
}

// Measured times may call for a whole that estimates would cut.
TEST_F(Tune, AWholeThatSlowPartsCallForIsMeasured) {
  if (!nvrtc::available()) GTEST_SKIP() << "no NVRTC";
  const std::string stub = "FUSOR_LIBCUDA='" FUSOR_STUB_DRIVER "'";
  const std::string line = "tune " + graph("matmul") + " --runs 6 --candidates 2";
  std::string told = fusor(line, stub).out;
  std::stringstream table;
  table << std::ifstream(path("cache/tuning.json")).rdbuf();
  std::string slow = table.str();
  for (const std::string key : {"\"seconds\": ", "\"low\": ", "\"high\": "})
    for (size_t at = 0; (at = slow.find(key, at)) != std::string::npos;) {
      at += key.size();
      slow.replace(at, slow.find_first_of(",\n", at) - at, "0.01");
    }
  std::ofstream(path("cache/tuning.json")) << slow;
  told += fusor(line, stub).out;
  EXPECT_THAT(told, HasSubstr("matmul and sums: mm + gelu1 + sum1\n"));
  EXPECT_THAT(told, Not(HasSubstr("remark")));
}
#endif

}  // namespace
}  // namespace fusor
