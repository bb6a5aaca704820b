// Owns how the arguments of a call become checked pointers, and how the call is launched.
#include "call.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace fusor::python {

namespace {

// --- numbers -----------------------------------------------------------------------------------------------

/// bf16 of a number, to the nearest, ties to even.
uint16_t bf16_bits(double number) {
  const auto single = static_cast<float>(number);
  uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof bits);
  if (single != single) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

[[noreturn]] void refuse_number(const Tensor& tensor, PyObject* object) {
  PyErr_Clear();
  refuse(fmt::format("run: scalar '{}' is {}, which has no number {}", tensor.name, to_string(tensor.type),
                     nb::repr(nb::handle(object)).c_str()));
}

bool has_number(const DataTypeInfo& type, int64_t number) {
  if (type.kind == NumberKind::boolean) return number == 0 || number == 1;
  if (type.type == DataType::u8) return number >= 0 && number <= 255;
  const int64_t largest = INT64_MAX >> (64 - type.bits);
  return number >= -largest - 1 && number <= largest;
}

}  // namespace

/// A Python number as an element of `tensor`'s type.
void store_number(const Tensor& tensor, PyObject* object, std::byte* to) {
  const auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  if (!is_real(tensor.type)) {
    const long long whole = PyLong_AsLongLong(object);
    if ((whole == -1 && PyErr_Occurred() != nullptr) || !has_number(info(tensor.type), whole))
      refuse_number(tensor, object);
    put(static_cast<int64_t>(whole));  // little-endian: shorter integers are its first bytes
    return;
  }
  const double number = PyFloat_AsDouble(object);
  if (number == -1 && PyErr_Occurred() != nullptr) refuse_number(tensor, object);
  switch (tensor.type) {
    case DataType::f64:
      return put(number);
    case DataType::f32:
      return put(static_cast<float>(number));
    case DataType::bf16:
      return put(bf16_bits(number));
    case DataType::f16: {
      constexpr double kRoundsToInfinity = 65520;
      if (std::isfinite(number) && std::abs(number) >= kRoundsToInfinity) refuse_number(tensor, object);
      const nb::bytes packed(nb::module_::import_("struct").attr("pack")("<e", number));
      std::memcpy(to, packed.data(), 2);
      return;
    }
    default:
      refuse(fmt::format("run: tensor '{}' is {}: give an array of one element, not a number", tensor.name,
                         to_string(tensor.type)));
  }
}

