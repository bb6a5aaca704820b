// Owns the batch norms whose kernels are shipped: those behind the convolutions of usual networks, in
// training.
#include <set>
#include <utility>

#include "compat/cudnn/ship/graphs.h"
#include "compat/cudnn/ship/networks.h"
#include "compat/cudnn/src/legacy/batch_norm_call.h"

namespace fusor::cudnn {
namespace {

struct Images {
  int64_t batch, channels, side;
  cudnnDataType_t type;
  bool channels_last;
};

TensorObject tensor_of(const Images& images) {
  const Dims dims{images.batch, images.channels, images.side, images.side};
  const Strides last{dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
  return {images.type, dims, images.channels_last ? last : packed_strides(dims)};
}

batch_norm::Forward call_of(const Images& images) {
  const TensorObject x = tensor_of(images);
  const Dims channels{1, images.channels, 1, 1};
  return {x, x, {CUDNN_DATA_FLOAT, channels, packed_strides(channels)}, true, true, {}};
}

template <class Make>
GraphMaker maker(Make make) {
  return [make = std::move(make)] { return graph_of(Precision::exact, make); };
}

}  // namespace

std::vector<GraphMaker> shipped_batch_norms(const std::vector<int64_t>& batches) {
  std::set<std::pair<int64_t, int64_t>> shapes;
  for (const Layer& layer : usual_layers()) shapes.emplace(layer.out, layer.result_image());
  std::vector<GraphMaker> makers;
  for (const int64_t batch : batches)
    for (const auto& [channels, side] : shapes)
      for (const cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
        for (const bool channels_last : {false, true}) {
          const batch_norm::Forward call = call_of({batch, channels, side, type, channels_last});
          makers.push_back(maker([call](Sketch& s) { call.sketch(s); }));
          makers.push_back(maker([call](Sketch& s) { call.sketch_update(s); }));
          makers.push_back(maker([call](Sketch& s) { call.gradients().sketch(s); }));
        }
  return makers;
}

}  // namespace fusor::cudnn
