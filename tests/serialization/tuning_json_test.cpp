// Owns the tests of tuning table <-> JSON.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "core/error.h"
#include "serialization/serialization.h"

namespace fusor {
namespace {

using testing::HasSubstr;

TuningTable sample() {
  TuningTable table;
  table.put({"H200", "0123", "g: conv + relu", {{{"wgmma", 2, {{"tile_n", 256}}}, 2e-5, 1.9e-5, 2.1e-5}}});
  table.put({"A100", "0123", "", {{{"direct", 1, {}}, 2, 1, 3}, {{"cpu", 1, {}}, 4, 3, 5}}});
  return table;
}

TEST(TuningJson, ATableComesBackAsItWas) {
  const std::string text = to_json(sample());
  const TuningTable back = tuning_from_json(text);
  EXPECT_EQ(to_json(back), text);
  const TunedFusion* fusion = back.find("H200", "0123");
  ASSERT_NE(fusion, nullptr);
  EXPECT_EQ(fusion->about, "g: conv + relu");
  EXPECT_EQ(fusion->configs[0].config, (EngineConfig{"wgmma", 2, {{"tile_n", 256}}}));
  EXPECT_EQ(fusion->configs[0].high, 2.1e-5);
  EXPECT_EQ(back.find("A100", "0123")->configs.size(), 2u);
}

void expect_refused(const std::string& from, const std::string& to, const std::string& message) {
  std::string text = to_json(sample());
  text.replace(text.find(from), from.size(), to);
  try {
    tuning_from_json(text);
    ADD_FAILURE() << text << " was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(TuningJson, DamageIsNamed) {
  expect_refused("\"tuning\"", "\"plan\"", "kind: expected a tuning");
  expect_refused("\"low\": 1.9e-05", "\"low\": \"nan\"",
                 "fusions[1].configs[0].low: expected a time above 0");
  expect_refused("\"revision\": 2", "\"revision\": 2, \"speed\": 1", "unknown key 'speed'");
  expect_refused("\"engine\": \"wgmma\"", "\"engine\": 3", "configs[0].engine: expected text");
}

TEST(TuningJson, TheDocumentationsExampleIsValid) {
  std::ostringstream page;
  page << std::ifstream(FUSOR_TEST_DIR "/../../docs/tuning.md").rdbuf();
  const std::string text = page.str();
  const std::string open = "```json\n";
  const size_t at = text.find(open) + open.size();
  EXPECT_EQ(tuning_from_json(text.substr(at, text.find("```", at) - at)).size(), 1u);
}

}  // namespace
}  // namespace fusor