namespace {

// --- arrays ------------------------------------------------------------------------------------------------

Dims dims_of(const Array& array) {
  return Dims(std::span<const int64_t>(array.dims.data(), static_cast<size_t>(array.rank)));
}

Strides strides_of(const Array& array) {
  if (array.packed) return packed_strides(dims_of(array));
  return Dims(std::span<const int64_t>(array.strides.data(), static_cast<size_t>(array.rank)));
}

bool has_dims(const Array& array, const Tensor& tensor) {
  if (array.rank != tensor.dims.rank()) return false;
  for (int i = 0; i < array.rank; ++i)
    if (array.dims[static_cast<size_t>(i)] != tensor.dims[i]) return false;
  return true;
}

bool has_strides(const Array& array, const Tensor& tensor) {
  int64_t packed = 1;
  for (int i = array.rank - 1; i >= 0; --i) {
    const int64_t stride = array.packed ? packed : array.strides[static_cast<size_t>(i)];
    if (tensor.dims[i] != 1 && stride != tensor.strides[i]) return false;
    packed *= tensor.dims[i];
  }
  return true;
}

/// Checks an array for a type whose elements share bytes: exactly the tensor's bytes, one behind the other.
bool has_bytes(const Array& array, const Tensor& tensor) {
  if (array.rank > kMaxRank) return false;  // and no more dims are kept
  int64_t count = 1;
  for (int i = array.rank - 1; i >= 0; --i) {
    const int64_t extent = array.dims[static_cast<size_t>(i)];
    if (!array.packed && extent != 1 && array.strides[static_cast<size_t>(i)] != count) return false;
    count *= extent;
  }
  return array.type.bits == 8 && count == tensor.bytes();
}

bool has_one_element(const Array& array) {
  if (array.rank > kMaxRank) return false;
  for (int i = 0; i < array.rank; ++i)
    if (array.dims[static_cast<size_t>(i)] != 1) return false;
  return true;
}

void check_place(const Loaded& loaded, const SlotOf& slot, const Array& array, Run& run) {
  const bool wants_gpu = slot.tensor.memory == Memory::device && !loaded.device().is_cpu();
  if (array.on_gpu != wants_gpu)
    refuse(fmt::format("run: tensor '{}' must be on the {}, the array is on {}", slot.tensor.name,
                       wants_gpu                            ? fmt::format("GPU ({})", loaded.device().name)
                       : slot.tensor.memory == Memory::host ? std::string("host (it is a number of each run)")
                                                            : std::string("host (the plan is for the CPU)"),
                       array.on_gpu ? fmt::format("GPU {}", array.ordinal) : std::string("the host")));
  if (!array.on_gpu) return;
  if (run.ordinal >= 0 && array.ordinal != run.ordinal)
    refuse(fmt::format("run: tensor '{}' is on GPU {}, the arrays before it on GPU {}", slot.tensor.name,
                       array.ordinal, run.ordinal));
  run.ordinal = array.ordinal;
}

/// The pointer of one argument: an array, a number for a scalar, an address.
void* pointer_of(const Loaded& loaded, size_t i, PyObject* object, Run& run) {
  const SlotOf& slot = loaded.slots[i];
  if (slot.tensor.memory == Memory::host && (PyFloat_Check(object) != 0 || PyLong_Check(object) != 0)) {
    store_number(slot.tensor, object, run.number(i));
    return run.number(i);
  }
  if (PyLong_CheckExact(object) != 0) {
    void* address = PyLong_AsVoidPtr(object);
    if (address == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
    return address;
  }
  Array array;
  const bool is_array = read_array(object, array, run.hold(i));
  if (!is_array)
    refuse(
        fmt::format("run: tensor '{}': expected an array (NumPy, PyTorch, CuPy, DLPack, the CUDA array "
                    "interface) of whole elements, or an address, got {}",
                    slot.tensor.name, nb::type_name(nb::handle(object).type()).c_str()));
  check_place(loaded, slot, array, run);
  if (slot.tensor.memory == Memory::host) {
    if (const char* const why = no_number(array, slot.tensor)) refuse_array(slot, array, why);
    return array.pointer;
  }
  if (const char* const why = misplaced(array, slot.tensor)) refuse_array(slot, array, why);
  if (slot.is_output && array.read_only)
    refuse(fmt::format("run: output '{}' is read-only", slot.tensor.name));
  return array.pointer;
}

void set_array(const Loaded& loaded, Run& run, nb::handle key, nb::handle array) {
  const size_t slot = slot_named(loaded, key);
  if (run.arrays()[slot] != nullptr)
    refuse(fmt::format("run: tensor '{}' is given twice", loaded.slots[slot].tensor.name));
  run.arrays()[slot] = array.ptr();
}

}  // namespace

void refuse_array(const SlotOf& slot, const Array& array, const char* what, const char* asker) {
  const Tensor& tensor = slot.tensor;
  std::string text = fmt::format("{}: {} '{}' is {} {} with strides {}; got {}", asker,
                                 slot.is_output ? "output" : "tensor", tensor.name, to_string(tensor.type),
                                 to_string(tensor.dims), to_string(tensor.strides), to_string(array.type));
  if (array.rank > kMaxRank)
    text += fmt::format(" of {} dims", array.rank);
  else
    text += fmt::format(" {} with strides {}", to_string(dims_of(array)), to_string(strides_of(array)));
  refuse(fmt::format("{} ({})", text, what));
}

const char* no_number(const Array& array, const Tensor& tensor) {
  const bool is_type = is_packed(tensor.type) ? array.type.bits == 8 : holds(array.type, tensor.type);
  if (!is_type) return "another type";
  return has_one_element(array) ? nullptr : "not one element";
}

const char* misplaced(const Array& array, const Tensor& tensor) {
  if (is_packed(tensor.type))
    return has_bytes(array, tensor) ? nullptr : "its elements share bytes: expected an array of all of them";
  if (!holds(array.type, tensor.type)) return "another type";
  if (!has_dims(array, tensor)) return "other dims";
  return has_strides(array, tensor) ? nullptr : "other strides";
}

// --- calls -------------------------------------------------------------------------------------------------

Loaded::Loaded(Executable loaded)
    : executable(std::move(loaded)), workspaces(executable.plan().device, executable.workspace_bytes()) {
  const Graph& graph = executable.plan().graph;
  slots.resize(static_cast<size_t>(executable.slot_count()));
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.memory != Memory::device && tensor.memory != Memory::host) continue;
    PyObject* name =
        PyUnicode_FromStringAndSize(tensor.name.data(), static_cast<Py_ssize_t>(tensor.name.size()));
    PyUnicode_InternInPlace(&name);
    slots[static_cast<size_t>(executable.slot(tensor.name))] = {
        tensor, graph.producer(static_cast<int>(i)) >= 0, nb::steal(name)};
  }
}

