// Owns the order in which engines are asked.
#include "backend/engines/list.h"

#include <array>

namespace fusor {

std::span<const Engine* const> engines() {
  // clang-format off
  static const std::array<const Engine*, 23> kEngines = {
      &attention_engine(),
      &attention_backward_engine(),
      &attention_latent_engine(),
      &attention_decode_engine(),
      &attention_mma_engine(),
      &recurrent_engine(),
      &wgmma_engine(),
      &wgmma_repacked_engine(),
      &wgmma_narrow_engine(),
      &wgmma_taps_engine(),
      &wgmma_parts_engine(),
      &mma_stream_engine(),
      &mma_weights_engine(),
      &mma_engine(),
      &grouped_engine(),
      &depthwise_engine(),
      &depthwise_repacked_engine(),
      &window_engine(),
      &rows_engine(),
      &elementwise_engine(),
      &packed_engine(),
      &direct_engine(),
      &cpu_engine()};
  // clang-format on
  return kEngines;
}

const Engine* find_engine(std::span<const Engine* const> list, std::string_view name) {
  for (const Engine* engine : list)
    if (engine->name() == name) return engine;
  return nullptr;
}

}  // namespace fusor
