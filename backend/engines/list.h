// Owns THE ordered list of engines: specialised ones first, the plain ones last.
#pragma once

#include <span>

#include "backend/engines/engine.h"

namespace fusor {

std::span<const Engine* const> engines();
/// The engine of that name in `list`, or null.
const Engine* find_engine(std::span<const Engine* const> list, std::string_view name);

// One function for each engine, in the folder of its family.
const Engine& cpu_engine();
const Engine& elementwise_engine();
const Engine& packed_engine();
const Engine& rows_engine();
const Engine& window_engine();
const Engine& direct_engine();
const Engine& recurrent_engine();
const Engine& depthwise_engine();
const Engine& depthwise_repacked_engine();
const Engine& grouped_engine();
const Engine& mma_engine();
const Engine& mma_stream_engine();
const Engine& mma_weights_engine();
const Engine& attention_engine();
const Engine& attention_backward_engine();
const Engine& attention_decode_engine();
const Engine& attention_latent_engine();
const Engine& attention_mma_engine();
const Engine& wgmma_engine();
const Engine& wgmma_repacked_engine();
const Engine& wgmma_narrow_engine();
const Engine& wgmma_taps_engine();
const Engine& wgmma_parts_engine();

}  // namespace fusor
