// Owns the tests of what FUSOR_DEBUG tells on stderr.
#include <gmock/gmock.h>

#include <cstdlib>

#include "backend/build.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string told(const char* level) {
  GraphBuilder g("told");
  const Graph graph = g.finish({g.relu(g.input("x", {4}, DataType::f32), {.name = "relu"})});
  if (level != nullptr) setenv("FUSOR_DEBUG", level, 1);
  testing::internal::CaptureStderr();
  build(graph, DeviceInfo::cpu());
  unsetenv("FUSOR_DEBUG");
  return testing::internal::GetCapturedStderr();
}

TEST(Trace, IsSilentUnlessAsked) { EXPECT_THAT(told(nullptr), IsEmpty()); }

TEST(Trace, LevelOneIsALineForTheBuild) {
  EXPECT_THAT(told("1"), HasSubstr("fusor: build 'told' on CPU"));
  EXPECT_THAT(told("1"), Not(HasSubstr("partitioned")));
}

TEST(Trace, LevelTwoTellsThePasses) {
  for (const char* pass : {"expanded", "partitioned", "priced and cut", "ordered"})
    EXPECT_THAT(told("2"), HasSubstr(pass));
}

TEST(Trace, LevelThreeTellsTheExpressions) {
  EXPECT_THAT(told("3"), HasSubstr("relu v0"));
  EXPECT_THAT(told("2"), Not(HasSubstr("relu v0")));
}

}  // namespace
}  // namespace fusor
