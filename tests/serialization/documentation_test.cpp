// Tests that the examples of docs/formats.md are what they claim to be.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "serialization/serialization.h"

namespace fusor {
namespace {

/// The JSON blocks of the page, in order: graph, plan (with gaps), device.
std::vector<std::string> examples() {
  std::ostringstream page;
  page << std::ifstream(FUSOR_TEST_DIR "/../../docs/formats.md").rdbuf();
  const std::string text = page.str();
  const std::string open = "```json\n";
  std::vector<std::string> blocks;
  for (size_t at = 0; (at = text.find(open, at)) != std::string::npos;) {
    at += open.size();
    blocks.push_back(text.substr(at, text.find("```", at) - at));
  }
  return blocks;
}

TEST(Documentation, TheGraphIsValid) {
  ASSERT_EQ(examples().size(), 3U);
  EXPECT_EQ(graph_from_json(examples()[0]).ops.size(), 3U);
}

TEST(Documentation, TheDeviceIsTheBuiltInOne) {
  ASSERT_EQ(examples().size(), 3U);
  EXPECT_EQ(device_from_json(examples()[2]), DeviceInfo::named("H200"));
}

}  // namespace
}  // namespace fusor
