// Tests `fusor fuzz` as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/graph_builder.h"
#include "serialization/serialization.h"
#include "tests/tools/command_fixture.h"

namespace fusor {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

class FuzzCommand : public CommandTest {};

TEST_F(FuzzCommand, EndsWithTheTally) {
  const Outcome outcome = fusor("fuzz --device H200 --plan-only --runs 20 --seed 2 --ops 2 --threads 2");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, EndsWith("20 graphs, 0 wrong, 0 refused, 0 crashed\n"));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(FuzzCommand, ChecksAFile) {
  EXPECT_EQ(fusor("fuzz " + graph("matmul") + " --device cpu").out,
            "1 graphs, 0 wrong, 0 refused, 0 crashed\n");
}

// A comparison of numbers that right runs round differently is no fault of the library: it stands for one
// here.
TEST_F(FuzzCommand, AFailureIsKeptAndItsReplayFails) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3000}, DataType::f32);
  const Tensor y = g.exp(g.sin(x), {.type = DataType::f32});
  g.output(g.cmp_eq(g.mul(y, y), g.exp(g.add(g.sin(x), g.sin(x)))));
  save(g.finish(), path("unstable.json"));
  const Outcome outcome =
      fusor("fuzz " + path("unstable.json") + " --device cpu --no-shrink --keep " + path("kept"));
  EXPECT_EQ(outcome.code, 1) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("graph 0: wrong"));
  EXPECT_THAT(outcome.out, HasSubstr("replay: fusor fuzz "));
  EXPECT_THAT(outcome.out, EndsWith("1 graphs, 1 wrong, 0 refused, 0 crashed\n"));
  const Outcome again = fusor("fuzz " + path("kept") + "/fuzz_1_0.json --device CPU --inputs 1 --json");
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.out, HasSubstr("\"wrong\": 1"));
}

TEST_F(FuzzCommand, AnEngineThatIsForbiddenEverywhereIsARefusal) {
  const Outcome outcome = fusor("fuzz " + graph("matmul") + " --device cpu --forbid cpu --no-shrink");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("graph 0: refused"));
}

TEST_F(FuzzCommand, OptionsThatContradictAreRefused) {
  EXPECT_EQ(fusor("fuzz --plan-only --compile --device H200").code, 2);
  EXPECT_EQ(fusor("fuzz --runs 0").code, 2);
  EXPECT_EQ(fusor("fuzz --device nonsense").code, 2);
}

}  // namespace
}  // namespace fusor
