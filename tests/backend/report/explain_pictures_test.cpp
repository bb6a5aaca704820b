// Tests the pictures of an explanation: what the page is given, and that DOT and ONNX hold the whole graph.
#include <gmock/gmock.h>

#include <cstdint>
#include <string_view>

#include "backend/report/explain.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Graph conv_relu(const std::string& name) {
  GraphBuilder g(name);
  const Tensor x = g.input("x", {4, 64, 14, 14}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor y = g.relu(g.conv_fprop(x, w, {.padding = {1, 1}, .name = "conv"}), {.name = "relu"});
  g.output(g.transpose(y, {0, 2, 3, 1}, {.name = "turn"}), {.name = "out"});
  return g.finish();
}

const DeviceInfo kDevice = DeviceInfo::named("H200");

TEST(ExplainPictures, ThePageHoldsTheGraphAndNoTagOfItsNames) {
  const std::string page = explain_html(conv_relu("</script><b>"), kDevice);
  EXPECT_THAT(page, HasSubstr("\"name\": \"\\u003c/script>\\u003cb>\""));
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(page, Not(HasSubstr("FUSOR_DATA")));
  for (const char* word : {"\"conv_fprop\"", "\"decisions\"", "\"rule\"", "wgmma", "\"folded\""})
    EXPECT_THAT(page, HasSubstr(word));
  EXPECT_THAT(page, Not(HasSubstr("http://www.w3.org/1999"))) << "nothing is fetched";
}

TEST(ExplainPictures, DotHasAClusterAFusionAndQuotesNames) {
  const std::string dot = explain_dot(conv_relu("a \"b\" \\c"), kDevice);
  EXPECT_THAT(dot, HasSubstr("digraph \"a \\\"b\\\" \\\\c\" {"));
  EXPECT_THAT(dot, HasSubstr("subgraph cluster_0"));
  EXPECT_THAT(dot, HasSubstr("label=\"conv\nconv_fprop\""));
  EXPECT_THAT(dot, HasSubstr("t0 -> op0;"));
}

// A message of protobuf, by fields: varints as numbers, everything else as text.
struct Field {
  int number = 0;
  uint64_t value = 0;
  std::string_view text;
};

uint64_t varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(0));
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::vector<Field> fields(std::string_view bytes) {
  std::vector<Field> read;
  while (!bytes.empty()) {
    const uint64_t key = varint(bytes);
    Field& field = read.emplace_back();
    field.number = static_cast<int>(key >> 3);
    if ((key & 7) == 0) {
      field.value = varint(bytes);
      continue;
    }
    const size_t size = (key & 7) == 5 ? 4 : varint(bytes);
    field.text = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  return read;
}

std::vector<std::string> texts(std::string_view message, int number) {
  std::vector<std::string> found;
  for (const Field& field : fields(message))
    if (field.number == number) found.emplace_back(field.text);
  return found;
}

TEST(ExplainPictures, OnnxHoldsOpsTensorsFusionsAndEngines) {
  const std::string model = explain_onnx(conv_relu("model"), kDevice);
  EXPECT_THAT(texts(model, 2), ElementsAre("fusor"));
  const std::string graph = texts(model, 7).at(0);
  EXPECT_THAT(texts(graph, 2), ElementsAre("model"));
  std::vector<std::string> ops, attributes;
  for (const std::string& node : texts(graph, 1)) {
    ops.push_back(texts(node, 4).at(0));
    EXPECT_THAT(texts(node, 7), ElementsAre("fusor"));
  }
  EXPECT_THAT(ops, testing::IsSupersetOf({"conv_fprop", "relu", "transpose"}));
  const std::string conv = texts(graph, 1).at(0);
  EXPECT_THAT(texts(conv, 1), ElementsAre("x", "w"));
  for (const std::string& attribute : texts(conv, 5)) {
    attributes.push_back(texts(attribute, 1).at(0));
    if (attributes.back() == "engine") {
      EXPECT_THAT(texts(attribute, 4).at(0), HasSubstr("wgmma"));
    }
    if (attributes.back() != "fusion") continue;
    for (const Field& field : fields(attribute))
      if (field.number == 3) {
        EXPECT_EQ(field.value, 1U);
      }
  }
  EXPECT_THAT(attributes, testing::IsSupersetOf({"pre_padding", "fusion", "engine"}));
  EXPECT_EQ(texts(graph, 11).size(), 2U);
  const std::string type = texts(texts(graph, 11).at(0), 2).at(0);
  EXPECT_EQ(fields(texts(type, 1).at(0)).at(0).value, 10U) << "fp16";
}

}  // namespace
}  // namespace fusor
