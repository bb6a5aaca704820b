// Owns the names that emitted text gives to data types.
#pragma once

#include <string>

#include "core/data_type.h"
#include "core/ops/pointwise.h"

namespace fusor {

/// The device type in which an element is stored.
inline std::string device_type(DataType type) { return std::string(info(type).device_type); }
/// The device type in which a value is held between load and store.
inline std::string carrier_type(DataType type) { return device_type(carrier(type)); }

/// Whether the op's value is a bool of the device, whatever its operands are.
inline bool yields_truth(PointwiseMode mode) {
  const PointwiseDomain domain = info(mode).domain;
  return domain == PointwiseDomain::compare || domain == PointwiseDomain::logical;
}

}  // namespace fusor
