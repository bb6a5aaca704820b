// Owns the program that prints the table of descriptors as JSON, of which docs/cudnn-reference.md is made.
#include <cstdio>
#include <string>

#include "compat/cudnn/src/attribute_table.h"

namespace {

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

const char* word_of(Need need) {
  if (need == Need::required) return "required";
  return need == Need::optional ? "optional" : "answer";
}

const char* word_of(Flow flow) {
  if (flow == Flow::none) return "none";
  return flow == Flow::reads ? "reads" : "writes";
}

std::string text_of(const AttributeRow& row) {
  return "{\"name\": \"" + std::string(row.words) + "\", \"type\": \"" + std::string(name_of(row.type)) +
         "\", \"need\": \"" + word_of(row.need) + "\", \"flow\": \"" + word_of(row.flow) + "\"}";
}

}  // namespace

int main() {
  std::string text = "[";
  for (const DescriptorRow& row : descriptor_rows()) {
    text += (text.size() > 1 ? ",\n" : "\n") + std::string("{\"name\": \"") + std::string(row.name) +
            "\", \"operation\": " + (row.is_operation() ? "true" : "false") + ", \"attributes\": [";
    for (const AttributeRow& attribute : row.attributes)
      text += (&attribute == row.attributes.data() ? "" : ", ") + text_of(attribute);
    text += "]}";
  }
  std::puts((text + "\n]").c_str());
  return 0;
}
