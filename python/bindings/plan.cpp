// Owns devices, plans, and what is said about them in Python: build, candidates, explain, engines_for, files.
#include "bindings.h"

#include <fmt/format.h>

#include <variant>

namespace fusor::python {

namespace {

using Device = Word<DeviceInfo>;

/// Planning and compiling need no Python.
template <class Body>
auto without_gil(Body body) {
  const nb::gil_scoped_release released;
  return body();
}

nb::dict knobs_of(const EngineConfig& config) {
  nb::dict knobs;
  for (const KnobSetting& knob : config.knobs) knobs[knob.name.c_str()] = knob.value;
  return knobs;
}

void bind_devices(nb::module_& module) {
  nb::class_<DeviceInfo> device(module, "DeviceInfo",
                                "What planning needs to know of a device, as a value: no GPU is needed to "
                                "have one. Rates are per second, sizes in bytes.");
  device.def(nb::init<>());
  bind_fields<DeviceInfo>(device);
  device.def_static("cpu", &DeviceInfo::cpu, "The CPU of this machine.")
      .def_static(
          "current", &DeviceInfo::current,
          "The GPU of the current CUDA context (device 0 where there is none), or the CPU where there is no "
          "usable GPU.")
      .def_static(
          "named", &DeviceInfo::named, nb::arg("name"),
          "A profile by name (\"H200\"), by architecture (\"hopper\"), by target (\"sm_90\"), \"cpu\", "
          "\"current\", or from a JSON file's path. Raises Error that lists what there is.")
      .def_static("profiles", &DeviceInfo::profiles, "Every built-in profile.")
      .def_prop_ro("is_cpu", &DeviceInfo::is_cpu)
      .def_prop_ro("target", &DeviceInfo::target,
                   "The architecture that kernels are compiled for: \"sm_90a\".")
      .def("to_json", [](const DeviceInfo& self) { return to_json(self); })
      .def(
          "__eq__", [](const DeviceInfo& a, const DeviceInfo& b) { return a == b; }, nb::is_operator())
      .def("__repr__",
           [](const DeviceInfo& self) { return fmt::format("<fusor.DeviceInfo {}>", self.name); });
}

void bind_choices(nb::module_& module) {
  nb::class_<Notes> notes(module, "Notes", "What a candidate does that a user may want to know or forbid.");
  bind_fields<Notes>(notes);
  nb::class_<EngineConfig>(module, "EngineConfig", "An engine and the settings of its knobs.")
      .def_ro("engine", &EngineConfig::engine)
      .def_ro("revision", &EngineConfig::revision)
      .def_prop_ro("knobs", &knobs_of, nb::sig("def knobs(self) -> dict[str, int]"))
      .def("__str__", [](const EngineConfig& self) { return to_string(self); })
      .def("__repr__", [](const EngineConfig& self) { return fmt::format("<{}>", to_string(self)); });
  struct NamedFusion {
    std::vector<std::string> ops;
    EngineConfig config;
  };
  nb::class_<NamedFusion>(module, "PlannedFusion", "The ops of one fusion, and who carries them out.")
      .def_ro("ops", &NamedFusion::ops, "Names.")
      .def_ro("config", &NamedFusion::config)
      .def("__repr__", [](const NamedFusion& self) {
        return fmt::format("<{} by {}>", fmt::join(self.ops, " + "), to_string(self.config));
      });
  const auto fusions = [](const Graph& graph, const std::vector<PlannedFusion>& planned) {
    std::vector<NamedFusion> named;
    named.reserve(planned.size());
    for (const PlannedFusion& fusion : planned) named.push_back({op_names(graph, fusion), fusion.config});
    return named;
  };
  nb::class_<Candidate>(module, "Candidate", "One way to run the whole graph, known without compiling.")
      .def_prop_ro(
          "fusions", [fusions](const Candidate& self) { return fusions(*self.graph, self.fusions); },
          "In the order in which they run.")
      .def_ro("seconds", &Candidate::seconds,
              "Measured where the tuning table has the fusions, else estimated.")
      .def_ro("workspace_bytes", &Candidate::workspace_bytes)
      .def_ro("notes", &Candidate::notes)
      .def("__str__", [](const Candidate& self) { return to_string(self); });
  nb::class_<Plan>(
      module, "Plan",
      "The choices made for a graph on a device, and nothing else: a plan outlives the version of the "
      "library that made it.")
      .def_ro("graph", &Plan::graph, "In the form in which it was planned.")
      .def_ro("device", &Plan::device)
      .def_prop_ro(
          "fusions", [fusions](const Plan& self) { return fusions(self.graph, self.fusions); },
          "In the order in which they run.")
      .def_ro("workspace_bytes", &Plan::workspace_bytes)
      .def_ro("seconds", &Plan::seconds, "Measured where the tuning table had the fusions, else estimated.")
      .def_ro("notes", &Plan::notes)
      .def_ro(
          "remarks", &Plan::remarks,
          "Operand types that keep contractions off the tensor cores or slow them there; what was decided "
          "again at load, and why.")
      .def(
          "source", [](const Plan& self) { return without_gil([&] { return source(self); }); },
          "The generated CUDA of every kernel, with your names as comments and the command that compiles it "
          "alone.")
      .def("to_json", [](const Plan& self) { return to_json(self); })
      .def(
          "save", [](const Plan& self, const std::string& path) { save(self, path); }, nb::arg("path"))
      .def("__getstate__", [](const Plan& self) { return to_json(self); })
      .def("__setstate__",
           [](Plan& self, const std::string& json) { new (&self) Plan(plan_from_json(json)); })
      .def("__str__", [](const Plan& self) { return to_string(self); })
      .def("__repr__", [](const Plan& self) {
        return fmt::format("<fusor.Plan of '{}' for {}: {}>", self.graph.name, self.device.name,
                           counted(self.fusions.size(), "fusion"));
      });
}

void bind_answers(nb::module_& module) {
  nb::class_<Refusal>(module, "Refusal", "Why an engine does not support a fusion.")
      .def_ro("rule", &Refusal::rule, "Stable and short: \"needs-anchor\".")
      .def_ro("node", &Refusal::node, "The op's name.")
      .def_ro("tensor", &Refusal::tensor)
      .def_ro("expected", &Refusal::expected)
      .def_ro("actual", &Refusal::actual)
      .def_ro("remedy", &Refusal::remedy, "What would make it accepted.")
      .def("__str__", [](const Refusal& self) { return to_string(self); });
  nb::class_<EngineAnswer>(module, "EngineAnswer", "One engine's answer to one fusion.")
      .def_ro("engine", &EngineAnswer::engine)
      .def_prop_ro(
          "refusal", [](const EngineAnswer& self) { return self.support.refusal; },
          "None where the engine accepts.")
      .def_ro("config", &EngineAnswer::config, "Its best configuration, where it accepts.")
      .def_ro("seconds", &EngineAnswer::seconds, "Of that configuration: estimated, or measured.")
      .def_ro("measured", &EngineAnswer::measured)
      .def_ro("chosen", &EngineAnswer::chosen)
      .def_ro("notes", &EngineAnswer::notes);
  nb::class_<Decision>(module, "Decision", "A set of ops that was considered: one fusion, or cut in two.")
      .def_ro("ops", &Decision::ops)
      .def_ro("answers", &Decision::answers)
      .def_ro("cut_at", &Decision::cut_at, "The op at which a cut was priced, or \"\".")
      .def_ro("whole_seconds", &Decision::whole_seconds)
      .def_ro("parts_seconds", &Decision::parts_seconds)
      .def_ro("cut", &Decision::cut)
      .def_ro("no_fusion", &Decision::no_fusion, "Why the ops cannot be one fusion, or \"\".")
      .def_ro("parts", &Decision::parts);
  nb::class_<FusionSummary::Apart>(module, "Apart",
                                   "Why a fusion is not one with an earlier one that it reads from.")
      .def_ro("fusion", &FusionSummary::Apart::fusion, "Its position.")
      .def_ro("why", &FusionSummary::Apart::why);
  nb::class_<FusionSummary>(module, "FusionSummary", "One fusion that runs, in short.")
      .def_ro("ops", &FusionSummary::ops)
      .def_ro("config", &FusionSummary::config)
      .def_ro("seconds", &FusionSummary::seconds)
      .def_ro("measured", &FusionSummary::measured)
      .def_ro("notes", &FusionSummary::notes)
      .def_ro("runner_up", &FusionSummary::runner_up, "The engine that would be next, or \"\".")
      .def_ro("runner_up_seconds", &FusionSummary::runner_up_seconds)
      .def_ro("beside", &FusionSummary::beside)
      .def_ro("bytes", &FusionSummary::bytes, "Read and written at least.")
      .def_ro("flops", &FusionSummary::flops, "Of its contractions.")
      .def_ro("bound", &FusionSummary::bound)
      .def_ro("limit_seconds", &FusionSummary::limit_seconds)
      .def_ro("apart", &FusionSummary::apart);
  nb::class_<Explanation>(module, "Explanation")
      .def_ro("fusions", &Explanation::fusions, "In run order, in short.")
      .def_ro("decisions", &Explanation::decisions)
      .def_ro("folded", &Explanation::folded, "Ops that cost nothing: views folded into accesses.")
      .def_ro("choice", &Explanation::choice);
  nb::class_<Knob>(module, "Knob").def_ro("name", &Knob::name).def_ro("values", &Knob::values);
  nb::class_<EngineSetting>(module, "EngineSetting", "One setting of an engine's knobs.")
      .def_ro("config", &EngineSetting::config)
      .def_ro("seconds", &EngineSetting::seconds)
      .def_ro("measured", &EngineSetting::measured);
  nb::class_<EngineOffer>(module, "EngineOffer", "An engine's answer, and where it accepts, what it offers.")
      .def_ro("answer", &EngineOffer::answer)
      .def_ro("knobs", &EngineOffer::knobs)
      .def_ro("settings", &EngineOffer::settings, "Best first.");
  nb::class_<FusionEngines>(module, "FusionEngines")
      .def_ro("ops", &FusionEngines::ops)
      .def_ro("engines", &FusionEngines::engines, "In the order in which they are asked.");
}

/// The keyword arguments of everything that plans.
#define FUSOR_BUILD_ARGUMENTS                                                                 \
  nb::kw_only(), nb::arg("forbid") = nb::make_tuple(), nb::arg("max_workspace") = nb::none(), \
                 nb::arg("tuning") = nb::none(), nb::arg("kernels") = "best"

BuildOptions build_options(std::vector<std::string> forbid, std::optional<int64_t> max_workspace,
                           const TuningTable* tuning, const Word<KernelChoice>& kernels) {
  BuildOptions options;
  options.forbid = std::move(forbid);
  options.max_workspace = max_workspace.value_or(kNoWorkspaceLimit);
  options.tuning = tuning;
  options.kernels = kernels.get();
  return options;
}

void bind_planning(nb::module_& module) {
  module.def(
      "build",
      [](const GraphArgument& planned, const Device& device, const Candidate* candidate,
         std::vector<std::string> forbid, std::optional<int64_t> max_workspace, const TuningTable* tuning,
         const Word<KernelChoice>& kernels, bool compile) {
        BuildOptions options = build_options(std::move(forbid), max_workspace, tuning, kernels);
        options.compile = compile;
        const Graph& graph = planned.graph("build");
        const DeviceInfo on = device.get();
        return without_gil([&] {
          return candidate != nullptr ? build(graph, on, *candidate, options) : build(graph, on, options);
        });
      },
      nb::arg("graph"), nb::arg("device") = nb::none(), nb::arg("candidate") = nb::none(),
      FUSOR_BUILD_ARGUMENTS, nb::arg("compile") = true,
      "Plans the graph: the candidate, or the best one within the limits, its kernels compiled into the "
      "cache.\n\n"
      "`device` is a DeviceInfo, a name, or None for the current one (a GPU, or the CPU). `forbid`: "
      "engines that must not be used. `max_workspace`: bytes. `tuning`: measured times, which go before "
      "estimates; None is the user's table. `kernels`: \"best\", \"best_effort\" (compiled ones, where they "
      "cost "
      "at most 10 % more) or \"only_compiled\". Raises Error: bad_input for an invalid graph or limits that "
      "nothing meets, missing where kernels must be compiled and there is no NVRTC.");
  module.def(
      "candidates",
      [](const GraphArgument& planned, const Device& device, std::vector<std::string> forbid,
         std::optional<int64_t> max_workspace, const TuningTable* tuning, const Word<KernelChoice>& kernels,
         int max_candidates) {
        BuildOptions options = build_options(std::move(forbid), max_workspace, tuning, kernels);
        options.max_candidates = max_candidates;
        const Graph& graph = planned.graph("candidates");
        const DeviceInfo on = device.get();
        return without_gil([&] { return candidates(graph, on, options); });
      },
      nb::arg("graph"), nb::arg("device") = nb::none(), FUSOR_BUILD_ARGUMENTS, nb::arg("max_candidates") = 16,
      "Ways to run the whole graph, best estimate first. Compiles nothing.");
  module.def(
      "explain",
      [](const GraphOrPlan& planned, const Device& device, std::vector<std::string> forbid,
         std::optional<int64_t> max_workspace, const TuningTable* tuning, const Word<KernelChoice>& kernels,
         bool all) {
        const BuildOptions options = build_options(std::move(forbid), max_workspace, tuning, kernels);
        const Graph& graph = planned.graph("explain");
        const DeviceInfo on = planned.device(device);
        return without_gil([&] { return explain(graph, on, options, all ? Detail::all : Detail::brief); });
      },
      nb::arg("graph"), nb::arg("device") = nb::none(), FUSOR_BUILD_ARGUMENTS, nb::arg("all") = false,
      "For people: each fusion that runs, its engine and time, what bounds it, the engine that would be "
      "next, and why it is not one with its neighbours. `all`: every engine's answer and setting, and the "
      "prices of cuts. A Plan stands for its graph on its device. Compiles nothing.");
  const auto picture = [&](const char* name, auto draw, const char* about) {
    module.def(
        name,
        [draw, name](const GraphOrPlan& planned, const Device& device, std::vector<std::string> forbid,
                     std::optional<int64_t> max_workspace, const TuningTable* tuning,
                     const Word<KernelChoice>& kernels) {
          const BuildOptions options = build_options(std::move(forbid), max_workspace, tuning, kernels);
          const Graph& graph = planned.graph(name);
          const DeviceInfo on = planned.device(device);
          const std::string text = without_gil([&] { return draw(graph, on, options); });
          return nb::bytes(text.data(), text.size());
        },
        nb::arg("graph"), nb::arg("device") = nb::none(), FUSOR_BUILD_ARGUMENTS, about);
  };
  picture(
      "explain_html", explain_html,
      "One page of HTML (UTF-8) that needs no other file: the graph by fusions, with times, engines, what "
      "was considered and why it was not chosen; zoom and search.");
  picture("explain_dot", explain_dot, "The graph by fusions in Graphviz's language.");
  picture(
      "explain_onnx", explain_onnx,
      "The graph as an ONNX model for viewers (Netron): ops of the domain \"fusor\" with their attributes, "
      "fusion and engine. No runtime of ONNX knows these ops.");
  module.def(
      "explain_data",
      [](const GraphOrPlan& planned, const Device& device, std::vector<std::string> forbid,
         std::optional<int64_t> max_workspace, const TuningTable* tuning, const Word<KernelChoice>& kernels) {
        const BuildOptions options = build_options(std::move(forbid), max_workspace, tuning, kernels);
        const Graph& graph = planned.graph("explain_data");
        const DeviceInfo on = planned.device(device);
        return without_gil([&] { return explain_data(graph, on, options); });
      },
      nb::arg("graph"), nb::arg("device") = nb::none(), FUSOR_BUILD_ARGUMENTS, "The same as data.");
  module.def(
      "engines_for",
      [](const GraphOrPlan& planned, const Device& device, std::vector<std::string> forbid,
         std::optional<int64_t> max_workspace, const TuningTable* tuning, const Word<KernelChoice>& kernels) {
        const BuildOptions options = build_options(std::move(forbid), max_workspace, tuning, kernels);
        const Graph& graph = planned.graph("engines_for");
        const DeviceInfo on = planned.device(device);
        return without_gil([&] { return engines_for(graph, on, options); });
      },
      nb::arg("graph"), nb::arg("device") = nb::none(), FUSOR_BUILD_ARGUMENTS,
      "Who could carry out each fusion that build() chooses, with which settings. Fusions in run order.");
  module.def(
      "source", [](const Plan& plan) { return without_gil([&] { return source(plan); }); }, nb::arg("plan"),
      "The same as plan.source().");
}

void bind_files(nb::module_& module) {
  nb::class_<TuningTable>(module, "TuningTable", "What measurements said of fusions on devices.")
      .def(nb::init<>())
      .def("__len__", &TuningTable::size)
      .def_prop_ro(
          "keys",
          [](const TuningTable& self) {
            std::vector<std::pair<std::string, std::string>> keys;
            for (const auto& [key, fusion] : self.fusions()) keys.push_back(key);
            return keys;
          },
          "(device, fusion) of every entry.")
      .def("to_json", [](const TuningTable& self) { return to_json(self); })
      .def(
          "save", [](const TuningTable& self, const std::string& path) { save(self, path); },
          nb::arg("path"));
  module.def("plan_from_json", &plan_from_json, nb::arg("text"));
  module.def("device_from_json", &device_from_json, nb::arg("text"));
  module.def("tuning_from_json", &tuning_from_json, nb::arg("text"));
  module.def("read_graph", &read_graph, nb::arg("path"));
  module.def("read_plan", &read_plan, nb::arg("path"));
  module.def("read_device", &read_device, nb::arg("path"));
  module.def("read_tuning", &read_tuning, nb::arg("path"));
  module.def(
      "save", [](const Graph& what, const std::string& path) { save(what, path); }, nb::arg("what"),
      nb::arg("path"),
      "Writes a graph, a plan or a tuning table as JSON. Raises Error with the system's reason.");
  module.def(
      "save", [](const Plan& what, const std::string& path) { save(what, path); }, nb::arg("what"),
      nb::arg("path"));
  module.def(
      "save", [](const TuningTable& what, const std::string& path) { save(what, path); }, nb::arg("what"),
      nb::arg("path"));
  nb::class_<CacheStats>(module, "CacheStats", "Where this process's kernels came from.")
      .def_ro("memory_hits", &CacheStats::memory_hits)
      .def_ro("disk_hits", &CacheStats::disk_hits)
      .def_ro("compilations", &CacheStats::compilations)
      .def_ro("damaged_entries", &CacheStats::damaged_entries);
  module.def("cache_stats", &cache_stats);
  module.def("cache_problem", &cache_problem, "Why kernels cannot be kept on disk; \"\" where they can.");
}

}  // namespace

const Graph& GraphArgument::graph(std::string_view asker) const {
  const Graph* graph = nullptr;
  if (nb::try_cast(object, graph) && graph != nullptr) return *graph;
  const std::string type = nb::type_name(object.type()).c_str();
  const bool is_text = PyUnicode_Check(object.ptr()) != 0;
  const char* remedy = nb::isinstance<GraphBuilder>(object) ? "call its finish() first"
                       : nb::isinstance<Plan>(object)       ? "its graph is plan.graph"
                       : is_text                            ? "read_graph() reads one from a file"
                                                            : "GraphBuilder.finish() makes one";
  throw Error(ErrorKind::bad_input,
              fmt::format("{}: expected a Graph, got {}; {}", asker,
                          is_text ? std::string(nb::repr(object).c_str()) : type, remedy));
}

const Graph& GraphOrPlan::graph(std::string_view asker) const {
  const Plan* plan = nullptr;
  return nb::try_cast(object, plan) && plan != nullptr ? plan->graph : GraphArgument::graph(asker);
}

DeviceInfo GraphOrPlan::device(const Word<DeviceInfo>& device) const {
  const Plan* plan = nullptr;
  return device.is_none() && nb::try_cast(object, plan) && plan != nullptr ? plan->device : device.get();
}

void bind_plan(nb::module_& module) {
  bind_devices(module);
  bind_choices(module);
  bind_answers(module);
  bind_files(module);
  bind_planning(module);
}

}  // namespace fusor::python
