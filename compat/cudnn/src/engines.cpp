// Owns the policies, their candidates, and the descriptors of engines.
#include "compat/cudnn/src/engines.h"

#include <algorithm>
#include <numeric>

#include "compat/cudnn/src/device_properties.h"
#include "compat/cudnn/src/handle.h"
#include "compat/cudnn/src/in_place.h"
#include "compat/cudnn/src/plan.h"
#include "serialization/serialization.h"

namespace fusor::cudnn {

namespace {

constexpr int kMostCandidates = 16;

// What the operands of the graph's matmuls and convolutions are.
struct Operands {
  bool has_fp32 = false, has_fp8 = false;
};

Operands operands_of(const Graph& graph) {
  Operands operands;
  for (const Op& op : graph.ops) {
    if (!is_contraction(op.attributes) && nature(op.attributes) != Nature::composite) continue;
    for (const int input : op.inputs) {
      if (input < 0) continue;
      const DataType type = graph.tensors[static_cast<size_t>(input)].type;
      operands.has_fp32 = operands.has_fp32 || (is_contraction(op.attributes) && type == DataType::f32);
      operands.has_fp8 = operands.has_fp8 || type == DataType::f8_e4m3 || type == DataType::f8_e5m2;
    }
  }
  return operands;
}

bool has_contraction(const Graph& graph) {
  return std::ranges::any_of(graph.ops, [](const Op& op) {
    return is_contraction(op.attributes) || std::holds_alternative<SdpaForward>(op.attributes) ||
           std::holds_alternative<MatmulLengths>(op.attributes) ||
           std::holds_alternative<MoeGroupedMatmul>(op.attributes);
  });
}

std::vector<EnginePolicy> policies_of(const Graph& graph) {
  const Operands operands = operands_of(graph);
  const Precision widest = operands.has_fp8    ? Precision::allow_short_sums
                           : operands.has_fp32 ? Precision::allow_tf32
                                               : Precision::exact;
  std::vector<EnginePolicy> policies{{kFastEngine, widest, false}};
  if (widest != Precision::exact) policies.push_back({kExactEngine, Precision::exact, false});
  if (has_contraction(graph)) policies.push_back({kPlainEngine, Precision::exact, true});
  return policies;
}

std::vector<cudnnBackendNumericalNote_t> numerical_notes(const Notes& notes) {
  std::vector<cudnnBackendNumericalNote_t> list;
  if (notes.tensor_cores) list.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  // TF32 is what tensor cores do to fp32, which the note above says to clients.
  if (notes.down_converts && !notes.tf32) list.push_back(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  if (notes.short_sums) list.push_back(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  if (!notes.deterministic) list.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  return list;
}

std::vector<cudnnBackendBehaviorNote_t> behavior_notes(const Notes& notes, const DeviceInfo& device) {
  std::vector<cudnnBackendBehaviorNote_t> list;
  if (notes.compiles_at_run_time && !device.is_cpu()) list.push_back(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
  if (!device.is_cpu()) list.push_back(CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API);
  return list;
}

// The knob KERNEL_CFG numbers an engine's candidates, best first.
std::vector<DescriptorPointer> knobs_of(const EngineState& engine) {
  const auto count = static_cast<int64_t>(engine.candidates()->size());
  if (count < 2 && engine.policy.index != kFastEngine) return {};
  auto knob = std::make_shared<Descriptor>(*row_of(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR));
  knob->put(CUDNN_ATTR_KNOB_INFO_TYPE, Value::one(CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_KERNEL_CFG));
  knob->put(CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE, Value::one<int64_t>(CUDNN_TYPE_INT64, 0));
  knob->put(CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, Value::one<int64_t>(CUDNN_TYPE_INT64, count - 1));
  knob->put(CUDNN_ATTR_KNOB_INFO_STRIDE, Value::one<int64_t>(CUDNN_TYPE_INT64, 1));
  knob->mark_finalized();
  return {knob};
}

DevicePointer device_for(const Descriptor& d, cudnnBackendAttributeName_t properties,
                         const GraphState& graph) {
  if (const DescriptorPointer child = d.child(properties)) return child->state_as<DeviceState>()->device;
  return graph.device();
}

DevicePointer with_processors(const DevicePointer& device, int32_t target) {
  if (target <= 0 || target >= device->sm_count || device->is_cpu()) return device;
  DeviceInfo smaller = *device;
  smaller.sm_count = target;
  return std::make_shared<const DeviceInfo>(std::move(smaller));
}

Value children_value(std::vector<DescriptorPointer> children) {
  return {CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(children.size()), {}, std::move(children)};
}

// A configuration as heuristics give it: an engine with its knob set.
DescriptorPointer make_config(const DescriptorPointer& graph, const EngineState& engine) {
  auto engine_descriptor = std::make_shared<Descriptor>(*row_of(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  engine_descriptor->put(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, children_value({graph}));
  engine_descriptor->put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, Value::one(CUDNN_TYPE_INT64, engine.policy.index));
  auto state = std::make_shared<EngineState>(engine);
  engine_descriptor->set_state(state);
  engine_descriptor->mark_finalized();
  auto knob = std::make_shared<Descriptor>(*row_of(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
  knob->put(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Value::one(CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_KERNEL_CFG));
  knob->put(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
            Value::one(CUDNN_TYPE_INT64, static_cast<int64_t>(engine.choice)));
  knob->mark_finalized();
  auto config = std::make_shared<Descriptor>(*row_of(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  config->put(CUDNN_ATTR_ENGINECFG_ENGINE, children_value({engine_descriptor}));
  config->put(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, children_value({knob}));
  auto config_state = std::make_shared<ConfigState>();
  config_state->engine = state;
  config_state->candidates = engine.candidates();
  config->set_state(config_state);
  config->mark_finalized();
  return config;
}

struct HeuristicState : State {
  std::vector<DescriptorPointer> results;
};

// How many candidates of a policy a mode offers. Each costs a client that tries them all a compilation.
size_t offered(cudnnBackendHeurMode_t mode, int64_t policy) {
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return policy == kPlainEngine ? 1 : 0;
  if (mode == CUDNN_HEUR_MODE_INSTANT || policy != kFastEngine) return 1;
  return mode == CUDNN_HEUR_MODE_B ? 8 : 4;
}

}  // namespace

int64_t modest_bytes(const Graph& graph) {
  const auto bytes_of_dims = [&](int tensor) {
    const Tensor& shape = graph.tensors[static_cast<size_t>(tensor)];
    return bytes_of(shape.type, element_count(shape.dims));
  };
  std::vector<int64_t> bytes(graph.tensors.size(), 0);
  for (int i = 0; i < std::ssize(graph.tensors); ++i)
    if (graph.tensors[static_cast<size_t>(i)].memory == Memory::device)
      bytes[static_cast<size_t>(i)] = bytes_of_dims(i);
  // The memory of ragged tensors ends anywhere: they have as many rows as their dims say, at most.
  for (const Op& op : graph.ops) {
    if (std::holds_alternative<RaggedLoad>(op.attributes))
      bytes[static_cast<size_t>(op.inputs[0])] = bytes_of_dims(op.outputs[0]);
    if (std::holds_alternative<RaggedStore>(op.attributes))
      bytes[static_cast<size_t>(op.outputs[0])] = bytes_of_dims(op.inputs[0]);
  }
  return std::max(kModestBytes, std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
}

GraphState::GraphState(Translation translation, DevicePointer device, std::vector<DescriptorPointer> ops)
    : translation_(std::move(translation)),
      device_(std::move(device)),
      ops_(std::move(ops)),
      policies_(policies_of(translation_.graph)) {}

DevicePointer GraphState::device() const { return device_ ? device_ : current_device_info(); }

const EnginePolicy* GraphState::policy(int64_t index) const {
  const auto found = std::ranges::find(policies_, index, &EnginePolicy::index);
  return found == policies_.end() ? nullptr : &*found;
}

Graph GraphState::graph_of(const EnginePolicy& policy) const {
  Graph graph = translation_.graph;
  graph.precision = policy.precision;
  return graph;
}

BuildOptions GraphState::options_of(const EnginePolicy& policy) {
  BuildOptions options;
  options.max_candidates = kMostCandidates;
  if (policy.cuda_cores_only)
    options.forbid = {"attention",  "wgmma",      "wgmma_repacked", "wgmma_narrow",
                      "wgmma_taps", "mma_stream", "mma_weights",    "mma"};
  return options;
}

std::shared_ptr<const std::vector<Candidate>> GraphState::candidates(const EnginePolicy& policy,
                                                                     const DeviceInfo& device) const {
  const std::string key = fmt::format("{} {} {}", policy.index, device.name, device.sm_count);
  const std::scoped_lock lock(mutex_);
  auto& planned = planned_[key];
  if (!planned) {
    std::vector<Candidate> found = fusor::candidates(graph_of(policy), device, options_of(policy));
    // Gradients of attention may spill scores to the workspace, and clients take the first configuration:
    // those that ask for little come first.
    if (translation_.is_attention_backward)
      std::stable_partition(found.begin(), found.end(),
                            [most = modest_bytes(translation_.graph)](const Candidate& one) {
                              return one.workspace_bytes <= most;
                            });
    planned = std::make_shared<const std::vector<Candidate>>(std::move(found));
  }
  if (planned->empty())
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine {} has no way to carry out the graph", policy.index);
  return planned;
}

DescriptorPointer config_of(const PlanState& state) {
  const Plan& plan = state.plan;
  EngineState engine;
  Translation translation{.graph = plan.graph,
                          .placed = state.placed,
                          .minus_infinity = state.minus_infinity,
                          .positive = state.positive};
  if (state.general_plan) translation.general = state.general_plan->graph;
  engine.graph = std::make_shared<GraphState>(std::move(translation), nullptr);
  engine.device = std::make_shared<const DeviceInfo>(plan.device);
  const std::vector<EnginePolicy>& policies = engine.graph->policies();
  const auto same = std::ranges::find(policies, plan.graph.precision, &EnginePolicy::precision);
  engine.policy = same == policies.end() ? policies.front() : *same;
  engine.only = std::make_shared<const std::vector<Candidate>>(
      1, Candidate{std::make_shared<const Graph>(plan.graph), plan.fusions, plan.seconds,
                   plan.workspace_bytes, plan.notes});
  auto graph = std::make_shared<Descriptor>(*row_of(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  graph->set_state(engine.graph);
  graph->mark_finalized();
  return make_config(graph, engine);
}

int64_t workspace_for_client(int64_t bytes) { return bytes > 0 ? bytes + 256 : 0; }

void finalize_operation_graph(Descriptor& d) {
  const auto handle = d.get<void*>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, nullptr);
  DevicePointer device = handle != nullptr ? handle_at(handle)->device : nullptr;
  const std::vector<DescriptorPointer>& ops = d.find(CUDNN_ATTR_OPERATIONGRAPH_OPS)->children;
  d.set_state(std::make_shared<GraphState>(translate(ops), std::move(device), ops));
}

Value answer_operation_graph(const Descriptor& d, cudnnBackendAttributeName_t) {
  return Value::one(CUDNN_TYPE_INT64, d.state_as<GraphState>()->policies().back().index + 1);
}

void finalize_engine(Descriptor& d) {
  auto state = std::make_shared<EngineState>();
  state->graph = d.child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->state_as<GraphState>();
  const auto index = d.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  const EnginePolicy* policy = state->graph->policy(index);
  if (policy == nullptr) refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine {} does not carry out this graph", index);
  state->policy = *policy;
  state->device = with_processors(device_for(d, CUDNN_ATTR_ENGINE_DEVICEPROP, *state->graph),
                                  d.get<int32_t>(CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, 0));
  d.set_state(std::move(state));
}

Value answer_engine(const Descriptor& d, cudnnBackendAttributeName_t attribute) {
  const auto engine = d.state_as<EngineState>();
  if (attribute == CUDNN_ATTR_ENGINE_KNOB_INFO) return children_value(knobs_of(*engine));
  const auto candidates = engine->candidates();
  const Notes& notes = (*candidates)[engine->choice].notes;
  if (attribute == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
    return Value::of(CUDNN_TYPE_NUMERICAL_NOTE, numerical_notes(notes));
  return Value::of(CUDNN_TYPE_BEHAVIOR_NOTE, behavior_notes(notes, *engine->device));
}

void finalize_engine_config(Descriptor& d) {
  auto engine = std::make_shared<EngineState>(*d.child(CUDNN_ATTR_ENGINECFG_ENGINE)->state_as<EngineState>());
  auto state = std::make_shared<ConfigState>();
  state->candidates = engine->candidates();
  engine->choice = 0;
  if (const Value* choices = d.find(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES))
    for (const DescriptorPointer& choice : choices->children) {
      const auto type = choice->get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
      const auto value = choice->get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
      if (type != CUDNN_KNOB_TYPE_KERNEL_CFG)
        refuse(CUDNN_STATUS_NOT_SUPPORTED, "the engine has no knob {}", static_cast<int>(type));
      if (value < 0 || value >= static_cast<int64_t>(state->candidates->size()))
        refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "KERNEL_CFG {} is not in 0 to {}", value,
               state->candidates->size() - 1);
      engine->choice = static_cast<size_t>(value);
    }
  state->engine = std::move(engine);
  d.set_state(std::move(state));
}

Value answer_engine_config(const Descriptor& d, cudnnBackendAttributeName_t attribute) {
  const auto config = d.state_as<ConfigState>();
  if (attribute == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE) {
    const Candidate& candidate = config->candidate();
    return Value::one(
        CUDNN_TYPE_INT64,
        workspace_for_client(with_staging(candidate.workspace_bytes, staged_operands(*candidate.graph, {}))));
  }
  // Kernels fit their device by construction: this is what they have at most.
  return Value::one(CUDNN_TYPE_INT32, static_cast<int32_t>(config->engine->device->shared_per_block));
}

void finalize_heuristics(Descriptor& d) {
  const DescriptorPointer graph = d.child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const auto mode = d.get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  EngineState engine;
  engine.graph = graph->state_as<GraphState>();
  engine.device = with_processors(device_for(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *engine.graph),
                                  d.get<int32_t>(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, 0));
  auto state = std::make_shared<HeuristicState>();
  const std::vector<EnginePolicy>& policies = engine.graph->policies();
  for (const EnginePolicy& policy : policies) {
    engine.policy = policy;
    // A graph that has one policy only falls back on it.
    const bool is_only = policies.size() == 1 && mode == CUDNN_HEUR_MODE_FALLBACK;
    const size_t count = is_only ? 1 : offered(mode, policy.index);
    if (count == 0) continue;
    const auto candidates = engine.candidates();
    for (engine.choice = 0; engine.choice < std::min(count, candidates->size()); ++engine.choice)
      state->results.push_back(make_config(graph, engine));
  }
  d.set_state(std::move(state));
}

Value answer_heuristics(const Descriptor& d, cudnnBackendAttributeName_t) {
  return children_value(d.state_as<HeuristicState>()->results);
}

}  // namespace fusor::cudnn
