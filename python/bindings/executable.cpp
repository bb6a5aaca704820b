// Owns executables in Python: loading, runs, arrays that are bound for many runs, and profiles.
#include <fmt/format.h>

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "call.h"

namespace fusor::python {

namespace {

/// Runs without the GIL; `before_run` is called with it.
Profile profiled(Loaded& loaded, void* const* pointers, nb::handle workspace, Stream stream,
                 ProfileOptions options, const nb::object& before_run) {
  if (!before_run.is_none())
    options.before_run = [&] {
      const nb::gil_scoped_acquire acquired;
      before_run();
    };
  Hold hold;
  const bool has_own = workspace.is_none();
  const Workspace given = has_own ? Workspace() : workspace_of(loaded, workspace, hold);
  const nb::gil_scoped_release released;
  const std::span<void* const> by_slot(pointers, loaded.slots.size());
  if (!has_own) return loaded.executable.profile(by_slot, given, stream, options);
  DeviceMemory own = loaded.workspaces.take(stream);
  Profile profile = loaded.executable.profile(by_slot, own.get() == nullptr ? Workspace() : Workspace(own),
                                              stream, options);
  loaded.workspaces.give_back(std::move(own));
  return profile;
}

/// Arrays that were checked once.
struct Bound {
  std::shared_ptr<Loaded> loaded;
  std::unique_ptr<Run> run;
  std::vector<nb::object> arrays;
  nb::object workspace;
  Stream stream = nullptr;
};

Bound bind(const std::shared_ptr<Loaded>& loaded, const nb::args& args, nb::handle workspace,
           nb::handle stream, const nb::kwargs& named) {
  Bound bound;
  bound.loaded = loaded;
  bound.run = std::make_unique<Run>(loaded->slots.size());
  bound.workspace = nb::borrow(workspace);
  bound.stream = stream_of(stream);
  collect(*loaded, args, named, *bound.run);
  for (size_t i = 0; i < loaded->slots.size(); ++i)
    bound.arrays.push_back(nb::borrow(bound.run->arrays()[i]));
  return bound;
}

void bind_profile(nb::module_& module) {
  nb::class_<StepProfile>(module, "StepProfile", "One kernel, fill, or (CPU device) evaluation of a fusion.")
      .def_ro("name", &StepProfile::name)
      .def_ro("seconds", &StepProfile::seconds);
  nb::class_<FusionProfile>(module, "FusionProfile", "The times of one fusion, beside what they could be.")
      .def_ro("ops", &FusionProfile::ops)
      .def_ro("config", &FusionProfile::config)
      .def_ro("seconds", &FusionProfile::seconds)
      .def_ro("estimated_seconds", &FusionProfile::estimated_seconds, "0 where there is no estimate.")
      .def_ro("bytes", &FusionProfile::bytes, "Read and written at least.")
      .def_ro("flops", &FusionProfile::flops, "Of its contractions.")
      .def_ro("bound", &FusionProfile::bound)
      .def_ro("limit_seconds", &FusionProfile::limit_seconds)
      .def_prop_ro("fraction_of_limit", &FusionProfile::fraction_of_limit)
      .def_ro("steps", &FusionProfile::steps);
  nb::class_<Profile>(module, "Profile", "Where the time of a run goes; str() is a table.")
      .def_ro("graph", &Profile::graph)
      .def_ro("device", &Profile::device)
      .def_ro("runs", &Profile::runs)
      .def_ro("seconds", &Profile::seconds, "Of a whole run, timed apart from its steps.")
      .def_ro("estimated_seconds", &Profile::estimated_seconds)
      .def_ro("fusions", &Profile::fusions)
      .def("__str__", [](const Profile& self) { return to_string(self); });
}

Executable loaded_without_gil(const Plan& plan) {
  const nb::gil_scoped_release released;
  return load(plan);
}

}  // namespace

void bind_executable(nb::module_& module) {
  bind_profile(module);
  nb::class_<Loaded> bound(module, "Executable", nb::dynamic_attr(),
                           "A plan whose kernels are loaded. run() allocates nothing once it has its "
                           "workspace, waits for nothing and may be called from many threads at once.");
  bound
      .def_prop_ro(
          "plan", [](const Loaded& self) -> const Plan& { return self.executable.plan(); },
          nb::rv_policy::reference_internal)
      .def_prop_ro(
          "workspace_bytes", [](const Loaded& self) { return self.executable.workspace_bytes(); },
          "Bytes of device memory (CPU device: host memory) that a run needs, 256-byte aligned.")
      .def_prop_ro(
          "slots",
          [](const Loaded& self) {
            std::vector<BuilderTensor> tensors;
            for (const SlotOf& slot : self.slots) tensors.push_back({slot.tensor, nullptr});
            return tensors;
          },
          "The tensors that a run binds, in the order of run()'s positions: by uid, which is the order in "
          "which the builder made them.")
      .def(
          "slot", [](const Loaded& self, nb::handle name) { return slot_named(self, name); }, nb::arg("name"),
          nb::sig("def slot(self, name: str | Tensor) -> int"), "The position of a tensor in run().")
      .def(
          "run",
          [](Loaded& self, const nb::args& args, nb::handle workspace, nb::handle stream,
             const nb::kwargs& named) {
            Run run(self.slots.size());
            collect(self, args, named, run);
            launch(self, run.pointers(), workspace, stream_of(stream));
          },
          nb::arg("arrays"), nb::arg("workspace") = nb::none(), nb::arg("stream") = nb::none(),
          nb::arg("named"), nb::sig("def run(self, *arrays, workspace=None, stream=None, **named) -> None"),
          "Launches the plan on the stream; outputs are written in place. Arrays come by position (the "
          "order of `slots`), by name, or as one dict of names or Tensors: NumPy, PyTorch, CuPy, JAX or "
          "anything with the buffer protocol, DLPack or the CUDA array interface, without a copy; plain "
          "numbers for scalars; addresses (int), unchecked.\n\n"
          "Type, dims, strides (in elements) and device must be the tensor's: an Error names it and both "
          "sides. `stream`: a handle, or an object with __cuda_stream__, cuda_stream or ptr; None is the "
          "default stream. A run is ordered with that stream's work alone: it returns before the GPU is "
          "done (on the CPU device, after). `workspace`: an array, a DeviceMemory or an address; where it "
          "is None, the executable keeps one for each thread and stream, made at its first run.")
      .def(
          "bind",
          [](const std::shared_ptr<Loaded>& self, const nb::args& args, nb::handle workspace,
             nb::handle stream,
             const nb::kwargs& named) { return bind(self, args, workspace, stream, named); },
          nb::arg("arrays"), nb::arg("workspace") = nb::none(), nb::arg("stream") = nb::none(),
          nb::arg("named"), nb::sig("def bind(self, *arrays, workspace=None, stream=None, **named) -> Bound"),
          "Checks the arrays once, as run() does, and keeps them: a call of the result runs them again, at "
          "the cost of the launches.")
      .def(
          "profile",
          [](Loaded& self, const nb::args& args, nb::handle workspace, nb::handle stream, int runs,
             int warm_ups, const nb::object& before_run, const nb::kwargs& named) {
            Run run(self.slots.size());
            collect(self, args, named, run);
            return profiled(self, run.pointers(), workspace, stream_of(stream), {runs, warm_ups, {}},
                            before_run);
          },
          nb::arg("arrays"), nb::arg("workspace") = nb::none(), nb::arg("stream") = nb::none(),
          nb::arg("runs") = 20, nb::arg("warm_ups") = 3, nb::arg("before_run") = nb::none(), nb::arg("named"),
          nb::sig(
              "def profile(self, *arrays, workspace=None, stream=None, runs: int = 20, warm_ups: int = 3, "
              "before_run: object = None, **named) -> Profile"),
          "Runs some times and says where the time goes: each fusion's and kernel's median seconds beside "
          "its "
          "estimate, bytes, FLOPs and the device's limit. Arrays as for run(). On a GPU times are between "
          "events: about a microsecond of each is the driver's. `before_run` is called before each timed "
          "run, "
          "to empty caches for example. Waits for the stream.")
      .def("__repr__", [](const Loaded& self) {
        return fmt::format("<fusor.Executable of '{}' on {}: {}>", self.executable.plan().graph.name,
                           self.device().name, names_of(self));
      });
  nb::class_<Bound>(module, "Bound", "Arrays that Executable.bind() has checked; call it to run them.")
      .def(
          "__call__",
          [](const Bound& self) { launch(*self.loaded, self.run->pointers(), self.workspace, self.stream); },
          "Runs. For one thread at a time where the workspace was given.");
  module.def(
      "load",
      [](nb::handle plan) {
        std::string_view path;
        Plan read;
        Plan* given = nullptr;
        if (!nb::try_cast(plan, given) || given == nullptr) {
          if (nb::isinstance<Graph>(plan))
            refuse("load: expected a Plan, got a Graph; build() makes one of it");
          const nb::object text = nb::module_::import_("os").attr("fspath")(plan);
          read = read_plan(nb::str(text).c_str());
          given = &read;
        }
        // Loaded makes Python's strings: only the loading itself runs without the GIL.
        return std::make_shared<Loaded>(loaded_without_gil(*given));
      },
      nb::arg("plan"), nb::sig("def load(plan: Plan | str | os.PathLike) -> Executable"),
      "Loads a plan, or the plan in a file: its kernels come from the cache or are compiled now. A choice "
      "that no longer exists is made anew and said in executable.plan.remarks. Raises Error (missing) "
      "where the device or its driver is not there.");
}

}  // namespace fusor::python
