// Owns what the parts of the extension share: how words and lists of Python become values of fusor.
#pragma once

#include <fmt/format.h>
#include <fusor.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

namespace fusor::python {

namespace nb = nanobind;

/// A tensor as Python has it: with the builder that made it, so that operators know where to append. Tensors
/// of a finished graph have none.
struct BuilderTensor {
  Tensor tensor;
  std::shared_ptr<GraphBuilder> builder;
};

/// Something that stands for a T: converted when it is used, so that a wrong word is an Error that lists the
/// right ones and not a TypeError.
template <class T>
struct Word {
  nb::object object;
  T get() const;
  bool is_none() const { return !object.is_valid() || object.is_none(); }
  std::optional<T> optional() const { return is_none() ? std::nullopt : std::optional<T>(get()); }
};

/// A tensor of the builder, a number, or None.
struct Operand {
  nb::object object;
};

/// A Graph; anything else is an Error that says how to come by one.
struct GraphArgument {
  nb::object object;
  const Graph& graph(std::string_view asker) const;
};

/// A Graph, or a Plan, which stands for its graph and its device.
struct GraphOrPlan : GraphArgument {
  const Graph& graph(std::string_view asker) const;
  /// `device`, or where that is None and the object a Plan, the plan's.
  DeviceInfo device(const Word<DeviceInfo>& device) const;
};

/// One entry per spatial dim: a list, or a number that stands for as many.
struct PerSpatialDim {
  Dims list;
  bool repeats = false;
  Dims get(const Tensor& x) const {
    return repeats ? Dims::filled(std::max(x.dims.rank() - 2, 1), list[0]) : list;
  }
};

[[noreturn]] inline void refuse(const std::string& text) { throw Error(ErrorKind::bad_input, text); }

/// "1 op", "2 ops"
inline std::string counted(size_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

/// The element type of that name in fusor ("fp16", "f16"), NumPy or PyTorch ("float16"), or nothing.
std::optional<DataType> type_of_name(std::string_view name);

void bind_types(nb::module_& module);
void bind_graph(nb::module_& module);
void bind_plan(nb::module_& module);
void bind_memory(nb::module_& module);
void bind_executable(nb::module_& module);
void bind_verify(nb::module_& module);

/// Read-write properties for every field that T names in visit().
template <class T, class Class>
void bind_fields(Class& bound) {
  static const T prototype{};
  T::visit(prototype, [&](std::string_view name, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    const auto offset = reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&prototype);
    bound.def_prop_rw(
        name.data(),
        [offset](const T& self) -> Field {
          return *reinterpret_cast<const Field*>(reinterpret_cast<const char*>(&self) + offset);
        },
        [offset](T& self, Field value) {
          *reinterpret_cast<Field*>(reinterpret_cast<char*>(&self) + offset) = std::move(value);
        });
  });
}

}  // namespace fusor::python

namespace nanobind::detail {

template <>
struct type_caster<fusor::Dims> {
  using Value = fusor::Dims;
  static constexpr auto Name = io_name("int | collections.abc.Sequence[int]", "tuple[int, ...]");
  template <class T>
  using Cast = movable_cast_t<T>;
  // False within other types (lists, optional ones), which convert where nothing may be thrown.
  template <class T>
  bool can_cast() const {
    return length <= fusor::kMaxRank;
  }
  explicit operator Value*() { return &expected(); }
  explicit operator Value&() { return expected(); }
  explicit operator Value&&() { return std::move(expected()); }
  Value value;
  Py_ssize_t length = 0;

  Value& expected() {
    if (length > fusor::kMaxRank)
      fusor::python::refuse(fmt::format("a tensor has up to {} dims; got {}", fusor::kMaxRank, length));
    return value;
  }

