// Owns the extension module: errors, enumerations and the words that stand for them.
#include "bindings.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace fusor::python {

namespace {

/// Names as NumPy and PyTorch have them, beside fusor's own.
constexpr auto kForeignNames = std::to_array<std::pair<std::string_view, DataType>>({
    {"float64", DataType::f64},
    {"float32", DataType::f32},
    {"float16", DataType::f16},
    {"bfloat16", DataType::bf16},
    {"float8_e4m3fn", DataType::f8_e4m3},
    {"float8_e5m2", DataType::f8_e5m2},
    {"float8_e8m0fnu", DataType::f8_e8m0},
    {"bool", DataType::b8},
#define FUSOR_DTYPE(id, name, bits, kind, device) {#id, DataType::id},
#include <fusor/core/dtype.def>
#undef FUSOR_DTYPE
});

constexpr auto kDataTypes = std::to_array<std::pair<const char*, DataType>>({
#define FUSOR_DTYPE(id, name, bits, kind, device) {#id, DataType::id},
#include <fusor/core/dtype.def>
#undef FUSOR_DTYPE
});

constexpr std::array kReductions = {ReductionMode::add,   ReductionMode::mul,   ReductionMode::min,
                                    ReductionMode::max,   ReductionMode::amax,  ReductionMode::avg,
                                    ReductionMode::norm1, ReductionMode::norm2, ReductionMode::mul_no_zeros};
constexpr std::array kPrecisions = {Precision::strict, Precision::exact, Precision::allow_tf32,
                                    Precision::allow_short_sums};
constexpr std::array kKernelChoices = {KernelChoice::best, KernelChoice::best_effort,
                                       KernelChoice::only_compiled};
constexpr std::array kConvModes = {ConvMode::cross_correlation, ConvMode::convolution};
constexpr std::array kErrorKinds = {ErrorKind::bad_input, ErrorKind::missing, ErrorKind::device,
                                    ErrorKind::internal};
constexpr std::array kErrorNames = {"bad_input", "missing", "device", "internal"};
constexpr std::array kMemoryNames = {"device", "workspace", "host", "constant"};

/// Whether the object is a T, which goes to `value`: an integer, which would convert to one, is none.
template <class T>
bool is_word_of(const nb::object& object, T& value) {
  return nb::isinstance<T>(object) && nb::try_cast(object, value);
}

/// The value among `values` whose name is the object's text, or that it is.
template <class T, size_t N>
T one_of(const nb::object& object, const std::array<T, N>& values, std::string_view what) {
  T value{};
  if (is_word_of(object, value)) return value;
  std::string_view name;
  std::string known;
  const bool is_text = nb::try_cast(object, name);
  for (const T each : values) {
    if (is_text && name == to_string(each)) return each;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", to_string(each));
  }
  refuse(fmt::format("unknown {} {}; known: {}", what, nb::repr(object).c_str(), known));
}

/// "float16" of numpy.float16, numpy.dtype('float16') and torch.float16.
std::string type_name(const nb::object& object) {
  if (nb::hasattr(object, "name")) return nb::str(object.attr("name")).c_str();
  if (nb::hasattr(object, "__name__")) return nb::str(object.attr("__name__")).c_str();
  const std::string text = nb::str(object).c_str();
  return text.substr(text.rfind('.') + 1);
}

nb::object error_class;

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object instance = error_class(error.what());
    instance.attr("kind") = nb::cast(error.kind());
    PyErr_SetObject(error_class.ptr(), instance.ptr());
  }
}

void bind_errors(nb::module_& module) {
  auto kinds = nb::enum_<ErrorKind>(module, "ErrorKind",
                                    "Who can fix an error: the caller (bad_input), the owner of the "
                                    "machine (missing), whoever looks after the GPU (device), the authors "
                                    "(internal).");
  for (const ErrorKind kind : kErrorKinds) kinds.value(kErrorNames[static_cast<size_t>(kind)], kind);
  nb::dict members;
  members["kind"] = nb::cast(ErrorKind::bad_input);
  members["__module__"] = "fusor";
  members["__doc__"] =
      "The one exception of fusor. Its message names the op, tensor or file and the numbers; `kind` says "
      "who can fix it. A refusal by an engine is data (explain_data, engines_for), never an Error.";
  error_class = nb::steal(PyErr_NewException("fusor.Error", PyExc_RuntimeError, members.ptr()));
  module.attr("Error") = error_class;
  nb::register_exception_translator(translate);
}

