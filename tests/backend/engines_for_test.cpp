// Owns the tests of engines_for, and of candidates that speak of their ops by name.
#include "backend/engines_for.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "backend/engines/list.h"
#include "backend/executable.h"
#include "core/error.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

Graph matmul_relu(const std::string& relu = "relu") {
  GraphBuilder g("matmul_relu");
  const Tensor a = g.input("a", {256, 512}, DataType::f16);
  const Tensor b = g.input("b", {512, 256}, DataType::f16);
  g.output(g.relu(g.matmul(a, b, {.name = "matmul"}), {.name = relu}), {.name = "y"});
  return g.finish();
}

const EngineOffer& offer_of(const FusionEngines& fusion, std::string_view engine) {
  return *std::ranges::find(fusion.engines, engine, [](const EngineOffer& o) { return o.answer.engine; });
}

TEST(EnginesFor, NamesTheOpsOfEveryFusion) {
  const std::vector<FusionEngines> found = engines_for(matmul_relu(), DeviceInfo::named("H200"));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].ops, ElementsAre("matmul", "relu"));
  EXPECT_THAT(found[0].engines, SizeIs(engines().size()));
}

TEST(EnginesFor, OffersKnobsAndSettingsOfAnEngineThatAccepts) {
  const std::vector<FusionEngines> found = engines_for(matmul_relu(), DeviceInfo::named("H200"));
  const EngineOffer& wgmma = offer_of(found.at(0), "wgmma");
  ASSERT_TRUE(wgmma.answer.support);
  EXPECT_TRUE(wgmma.answer.chosen);
  EXPECT_TRUE(wgmma.answer.notes.tensor_cores);
  ASSERT_THAT(wgmma.settings, Not(IsEmpty()));
  EXPECT_EQ(wgmma.answer.config, to_string(wgmma.settings.front().config));
  for (const EngineSetting& setting : wgmma.settings) {
    EXPECT_GT(setting.seconds, 0);
    for (const KnobSetting& knob : setting.config.knobs) {
      const auto named = std::ranges::find(wgmma.knobs, knob.name, &Knob::name);
      ASSERT_NE(named, wgmma.knobs.end()) << knob.name;
      EXPECT_THAT(named->values, testing::Contains(knob.value)) << knob.name;
    }
  }
}

TEST(EnginesFor, GivesARefusalAsData) {
  const std::vector<FusionEngines> found = engines_for(matmul_relu(), DeviceInfo::named("H200"));
  const EngineOffer& elementwise = offer_of(found.at(0), "elementwise");
  ASSERT_FALSE(elementwise.answer.support);
  EXPECT_EQ(elementwise.answer.support.refusal->node, "matmul");
  EXPECT_THAT(elementwise.settings, IsEmpty());
}

TEST(EnginesFor, AForbiddenEngineOffersNothing) {
  const std::vector<FusionEngines> found =
      engines_for(matmul_relu(), DeviceInfo::named("H200"), {.forbid = {"wgmma"}});
  EXPECT_EQ(offer_of(found.at(0), "wgmma").answer.support.refusal->rule, "forbidden");
}

TEST(Candidates, SayWhichOpsRunWhere) {
  const std::vector<Candidate> found = candidates(matmul_relu(), DeviceInfo::named("H200"));
  ASSERT_NE(found.at(0).graph, nullptr);
  EXPECT_THAT(op_names(*found[0].graph, found[0].fusions.at(0)), ElementsAre("matmul", "relu"));
  EXPECT_THAT(to_string(found[0]), HasSubstr("matmul + relu: wgmma("));
  EXPECT_EQ(found.at(1).graph, found[0].graph) << "all share one graph";
}

TEST(Candidates, NameOpsThatOnlyTheExpandedGraphHas) {
  GraphBuilder g("reshaped_input");
  const Tensor a = g.input("a", {12, 20}, DataType::f16);
  const Tensor flat = g.reshape(g.transpose(a, {1, 0}), {240});
  const Graph graph = g.finish({g.relu(flat, {.name = "relu"})});
  const Candidate candidate = candidates(graph, DeviceInfo::cpu()).front();
  EXPECT_GT(candidate.graph->ops.size(), graph.ops.size());
  EXPECT_THAT(to_string(candidate), HasSubstr("relu: cpu"));
}

TEST(Candidates, ArePlannedForTheirOwnGraphOnly) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Candidate candidate = candidates(matmul_relu(), device).front();
  EXPECT_EQ(build(matmul_relu(), device, candidate, {.compile = false}).fusions, candidate.fusions);
  EXPECT_THROW(build(matmul_relu("other"), device, candidate, {.compile = false}), Error);
}

}  // namespace
}  // namespace fusor
