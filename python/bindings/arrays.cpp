// Owns the protocols by which arrays are read.
#include "arrays.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>

namespace fusor::python {

namespace {

// --- DLPack's structures (dmlc/dlpack, version 1; the first form of managed tensors) -----------------------

struct DLDevice {
  int32_t type;
  int32_t id;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t rank;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

/// Describes a tensor of Python for the length of a call; 0, or -1 with a Python exception set.
using Describe = int (*)(void* object, DLTensor* to);

/// A framework's table of functions, which its class has as `__dlpack_c_exchange_api__` (DLPack 1.3).
struct DLExchange {
  uint32_t major;
  uint32_t minor;
  void* older;
  void* allocate;
  void* take;
  void* give;
  Describe describe;  // may be null
  void* current_stream;
};

constexpr int32_t kDLCpu = 1, kDLCuda = 2, kDLCudaHost = 3, kDLCudaManaged = 13;

/// The codes of DLPack that have a type here, by position.
constexpr std::array<char, 15> kDLCodes = {'i', 'u', 'f', '?', 'B', '?', 'b', '?',
                                           '?', '?', '4', '?', '5', '?', '8'};

// --- Python's names ----------------------------------------------------------------------------------------

/// Interned once: attribute look-ups by these cost no hashing.
struct Names {
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* stride = PyUnicode_InternFromString("stride");
  PyObject* is_cuda = PyUnicode_InternFromString("is_cuda");
  PyObject* is_cpu = PyUnicode_InternFromString("is_cpu");
  PyObject* get_device = PyUnicode_InternFromString("get_device");
  PyObject* cuda_interface = PyUnicode_InternFromString("__cuda_array_interface__");
  PyObject* array_interface = PyUnicode_InternFromString("__array_interface__");
  PyObject* dlpack = PyUnicode_InternFromString("__dlpack__");
  PyObject* exchange = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
};

const Names& names() {
  static const Names interned;
  return interned;
}

enum class Protocol : uint8_t { none, buffer, torch, cuda_interface, dlpack };

/// PyTorch's function that describes a tensor without a call of Python: for its own tensors and parameters,
/// for others may be made of several. Null where there is none.
Describe describe_of(PyTypeObject* type) {
  const std::string_view name = type->tp_name;
  if (name != "Tensor" && name != "Parameter") return nullptr;
  PyObject* const capsule = PyObject_GetAttr(reinterpret_cast<PyObject*>(type), names().exchange);
  const auto* const table =
      capsule == nullptr
          ? nullptr
          : static_cast<const DLExchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  PyErr_Clear();
  Py_XDECREF(capsule);  // the class keeps it
  return table != nullptr && table->major == 1 ? table->describe : nullptr;
}

struct Reader {
  Protocol protocol = Protocol::none;
  Describe describe = nullptr;  ///< PyTorch's
};

/// By the type's attributes; remembered, with a reference to the type.
const Reader& reader_of(PyTypeObject* type) {
  static std::unordered_map<PyTypeObject*, Reader> known;
  if (const auto found = known.find(type); found != known.end()) return found->second;
  auto* object = reinterpret_cast<PyObject*>(type);
  const auto has = [&](PyObject* name) { return PyObject_HasAttr(object, name) != 0; };
  Protocol protocol = Protocol::none;
  if (has(names().data_ptr) && has(names().stride))
    protocol = Protocol::torch;
  else if (has(names().cuda_interface))
    protocol = Protocol::cuda_interface;
  else if (type->tp_as_buffer != nullptr && type->tp_as_buffer->bf_getbuffer != nullptr)
    protocol = Protocol::buffer;
  else if (has(names().dlpack))
    protocol = Protocol::dlpack;
  Py_INCREF(object);
  return known[type] = {protocol, protocol == Protocol::torch ? describe_of(type) : nullptr};
}

/// A reference that is given up at the end of a scope.
struct Owned {
  PyObject* object;
  explicit Owned(PyObject* object_) : object(object_) {
    if (object == nullptr) throw nb::python_error();
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { Py_DECREF(object); }
};

int64_t integer(PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

/// A tuple of integers; its length, or more than kMaxRank where it is longer.
int read_tuple(PyObject* tuple, std::array<int64_t, kMaxRank>& to) {
  const Py_ssize_t size = PySequence_Size(tuple);
  if (size < 0) throw nb::python_error();
  if (size > kMaxRank) return kMaxRank + 1;
  const bool is_tuple = PyTuple_Check(tuple) != 0;
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (is_tuple) {
      to[static_cast<size_t>(i)] = integer(PyTuple_GET_ITEM(tuple, i));
    } else {
      const Owned item(PySequence_GetItem(tuple, i));
      to[static_cast<size_t>(i)] = integer(item.object);
    }
  }
  return static_cast<int>(size);
}

ArrayType type_of_text(std::string_view text) {
  const auto type = type_of_name(text);
  if (type) return array_type(*type);
  const bool whole = text.starts_with("int") || text.starts_with("uint");
  if (whole) return {text[0] == 'u' ? 'u' : 'i', std::atoi(text.data() + text.find_first_of("0123456789"))};
  return {};
}

/// "<f4" of an array interface; bytes in the other order are no type.
ArrayType type_of_typestr(std::string_view text) {
  if (text.size() < 3 || text[0] == '>') return {};
  const int bits = std::atoi(text.data() + 2) * 8;
  const char code = text[1];
  return {code == 'f' || code == 'i' || code == 'u' || code == 'b' ? code : '?', bits};
}

/// A format of the struct module, for one element.
ArrayType type_of_format(const char* format, Py_ssize_t bytes) {
  if (format == nullptr) return {'u', 8};
  if (*format == '<' || *format == '=' || *format == '@') ++format;
  if (format[0] == '\0' || format[1] != '\0') return {'?', static_cast<int>(bytes * 8)};
  const int bits = static_cast<int>(bytes * 8);
  switch (*format) {
    case 'e':
    case 'f':
    case 'd':
      return {'f', bits};
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return {'i', bits};
    case 'c':
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return {'u', bits};
    case '?':
      return {'b', bits};
    default:
      return {'?', bits};
  }
}

/// Strides of bytes as elements; false where they are no whole elements.
bool in_elements(Array& array, int64_t bytes) {
  for (int i = 0; i < array.rank; ++i) {
    int64_t& stride = array.strides[static_cast<size_t>(i)];
    if (array.dims[static_cast<size_t>(i)] == 1 || bytes <= 0) continue;
    if (stride % bytes != 0) return false;
    stride /= bytes;
  }
  return true;
}

// --- the buffer protocol -----------------------------------------------------------------------------------

/// "bfloat16" of a dtype that NumPy got from another package.
ArrayType type_of_dtype(PyObject* object) {
  const Owned dtype(PyObject_GetAttr(object, names().dtype));
  ArrayType type = type_of_text(nb::str(nb::handle(dtype.object).attr("name")).c_str());
  // NumPy names a type alike in either order of its bytes.
  const nb::object order = nb::getattr(nb::handle(dtype.object), "byteorder", nb::none());
  if (nb::isinstance<nb::str>(order) && std::string_view(nb::cast<nb::str>(order).c_str()) == ">")
    type.code = '?';
  return type;
}

/// NumPy's own interface, for element types that buffers have no letter for (ml_dtypes).
bool read_array_interface(PyObject* object, Array& array, Hold& hold) {
  const nb::object interface = nb::steal(PyObject_GetAttr(object, names().array_interface));
  if (!interface.is_valid()) throw nb::python_error();
  const nb::object data = interface["data"];
  array.pointer = PyLong_AsVoidPtr(nb::object(data[0]).ptr());
  array.read_only = nb::cast<bool>(data[1]);
  array.type = type_of_dtype(object);
  array.rank = read_tuple(nb::object(interface["shape"]).ptr(), array.dims);
  const nb::object strides = interface.attr("get")("strides");
  array.packed = strides.is_none();
  if (!array.packed) read_tuple(strides.ptr(), array.strides);
  Py_INCREF(object);
  hold.object = object;
  return array.packed || in_elements(array, array.type.bits / 8);
}

bool read_buffer(PyObject* object, Array& array, Hold& hold) {
  if (PyObject_GetBuffer(object, &hold.view, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    hold.view.obj = nullptr;
    if (PyObject_HasAttr(object, names().array_interface) == 0) throw nb::python_error();
    PyErr_Clear();
    return read_array_interface(object, array, hold);
  }
  const Py_buffer& view = hold.view;
  array.pointer = view.buf;
  array.read_only = view.readonly != 0;
  array.type = type_of_format(view.format, view.itemsize);
  if (array.type.code == '?' && PyObject_HasAttr(object, names().dtype) != 0)
    array.type = type_of_dtype(object);
  array.rank = view.ndim;
  for (int i = 0; i < std::min(view.ndim, kMaxRank); ++i) {
    array.dims[static_cast<size_t>(i)] = view.shape[i];
    array.strides[static_cast<size_t>(i)] = view.strides[i];
  }
  return view.ndim > kMaxRank || in_elements(array, view.itemsize);
}

// --- DLPack's tensors --------------------------------------------------------------------------------------

bool read_described(const DLTensor& tensor, Array& array) {
  array.pointer = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  const bool known = tensor.code < kDLCodes.size() && tensor.lanes == 1;
  array.type = {known ? kDLCodes[tensor.code] : '?', tensor.bits};
  array.rank = tensor.rank;
  array.packed = tensor.strides == nullptr;
  for (int i = 0; i < std::min(array.rank, kMaxRank); ++i) {
    array.dims[static_cast<size_t>(i)] = tensor.shape[i];
    if (!array.packed) array.strides[static_cast<size_t>(i)] = tensor.strides[i];
  }
  const int32_t device = tensor.device.type;
  array.on_gpu = device == kDLCuda || device == kDLCudaManaged;
  array.ordinal = array.on_gpu ? tensor.device.id : 0;
  return array.on_gpu || device == kDLCpu || device == kDLCudaHost;
}

// --- PyTorch -----------------------------------------------------------------------------------------------

/// dtypes of PyTorch are single objects that live as long as the process.
ArrayType type_of_torch(PyObject* dtype) {
  static std::unordered_map<PyObject*, ArrayType> known;
  if (const auto found = known.find(dtype); found != known.end()) return found->second;
  const std::string text = nb::str(nb::handle(dtype)).c_str();
  Py_INCREF(dtype);
  return known[dtype] = type_of_text(std::string_view(text).substr(text.rfind('.') + 1));
}

bool read_torch(PyObject* object, Array& array, Describe describe) {
  if (DLTensor tensor{}; describe != nullptr) {
    if (describe(object, &tensor) == 0) return read_described(tensor, array);
    PyErr_Clear();  // a type or a device that DLPack lacks: the methods tell which
  }
  const Owned pointer(PyObject_CallMethodNoArgs(object, names().data_ptr));
  array.pointer = PyLong_AsVoidPtr(pointer.object);
  const Owned dtype(PyObject_GetAttr(object, names().dtype));
  array.type = type_of_torch(dtype.object);
  const Owned shape(PyObject_GetAttr(object, names().shape));
  array.rank = read_tuple(shape.object, array.dims);
  const Owned strides(PyObject_CallMethodNoArgs(object, names().stride));
  read_tuple(strides.object, array.strides);
  const Owned is_cuda(PyObject_GetAttr(object, names().is_cuda));
  array.on_gpu = is_cuda.object == Py_True;
  if (array.on_gpu) {
    const Owned device(PyObject_CallMethodNoArgs(object, names().get_device));
    array.ordinal = static_cast<int>(integer(device.object));
    return true;
  }
  const Owned is_cpu(PyObject_GetAttr(object, names().is_cpu));
  return is_cpu.object == Py_True;
}

// --- the CUDA array interface ------------------------------------------------------------------------------

bool read_cuda_interface(PyObject* object, Array& array, const nb::object& interface) {
  const nb::object data = interface["data"];
  array.pointer = PyLong_AsVoidPtr(nb::object(data[0]).ptr());
  array.read_only = nb::cast<bool>(data[1]);
  const nb::object typestr = interface["typestr"];
  array.type = type_of_typestr(nb::str(typestr).c_str());
  if (array.type.code == '?' && PyObject_HasAttr(object, names().dtype) != 0)
    array.type = type_of_dtype(object);
  array.rank = read_tuple(nb::object(interface["shape"]).ptr(), array.dims);
  const nb::object strides = interface.attr("get")("strides");
  array.packed = strides.is_none();
  if (!array.packed) read_tuple(strides.ptr(), array.strides);
  array.on_gpu = true;
  return array.packed || in_elements(array, array.type.bits / 8);
}

// --- DLPack ------------------------------------------------------------------------------------------------

bool read_dlpack(PyObject* object, Array& array, Hold& hold) {
  PyObject* capsule = PyObject_CallMethodNoArgs(object, names().dlpack);
  if (capsule == nullptr) throw nb::python_error();
  hold.object = capsule;  // not taken over: the capsule gives the tensor back
  const auto* tensor = static_cast<const DLTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  if (tensor == nullptr) throw nb::python_error();
  return read_described(*tensor, array);
}

}  // namespace

ArrayType array_type(DataType type) {
  const DataTypeInfo& about = info(type);
  switch (type) {
    case DataType::bf16:
      return {'B', 16};
    case DataType::f8_e4m3:
      return {'4', 8};
    case DataType::f8_e5m2:
      return {'5', 8};
    case DataType::f8_e8m0:
      return {'8', 8};
    case DataType::u8:
      return {'u', 8};
    default:
      return {about.kind == NumberKind::real      ? 'f'
              : about.kind == NumberKind::integer ? 'i'
                                                  : 'b',
              about.bits};
  }
}

std::string to_string(ArrayType type) {
  switch (type.code) {
    case 'f':
      return fmt::format("fp{}", type.bits);
    case 'i':
      return fmt::format("int{}", type.bits);
    case 'u':
      return fmt::format("uint{}", type.bits);
    case 'b':
      return "bool8";
    case 'B':
      return "bf16";
    case '4':
      return "fp8_e4m3";
    case '5':
      return "fp8_e5m2";
    case '8':
      return "fp8_e8m0";
    default:
      return "a type that fusor does not have";
  }
}

bool holds(ArrayType got, DataType want) {
  const ArrayType wanted = array_type(want);
  if (got == wanted) return true;
  const bool foreign = wanted.code == 'B' || wanted.code == '4' || wanted.code == '5' || wanted.code == '8' ||
                       wanted.code == 'b';
  return foreign && got.code == 'u' && got.bits == wanted.bits;
}

bool read_array(PyObject* object, Array& array, Hold& hold) {
  // JAX has both, and the first only for arrays on a GPU.
  const Reader& reader = reader_of(Py_TYPE(object));
  if (reader.protocol == Protocol::cuda_interface) {
    const nb::object interface = nb::steal(PyObject_GetAttr(object, names().cuda_interface));
    if (interface.is_valid()) return read_cuda_interface(object, array, interface);
    if (PyObject_HasAttr(object, names().dlpack) == 0) throw nb::python_error();
    PyErr_Clear();
    return read_dlpack(object, array, hold);
  }
  switch (reader.protocol) {
    case Protocol::buffer:
      return read_buffer(object, array, hold);
    case Protocol::torch:
      return read_torch(object, array, reader.describe);
    case Protocol::dlpack:
      return read_dlpack(object, array, hold);
    default:
      return false;
  }
}

}  // namespace fusor::python
