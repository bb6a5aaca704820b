// Owns matmuls whose rows belong to experts (moe_grouped_matmul): the matmul that they are carried out as,
// the launch that finds their tiles, and which of them stay whole.
//
//   rows of    expert 0         1    2                     the first rows may belong to none
//              |---------------|----|--------------------|
//   tiles      |======|======|=-|=---|======|======|==---|  each begins with rows of one expert
//
// A tile multiplies the weights of its expert; its rows behind the expert's last are not stored.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "backend/planning.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/ops/expansion.h"
#include "core/support.h"

namespace fusor::wgmma {

/// The experts of a matmul. Rows belong to the expert whose first row is the last one at or before them.
struct Experts {
  Expr first_rows;  ///< yields an integer for each expert
  int64_t count = 0;
  int64_t stride = 0;  ///< elements from an expert's weights to the next one's
};

/// A matmul of all rows by the weights of the first expert, in the place of one of them by several.
struct MatmulOfExperts {
  Fusion fusion;
  Experts experts;
};
bool has_experts(const Fusion& fusion);
std::variant<MatmulOfExperts, Refusal> matmul_of_experts(const Fusion& fusion);

/// The bytes of a list of tiles of `tile` rows each, as many as `rows` rows take at most.
int64_t bytes_of_tiles(const Experts& experts, int64_t rows, int64_t tile);
/// The launch that lists the tiles in the first scratch.
Launch list_of_tiles(const Experts& experts, const Fusion& fusion, int64_t rows, int64_t tile,
                     const std::string& target);

/// The matmuls by experts that the engine carries out whole, where the options allow it.
StaysWhole matmuls_by_experts(const DeviceInfo& device, const PlannerOptions& options);

}  // namespace fusor::wgmma
