// Owns the rules with which several engines begin: the device, the fusion's anchor, the type of its sums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/engines/contraction/product.h"
#include "backend/engines/engine.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/support.h"

namespace fusor {

/// A refusal that names the fusion's anchor, and leaves no place to cut at.
Refusal refusal_at_anchor(const Fusion& fusion, const char* rule, std::string expected, std::string actual,
                          const char* remedy = "");

/// For engines that reduce in one pass, and only what leaves: a fusion is cut where a total is needed again,
/// before an anchor or after it, and at a second contraction that is no sibling of the first.
std::optional<Refusal> refuse_phases(const Fusion& fusion);

/// Whether two elements may be scattered to one place, where either may be the last: where an index is read
/// from memory. An index that is computed of the coordinates of every axis that the place does not count
/// itself is taken to name each place once, as that of a ragged tensor does, whose entries begin at offsets.
bool scatters_may_meet(const Fusion& fusion);

/// For every engine: packed elements that its kernels do not load, or not store. A fusion is cut behind the
/// op that reads them, or in front of the one that writes them.
std::optional<Refusal> refuse_packed(const Fusion& fusion, PackedAccess access);

/// For every engine: an operand whose site counts blocks along an axis. A fusion is cut behind the op that
/// makes the operand.
std::optional<Refusal> refuse_blocks(const Fusion& fusion, bool takes_blocks);

/// For every engine: an op that stays whole, such as a recurrence, that it does not carry out.
std::optional<Refusal> refuse_composites(const Fusion& fusion, const Engine& engine);

/// For engines of any CUDA device.
std::optional<Refusal> refuse_cpu(const DeviceInfo& device);
/// For engines of Hopper's tensor cores.
std::optional<Refusal> refuse_other_than_hopper(const DeviceInfo& device);
/// For engines around one convolution.
std::optional<Refusal> refuse_other_anchor(const Fusion& fusion);
/// For engines that add up in fp32 only.
std::optional<Refusal> refuse_other_sums(const Fusion& fusion, const Contraction& view);

/// SMs that clusters of so many blocks may lie on: they keep within a group of SMs.
int64_t sms_of_clusters(const DeviceInfo& device, int64_t cluster);

/// For kernels whose coordinates have 32 bits; `what` they number up to `reached`.
std::optional<Refusal> refuse_wide_coordinates(const Fusion& fusion, const char* what, int64_t reached);

/// For launches whose arguments hold the classes of a dgrad of a stride.
std::optional<Refusal> refuse_residue_classes(const Fusion& fusion, const Contraction& view);

/// For engines of Hopper that take one convolution and store its results elementwise, over its own shape:
/// where nothing is refused, contraction_of(fusion) has a value.
std::optional<Refusal> refuse_other_than_hopper_convolution(const Fusion& fusion, const DeviceInfo& device);

}  // namespace fusor
