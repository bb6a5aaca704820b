// Owns the reading of arrays of other libraries, without a copy and without importing them: by the buffer
// protocol (NumPy), by PyTorch's methods, by the CUDA array interface (CuPy, Numba), by DLPack (JAX and all
// others).
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>
#include <string>

#include "bindings.h"

namespace fusor::python {

/// An element type as arrays name it; code: 'f' real, 'i' and 'u' integers, 'b' boolean, 'B' bfloat16, '4'
/// and '5' the two fp8, '?' anything else.
struct ArrayType {
  char code = '?';
  int bits = 0;
  friend bool operator==(const ArrayType&, const ArrayType&) = default;
};

ArrayType array_type(DataType type);
std::string to_string(ArrayType type);
/// Whether elements of `got` are those of `want`: NumPy has no bf16, fp8 or (in C) booleans of its own, so
/// that unsigned integers of as many bits may hold them.
bool holds(ArrayType got, DataType want);

/// The description that an array gives of itself, for as long as its holder lives. Strides in elements.
struct Array {
  void* pointer = nullptr;
  ArrayType type;
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{};
  std::array<int64_t, kMaxRank> strides{};
  bool packed = false;  ///< row-major: strides are not filled in
  bool on_gpu = false;
  int ordinal = 0;  ///< of the GPU
  bool read_only = false;
};

/// Keeps what an array's memory was borrowed by until the run was launched.
class Hold {
 public:
  Hold() = default;
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    if (view.obj != nullptr) PyBuffer_Release(&view);
    Py_XDECREF(object);
  }
  Py_buffer view{};
  PyObject* object = nullptr;
};

/// Reads any array. False where the object is none; throws nb::python_error where it raises.
bool read_array(PyObject* object, Array& array, Hold& hold);

}  // namespace fusor::python
