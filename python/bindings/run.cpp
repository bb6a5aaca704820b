// Owns executables in Python: arrays become pointers, checked against the plan's tensors, and run.
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <thread>

#include "arrays.h"
#include "bindings.h"

namespace fusor::python {

namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorKind::bad_input, text); }

// --- numbers -----------------------------------------------------------------------------------------------

/// bf16 of a number, to the nearest, ties to even.
uint16_t bf16_bits(double number) {
  const auto single = static_cast<float>(number);
  uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof bits);
  if (single != single) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// A Python number as an element of `tensor`'s type.
void store_number(const Tensor& tensor, PyObject* object, std::byte* to) {
  const auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  if (!is_real(tensor.type)) {
    const long long whole = PyLong_AsLongLong(object);
    if (whole == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    put(static_cast<int64_t>(whole));  // little-endian: shorter integers are its first bytes
    return;
  }
  const double number = PyFloat_AsDouble(object);
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  switch (tensor.type) {
    case DataType::f64:
      return put(number);
    case DataType::f32:
      return put(static_cast<float>(number));
    case DataType::bf16:
      return put(bf16_bits(number));
    case DataType::f16: {
      const nb::bytes packed(nb::module_::import_("struct").attr("pack")("<e", number));
      std::memcpy(to, packed.data(), 2);
      return;
    }
    default:
      refuse(fmt::format("run: tensor '{}' is {}: give an array of one element, not a number", tensor.name,
                         to_string(tensor.type)));
  }
}

// --- streams -----------------------------------------------------------------------------------------------

/// A handle; or an object with __cuda_stream__, cuda_stream (PyTorch) or ptr (CuPy).
Stream stream_of(nb::handle object) {
  if (object.is_none()) return nullptr;
  const auto handle = [](nb::handle number) {
    void* stream = PyLong_AsVoidPtr(number.ptr());
    if (stream == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
    return stream;
  };
  if (PyLong_Check(object.ptr())) return handle(object);
  if (nb::hasattr(object, "cuda_stream")) return handle(object.attr("cuda_stream"));
  if (nb::hasattr(object, "__cuda_stream__")) return handle(nb::object(object.attr("__cuda_stream__")()[1]));
  if (nb::hasattr(object, "ptr")) return handle(object.attr("ptr"));
  refuse(
      fmt::format("run: the stream is {}; expected a handle (int) or an object with __cuda_stream__, "
                  "cuda_stream or ptr",
                  nb::repr(object).c_str()));
}

// --- memory ------------------------------------------------------------------------------------------------

/// Workspaces that an executable made itself: on a GPU one for each thread and stream, whose order keeps two
/// runs apart; on the CPU, whose runs end before they return, one for each that is under way.
class Workspaces {
 public:
  Workspaces(const DeviceInfo& device, int64_t bytes) : device_(device), bytes_(bytes) {}

  DeviceMemory take(Stream stream) {
    if (bytes_ == 0) return {};
    const std::lock_guard lock(mutex_);
    if (device_.is_cpu()) {
      if (idle_.empty()) return {device_, bytes_};
      DeviceMemory memory = std::move(idle_.back());
      idle_.pop_back();
      return memory;
    }
    // Threads that ended leave theirs behind; freeing waits for the device.
    if (of_stream_.size() >= kMostKept) of_stream_.clear();
    DeviceMemory& memory = of_stream_[{std::this_thread::get_id(), stream}];
    if (memory.get() == nullptr) memory = made();
    return memory;
  }
  void give_back(DeviceMemory memory) {
    if (bytes_ == 0 || !device_.is_cpu()) return;
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(memory));
  }

 private:
  static constexpr size_t kMostKept = 64;

  DeviceMemory made() const {
    try {
      return {device_, bytes_};
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("{}; it was to be the workspace of this thread and stream: before a capture, "
                              "run once on the stream, or give run() a workspace",
                              error.what()));
    }
  }

  const DeviceInfo& device_;
  int64_t bytes_;
  std::mutex mutex_;
  std::vector<DeviceMemory> idle_;
  std::map<std::pair<std::thread::id, Stream>, DeviceMemory> of_stream_;
};

