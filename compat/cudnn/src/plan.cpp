// Owns the making and the running of execution plans.
#include "compat/cudnn/src/plan.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "codegen/cuda_driver.h"
#include "compat/cudnn/src/ahead.h"
#include "compat/cudnn/src/engines.h"
#include "compat/cudnn/src/workspace.h"
#include "core/error.h"
#include "serialization/serialization.h"

namespace fusor::cudnn {

namespace {

// The text of a plan: a line that says what it is, a line for each placed tensor, then the plan's document.
constexpr std::string_view kFirstLine = "fusor cudnn plan 1";

std::string text_of(const PlanState& state) {
  std::string text(kFirstLine);
  for (const PlacedTensor& tensor : state.placed)
    text += fmt::format("\nplaced {} {} {}", tensor.graph_uid, tensor.client_uid, tensor.byte_offset);
  return text + "\n" + to_json(state.plan);
}

int64_t take_number(std::string_view& line) {
  while (line.starts_with(' ')) line.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc{}) refuse(CUDNN_STATUS_BAD_PARAM, "the plan's text has a broken line");
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  return value;
}

std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) refuse(CUDNN_STATUS_BAD_PARAM, "the plan's text ends early");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

void read_text(PlanState& state, std::string_view text) {
  while (text.ends_with('\0')) text.remove_suffix(1);
  if (take_line(text) != kFirstLine)
    refuse(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH, "the text is no plan of this library");
  while (text.starts_with("placed ")) {
    std::string_view line = take_line(text);
    line.remove_prefix(7);
    PlacedTensor tensor;
    tensor.graph_uid = take_number(line);
    tensor.client_uid = take_number(line);
    tensor.byte_offset = take_number(line);
    if (tensor.byte_offset < 0) refuse(CUDNN_STATUS_BAD_PARAM, "the plan's text has a negative offset");
    state.placed.push_back(tensor);
  }
  state.plan = plan_from_json(text);
}

const void* pointer_of(const PackState& pack, int64_t uid) {
  for (const Binding& binding : pack.bindings)
    if (binding.uid == uid) return binding.pointer;
  return nullptr;
}

// Adds the tensors that lie inside of the client's. One that is not bound stays so, and the run names it.
std::vector<Binding> with_placed(const PlanState& plan, const PackState& pack) {
  std::vector<Binding> bindings = pack.bindings;
  for (const PlacedTensor& tensor : plan.placed) {
    std::erase_if(bindings, [&](const Binding& other) { return other.uid == tensor.graph_uid; });
    if (const auto* start = static_cast<const std::byte*>(pointer_of(pack, tensor.client_uid)))
      bindings.emplace_back(tensor.graph_uid, start + tensor.byte_offset);
  }
  return bindings;
}

}  // namespace

void load_plan(PlanState& state) {
  if (state.plan.device.is_cpu() || cuda::available()) state.executable = load(state.plan);
}

void finalize_execution_plan(Descriptor& d) {
  auto state = std::make_shared<PlanState>();
  const Value* text = d.find(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  const DescriptorPointer config = d.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (text != nullptr) {
    read_text(*state, text->bytes);
  } else if (config) {
    const auto chosen = config->state_as<ConfigState>();
    const EngineState& engine = *chosen->engine;
    state->plan = build(engine.graph->graph_of(engine.policy), *engine.device, chosen->candidate(),
                        GraphState::options_of(engine.policy));
    state->placed = engine.graph->translation().placed;
  } else {
    refuse(CUDNN_STATUS_BAD_PARAM, "an execution plan needs EXECUTION_PLAN_ENGINE_CONFIG or its text");
  }
  load_plan(*state);
  if (config) note_planned(state->plan.graph, config->state_as<ConfigState>()->engine->device);
  if (!config)
    d.put(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
          {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {config_of(state->plan, state->placed)}});
  d.set_state(std::move(state));
}

void finalize_variant_pack(Descriptor& d) {
  const auto uids = d.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = d.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (uids.size() != pointers.size())
    refuse(CUDNN_STATUS_BAD_PARAM, "a variant pack of {} uids and {} pointers", uids.size(), pointers.size());
  if (!d.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS).empty())
    refuse(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
           "other shapes than the plan's are not supported");
  auto state = std::make_shared<PackState>();
  state->bindings.reserve(uids.size());
  for (size_t i = 0; i < uids.size(); ++i) state->bindings.emplace_back(uids[i], pointers[i]);
  state->workspace = d.get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  d.set_state(std::move(state));
}

Value answer_execution_plan(const Descriptor& d, cudnnBackendAttributeName_t) {
  const auto plan = d.state_as<PlanState>();
  const int64_t bytes = plan->executable ? plan->executable->workspace_bytes() : plan->plan.workspace_bytes;
  return Value::one(CUDNN_TYPE_INT64, workspace_for_client(bytes));
}

Value plan_text(const Descriptor& d) {
  const std::string text = text_of(*d.state_as<PlanState>());
  return {CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()), text, {}};
}

void run_plan(const PlanState& plan, const PackState& pack, Stream stream) {
  if (!plan.executable)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, "the plan was made for {}, which is not there",
           plan.plan.device.name);
  const Workspace workspace(aligned(pack.workspace));
  try {
    if (plan.placed.empty())
      plan.executable->run(pack.bindings, workspace, stream);
    else
      plan.executable->run(with_placed(plan, pack), workspace, stream);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    refuse(CUDNN_STATUS_BAD_PARAM, "{}", error.what());
  }
}

}  // namespace fusor::cudnn
