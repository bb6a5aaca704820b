// Owns the list of convolutional layers of usual networks.
#pragma once

#include <cstdint>
#include <vector>

namespace fusor::cudnn {

/// Channels in and out, the filter's side, its stride, the image's side, groups.
struct Layer {
  int64_t in, out, side, stride, image, groups = 1;

  int64_t result_image() const { return (image - 1) / stride + 1; }
};

/// The layers of ResNets and of MobileNetV2, for images of 224 x 224.
std::vector<Layer> usual_layers();

}  // namespace fusor::cudnn
