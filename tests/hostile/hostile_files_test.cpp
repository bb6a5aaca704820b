// Owns the test that mutated graph and plan files are refused or used, with no other end. The mutations are
// the same in every run; a sanitized build sees what they do to memory and arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/hostile/exercise.h"
#include "tests/hostile/mutate.h"

namespace fusor {
namespace {

namespace fs = std::filesystem;

constexpr int kMutations = 3000;

std::vector<std::string> corpus() {
  std::vector<fs::path> files;
  for (const char* folder : {FUSOR_SOURCE_DIR "/tests/hostile/corpus", FUSOR_SOURCE_DIR "/samples/graphs"})
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<std::string> texts;
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return texts;
}

struct QuietMachine : testing::Environment {
  void SetUp() override {
    setenv("FUSOR_CACHE_DIR", "", 1);
    setenv("FUSOR_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  }
};
const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new QuietMachine);

void expect_refused_or_used(const std::string& text) {
  try {
    hostile::exercise(text);
  } catch (const std::exception& error) {
    FAIL() << error.what() << "\n" << text;
  }
}

// Plans with absurd knobs, too: their fusions are planned anew.
TEST(HostileFiles, TheCorpusIsUsed) {
  for (const std::string& text : corpus()) EXPECT_TRUE(hostile::exercise(text)) << text;
}

TEST(HostileFiles, MutationsAreRefusedOrUsed) {
  const std::vector<std::string> texts = corpus();
  ASSERT_GT(texts.size(), 10u);
  std::mt19937 random(20251122);
  for (int i = 0; i < kMutations; ++i) {
    const std::string text = hostile::mutated(texts[random() % texts.size()], random);
    expect_refused_or_used(text);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace fusor
