// Owns the making and the running of execution plans.
#include "compat/cudnn/src/plan.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <limits>
#include <string_view>

#include "codegen/cuda_driver.h"
#include "compat/cudnn/src/ahead.h"
#include "compat/cudnn/src/engines.h"
#include "compat/cudnn/src/workspace.h"
#include "core/environment.h"
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
  for (const int64_t uid : state.minus_infinity) text += fmt::format("\nminus_infinity {}", uid);
  for (const int64_t uid : state.positive) text += fmt::format("\npositive {}", uid);
  if (state.general_plan) {
    const std::string general = to_json(*state.general_plan);
    text += fmt::format("\ngeneral {}\n{}", general.size(), general);
  }
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

// A run reads the scalars through pointers to the host, and hands both plans the same pointers.
void check_presumptions(const PlanState& state) {
  for (const std::vector<int64_t>* uids : {&state.minus_infinity, &state.positive})
    for (const int64_t uid : *uids) {
      const Graph& graph = state.general_plan ? state.general_plan->graph : state.plan.graph;
      const int at = graph.find_uid(uid);
      const Tensor* const scalar = at < 0 ? nullptr : &graph.tensors[static_cast<size_t>(at)];
      const bool is_scalar = scalar != nullptr && scalar->type == DataType::f32 &&
                             (scalar->memory == Memory::host || scalar->memory == Memory::constant);
      if (!is_scalar)
        refuse(CUDNN_STATUS_BAD_PARAM, "the plan's text presumes something of {}, which is no scalar of fp32",
               uid);
    }
  if (state.general_plan && state.general_plan->device.is_cpu() != state.plan.device.is_cpu())
    refuse(CUDNN_STATUS_BAD_PARAM, "the plan's text has plans for {} and for {}", state.plan.device.name,
           state.general_plan->device.name);
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
  const auto take_uids = [&](std::string_view word, std::vector<int64_t>& uids) {
    while (text.starts_with(word)) {
      std::string_view line = take_line(text);
      line.remove_prefix(word.size());
      uids.push_back(take_number(line));
    }
  };
  take_uids("minus_infinity ", state.minus_infinity);
  take_uids("positive ", state.positive);
  if (text.starts_with("general ")) {
    std::string_view line = take_line(text);
    line.remove_prefix(8);
    const int64_t size = take_number(line);
    if (size < 0 || std::cmp_greater_equal(size, text.size()))
      refuse(CUDNN_STATUS_BAD_PARAM, "the plan's text ends early");
    state.general_plan = plan_from_json(text.substr(0, static_cast<size_t>(size)));
    text.remove_prefix(static_cast<size_t>(size) + 1);
  }
  state.plan = plan_from_json(text);
  check_presumptions(state);
}

const void* pointer_of(const PackState& pack, int64_t uid) {
  for (const Binding& binding : pack.bindings)
    if (binding.uid == uid) return binding.pointer;
  return nullptr;
}

// A number that clients write for -inf, too: less than every score, so that its exponential is 0 beside any
// other.
constexpr float kMinusInfinity = -3.3e38F;

// Whether the run's scalars are what the plan takes them for. One that is not bound cannot be otherwise.
bool is_as_presumed(const PlanState& plan, const PackState& pack) {
  const auto all = [&](const std::vector<int64_t>& uids, auto holds) {
    return std::ranges::all_of(uids, [&](int64_t uid) {
      const auto* const value = static_cast<const float*>(pointer_of(pack, uid));
      return value == nullptr || holds(*value);
    });
  };
  return all(plan.minus_infinity, [](float value) { return value <= kMinusInfinity; }) &&
         all(plan.positive, [](float value) { return value >= std::numeric_limits<float>::min(); });
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

// The plan for all values of the scalars that the graph presumes something of, within that workspace where
// there is one; none where it would ask for much.
std::optional<Plan> general_plan_of(const EngineState& engine, int64_t workspace) {
  Graph graph = *engine.graph->translation().general;
  graph.precision = engine.policy.precision;
  BuildOptions options = GraphState::options_of(engine.policy);
  for (const int64_t limit : {workspace, std::max(workspace, modest_bytes(graph))}) try {
      options.max_workspace = limit;
      return build(graph, *engine.device, options);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::bad_input) throw;
    }
  return std::nullopt;
}

std::shared_ptr<PlanState> planned(const std::shared_ptr<const EngineState>& of, const Candidate& candidate) {
  const EngineState& engine = *of;
  const Translation& translation = engine.graph->translation();
  auto state = std::make_shared<PlanState>();
  // Both are compiled at the same time, and neither in a run.
  std::future<std::optional<Plan>> general;
  if (translation.general)
    general = std::async(environment::threads() > 1 ? std::launch::async : std::launch::deferred,
                         [&] { return general_plan_of(engine, candidate.workspace_bytes); });
  state->plan = build(engine.graph->graph_of(engine.policy), *engine.device, candidate,
                      GraphState::options_of(engine.policy));
  if (general.valid()) state->general_plan = general.get();
  state->placed = translation.placed;
  state->minus_infinity = translation.minus_infinity;
  state->positive = translation.positive;
  state->engine = of;
  return state;
}

