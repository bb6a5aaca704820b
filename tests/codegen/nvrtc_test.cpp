// Tests of compilation: what comes back, and what is said when it fails.
#include "codegen/nvrtc.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "codegen/text/expr_emitter.h"
#include "core/error.h"
#include "core/parallel.h"
#include "tests/codegen/sample_source.h"

namespace fusor::nvrtc {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Nvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!available(&problem)) GTEST_SKIP() << problem;
  }
};

std::string message_of_failure(ErrorKind kind, const std::string& header, const std::string& target) {
  try {
    compile("elementwise/elementwise.cuh", header, target);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "it compiled";
}

TEST_F(Nvrtc, SaysItsVersionAndWhereItIs) {
  EXPECT_GE(std::stod(version()), 12.8);
  EXPECT_THAT(library_path(), HasSubstr("/libnvrtc"));
}

TEST_F(Nvrtc, KnowsItsTargets) { EXPECT_THAT(targets(), AllOf(Contains(80), Contains(90), Contains(100))); }

TEST_F(Nvrtc, CompilesToACubinWithALogOfRegistersAndSpills) {
  const KernelSource source = test::sample_source();
  const Compilation done = compile(source.root, emit_header(source), "sm_90a");
  EXPECT_THAT(done.cubin, StartsWith("\x7f"
                                     "ELF"));
  EXPECT_THAT(done.cubin, HasSubstr("elementwise"));
  EXPECT_THAT(done.log, AllOf(HasSubstr("registers"), HasSubstr("bytes spill stores")));
  EXPECT_GT(done.milliseconds, 1);
  EXPECT_LT(done.milliseconds, 10000);
}

TEST_F(Nvrtc, CompilesForEveryGeneration) {
  for (const char* target : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    const KernelSource source = test::sample_source(1, 64, 128, target);
    EXPECT_THAT(compile(source.root, emit_header(source), target).cubin, StartsWith("\x7f"
                                                                                    "ELF"))
        << target;
  }
}

TEST_F(Nvrtc, AWarningIsInTheLog) {
  const KernelSource source = test::sample_source();
  const std::string header = emit_header(source) + "static __device__ int odd() { int unused; return 1; }\n";
  EXPECT_THAT(compile(source.root, header, "sm_90a").log,
              HasSubstr("\"unused\" was declared but never referenced"));
}

TEST_F(Nvrtc, TextThatDoesNotCompileIsQuoted) {
  const std::string message = message_of_failure(ErrorKind::internal, "#error out of ideas\n", "sm_90a");
  EXPECT_THAT(message, AllOf(HasSubstr("does not compile elementwise/elementwise.cuh for sm_90a"),
                             HasSubstr("out of ideas"), HasSubstr("fusor_generated.cuh(1)")));
}

TEST_F(Nvrtc, AnUnknownTargetIsNamedWithTheKnownOnes) {
  for (const char* target : {"sm_52", "compute_90", "sm_", ""})
    EXPECT_THAT(message_of_failure(ErrorKind::missing, "", target),
                AllOf(HasSubstr("'" + std::string(target) + "'"), HasSubstr("sm_80, ")));
}

TEST_F(Nvrtc, ARootThatIsNotEmbeddedIsNamed) {
  try {
    compile("no_such.cuh", "", "sm_90a");
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'codegen/device/no_such.cuh'"));
  }
}

TEST_F(Nvrtc, ManyThreadsCompileAtOnce) {
  const KernelSource source = test::sample_source();
  const std::string header = emit_header(source);
  const std::string expected = compile(source.root, header, "sm_90a").cubin;
  std::vector<std::string> cubins(6);
  parallel_for(6, 6, [&](int64_t i) {
    cubins[static_cast<size_t>(i)] = compile(source.root, header, "sm_90a").cubin;
  });
  EXPECT_THAT(cubins, Each(expected)) << "the same text gives the same bytes";
}

TEST(NvrtcOptions, NameTheTargetAndNoFastMath) {
  EXPECT_THAT(options("sm_90a"), AllOf(Contains("--gpu-architecture=sm_90a"), Contains("--std=c++17"),
                                       Not(Contains(HasSubstr("fast-math"))), Not(Contains("-w"))));
}

TEST(NvrtcReadableSource, HasTheGeneratedHeaderInPlaceAndACommand) {
  const std::string text = readable_source("elementwise/elementwise.cuh", "struct Generated {};\n", "sm_90a");
  EXPECT_THAT(text, StartsWith("// codegen/device/elementwise/elementwise.cuh"));
  EXPECT_THAT(text, AllOf(HasSubstr("struct Generated {};"), HasSubstr("--gpu-architecture=sm_90a"),
                          HasSubstr("__global__"), Not(HasSubstr("fusor_generated.cuh"))));
}

// In a process of its own: what is opened first stays open.
TEST(NvrtcDeathTest, WithoutNvrtcNothingIsAvailableAndThatIsSaid) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("FUSOR_LIBNVRTC", "/nowhere/libnvrtc.so.13", 1);
        std::string problem;
        if (available(&problem)) _exit(1);
        const std::string message = message_of_failure(ErrorKind::missing, "", "sm_90a");
        fprintf(stderr, "%s | %s\n", problem.c_str(), message.c_str());
        _exit(0);
      },
      ::testing::ExitedWithCode(0),
      "NVRTC cannot be used. Tried /nowhere/libnvrtc.so.13: .* \\| NVRTC cannot be used.*FUSOR_LIBNVRTC");
}

}  // namespace
}  // namespace fusor::nvrtc