  /// A number is a list of one entry.
  template <class Flags>
  bool from_python(handle source, Flags, cleanup_list*) noexcept {
    if (PyIndex_Check(source.ptr()) && !PySequence_Check(source.ptr())) {
      PyObject* index = PyNumber_Index(source.ptr());
      const long long number = index == nullptr ? 0 : PyLong_AsLongLong(index);
      Py_XDECREF(index);
      if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        return false;
      }
      value.push_back(number);
      return true;
    }
    if (PyUnicode_Check(source.ptr()) || !PySequence_Check(source.ptr())) return false;
    const Py_ssize_t size = PySequence_Size(source.ptr());
    if (size < 0) {
      PyErr_Clear();
      return false;
    }
    length = size;
    if (size > fusor::kMaxRank) return true;
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* item = PySequence_GetItem(source.ptr(), i);
      PyObject* index = item == nullptr ? nullptr : PyNumber_Index(item);
      const long long number = index == nullptr ? 0 : PyLong_AsLongLong(index);
      Py_XDECREF(item);
      Py_XDECREF(index);
      if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        return false;
      }
      value.push_back(number);
    }
    return true;
  }

  static handle from_cpp(const fusor::Dims& dims, rv_policy, cleanup_list*) noexcept {
    PyObject* tuple = PyTuple_New(dims.rank());
    for (int i = 0; tuple != nullptr && i < dims.rank(); ++i)
      PyTuple_SetItem(tuple, i, PyLong_FromLongLong(dims[i]));
    return tuple;
  }
};

template <>
struct type_caster<fusor::python::PerSpatialDim> {
  NB_TYPE_CASTER(fusor::python::PerSpatialDim, const_name("int | collections.abc.Sequence[int]"))

  template <class Flags>
  bool from_python(handle source, Flags flags, cleanup_list* cleanup) noexcept {
    make_caster<fusor::Dims> list;
    if (!list.from_python(source, flags, cleanup) || !list.can_cast<fusor::Dims>()) return false;
    value.list = list.value;
    value.repeats = !PySequence_Check(source.ptr());
    return true;
  }
  static handle from_cpp(const fusor::python::PerSpatialDim& list, rv_policy policy,
                         cleanup_list* cleanup) noexcept {
    return make_caster<fusor::Dims>::from_cpp(list.list, policy, cleanup);
  }
};

/// Any object; what it means is settled by Word<T>::get().
template <class T, class Text>
struct word_caster {
  NB_TYPE_CASTER(fusor::python::Word<T>, Text::name)

  template <class Flags>
  bool from_python(handle source, Flags, cleanup_list*) noexcept {
    value.object = borrow(source);
    return true;
  }
  static handle from_cpp(const fusor::python::Word<T>& word, rv_policy, cleanup_list*) noexcept {
    return word.object.inc_ref();
  }
};

#define FUSOR_WORD(type, text)                                                                        \
  struct text_of_##type {                                                                             \
    static constexpr auto name = const_name(text);                                                    \
  };                                                                                                  \
  template <>                                                                                         \
  struct type_caster<fusor::python::Word<fusor::type>> : word_caster<fusor::type, text_of_##type> {}; \
  template <>                                                                                         \
  struct has_arg_defaults<fusor::python::Word<fusor::type>> : std::true_type {}

FUSOR_WORD(DataType, "DataType | str");
FUSOR_WORD(Layout, "Layout | str");
FUSOR_WORD(Precision, "Precision | str");
FUSOR_WORD(KernelChoice, "KernelChoice | str");
FUSOR_WORD(ReductionMode, "ReductionMode | str");
FUSOR_WORD(ConvMode, "ConvMode | str");
FUSOR_WORD(DeviceInfo, "DeviceInfo | str");
#undef FUSOR_WORD

#define FUSOR_ARGUMENT(type, text)                                                                   \
  template <>                                                                                        \
  struct type_caster<fusor::python::type> {                                                          \
    NB_TYPE_CASTER(fusor::python::type, const_name(text))                                            \
    template <class Flags>                                                                           \
    bool from_python(handle source, Flags, cleanup_list*) noexcept {                                 \
      value.object = borrow(source);                                                                 \
      return true;                                                                                   \
    }                                                                                                \
    static handle from_cpp(const fusor::python::type& argument, rv_policy, cleanup_list*) noexcept { \
      return argument.object.inc_ref();                                                              \
    }                                                                                                \
  }
FUSOR_ARGUMENT(GraphArgument, "Graph");
FUSOR_ARGUMENT(GraphOrPlan, "Graph | Plan");
FUSOR_ARGUMENT(Operand, "Tensor | float | None");
#undef FUSOR_ARGUMENT

}  // namespace nanobind::detail
