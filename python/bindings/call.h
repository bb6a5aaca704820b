// Owns what a call of an executable is made of: its tensors, the arrays checked for them, and the launch.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "workspaces.h"

namespace fusor::python {

/// One tensor that a run binds.
struct SlotOf {
  Tensor tensor;
  bool is_output = false;
  nb::object name;  ///< interned
};

struct Loaded {
  explicit Loaded(Executable loaded);
  const DeviceInfo& device() const { return executable.plan().device; }

  Executable executable;
  Workspaces workspaces;
  std::vector<SlotOf> slots;
};

/// The run of some arrays: pointers by slot, and what they were borrowed by.
struct Run {
  static constexpr size_t kFew = 16;

  explicit Run(size_t slots) : size(slots) {
    if (slots <= kFew) return;
    more_pointers = std::make_unique<void*[]>(slots);
    more_holds = std::make_unique<Hold[]>(slots);
    more_numbers = std::make_unique<std::array<std::byte, 8>[]>(slots);
    more_arrays = std::make_unique<PyObject*[]>(slots);
  }
  void** pointers() { return more_pointers ? more_pointers.get() : few_pointers.data(); }
  Hold& hold(size_t i) { return more_holds ? more_holds[i] : few_holds[i]; }
  std::byte* number(size_t i) { return (more_numbers ? more_numbers[i] : few_numbers[i]).data(); }
  PyObject** arrays() { return more_arrays ? more_arrays.get() : few_arrays.data(); }

  size_t size;
  int ordinal = -1;  ///< the GPU of the arrays, once one has said it
  std::array<void*, kFew> few_pointers{};
  std::array<Hold, kFew> few_holds;
  std::array<std::array<std::byte, 8>, kFew> few_numbers;
  std::array<PyObject*, kFew> few_arrays{};
  std::unique_ptr<void*[]> more_pointers;
  std::unique_ptr<Hold[]> more_holds;
  std::unique_ptr<std::array<std::byte, 8>[]> more_numbers;
  std::unique_ptr<PyObject*[]> more_arrays;
};

/// The whole of what a tensor is and what was given for it, in one message.
[[noreturn]] void refuse_array(const SlotOf& slot, const Array& array, const char* what,
                               const char* asker = "run");

/// Why the array does not lie as the tensor does; null where it does.
const char* misplaced(const Array& array, const Tensor& tensor);
/// Why the array does not hold the number of a by-value scalar; null where it does.
const char* no_number(const Array& array, const Tensor& tensor);
/// A number of Python's as an element of a by-value scalar's type.
void store_number(const Tensor& tensor, PyObject* object, std::byte* to);

std::string names_of(const Loaded& loaded);

/// The position of a tensor by name or Tensor.
size_t slot_named(const Loaded& loaded, nb::handle key);

/// Arguments by position (in the order of `slots`), as one dict, and by name.
void collect(const Loaded& loaded, const nb::args& args, const nb::kwargs& named, Run& run);

/// The caller's workspace: memory of fusor, an array of bytes, or an address.
Workspace workspace_of(const Loaded& loaded, nb::handle object, Hold& hold);

void launch(Loaded& loaded, void* const* pointers, nb::handle workspace, Stream stream);

}  // namespace fusor::python
