// Owns Translation: an operation graph of the client as a graph of fusor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compat/cudnn/src/descriptor.h"
#include "core/graph.h"

namespace fusor::cudnn {

/// A tensor of the graph that lies inside of a tensor of the client.
struct PlacedTensor {
  int64_t graph_uid = 0;
  int64_t client_uid = 0;
  int64_t byte_offset = 0;
};

struct Translation {
  Graph graph;                       ///< bound tensors have the client's uids
  std::vector<PlacedTensor> placed;  ///< those of the graph's bound tensors that have uids of their own
  /// By-value scalars that masks put in place of scores, and those that multiply scores. They are -inf, and
  /// positive, in all that is known of clients: the graph is right for that, and each run looks whether it is
  /// so.
  std::vector<int64_t> minus_infinity = {}, positive = {};
  std::optional<Graph> general = {};  ///< the graph for all values, where something is presumed
  bool is_attention_backward = false;
};

/// Translates the ops of a finalized set, in any order. Throws Refusal or Error with the reason.
Translation translate(const std::vector<DescriptorPointer>& ops);

}  // namespace fusor::cudnn