template <class T, size_t N>
void bind_enum(nb::module_& module, const char* name, const char* about, const std::array<T, N>& values) {
  auto bound = nb::enum_<T>(module, name, about);
  for (const T value : values) bound.value(std::string(to_string(value)).c_str(), value);
}

}  // namespace

std::optional<DataType> type_of_name(std::string_view name) {
  if (const auto type = data_type_named(name)) return type;
  for (const auto& [foreign, type] : kForeignNames)
    if (foreign == name) return type;
  return std::nullopt;
}

template <>
DataType Word<DataType>::get() const {
  DataType type{};
  if (is_word_of(object, type)) return type;
  std::string_view text;
  const std::string name = nb::try_cast(object, text) ? std::string(text) : type_name(object);
  if (const auto found = type_of_name(name)) return *found;
  std::string known;
  for (const auto& [id, each] : kDataTypes)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", to_string(each));
  refuse(fmt::format("unknown type {}; known: {}", nb::repr(object).c_str(), known));
}

template <>
Layout Word<Layout>::get() const {
  Layout layout{};
  if (is_word_of(object, layout)) return layout;
  std::string_view name;
  if (nb::try_cast(object, name) && name == "nhwc") return Layout::nhwc;
  if (name == "row_major" || name == "nchw") return Layout::row_major;
  refuse(fmt::format("unknown layout {}; known: row_major, nchw, nhwc", nb::repr(object).c_str()));
}

template <>
Precision Word<Precision>::get() const {
  return one_of(object, kPrecisions, "precision");
}

template <>
KernelChoice Word<KernelChoice>::get() const {
  return one_of(object, kKernelChoices, "choice of kernels");
}

template <>
ReductionMode Word<ReductionMode>::get() const {
  return one_of(object, kReductions, "reduction mode");
}

template <>
ConvMode Word<ConvMode>::get() const {
  return one_of(object, kConvModes, "convolution mode");
}

template <>
DeviceInfo Word<DeviceInfo>::get() const {
  if (is_none()) return DeviceInfo::current();
  std::string_view name;
  if (nb::try_cast(object, name)) return DeviceInfo::named(name);
  DeviceInfo* device = nullptr;
  if (nb::try_cast(object, device) && device != nullptr) return *device;
  refuse(fmt::format("expected a DeviceInfo or the name of a device, got {}", nb::repr(object).c_str()));
}

void bind_types(nb::module_& module) {
  bind_errors(module);
  auto types = nb::enum_<DataType>(
      module, "DataType",
      "Element types. Wherever a type is expected, its name will do (\"fp16\", \"float16\"), and so will "
      "the dtypes of NumPy and PyTorch.");
  for (const auto& [name, type] : kDataTypes) types.value(name, type);
  nb::enum_<Layout>(module, "Layout",
                    "Where the elements of a fresh tensor lie. nhwc is \"channels last\" for any number of "
                    "spatial dims.")
      .value("row_major", Layout::row_major)
      .value("nhwc", Layout::nhwc);
  auto memories = nb::enum_<Memory>(module, "Memory",
                                    "Where a tensor's elements come from: an array that is bound (device), "
                                    "another op (workspace), a number of each run (host), the graph "
                                    "(constant).");
  for (size_t i = 0; i < kMemoryNames.size(); ++i) memories.value(kMemoryNames[i], static_cast<Memory>(i));
  nb::enum_<DeviceKind>(module, "DeviceKind").value("cpu", DeviceKind::cpu).value("cuda", DeviceKind::cuda);
  bind_enum(module, "Precision",
            "What engines may do to the numbers of a graph beyond its types; each allows what those before "
            "it do.",
            kPrecisions);
  bind_enum(module, "KernelChoice", "Which kernels a build chooses from.", kKernelChoices);
  bind_enum(module, "ReductionMode", "How elements are reduced.", kReductions);
  bind_enum(module, "ConvMode", "cross_correlation: the filter as stored; convolution: the filter mirrored.",
            kConvModes);
}

}  // namespace fusor::python

NB_MODULE(_fusor, module) {
  namespace nb = nanobind;
  // Objects that modules still hold when the interpreter ends is no leak of ours to tell the user of.
  nb::set_leak_warnings(false);
  module.doc() = "Graphs of deep-learning operations, fused and compiled at run time. See fusor.";
  fusor::python::bind_types(module);
  fusor::python::bind_graph(module);
  fusor::python::bind_plan(module);
  fusor::python::bind_memory(module);
  fusor::python::bind_executable(module);
  fusor::python::bind_verify(module);
}