// --- executables -------------------------------------------------------------------------------------------

/// One tensor that a run binds.
struct SlotOf {
  Tensor tensor;
  bool is_output = false;
  nb::object name;  ///< interned
};

struct Loaded {
  explicit Loaded(Executable loaded)
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

Dims dims_of(const Array& array) {
  return Dims(std::span<const int64_t>(array.dims.data(), static_cast<size_t>(array.rank)));
}

Strides strides_of(const Array& array) {
  if (array.packed) return packed_strides(dims_of(array));
  return Dims(std::span<const int64_t>(array.strides.data(), static_cast<size_t>(array.rank)));
}

/// The whole of what a tensor is and what was given for it, in one message.
[[noreturn]] void refuse_array(const SlotOf& slot, const Array& array, const char* what) {
  const Tensor& tensor = slot.tensor;
  std::string text = fmt::format("run: {} '{}' is {} {} with strides {}; got {}",
                                 slot.is_output ? "output" : "tensor", tensor.name, to_string(tensor.type),
                                 to_string(tensor.dims), to_string(tensor.strides), to_string(array.type));
  if (array.rank > kMaxRank)
    text += fmt::format(" of {} dims", array.rank);
  else
    text += fmt::format(" {} with strides {}", to_string(dims_of(array)), to_string(strides_of(array)));
  refuse(fmt::format("{} ({})", text, what));
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
  int64_t count = 1;
  for (int i = array.rank - 1; i >= 0; --i) {
    const int64_t extent = array.dims[static_cast<size_t>(i)];
    if (!array.packed && extent != 1 && array.strides[static_cast<size_t>(i)] != count) return false;
    count *= extent;
  }
  return array.type.bits == 8 && count == tensor.bytes();
}

/// Why the array does not lie as the tensor does; null where it does.
const char* misplaced(const Array& array, const Tensor& tensor) {
  if (is_packed(tensor.type))
    return has_bytes(array, tensor) ? nullptr : "its elements share bytes: expected an array of all of them";
  if (!holds(array.type, tensor.type)) return "another type";
  if (!has_dims(array, tensor)) return "other dims";
  return has_strides(array, tensor) ? nullptr : "other strides";
}

bool has_one_element(const Array& array) {
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
    const bool is_type =
        is_packed(slot.tensor.type) ? array.type.bits == 8 : holds(array.type, slot.tensor.type);
    if (!is_type) refuse_array(slot, array, "another type");
    if (!has_one_element(array)) refuse_array(slot, array, "more than one element");
    return array.pointer;
  }
  if (const char* const why = misplaced(array, slot.tensor)) refuse_array(slot, array, why);
  if (slot.is_output && array.read_only)
    refuse(fmt::format("run: output '{}' is read-only", slot.tensor.name));
  return array.pointer;
}

std::string names_of(const Loaded& loaded) {
  std::string names;
  for (const SlotOf& slot : loaded.slots)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", slot.tensor.name);
  return names;
}

/// The position of a tensor by name or Tensor.
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

void set_array(const Loaded& loaded, Run& run, nb::handle key, nb::handle array) {
  const size_t slot = slot_named(loaded, key);
  if (run.arrays()[slot] != nullptr)
    refuse(fmt::format("run: tensor '{}' is given twice", loaded.slots[slot].tensor.name));
  run.arrays()[slot] = array.ptr();
}

/// Arguments by position (in the order of `slots`), as one dict, and by name.
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

/// The caller's workspace: memory of fusor, an array of bytes, or an address.
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

