// Owns Error: the one exception of the library. A refusal by an engine is a value (core/support.h), never an
// Error.
#pragma once

#include <stdexcept>
#include <string>

#include "core/api.h"

namespace fusor {

/// Who can fix it: the caller (bad_input), the machine's owner (missing: a driver, NVRTC, a GPU, disk space),
/// whoever looks after the GPU (device), or the authors (internal: a bug in the library).
enum class ErrorKind { bad_input, missing, device, internal };

/// A failure with one clear message that names the op, tensor or file and the numbers.
class FUSOR_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace fusor
