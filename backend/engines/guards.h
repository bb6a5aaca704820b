// Owns the guards of kernels: how their accesses need the operands aligned.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/lowered.h"

namespace fusor {

inline constexpr int64_t kMaxAccessBytes = 16;  ///< the widest load or store of a thread

/// Adds a guard. An operand that has one keeps the larger alignment.
void guard(std::vector<Guard>& guards, const Guard& asked);

/// Guards the operands of a site's loads and stores. `together` says how many elements one access reads or
/// writes at once; an access asks for kMaxAccessBytes at the most.
void guard_accesses(std::vector<Guard>& guards, const KernelSite& site,
                    const std::function<int64_t(const Access&)>& together);

/// The same, where accesses of whole vectors have `vector` elements and all others one.
void guard_accesses(std::vector<Guard>& guards, const KernelSite& site, int64_t vector);

}  // namespace fusor
