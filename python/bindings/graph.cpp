// Owns tensors, the graph builder and finished graphs in Python.
#include "bindings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <variant>

namespace fusor::python {

namespace {

using Builder = std::shared_ptr<GraphBuilder>;
using Type = Word<DataType>;

// --- operands ----------------------------------------------------------------------------------------------

const BuilderTensor* tensor_of(nb::handle object) {
  BuilderTensor* tensor = nullptr;
  return nb::try_cast(object, tensor) ? tensor : nullptr;
}

/// A number of Python's or a scalar of NumPy's, no array.
bool is_number(nb::handle object) {
  const PyNumberMethods* methods = Py_TYPE(object.ptr())->tp_as_number;
  return methods != nullptr && methods->nb_float != nullptr && PySequence_Check(object.ptr()) == 0;
}

/// The type of a number beside `partner`: that of integers where both are, else fp32.
DataType constant_type(const nb::object& number, const Tensor* partner) {
  const bool whole = PyIndex_Check(number.ptr()) != 0;
  if (partner != nullptr && partner->type == DataType::f64) return DataType::f64;
  if (!whole || partner == nullptr) return DataType::f32;
  return info(partner->type).kind == NumberKind::integer ? partner->type : DataType::f32;
}

/// A number as constants keep it: a double, and beside integers no other one.
double constant_number(const nb::object& object, DataType type) {
  const double number = PyFloat_AsDouble(object.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (is_real(type) || PyLong_Check(object.ptr()) == 0) return number;
  const nb::object kept = nb::steal(PyLong_FromDouble(number));
  if (!kept.equal(object))
    refuse(
        fmt::format("constant {}: constants are kept as fp64, which has no such number; give it as a scalar",
                    nb::repr(object).c_str()));
  return number;
}

/// Operands as the builder takes them: numbers become constants, None is left out. The first tensor among the
/// `typing` first operands says which type numbers have.
std::vector<Tensor> resolved(GraphBuilder& builder, std::span<const Operand> operands,
                             size_t typing = SIZE_MAX) {
  const Tensor* partner = nullptr;
  for (const Operand& operand : operands.first(std::min(typing, operands.size())))
    if (const BuilderTensor* found = tensor_of(operand.object); found != nullptr && partner == nullptr)
      partner = &found->tensor;
  std::vector<Tensor> tensors;
  for (const Operand& operand : operands) {
    if (!operand.object.is_valid() || operand.object.is_none()) {
      tensors.emplace_back();
      continue;
    }
    if (const BuilderTensor* found = tensor_of(operand.object)) {
      tensors.push_back(found->tensor);
      continue;
    }
    if (!is_number(operand.object))
      refuse(fmt::format("expected a tensor of the graph or a number, got {}",
                         nb::repr(operand.object).c_str()));
    const DataType type = constant_type(operand.object, partner);
    tensors.push_back(builder.constant(constant_number(operand.object, type), type));
  }
  return tensors;
}

/// The operands in front of the one that selects, or all.
size_t typing_operands(const Attributes& attributes) {
  const auto* const op = std::get_if<Pointwise>(&attributes);
  return op != nullptr && op->mode == PointwiseMode::binary_select ? 2 : SIZE_MAX;
}

BuilderTensor made(const Builder& builder, Tensor tensor) { return {std::move(tensor), builder}; }

// --- operators ---------------------------------------------------------------------------------------------

bool is_operand(nb::handle object) { return tensor_of(object) != nullptr || is_number(object); }

/// a OP b, of which one is a tensor. What is no operand gets the other side's chance, as Python wants it.
nb::object operate(PointwiseMode mode, nb::handle a, nb::handle b) {
  if (!is_operand(a) || !is_operand(b)) return nb::borrow(Py_NotImplemented);
  const BuilderTensor* owner = tensor_of(a) != nullptr ? tensor_of(a) : tensor_of(b);
  if (!owner->builder)
    refuse(fmt::format("tensor '{}' is of a finished graph: operators append ops to a GraphBuilder's",
                       owner->tensor.name));
  const Builder builder = owner->builder;
  const Operand both[] = {{nb::borrow(a)}, {nb::borrow(b)}};
  return nb::cast(made(builder, builder->pointwise(mode, resolved(*builder, both))));
}

BuilderTensor operate(PointwiseMode mode, const BuilderTensor& a) {
  if (!a.builder)
    refuse(fmt::format("tensor '{}' is of a finished graph: operators append ops to a GraphBuilder's",
                       a.tensor.name));
  return made(a.builder, a.builder->pointwise(mode, {a.tensor}));
}

template <class Class>
void bind_operators(Class& bound) {
  const auto binary = [&](const char* name, const char* reflected, PointwiseMode mode) {
    bound.def(
        name, [mode](nb::handle a, nb::handle b) { return operate(mode, a, b); }, nb::is_operator(),
        nb::sig(fmt::format("def {}(self, other: Tensor | float, /) -> Tensor", name).c_str()));
    if (reflected != nullptr)
      bound.def(
          reflected, [mode](nb::handle a, nb::handle b) { return operate(mode, b, a); }, nb::is_operator(),
          nb::sig(fmt::format("def {}(self, other: float, /) -> Tensor", reflected).c_str()));
  };
  binary("__add__", "__radd__", PointwiseMode::add);
  binary("__sub__", "__rsub__", PointwiseMode::sub);
  binary("__mul__", "__rmul__", PointwiseMode::mul);
  binary("__truediv__", "__rtruediv__", PointwiseMode::div);
  binary("__mod__", "__rmod__", PointwiseMode::mod);
  binary("__pow__", "__rpow__", PointwiseMode::pow);
  binary("__lt__", nullptr, PointwiseMode::cmp_lt);
  binary("__le__", nullptr, PointwiseMode::cmp_le);
  binary("__gt__", nullptr, PointwiseMode::cmp_gt);
  binary("__ge__", nullptr, PointwiseMode::cmp_ge);
  bound.def("__neg__", [](const BuilderTensor& a) { return operate(PointwiseMode::neg, a); });
  bound.def("__abs__", [](const BuilderTensor& a) { return operate(PointwiseMode::abs, a); });
  bound.def(
      "__matmul__",
      [](const BuilderTensor& a, const BuilderTensor& b) {
        if (!a.builder) refuse(fmt::format("tensor '{}' is of a finished graph", a.tensor.name));
        return made(a.builder, a.builder->matmul(a.tensor, b.tensor));
      },
      nb::is_operator(), nb::arg("other"));
}

// --- tensors -----------------------------------------------------------------------------------------------

std::string words_of(const Tensor& tensor) {
  return fmt::format("<fusor.Tensor '{}' {} {}>", tensor.name, to_string(tensor.type),
                     to_string(tensor.dims));
}

void bind_tensor(nb::module_& module) {
  nb::class_<BuilderTensor> bound(
      module, "Tensor",
      "A tensor of a graph: its name, type, dims and strides, no memory.\n\n"
      "+ - * / % ** @, unary -, abs() and < <= > >= append ops; numbers become constants. == compares "
      "which tensor it is (its graph, uid and name), so that tensors may be keys of a dict: the op is "
      "cmp_eq().");
  bound.def_prop_ro("name", [](const BuilderTensor& self) { return self.tensor.name; })
      .def_prop_ro("uid", [](const BuilderTensor& self) { return self.tensor.uid; })
      .def_prop_ro(
          "type", [](const BuilderTensor& self) { return self.tensor.type; }, "What elements are rounded to.")
      .def_prop_ro("dims", [](const BuilderTensor& self) { return self.tensor.dims; })
      .def_prop_ro(
          "shape", [](const BuilderTensor& self) { return self.tensor.dims; }, "The same as dims.")
      .def_prop_ro(
          "strides", [](const BuilderTensor& self) { return self.tensor.strides; }, "In elements.")
      .def_prop_ro("memory", [](const BuilderTensor& self) { return self.tensor.memory; })
      .def_prop_ro(
          "alignment", [](const BuilderTensor& self) { return self.tensor.alignment; },
          "Bytes of which an array's address must be a multiple.")
      .def_prop_ro(
          "bytes", [](const BuilderTensor& self) { return self.tensor.bytes(); },
          "From the first element to the last.")
      .def_prop_ro(
          "value",
          [](const BuilderTensor& self) -> nb::object {
            if (self.tensor.memory != Memory::constant) return nb::none();
            return std::visit([](auto value) { return nb::object(nb::cast(value)); }, self.tensor.value);
          },
          nb::sig("def value(self) -> float | int | None"), "Of a constant, else None.")
      .def(
          "__eq__",
          [](const BuilderTensor& a, nb::handle other) {
            const BuilderTensor* b = tensor_of(other);
            return b != nullptr && a.builder == b->builder && a.tensor.uid == b->tensor.uid &&
                   a.tensor.name == b->tensor.name;
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const BuilderTensor& self) { return std::hash<std::string>()(self.tensor.name); })
      .def(
          "__bool__",
          [](const BuilderTensor& self) -> bool {
            throw nb::type_error(
                fmt::format("tensor '{}' has no truth value: its elements are those of a run; "
                            "write 0 < x and x < 1 as two ops",
                            self.tensor.name)
                    .c_str());
          },
          nb::sig("def __bool__(self) -> bool"))
      .def("__repr__", [](const BuilderTensor& self) { return words_of(self.tensor); });
  bind_operators(bound);
  bound.attr("__array_ufunc__") = nb::none();  // NumPy's scalars leave operators to us
}

// --- the builder -------------------------------------------------------------------------------------------

OpOptions options(const std::string& name, const Type& type, const Type& compute) {
  return {.name = name, .type = type.optional(), .compute = compute.optional()};
}

/// The keyword arguments that every op has.
#define FUSOR_OP_ARGUMENTS \
  nb::kw_only(), nb::arg("name") = "", nb::arg("type") = nb::none(), nb::arg("compute") = nb::none()

void bind_inputs(nb::class_<GraphBuilder>& bound) {
  bound.def(
      "input",
      [](const Builder& self, const std::string& name, const Dims& dims, const Type& type,
         const Word<Layout>& layout, std::optional<Dims> strides, int64_t alignment,
         std::optional<int64_t> uid) {
        return made(
            self,
            self->input(name, dims, type.get(),
                        TensorOptions{
                            .layout = layout.get(), .strides = strides, .alignment = alignment, .uid = uid}));
      },
      nb::arg("name"), nb::arg("dims"), nb::arg("type") = "fp32", nb::arg("layout") = "row_major",
      nb::kw_only(), nb::arg("strides") = nb::none(), nb::arg("alignment") = 16, nb::arg("uid") = nb::none(),
      "A tensor that is bound to an array in each run: up to 8 dims. `strides` are in elements and win "
      "over `layout`; `alignment` is what addresses are promised to be a multiple of, in bytes.");
  bound.def(
      "scalar",
      [](const Builder& self, const std::string& name, const Type& type) {
        return made(self, self->scalar(name, type.get()));
      },
      nb::arg("name"), nb::arg("type") = "fp32",
      "A number that each run is given: one element, read on the host while run() is called.");
  bound.def(
      "constant",
      [](const Builder& self, const nb::object& value, const Type& type) {
        return made(self, self->constant(constant_number(value, type.get()), type.get()));
      },
      nb::arg("value"), nb::arg("type") = "fp32",
      nb::sig("def constant(self, value: float, type: DataType | str = 'fp32') -> Tensor"),
      "A number that is part of the graph; a whole one, which the type has, where that is an integer.");
}

void bind_contractions(nb::class_<GraphBuilder>& bound) {
  bound.def(
      "matmul",
      [](const Builder& self, const BuilderTensor& a, const BuilderTensor& b, const std::string& name,
         const Type& type, const Type& compute) {
        return made(self, self->matmul(a.tensor, b.tensor, options(name, type, compute)));
      },
      nb::arg("a"), nb::arg("b"), FUSOR_OP_ARGUMENTS,
      "c[..., m, n] = sum over k of a[..., m, k] * b[..., k, n]; leading axes broadcast both ways. The "
      "same as a @ b.");
  const auto conv = [&](const char* name, const char* first, const char* second, const char* given, auto call,
                        const char* about) {
    const auto body = [call](const Builder& self, const BuilderTensor& a, const BuilderTensor& b,
                             const Dims& dims, const PerSpatialDim& padding, const PerSpatialDim& pre,
                             const PerSpatialDim& post, const PerSpatialDim& stride,
                             const PerSpatialDim& dilation, const Word<ConvMode>& mode, int64_t groups,
                             const std::string& op_name, const Type& type, const Type& compute) {
      const ConvOptions asked{.padding = padding.get(a.tensor),
                              .pre_padding = pre.get(a.tensor),
                              .post_padding = post.get(a.tensor),
                              .stride = stride.get(a.tensor),
                              .dilation = dilation.get(a.tensor),
                              .mode = mode.get(),
                              .groups = groups,
                              .name = op_name,
                              .type = type.optional(),
                              .compute = compute.optional()};
      return made(self, call(*self, a.tensor, b.tensor, dims, asked));
    };
#define FUSOR_CONV_ARGUMENTS                                                                       \
  nb::kw_only(), nb::arg("padding") = nb::make_tuple(), nb::arg("pre_padding") = nb::make_tuple(), \
                 nb::arg("post_padding") = nb::make_tuple(), nb::arg("stride") = nb::make_tuple(), \
                 nb::arg("dilation") = nb::make_tuple(), nb::arg("mode") = "cross_correlation",    \
                 nb::arg("groups") = 0, nb::arg("name") = "", nb::arg("type") = nb::none(),        \
                 nb::arg("compute") = nb::none()
    if (given != nullptr)
      bound.def(name, body, nb::arg(first), nb::arg(second), nb::arg(given), FUSOR_CONV_ARGUMENTS, about);
    else
      bound.def(
          name,
          [body](const Builder& self, const BuilderTensor& a, const BuilderTensor& b,
                 const PerSpatialDim& padding, const PerSpatialDim& pre, const PerSpatialDim& post,
                 const PerSpatialDim& stride, const PerSpatialDim& dilation, const Word<ConvMode>& mode,
                 int64_t groups, const std::string& op_name, const Type& type, const Type& compute) {
            return body(self, a, b, Dims(), padding, pre, post, stride, dilation, mode, groups, op_name, type,
                        compute);
          },
          nb::arg(first), nb::arg(second), FUSOR_CONV_ARGUMENTS, about);
#undef FUSOR_CONV_ARGUMENTS
  };
  conv(
      "conv_fprop", "x", "w", nullptr,
      [](GraphBuilder& g, const Tensor& x, const Tensor& w, const Dims&, const ConvOptions& o) {
        return g.conv_fprop(x, w, o);
      },
      "Convolution with 1 to 3 spatial dims: x [N, C, spatial...], w [K, C / groups, window...] -> y [N, "
      "K, spatial...]. Lists have one entry per spatial dim, and a number stands for as many; empty ones "
      "are padding 0, stride 1, dilation 1; `padding` is both paddings.");
  conv(
      "conv_dgrad", "dy", "w", "dx_dims",
      [](GraphBuilder& g, const Tensor& dy, const Tensor& w, const Dims& dims, const ConvOptions& o) {
        return g.conv_dgrad(dy, w, dims, o);
      },
      "The gradient of conv_fprop's x, of `dx_dims`.");
  conv(
      "conv_wgrad", "dy", "x", "dw_dims",
      [](GraphBuilder& g, const Tensor& dy, const Tensor& x, const Dims& dims, const ConvOptions& o) {
        return g.conv_wgrad(dy, x, dims, o);
      },
      "The gradient of conv_fprop's w, of `dw_dims`.");
}

void bind_reductions_and_views(nb::class_<GraphBuilder>& bound) {
  bound.def(
      "reduce",
      [](const Builder& self, const BuilderTensor& x, const Word<ReductionMode>& mode, const Dims& axes,
         const std::string& name, const Type& type, const Type& compute) {
        return made(self, self->reduce(x.tensor, mode.get(), axes, options(name, type, compute)));
      },
      nb::arg("x"), nb::arg("mode") = "add", nb::arg("axes") = nb::make_tuple(), FUSOR_OP_ARGUMENTS,
      "Reduces `axes` (negative ones count from the back; all where empty) to extent 1.");
  bound.def(
      "reduce_to",
      [](const Builder& self, const BuilderTensor& x, const Word<ReductionMode>& mode, const Dims& dims,
         const std::string& name, const Type& type, const Type& compute) {
        return made(self, self->reduce_to(x.tensor, mode.get(), dims, options(name, type, compute)));
      },
      nb::arg("x"), nb::arg("mode"), nb::arg("dims"), FUSOR_OP_ARGUMENTS,
      "Reduces to `dims`: an extent that divides x's is reduced in groups of neighbours.");
  bound.def(
      "reshape",
      [](const Builder& self, const BuilderTensor& x, const Dims& dims, const std::string& name) {
        return made(self, self->reshape(x.tensor, dims, {.name = name}));
      },
      nb::arg("x"), nb::arg("dims"), nb::kw_only(), nb::arg("name") = "",
      "The same elements in row-major order under other dims.");
  bound.def(
      "transpose",
      [](const Builder& self, const BuilderTensor& x, const Dims& permutation, const std::string& name) {
        return made(self, self->transpose(x.tensor, permutation, {.name = name}));
      },
      nb::arg("x"), nb::arg("permutation"), nb::kw_only(), nb::arg("name") = "",
      "Axis i of the result is axis permutation[i] of x.");
  bound.def(
      "slice",
      [](const Builder& self, const BuilderTensor& x, const Dims& start, const Dims& limit, const Dims& step,
         const std::string& name) {
        return made(self, self->slice(x.tensor, start, limit, step, {.name = name}));
      },
      nb::arg("x"), nb::arg("start"), nb::arg("limit"), nb::arg("step") = nb::make_tuple(), nb::kw_only(),
      nb::arg("name") = "", "x[start:limit:step] with one entry per axis; limits past the end are errors.");
  bound.def(
      "concatenate",
      [](const Builder& self, const std::vector<BuilderTensor>& xs, int64_t axis, const std::string& name) {
        std::vector<Tensor> tensors;
        tensors.reserve(xs.size());
        for (const BuilderTensor& x : xs) tensors.push_back(x.tensor);
        return made(self, self->concatenate(tensors, axis, {.name = name}));
      },
      nb::arg("xs"), nb::arg("axis"), nb::kw_only(), nb::arg("name") = "",
      "Tensors one behind the other along `axis`.");
}

void bind_outputs(nb::class_<GraphBuilder>& bound) {
  bound.def(
      "output",
      [](const Builder& self, const BuilderTensor& result, const std::string& name, const Type& type,
         const Word<Layout>& layout, std::optional<Dims> strides, int64_t alignment,
         std::optional<int64_t> uid) {
        return made(self, self->output(result.tensor, {.name = name,
                                                       .type = type.optional(),
                                                       .layout = layout.optional(),
                                                       .strides = strides,
                                                       .alignment = alignment,
                                                       .uid = uid}));
      },
      nb::arg("result"), nb::arg("name") = "", nb::kw_only(), nb::arg("type") = nb::none(),
      nb::arg("layout") = nb::none(), nb::arg("strides") = nb::none(), nb::arg("alignment") = 16,
      nb::arg("uid") = nb::none(),
      "Makes a result an output, which each run writes to an array; returns the tensor with its final "
      "name, type and strides. The default type is the promoted type of what the op reads, the default "
      "place packed in the memory order that was inferred. Once per tensor.");
  bound.def(
      "finish",
      [](const Builder& self, const nb::args& outputs) {
        std::vector<Tensor> tensors;
        for (const nb::handle each : outputs) {
          const BuilderTensor* tensor = tensor_of(each);
          if (tensor == nullptr)
            refuse(fmt::format("finish: expected tensors, got {}", nb::repr(each).c_str()));
          tensors.push_back(tensor->tensor);
        }
        return self->finish(tensors);
      },
      nb::sig("def finish(self, *outputs: Tensor) -> Graph"),
      "Makes these results outputs (where output() has not yet), validates and returns the graph.");
  bound.def(
      "_op",
      [](const Builder& self, const std::string& attributes, const std::vector<Operand>& operands,
         const std::string& name, const Type& type, const Type& compute, const std::vector<Dims>& given) {
        const BuilderTensor* const first = operands.empty() ? nullptr : tensor_of(operands[0].object);
        const Attributes parsed =
            attributes_from_json(attributes, first != nullptr ? first->tensor.dims.rank() : 1);
        const std::vector<Tensor> tensors = resolved(*self, operands, typing_operands(parsed));
        std::vector<BuilderTensor> results;
        for (Tensor& result : self->op(parsed, tensors, options(name, type, compute), given))
          results.push_back(made(self, std::move(result)));
        return results;
      },
      nb::arg("attributes"), nb::arg("operands"), nb::arg("name"), nb::arg("type").none(),
      nb::arg("compute").none(), nb::arg("given"));
}

// --- graphs ------------------------------------------------------------------------------------------------

nb::list tensors_of(const Graph& graph, bool (*wanted)(const Graph& graph, int tensor)) {
  nb::list list;
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (wanted(graph, static_cast<int>(i))) list.append(BuilderTensor{graph.tensors[i], nullptr});
  return list;
}

bool is_bound(const Graph& graph, int tensor) {
  const Memory memory = graph.tensors[static_cast<size_t>(tensor)].memory;
  return memory == Memory::device || memory == Memory::host;
}

void bind_ops(nb::module_& module) {
  struct NamedOp {
    std::string name, kind;
    std::vector<std::string> inputs, outputs;
  };
  nb::class_<NamedOp>(module, "Op", "One op of a graph, by names; an operand that was left out is \"\".")
      .def_ro("name", &NamedOp::name)
      .def_ro("kind", &NamedOp::kind, "\"relu\", \"matmul\", \"conv_fprop\" ...")
      .def_ro("inputs", &NamedOp::inputs)
      .def_ro("outputs", &NamedOp::outputs)
      .def("__repr__", [](const NamedOp& op) { return fmt::format("<fusor.Op {} '{}'>", op.kind, op.name); });
  nb::class_<Graph>(module, "Graph", "Tensors and ops; what the user said, and nothing about how it runs.")
      .def_ro("name", &Graph::name)
      .def_ro("precision", &Graph::precision)
      .def_prop_ro(
          "tensors",
          [](const Graph& self) { return tensors_of(self, [](const Graph&, int) { return true; }); },
          nb::sig("def tensors(self) -> list[Tensor]"))
      .def_prop_ro(
          "inputs",
          [](const Graph& self) {
            return tensors_of(self,
                              [](const Graph& g, int t) { return is_bound(g, t) && g.producer(t) < 0; });
          },
          nb::sig("def inputs(self) -> list[Tensor]"), "What each run reads.")
      .def_prop_ro(
          "outputs",
          [](const Graph& self) {
            return tensors_of(self,
                              [](const Graph& g, int t) { return is_bound(g, t) && g.producer(t) >= 0; });
          },
          nb::sig("def outputs(self) -> list[Tensor]"), "What each run writes.")
      .def_prop_ro("ops",
                   [](const Graph& self) {
                     const auto names = [&](const std::vector<int>& tensors) {
                       std::vector<std::string> list;
                       list.reserve(tensors.size());
                       for (const int t : tensors)
                         list.push_back(t < 0 ? "" : self.tensors[static_cast<size_t>(t)].name);
                       return list;
                     };
                     std::vector<NamedOp> ops;
                     ops.reserve(self.ops.size());
                     for (const Op& op : self.ops)
                       ops.push_back({op.name, std::string(short_name(op.attributes)), names(op.inputs),
                                      names(op.outputs)});
                     return ops;
                   })
      .def("to_json", [](const Graph& self) { return to_json(self); })
      .def(
          "save", [](const Graph& self, const std::string& path) { save(self, path); }, nb::arg("path"))
      .def(
          "__eq__", [](const Graph& a, const Graph& b) { return a == b; }, nb::is_operator())
      .def("__getstate__", [](const Graph& self) { return to_json(self); })
      .def("__setstate__",
           [](Graph& self, const std::string& json) { new (&self) Graph(graph_from_json(json)); })
      .def("__repr__", [](const Graph& self) {
        return fmt::format("<fusor.Graph '{}': {}, {}>", self.name, counted(self.ops.size(), "op"),
                           counted(self.tensors.size(), "tensor"));
      });
}

}  // namespace

void bind_graph(nb::module_& module) {
  bind_tensor(module);
  bind_ops(module);
  nb::class_<GraphBuilder> bound(
      module, "GraphBuilder",
      "Builds a Graph, one method per op; shapes and types are inferred as the graph grows.\n\n"
      "Every op has the keyword arguments name, type (what its virtual result is rounded to) and compute "
      "(the type it computes in). Operands broadcast as in NumPy; a number may stand for an operand. Every "
      "mistake raises Error, which names the op and the numbers, and leaves the builder as it was.");
  bound.def(
      "__init__",
      [](GraphBuilder* self, const std::string& name, const Word<Precision>& precision) {
        new (self) GraphBuilder(name, precision.get());
      },
      nb::arg("name") = "graph", nb::arg("precision") = "exact");
  bind_inputs(bound);
  bind_contractions(bound);
  bind_reductions_and_views(bound);
  bind_outputs(bound);
  module.def(
      "_roles",
      [](const std::string& attributes) {
        std::vector<std::pair<std::string, bool>> found;
        for (const Role& role : roles(attributes_from_json(attributes, 0)).inputs)
          found.emplace_back(role.name, role.optional);
        return found;
      },
      nb::arg("attributes"),
      "The operands of an op with these attributes, and whether each may be left out.");
  module.def(
      "_results",
      [](const std::string& attributes) {
        std::vector<std::string> found;
        for (const Role& role : roles(attributes_from_json(attributes, 0)).outputs)
          found.emplace_back(role.name);
        return found;
      },
      nb::arg("attributes"), "The results of an op with these attributes.");
  module.def("op_kinds_json", &op_kinds_json, "Every kind of op, its operands and attributes, as JSON.");
  module.def("graph_from_json", &graph_from_json, nb::arg("text"));
}

}  // namespace fusor::python