// A plan of the engine of `plan` for other dims, within the workspace that the client was asked for.
std::shared_ptr<const PlanState> plan_of_overrides(const PlanState& plan, const Overrides& overrides) {
  if (!plan.engine || plan.engine->graph->ops().empty())
    refuse(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
           "a plan that came as text runs with the dims that it was made for");
  const std::vector<DescriptorPointer> ops = with_overrides(plan.engine->graph->ops(), overrides);
  auto engine = std::make_shared<EngineState>(*plan.engine);
  engine->graph = std::make_shared<GraphState>(translate(ops), engine->device, ops);
  engine->choice = 0;
  const auto candidates = engine->candidates();
  const int64_t most = plan.workspace_bytes();
  const auto fits = std::ranges::find_if(
      *candidates, [&](const Candidate& candidate) { return candidate.workspace_bytes <= most; });
  const auto made = fits == candidates->end() ? nullptr : planned(engine, *fits);
  // Few runs need the plan for all values; without it, those alone are refused.
  if (made && made->general_plan && made->general_plan->workspace_bytes > most) made->general_plan.reset();
  if (made) load_plan(*made);
  // Most runs replace no operand; without copies, those alone that do are refused.
  while (made && !made->staged.empty() && made->workspace_bytes() > most) made->staged.pop_back();
  if (!made || made->workspace_bytes() > most)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
           "these dims need {} bytes of workspace, and the plan {}",
           made ? made->workspace_bytes() : candidates->front().workspace_bytes, most);
  return made;
}

}  // namespace

int64_t PlanState::workspace_bytes() const { return with_staging(plans_bytes(), staged); }

int64_t PlanState::plans_bytes() const {
  const auto needed = [](const std::optional<Executable>& loaded, const Plan& made) {
    return loaded ? loaded->workspace_bytes() : made.workspace_bytes;
  };
  return std::max(needed(executable, plan), general_plan ? needed(general, *general_plan) : 0);
}

void load_plan(PlanState& state) {
  std::vector<const Executable*> loaded;
  if (state.plan.device.is_cpu() || cuda::available()) {
    loaded.push_back(&state.executable.emplace(load(state.plan)));
    if (state.general_plan) loaded.push_back(&state.general.emplace(load(*state.general_plan)));
  }
  state.staged = staged_operands(state.plan.graph, loaded);
}

void finalize_execution_plan(Descriptor& d) {
  auto state = std::make_shared<PlanState>();
  const Value* text = d.find(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  const DescriptorPointer config = d.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (text != nullptr) {
    read_text(*state, text->bytes);
  } else if (config) {
    const auto chosen = config->state_as<ConfigState>();
    state = planned(chosen->engine, chosen->candidate());
  } else {
    refuse(CUDNN_STATUS_BAD_PARAM, "an execution plan needs EXECUTION_PLAN_ENGINE_CONFIG or its text");
  }
  load_plan(*state);
  if (config) note_planned(state->plan.graph, config->state_as<ConfigState>()->engine->device);
  if (!config)
    d.put(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
          {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {config_of(*state)}});
  d.set_state(std::move(state));
}

void finalize_variant_pack(Descriptor& d) {
  const auto uids = d.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = d.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (uids.size() != pointers.size())
    refuse(CUDNN_STATUS_BAD_PARAM, "a variant pack of {} uids and {} pointers", uids.size(), pointers.size());
  auto state = std::make_shared<PackState>();
  state->bindings.reserve(uids.size());
  for (size_t i = 0; i < uids.size(); ++i) state->bindings.emplace_back(uids[i], pointers[i]);
  state->workspace = d.get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  state->overrides = read_overrides(d);
  d.set_state(std::move(state));
}

Value answer_execution_plan(const Descriptor& d, cudnnBackendAttributeName_t) {
  const auto plan = d.state_as<PlanState>();
  return Value::one(CUDNN_TYPE_INT64, workspace_for_client(plan->workspace_bytes()));
}

Value plan_text(const Descriptor& d) {
  const std::string text = text_of(*d.state_as<PlanState>());
  return {CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()), text, {}};
}

void run_plan(const PlanState& asked, const PackState& pack, Stream stream) {
  if (!asked.executable)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, "the plan was made for {}, which is not there",
           asked.plan.device.name);
  std::shared_ptr<const PlanState> other;
  if (!pack.overrides.empty())
    other = asked.overridden->find(pack.overrides, [&] {
      if (!asked.plan.device.is_cpu() && cuda::is_capturing(stream))
        refuse(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
               "dims that no run had before need a plan, which cannot be made while a stream is captured");
      return plan_of_overrides(asked, pack.overrides);
    });
  const PlanState& plan = other ? *other : asked;
  const Workspace workspace(aligned(pack.workspace));
  try {
    const bool is_presumed = is_as_presumed(plan, pack);
    if (!is_presumed && !plan.general)
      refuse(
          CUDNN_STATUS_NOT_SUPPORTED,
          "the mask's number is not -inf, or the scale is not positive: a plan for these values would need "
          "more than {} bytes of workspace",
          plan.workspace_bytes());
    const Executable& executable = is_presumed ? *plan.executable : *plan.general;
    const bool has_all = plan.placed.empty();
    if (has_all && !needs_copies(plan.staged, pack.bindings)) {
      executable.run(pack.bindings, workspace, stream);
      return;
    }
    std::vector<Binding> bindings = has_all ? pack.bindings : with_placed(plan, pack);
    auto* const memory = static_cast<std::byte*>(workspace.pointer);
    read_copies(plan.staged, bindings,
                memory == nullptr ? nullptr : memory + staging_begin(plan.plans_bytes()),
                plan.plan.device.is_cpu(), stream);
    executable.run(bindings, workspace, stream);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    refuse(CUDNN_STATUS_BAD_PARAM, "{}", error.what());
  }
}

}  // namespace fusor::cudnn