std::string names_of(const Loaded& loaded) {
  std::string names;
  for (const SlotOf& slot : loaded.slots)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", slot.tensor.name);
  return names;
}

size_t slot_named(const Loaded& loaded, nb::handle key) {
  for (size_t i = 0; i < loaded.slots.size(); ++i)
    if (loaded.slots[i].name.is(key)) return i;
  BuilderTensor* tensor = nullptr;
  std::string_view name;
  if (nb::try_cast(key, tensor) && tensor != nullptr)
    name = tensor->tensor.name;
  else if (!nb::try_cast(key, name))
    refuse(fmt::format("run: expected the name of a tensor, got {}", nb::repr(key).c_str()));
  for (size_t i = 0; i < loaded.slots.size(); ++i)
    if (loaded.slots[i].tensor.name == name) return i;
  refuse(fmt::format("run: the plan of '{}' binds no tensor '{}'; it binds {}",
                     loaded.executable.plan().graph.name, name, names_of(loaded)));
}

void collect(const Loaded& loaded, const nb::args& args, const nb::kwargs& named, Run& run) {
  const bool is_dict = args.size() == 1 && PyDict_Check(nb::handle(args[0]).ptr());
  if (is_dict) {
    for (const auto& [key, array] : nb::borrow<nb::dict>(args[0])) set_array(loaded, run, key, array);
  } else {
    if (args.size() > loaded.slots.size())
      refuse(fmt::format("run: got {} arrays, the plan of '{}' binds {}: {}", args.size(),
                         loaded.executable.plan().graph.name, loaded.slots.size(), names_of(loaded)));
    for (size_t i = 0; i < args.size(); ++i)
      run.arrays()[i] = PyTuple_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i));
  }
  if (!named.empty())
    for (const auto& [key, array] : named) set_array(loaded, run, key, array);
  for (size_t i = 0; i < loaded.slots.size(); ++i) {
    if (run.arrays()[i] == nullptr)
      refuse(fmt::format("run: tensor '{}' has no array; the plan of '{}' binds {}",
                         loaded.slots[i].tensor.name, loaded.executable.plan().graph.name, names_of(loaded)));
    run.pointers()[i] = pointer_of(loaded, i, run.arrays()[i], run);
  }
}

Workspace workspace_of(const Loaded& loaded, nb::handle object, Hold& hold) {
  if (PyLong_CheckExact(object.ptr())) return {PyLong_AsVoidPtr(object.ptr())};
  DeviceMemory* memory = nullptr;
  if (nb::try_cast(object, memory) && memory != nullptr) return *memory;
  Array array;
  if (!read_array(object.ptr(), array, hold))
    refuse(fmt::format("run: the workspace is {}; expected an array of bytes, a DeviceMemory or an address",
                       nb::type_name(object.type()).c_str()));
  if (array.on_gpu == loaded.device().is_cpu())
    refuse(fmt::format("run: the workspace is on the {}, the plan is for the {}",
                       array.on_gpu ? "GPU" : "host", loaded.device().name));
  int64_t bytes = array.type.bits / 8;
  for (int i = 0; i < array.rank; ++i) bytes *= array.dims[static_cast<size_t>(i)];
  return {array.pointer, bytes};
}

void launch(Loaded& loaded, void* const* pointers, nb::handle workspace, Stream stream) {
  const std::span<void* const> by_slot(pointers, loaded.slots.size());
  if (!workspace.is_none()) {
    Hold hold;
    const Workspace given = workspace_of(loaded, workspace, hold);
    const nb::gil_scoped_release released;
    return loaded.executable.run(by_slot, given, stream);
  }
  const nb::gil_scoped_release released;
  DeviceMemory own = loaded.workspaces.take(stream);
  loaded.executable.run(by_slot, own.get() == nullptr ? Workspace() : Workspace(own), stream);
  loaded.workspaces.give_back(std::move(own));
}

}  // namespace fusor::python
