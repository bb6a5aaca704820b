// Owns the compiling of what a training step will ask for next: while the forward pass is planned call by
// call, the kernels of the backward pass are made by threads beside it.
#pragma once

#include <functional>
#include <memory>

#include "core/device_info.h"
#include "core/graph.h"

namespace fusor::cudnn {

/// Says that the process trains: some call belongs to a training step alone. Forward convolutions that were
/// planned before have their gradients compiled from now on, and later ones when they are planned.
void note_training();
/// Says that a graph was planned. Of one forward convolution the gradients are compiled ahead, once, where
/// the process trains.
void note_planned(const Graph& graph, const std::shared_ptr<const DeviceInfo>& device);
/// Compiles the kernels of a graph in the background; a graph was built before. Nothing where there is no GPU
/// or FUSOR_THREADS is 1. Whoever builds the same graph meanwhile waits for its kernels. An error is dropped:
/// the call that needs the graph meets it itself.
void compile_ahead(std::function<Graph()> graph, std::shared_ptr<const DeviceInfo> device);

}  // namespace fusor::cudnn
