// Owns the checking of results in Python: verify(), its reports, and the random inputs for it.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "call.h"

namespace fusor::python {

namespace {

/// Holds on the arrays, and copies of the numbers, that a comparison reads: they stay until it ends.
struct Kept {
  std::vector<Hold> arrays;
  std::vector<std::array<std::byte, 8>> numbers;
};

std::string name_of(nb::handle key) {
  BuilderTensor* tensor = nullptr;
  if (nb::try_cast(key, tensor) && tensor != nullptr) return tensor->tensor.name;
  std::string_view name;
  if (!nb::try_cast(key, name))
    refuse(fmt::format("verify: expected the name of a tensor, got {}", nb::repr(key).c_str()));
  return std::string(name);
}

/// Host buffers by position in graph.tensors.
std::vector<void*> host_pointers(const Graph& graph, const nb::dict& arrays, Kept& kept) {
  std::vector<void*> pointers(graph.tensors.size(), nullptr);
  for (const auto& [key, object] : arrays) {
    const std::string name = name_of(key);
    const int at = graph.find(name);
    if (at < 0) refuse(fmt::format("verify: the graph '{}' has no tensor '{}'", graph.name, name));
    const auto place = static_cast<size_t>(at);
    const SlotOf slot{graph.tensors[place], false, {}};
    const bool is_scalar = slot.tensor.memory == Memory::host;
    if (is_scalar && (PyFloat_Check(object.ptr()) != 0 || PyLong_Check(object.ptr()) != 0)) {
      store_number(slot.tensor, object.ptr(), kept.numbers[place].data());
      pointers[place] = kept.numbers[place].data();
      continue;
    }
    Array array;
    if (!read_array(object.ptr(), array, kept.arrays[place]) || array.on_gpu)
      refuse(fmt::format("verify: tensor '{}': expected an array on the host{}", name,
                         is_scalar ? ", or a number" : ""));
    const char* const why = is_scalar ? no_number(array, slot.tensor) : misplaced(array, slot.tensor);
    if (why != nullptr) refuse_array(slot, array, why, "verify");
    pointers[place] = array.pointer;
  }
  for (size_t i = 0; i < pointers.size(); ++i) {
    const Memory memory = graph.tensors[i].memory;
    if (pointers[i] == nullptr && (memory == Memory::device || memory == Memory::host))
      refuse(fmt::format("verify: tensor '{}' has no array", graph.tensors[i].name));
  }
  return pointers;
}

}  // namespace

void bind_verify(nb::module_& module) {
  nb::class_<OutputCheck>(module, "OutputCheck", "One output compared with the float64 evaluation.")
      .def_ro("tensor", &OutputCheck::tensor)
      .def_ro("elements", &OutputCheck::elements)
      .def_ro("checked", &OutputCheck::checked, "Fewer where a seeded sample was taken.")
      .def_ro("unwritten", &OutputCheck::unwritten, "Elements that no op writes: there is nothing to check.")
      .def_ro("max_abs", &OutputCheck::max_abs)
      .def_ro("max_rel", &OutputCheck::max_rel)
      .def_ro("max_ulp", &OutputCheck::max_ulp, "In units of the last place of the output's type.")
      .def_ro("rms", &OutputCheck::rms, "Root mean square of the errors.")
      .def_ro("max_abs_at", &OutputCheck::max_abs_at)
      .def_ro("max_rel_at", &OutputCheck::max_rel_at)
      .def_ro("max_ulp_at", &OutputCheck::max_ulp_at)
      .def_ro("got", &OutputCheck::got)
      .def_ro("want", &OutputCheck::want)
      .def_ro("wrong_at", &OutputCheck::wrong_at)
      .def_ro("wrong", &OutputCheck::wrong)
      .def_ro("nans", &OutputCheck::nans)
      .def_ro("infs", &OutputCheck::infs)
      .def_ro("tolerance_abs", &OutputCheck::tolerance_abs)
      .def_ro("tolerance_rel", &OutputCheck::tolerance_rel);
  nb::class_<VerifyReport>(
      module, "VerifyReport",
      "Every output that verify() compared: true where all are within the tolerance that "
      "follows from the graph's types; str() is a table of their errors.")
      .def_ro("outputs", &VerifyReport::outputs)
      .def_prop_ro("passed", &VerifyReport::passed, "Whether no output has an element outside its tolerance.")
      .def("__bool__", &VerifyReport::passed)
      .def("__str__", [](const VerifyReport& self) { return to_string(self); })
      .def("__repr__", [](const VerifyReport& self) {
        std::string wrong;
        for (const OutputCheck& output : self.outputs)
          if (output.wrong > 0) wrong += fmt::format("{}'{}'", wrong.empty() ? "" : ", ", output.tensor);
        return fmt::format("<fusor.VerifyReport of {}: {}>", counted(self.outputs.size(), "output"),
                           self.passed() ? "passed" : "failed in " + wrong);
      });
  module.def(
      "verify",
      [](const Graph& graph, const nb::dict& arrays, uint64_t seed, const Notes* notes) {
        Kept kept{std::vector<Hold>(graph.tensors.size()),
                  std::vector<std::array<std::byte, 8>>(graph.tensors.size())};
        const std::vector<void*> pointers = host_pointers(graph, arrays, kept);
        const nb::gil_scoped_release released;
        return verify(graph, pointers, seed, notes != nullptr ? *notes : Notes{});
      },
      nb::arg("graph"), nb::arg("arrays"), nb::arg("seed") = 1, nb::arg("notes") = nb::none(),
      nb::sig("def verify(graph: Graph, arrays: dict, seed: int = 1, notes: Notes | None = None) -> "
              "VerifyReport"),
      "Compares the outputs among `arrays` (host arrays by name or Tensor: inputs as a run was given them, "
      "outputs as it left them) with a float64 evaluation of the graph. `notes`: the plan's.");
  module.def(
      "fill_random",
      [](const BuilderTensor& tensor, nb::handle object, uint64_t seed) {
        Hold hold;
        Array array;
        const SlotOf slot{tensor.tensor, true, {}};
        if (!read_array(object.ptr(), array, hold) || array.on_gpu || array.read_only)
          refuse(fmt::format("fill_random: tensor '{}': expected a writable array on the host",
                             tensor.tensor.name));
        if (const char* const why = misplaced(array, tensor.tensor))
          refuse_array(slot, array, why, "fill_random");
        fill_random(tensor.tensor, array.pointer, seed);
      },
      nb::arg("tensor"), nb::arg("array"), nb::arg("seed") = 1,
      nb::sig("def fill_random(tensor: Tensor, array: object, seed: int = 1) -> None"),
      "Fills a host array with seeded random values that suit the tensor's type.");
}

}  // namespace fusor::python
