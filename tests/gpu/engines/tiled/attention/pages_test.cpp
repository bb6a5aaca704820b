// Owns the GPU tests of attention_decode over caches in pages: every setting against the oracle, for pages of
// 8 to 128 rows, lengths around them, pages in any order and shared ones, and tables whose unused entries are
// garbage.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/engines/list.h"
#include "backend/planning.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/support/paged_attention.h"

namespace fusor::pages_test {
namespace {

using test::PagedCase;
using Form = PagedCase::Form;

const std::array<const Engine*, 1> kDecodeOnly{&attention_decode_engine()};

#define FUSOR_NEEDS_AMPERE() \
  FUSOR_NEEDS_GPU();         \
  if (DeviceInfo::current().compute_capability < 80) GTEST_SKIP() << "needs an Ampere GPU or later"

std::string words(const PagedCase& c) {
  return fmt::format("form {}: {} x {}({}) x {} x {}, pages of {}, heads of {}{}{}", static_cast<int>(c.form),
                     c.batch, c.heads, c.shared_heads, c.queries, c.keys, c.page, c.head,
                     c.has_lengths ? ", lengths" : "", c.is_causal ? ", causal" : "");
}

// 0, 1, around a page and around several, the longest; then at random.
std::vector<int32_t> lengths_of(const PagedCase& c, std::mt19937_64& random) {
  std::vector<int64_t> lengths{c.page + 1, 0, 1, c.page - 1, c.page, c.keys, c.keys - 1, c.page * 3 + 2};
  std::vector<int32_t> chosen;
  for (int64_t b = 0; b < c.batch; ++b)
    chosen.push_back(static_cast<int32_t>(std::min(c.keys, b < std::ssize(lengths)
                                                               ? lengths[static_cast<size_t>(b)]
                                                               : static_cast<int64_t>(random()) % c.keys)));
  return chosen;
}

// Pages in no order; the second half of the sequences begins with a page of the first one. The last page of
// the container is full of NaN, and entries behind a length name it, or none at all.
std::vector<int32_t> table_of(const PagedCase& c, const std::vector<int32_t>& lengths,
                              std::mt19937_64& random) {
  const auto none = static_cast<int32_t>(c.pages() - 1);
  std::vector<int32_t> table(static_cast<size_t>(none));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), random);
  const std::array<int32_t, 6> garbage{
      none, -1, std::numeric_limits<int32_t>::max(), none + 1, std::numeric_limits<int32_t>::min(), 1 << 28};
  for (int64_t b = 0; b < c.batch; ++b) {
    int32_t* const pages = table.data() + b * c.listed();
    if (b >= c.batch / 2) pages[0] = table[0];
    if (!c.has_lengths) continue;
    const int64_t used = (lengths[static_cast<size_t>(b)] + c.page - 1) / c.page;
    for (int64_t i = used; i < c.listed(); ++i) pages[i] = garbage[random() % garbage.size()];
  }
  return table;
}

void set_pages(DeviceRun& run, const PagedCase& c) {
  std::mt19937_64 random(7);
  const std::vector<int32_t> lengths = lengths_of(c, random);
  const auto copy = [&](const char* name, const std::vector<int32_t>& values) {
    run.edit(name, [&](std::byte* to) { std::memcpy(to, values.data(), 4 * values.size()); });
  };
  copy("table_k", table_of(c, lengths, random));
  copy("table_v", table_of(c, lengths, random));
  if (c.has_lengths) copy("lengths", lengths);
  if (c.has_lengths && c.form != Form::written_out)
    copy("query_lengths", std::vector<int32_t>(lengths.size(), static_cast<int32_t>(c.queries)));
  const int64_t bytes = 2 * c.shared_heads * c.page * c.head;
  for (const char* name : {"k", "v"})
    run.edit(name, [&](std::byte* to) {
      std::memset(to + (c.pages() - 1) * bytes, 0xff, static_cast<size_t>(bytes));
    });
}

void expect_pages_read(const PagedCase& c) {
  const Graph graph = test::paged_attention(c);
  const PlannerOptions options{.engine_list = kDecodeOnly};
  const std::vector<Candidate> all = candidates(graph, DeviceInfo::current(), options);
  ASSERT_FALSE(all.empty()) << words(c);
  bool first = true;
  for (const Candidate& candidate : all) {
    const std::string config = to_string(candidate.fusions.front().config);
    if (!std::exchange(first, false) && !test::is_sampled(words(c) + config, 4)) continue;
    ASSERT_EQ(candidate.fusions.size(), 1U) << words(c);
    DeviceRun run(graph, build(graph, DeviceInfo::current(), candidate, options));
    set_pages(run, c);
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << words(c) << " " << config << "\n" << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << words(c) << " " << config;
  }
}

class AttentionPagesGpu : public testing::TestWithParam<int64_t> {};

TEST_P(AttentionPagesGpu, AroundLengths) {
  FUSOR_NEEDS_AMPERE();
  for (const Form form : {Form::op, Form::loads, Form::written_out})
    expect_pages_read({.form = form, .batch = 9, .page = GetParam(), .keys = 4 * GetParam() + 70});
}

TEST_P(AttentionPagesGpu, WholeTables) {
  FUSOR_NEEDS_AMPERE();
  for (const Form form : {Form::op, Form::loads, Form::written_out})
    expect_pages_read({.form = form, .batch = 2, .page = GetParam(), .keys = 900, .has_lengths = false});
}

TEST_P(AttentionPagesGpu, SeveralQueries) {
  FUSOR_NEEDS_AMPERE();
  expect_pages_read({.batch = 8, .queries = 4, .page = GetParam(), .keys = 700, .is_causal = true});
  expect_pages_read({.batch = 2, .queries = 5, .page = GetParam(), .keys = 321, .has_lengths = false});
}

TEST_P(AttentionPagesGpu, OtherHeadsAndLayouts) {
  FUSOR_NEEDS_AMPERE();
  const int64_t page = GetParam();
  expect_pages_read({.batch = 3, .page = page, .keys = 500, .head = 128, .heads_within_rows = true});
  expect_pages_read({.batch = 3, .heads = 4, .shared_heads = 4, .page = page, .keys = 500, .head = 80});
  expect_pages_read({.batch = 3, .heads = 4, .shared_heads = 1, .page = page, .keys = 333, .head = 256});
  expect_pages_read({.batch = 3, .page = page, .keys = 500, .head = 36, .type = DataType::f16});
}

INSTANTIATE_TEST_SUITE_P(Pages, AttentionPagesGpu, testing::Values(8, 16, 64, 128));

// Pages of 5 rows: groups of keys begin anywhere in a page.
TEST(AttentionPagesGpuForms, OddPages) {
  FUSOR_NEEDS_AMPERE();
  expect_pages_read({.batch = 6, .page = 5, .keys = 333});
  expect_pages_read({.form = Form::loads, .batch = 2, .page = 1, .keys = 99, .has_lengths = false});
}

TEST(AttentionPagesGpuForms, LongCachesInManyParts) {
  FUSOR_NEEDS_AMPERE();
  expect_pages_read({.batch = 2, .heads = 16, .page = 16, .keys = 20000, .head = 128});
}

}  // namespace
}  // namespace fusor::pages_test
