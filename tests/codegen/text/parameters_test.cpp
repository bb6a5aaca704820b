// Owns the tests of a kernel's parameters: text, bytes and patches come from one list.
#include "codegen/text/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"
#include "core/error.h"
#include "core/fast_divisor.h"
#include "tests/codegen/sample_source.h"

namespace fusor {
namespace {

using testing::HasSubstr;

int64_t word(const ArgumentBlock& block, size_t number) {
  int64_t value = 0;
  std::memcpy(&value, block.bytes().data() + 8 * number, sizeof value);
  return value;
}

std::string text_of(const Parameters& p, const std::vector<std::string>& types = {}) {
  KernelSource source = test::sample_source();
  source.parameters = p.fields();
  source.types = types;
  return emit_header(source);
}

TEST(Parameters, TextAndBytesAreInTheOrderOfTheCalls) {
  Parameters p(32);
  p.index("rows", 5);
  p.wide("results", 7);
  p.divisors("extents", Dims{3, 9});
  EXPECT_THAT(text_of(p), HasSubstr("struct Params {\n"
                                    "  alignas(8) Index rows;\n"
                                    "  i64 results;\n"
                                    "  FastDivisor extents[2];\n"
                                    "};\n"));
  EXPECT_EQ(p.block().bytes().size(), 8u * (2 + 2 * 3));
  EXPECT_EQ(word(p.block(), 0), 5);
  EXPECT_EQ(word(p.block(), 1), 7);
  EXPECT_EQ(word(p.block(), 2), 3);
  EXPECT_EQ(word(p.block(), 5), 9);
  EXPECT_EQ(word(p.block(), 6), static_cast<int64_t>(FastDivisor::of(9, 32).multiplier));
}

TEST(Parameters, PointersArePatchedWhereTheirFieldLies) {
  Parameters p(32);
  p.index("rows", 5);
  p.pointer("x", "const bf16", 3, 16);
  p.scratch("partials", "float", 1);
  EXPECT_THAT(text_of(p), HasSubstr("  const bf16* x;\n  float* partials;\n"));
  const std::vector<Patch>& patches = p.block().patches();
  ASSERT_EQ(patches.size(), 2u);
  EXPECT_EQ(patches[0].kind, Patch::Kind::operand);
  EXPECT_EQ(patches[0].at, 8);
  EXPECT_EQ(patches[0].index, 3);
  EXPECT_EQ(patches[0].byte_offset, 16);
  EXPECT_EQ(patches[1].kind, Patch::Kind::scratch);
  EXPECT_EQ(patches[1].at, 16);
}

TEST(Parameters, MembersOfAStructAreCheckedByTheirPlaces) {
  Parameters p(64);
  p.index("rows", 5);
  p.group("window", "Window", [&] {
    p.wide("first", 1);
    p.array("axis", "Axis", 2, [&](int i) { p.wide("start", i); });
  });
  const std::string text = text_of(p, {"tiled/window.cuh"});
  EXPECT_THAT(text, HasSubstr("#include \"codegen/device/tiled/window.cuh\"\nstruct Params {\n"
                              "  alignas(8) Index rows;\n  Window window;\n};\n"));
  EXPECT_THAT(text, HasSubstr("static_assert(FUSOR_PLACE(Params, window.first) == 8, \"\");\n"));
  EXPECT_THAT(text, HasSubstr("static_assert(FUSOR_PLACE(Params, window.axis[1].start) == 24, \"\");\n"));
}

TEST(Parameters, AnArrayOfFieldsIsCountedOnce) {
  Parameters p(32);
  p.array("taps", "i64", 3, [&](int i) { p.wide("", i); });
  EXPECT_THAT(text_of(p), HasSubstr("  i64 taps[3];\n"));
  EXPECT_EQ(word(p.block(), 2), 2);
}

TEST(Parameters, ASiteWithoutFieldsTakesAWord) {
  Parameters p(32);
  KernelSite site;
  site.name = "A";
  p.site("a", site, Fusion{});
  p.index("rows", 5);
  EXPECT_THAT(text_of(p), HasSubstr("  alignas(8) A::Args a;\n"));
  EXPECT_EQ(word(p.block(), 1), 5);
}

TEST(Parameters, WhetherTheLaunchRunsBesideOthersStandsInFront) {
  Launch launch;
  Parameters p(32);
  p.index("rows", 5);
  p.pointer("x", "const bf16", 3);
  p.move_to(test::sample_source(), launch);
  EXPECT_EQ(launch.turn_at, 0);
  EXPECT_THAT(emit_header(*launch.source), HasSubstr("struct Params {\n"
                                                     "  alignas(8) u32 turn;\n"
                                                     "  alignas(8) Index rows;\n"
                                                     "  const bf16* x;\n"));
  EXPECT_EQ(word(launch.arguments, 0), 0);
  EXPECT_EQ(word(launch.arguments, 1), 5);
  EXPECT_EQ(launch.arguments.patches()[0].at, 16);
}

TEST(Parameters, MapsStayOnMultiplesOf64Bytes) {
  Launch launch;
  Parameters p(32);
  p.tensor_map("a", {}, 0, 0);
  p.array("b", "TensorMap", 2, [&](size_t) { p.tensor_map("", {}, 1, 0); });
  p.move_to(test::sample_source(), launch);
  const std::vector<Patch>& patches = launch.arguments.patches();
  ASSERT_EQ(patches.size(), 3u);
  EXPECT_EQ(patches[0].at, 64);
  EXPECT_EQ(patches[1].at, 64 + 128);
  EXPECT_EQ(patches[2].at, 64 + 2 * 128);
}

TEST(Parameters, OtherFieldsAreAnotherStructure) {
  KernelSource source = test::sample_source();
  const std::string before = structure_hash(source);
  source.parameters.pop_back();
  EXPECT_NE(structure_hash(source), before);
}

TEST(Parameters, AMemberElsewhereThanItsBytesDoesNotCompile) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  KernelSource source = test::sample_source();
  source.parameters.push_back({"extents[1].shift", "", 0, 32 + 24 + 16});
  EXPECT_FALSE(nvrtc::compile(source.root, emit_header(source), source.target).cubin.empty());
  source.parameters.back().at += 8;
  try {
    nvrtc::compile(source.root, emit_header(source), source.target);
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("static assertion failed"));
  }
}

}  // namespace
}  // namespace fusor
