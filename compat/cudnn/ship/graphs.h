// Owns the list of graphs whose kernels libcudnn ships.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/graph.h"

namespace fusor::cudnn {

using GraphMaker = std::function<Graph()>;

/// Convolutions of ResNets and MobileNetV2 in three passes, for images in batches of these sizes.
std::vector<GraphMaker> shipped_convolutions(const std::vector<int64_t>& batches);
/// Batch norms behind those convolutions, in both passes of a training step.
std::vector<GraphMaker> shipped_batch_norms(const std::vector<int64_t>& batches);
/// Training and inference of LSTM and GRU layers, as the single calls make them.
std::vector<GraphMaker> shipped_recurrent_layers();
/// Both passes of attention, with and without a causal mask, as cudnn-frontend writes them.
std::vector<GraphMaker> shipped_attention();

}  // namespace fusor::cudnn
