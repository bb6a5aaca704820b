// Owns NumPy's files: an .npy read into a tensor's memory, and a tensor written as one.
#pragma once

#include <string>

#include "core/tensor.h"

namespace fusor::command {

/// Elements of packed types have a byte each in files: int4 as int8, bool1 as bool, fp4_e2m1 as its four bits
/// in an unsigned one (as ml_dtypes has it).
///
/// Reads the file into the host memory of `tensor`, wherever its strides put the elements. Throws
/// Error{bad_input} that names the file, where its type or shape is another, or it is no such file.
void read_npy(const std::string& path, const Tensor& tensor, void* memory);
/// Writes the tensor row-major. Types that NumPy lacks are unsigned integers of as many bits. Throws
/// Error{missing} with the system's reason.
void write_npy(const std::string& path, const Tensor& tensor, const void* memory);

}  // namespace fusor::command
