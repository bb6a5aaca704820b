// Owns the GPU tests of attention_latent: every setting against the oracle, for few and many heads, odd
// lengths, limits, sinks and statistics, and that runs repeat themselves to the bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "backend/engines/list.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/support/latent_attention.h"

namespace fusor::latent_test {
namespace {

using test::LatentCase;

const std::array<const Engine*, 1> kLatentOnly{&attention_latent_engine()};

TEST(AttentionLatentGpu, EveryCase) {
  FUSOR_NEEDS_HOPPER();
  for (const LatentCase& c :
       {LatentCase{}, LatentCase{.batch = 1, .heads = 128, .keys = 777},
        LatentCase{.batch = 3, .heads = 40, .keys = 63, .value = 256, .rope = 40},
        LatentCase{.batch = 5, .heads = 24, .keys = 301, .has_lengths = true},
        LatentCase{.keys = 65, .scaled_queries = true},
        LatentCase{.heads = 70, .keys = 1000, .has_sink = true, .has_statistics = true},
        LatentCase{.batch = 9, .heads = 1, .keys = 130, .value = 128, .rope = 0, .type = DataType::f16}})
    expect_every_config_correct(
        test::latent_attention(c), kLatentOnly,
        fmt::format("{} x {} heads, {} keys of {} + {}", c.batch, c.heads, c.keys, c.value, c.rope));
}

}  // namespace
}  // namespace fusor::latent_test
