// Owns the look-ups in a graph.
#include "core/graph.h"

#include <algorithm>

namespace fusor {

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::strict:
      return "strict";
    case Precision::exact:
      return "exact";
    case Precision::allow_tf32:
      return "allow_tf32";
    case Precision::allow_short_sums:
      return "allow_short_sums";
  }
  return "";
}

int Graph::producer(int tensor) const {
  for (size_t i = 0; i < ops.size(); ++i)
    if (std::ranges::find(ops[i].outputs, tensor) != ops[i].outputs.end()) return static_cast<int>(i);
  return -1;
}

std::vector<int> Graph::consumers(int tensor) const {
  std::vector<int> found;
  for (size_t i = 0; i < ops.size(); ++i)
    if (std::ranges::find(ops[i].inputs, tensor) != ops[i].inputs.end()) found.push_back(static_cast<int>(i));
  return found;
}

int Graph::find(std::string_view tensor_name) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == tensor_name) return static_cast<int>(i);
  return -1;
}

int Graph::find_uid(int64_t uid) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].uid == uid) return static_cast<int>(i);
  return -1;
}

}  // namespace fusor
