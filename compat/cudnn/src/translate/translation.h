// Owns Translation: an operation graph of the client as a graph of fusor.
#pragma once

#include <cstdint>
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
};

/// Translates the ops of a finalized set, in any order. Throws Refusal or Error with the reason.
Translation translate(const std::vector<DescriptorPointer>& ops);

}  // namespace fusor::cudnn