void bind_executable(nb::module_& module) {
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

// --- memory and checking -----------------------------------------------------------------------------------

void bind_memory(nb::module_& module) {
  nb::class_<DeviceMemory>(module, "DeviceMemory",
                           "Memory of a plan's device, for programs that have no allocator of their own: "
                           "the host's for the CPU device, else the GPU's; on a multiple of 256 bytes.")
      .def(
          "__init__",
          [](DeviceMemory* self, const Word<DeviceInfo>& device, int64_t bytes) {
            new (self) DeviceMemory(device.get(), bytes);
          },
          nb::arg("device"), nb::arg("bytes"))
      .def_prop_ro(
          "pointer", [](const DeviceMemory& self) { return reinterpret_cast<uintptr_t>(self.get()); },
          "Its address, which run() takes.")
      .def_prop_ro("bytes", &DeviceMemory::bytes)
      .def(
          "copy_from",
          [](const DeviceMemory& self, nb::handle host) {
            Hold hold;
            if (PyObject_GetBuffer(host.ptr(), &hold.view, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
            if (hold.view.len != self.bytes())
              refuse(fmt::format("device memory: {} bytes, the array has {}", self.bytes(), hold.view.len));
            const nb::gil_scoped_release released;
            self.copy_from(hold.view.buf);
          },
          nb::arg("host"), "Copies a contiguous host array of as many bytes.")
      .def(
          "copy_to",
          [](const DeviceMemory& self, nb::handle host, nb::handle stream) {
            Hold hold;
            if (PyObject_GetBuffer(host.ptr(), &hold.view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0)
              throw nb::python_error();
            if (hold.view.len != self.bytes())
              refuse(fmt::format("device memory: {} bytes, the array has {}", self.bytes(), hold.view.len));
            const Stream after = stream_of(stream);
            const nb::gil_scoped_release released;
            self.copy_to(hold.view.buf, after);
          },
          nb::arg("host"), nb::arg("stream") = nb::none(),
          "Waits for the stream and copies to a contiguous host array of as many bytes.");
  module.def(
      "synchronize",
      [](const Word<DeviceInfo>& device, nb::handle stream) {
        const DeviceInfo on = device.get();
        const Stream of = stream_of(stream);
        const nb::gil_scoped_release released;
        synchronize(on, of);
      },
      nb::arg("device") = nb::none(), nb::arg("stream") = nb::none(),
      "Waits for the stream's work on the device.");
}

/// Host buffers by position in graph.tensors.
std::vector<void*> host_pointers(const Graph& graph, const nb::dict& arrays, std::vector<Hold>& held) {
  std::vector<void*> pointers(graph.tensors.size(), nullptr);
  for (const auto& [key, object] : arrays) {
    BuilderTensor* tensor = nullptr;
    const std::string name =
        nb::try_cast(key, tensor) && tensor != nullptr ? tensor->tensor.name : nb::cast<std::string>(key);
    const int at = graph.find(name);
    if (at < 0) refuse(fmt::format("verify: the graph '{}' has no tensor '{}'", graph.name, name));
    SlotOf slot{graph.tensors[static_cast<size_t>(at)], false, {}};
    Array array;
    if (!read_array(object.ptr(), array, held[static_cast<size_t>(at)]) || array.on_gpu)
      refuse(fmt::format("verify: tensor '{}': expected an array on the host", name));
    const bool is_number = slot.tensor.memory == Memory::host && !is_packed(slot.tensor.type);
    if (is_number && !holds(array.type, slot.tensor.type)) refuse_array(slot, array, "another type");
    if (const char* const why = is_number ? nullptr : misplaced(array, slot.tensor))
      refuse_array(slot, array, why);
    pointers[static_cast<size_t>(at)] = array.pointer;
  }
  for (size_t i = 0; i < pointers.size(); ++i) {
    const Memory memory = graph.tensors[i].memory;
    if (pointers[i] == nullptr && (memory == Memory::device || memory == Memory::host))
      refuse(fmt::format("verify: tensor '{}' has no array", graph.tensors[i].name));
  }
  return pointers;
}

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
        std::vector<Hold> held(graph.tensors.size());
        const std::vector<void*> pointers = host_pointers(graph, arrays, held);
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
        if (const char* const why = misplaced(array, tensor.tensor)) refuse_array(slot, array, why);
        fill_random(tensor.tensor, array.pointer, seed);
      },
      nb::arg("tensor"), nb::arg("array"), nb::arg("seed") = 1,
      nb::sig("def fill_random(tensor: Tensor, array: object, seed: int = 1) -> None"),
      "Fills a host array with seeded random values that suit the tensor's type.");
}

}  // namespace

void bind_run(nb::module_& module) {
  bind_memory(module);
  bind_profile(module);
  bind_executable(module);
  bind_verify(module);
}

}  // namespace fusor::python
