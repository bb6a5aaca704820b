// Tests that damaged documents are read or refused as bad input, and nothing else.
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "tests/serialization/sample_documents.h"

namespace fusor {
namespace {

constexpr int kRounds = 4000;

/// Flips, inserts, removes, repeats or cuts a few bytes.
std::string damaged(std::string text, std::mt19937& random) {
  static const std::string kAlphabet = "{}[]\",:0123456789.-eEinfatru\\ \n\x01\xff";
  const auto below = [&random](size_t limit) { return limit == 0 ? 0 : random() % limit; };
  const size_t times = 1 + below(3);
  for (size_t i = 0; i < times; ++i) {
    const size_t at = below(text.size());
    const char byte = kAlphabet[below(kAlphabet.size())];
    switch (below(6)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.erase(at, 1 + below(4));
        break;
      case 2:
        text.insert(at, 1, byte);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), below(40)));
        break;
      default:
        if (at < text.size()) text[at] = byte;
    }
  }
  return text;
}

template <class Read>
void expect_read_or_refused(const std::string& valid, Read read) {
  std::mt19937 random(20240611);
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string text = damaged(valid, random);
    try {
      read(text);
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.kind(), ErrorKind::bad_input) << error.what() << "\n" << text;
      ASSERT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    } catch (const std::exception& error) {
      FAIL() << error.what() << "\n" << text;
    }
  }
  EXPECT_GT(refused, kRounds / 2);
}

TEST(Damage, GraphsAreReadOrRefused) {
  expect_read_or_refused(samples::kConvGraph, graph_from_json);
  expect_read_or_refused(samples::kMatmulGraph, graph_from_json);
}

TEST(Damage, PlansAreReadOrRefused) { expect_read_or_refused(to_json(samples::conv_plan()), plan_from_json); }

TEST(Damage, DevicesAreReadOrRefused) {
  expect_read_or_refused(to_json(samples::small_gpu()), device_from_json);
}

}  // namespace
}  // namespace fusor
