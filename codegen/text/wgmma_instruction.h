// Owns the declaration of one form of wgmma in a kernel's generated header: asm takes no text but literals.
#pragma once

#include <cstdint>
#include <string>

#include "core/data_type.h"

namespace fusor {

/// Among a KernelSource's types: the wgmma of so many columns, for operands of these elements; fp32 stands
/// for TF32.
std::string wgmma_instruction(int64_t columns, DataType a, DataType b);

}  // namespace fusor
