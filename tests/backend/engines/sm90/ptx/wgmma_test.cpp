// Owns the check that what no engine asks for yet compiles: sums of two widths in one kernel, a left operand
// of 16 bits from registers, and two or three consumers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"
#include "codegen/text/wgmma_instruction.h"
#include "core/error.h"
#include "tests/codegen/sample_source.h"

namespace fusor {
namespace {

// Two products a step, as attention has them: scores from shared memory, then theirs with another operand,
// from registers. The kernel stands behind the generated header of a plain one.
constexpr const char* kTwoProducts = R"(
#include "codegen/device/sm90/pipeline/roles.cuh"
#include "codegen/device/sm90/ptx/wgmma.cuh"

{scores}
{products}

struct Sums {{ alignas(8) u32 turn; float* out; }};

struct TwoProducts {{
  static constexpr int kLoaders = 1, kConsumers = {consumers}, kLoaderRegisters = 24, kClusterBlocks = 1;
  static constexpr bool kLoadsAhead = false, kMeetsAtEnd = false;
  struct Shared {{
    alignas(1024) u8 a[64 * 128];
    alignas(1024) u8 b[128 * 128];
    Barrier full;
  }};
  FUSOR_DEVICE void init(const Sums&, Shared& shared) {{ shared.full.init(1); }}
  FUSOR_DEVICE void prefetch(const Sums&) {{}}
  FUSOR_DEVICE void clear(Shared&) {{}}
  FUSOR_DEVICE void load(const Sums&, Shared& shared) {{
    if (threadIdx.x == 0) shared.full.arrive();
  }}
  FUSOR_DEVICE void consume(const Sums& p, Shared& shared, int consumer) {{
    using Scores = Wgmma<128, {type}, {type}, 0, 0>;
    using Products = Wgmma<64, {type}, {type}, 0, {transposed}>;
    shared.full.wait(0);
    const u64 a = wgmma_descriptor(shared_address(shared.a), 16, 1024);
    const u64 b = wgmma_descriptor(shared_address(shared.b), 16, 1024);
    wgmma_fence();
    Scores::template issue_line<0, 2, 2>(a, b, 0);
    wgmma_commit();
    wgmma_wait<0>();
    float scores[64];
    read_sums<0, 128>(scores);
    u32 left[4];
    for (int i = 0; i < 4; ++i) left[i] = __float_as_uint(scores[i]);
    clear_sums<1, 64>();
    wgmma_fence();
    Products::template issue<1>(left, b, 1);
    wgmma_commit();
    wgmma_wait<0>();
    float sums[32];
    read_sums<1, 64>(sums);
    for (int i = 0; i < 32; ++i) p.out[(consumer * 32 + i) * 128 + threadIdx.x % 128] = sums[i] + scores[32 + i];
  }}
}};

extern "C" __global__ void __launch_bounds__(kThreadsOf<TwoProducts>, 1)
    two_products(const __grid_constant__ Sums p) {{
  declare_sums<2>();
  run_roles<TwoProducts>(p);
}}
)";

void expect_compiled(int consumers, DataType type, int transposed) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const KernelSource source = test::sample_source();
  const std::string text =
      emit_header(source) +
      fmt::format(kTwoProducts, fmt::arg("consumers", consumers), fmt::arg("type", info(type).device_type),
                  fmt::arg("transposed", transposed), fmt::arg("scores", wgmma_instruction(128, type, type)),
                  fmt::arg("products", wgmma_instruction(64, type, type)));
  const nvrtc::Compilation done = nvrtc::compile(source.root, text, source.target);
  EXPECT_EQ(done.log.find("serialized"), std::string::npos) << done.log;
  EXPECT_EQ(done.log.find("warning"), std::string::npos) << done.log;
  EXPECT_NE(done.log.find("two_products"), std::string::npos) << done.log;
}

TEST(WgmmaWidths, TwoFilesOfSumsAndALeftOperandFromRegistersCompile) {
  expect_compiled(2, DataType::bf16, 1);
}
TEST(WgmmaWidths, ThreeConsumersCompile) { expect_compiled(3, DataType::f16, 1); }
TEST(WgmmaWidths, EightBitsFromRegistersCompile) { expect_compiled(2, DataType::f8_e4m3, 0); }

}  // namespace
}  // namespace fusor
