// Owns the recurrent engine: all steps of a recurrent layer in one direction as one cooperative launch, whose
// blocks hold the recurrent weights in registers and hand each other the state.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/recurrent/fitted.h"
#include "backend/engines/recurrent/stays_whole.h"
#include "backend/engines/rules.h"
#include "codegen/text/device_types.h"
#include "codegen/text/parameters.h"
#include "core/fail.h"

namespace fusor {

namespace {

constexpr int64_t kThreads = RecurrentGrid::kWarps * 32;
constexpr int64_t kFlagLine = 128;  // bytes

struct RecurrentProblem {
  const Fusion& fusion;
  const DeviceInfo& device;
  Recurrence op;
  RecurrentGrid grid;
  std::vector<std::pair<std::string_view, const Node*>> operands;  // loads, by role
  Store store;
  Dims first;  // of given or dy

  int64_t time() const { return first[0]; }
  int64_t batch() const { return first[1]; }
  const Node* find(std::string_view role) const {
    for (const auto& [name, load] : operands)
      if (name == role) return load;
    return nullptr;
  }
  /// Every layer has them.
  const Node& weights() const {
    const Node* const found = find("weights");
    if (found == nullptr) fail(ErrorKind::internal, "a recurrent layer without weights");
    return *found;
  }
};

Refusal refusal_of(const Fusion& fusion, const char* rule, std::string expected, std::string actual) {
  return refusal_at_anchor(fusion, rule, std::move(expected), std::move(actual),
                           "let the planner write the layer in steps");
}

std::variant<Refusal, RecurrentProblem> recurrent_problem(const Fusion& fusion, const DeviceInfo& device) {
  const Anchor& anchor = fusion.anchors[0];
  const auto& op = std::get<Recurrence>(anchor.attributes);
  const std::vector<Role> roles = op.roles().inputs;
  std::vector<std::pair<std::string_view, const Node*>> operands;
  for (size_t i = 0; i < roles.size(); ++i) {
    const Expr& site = operand_site(fusion, 0, i);
    const bool is_load = site.nodes.size() == 1 && site.nodes[0].kind == Node::Kind::load &&
                         !site.nodes[0].access.is_indexed();
    if (!is_load) return refusal_of(fusion, "plain-operands", "operands in memory", "ops in front of them");
    operands.emplace_back(roles[i].name, &site.nodes[0]);
  }
  const Expr& after = result_site(fusion);
  if (after.stores.size() != 1 || after.nodes.size() != 1 ||
      after.stores[0].access.strides[after.domain.rank() - 1] != 1)
    return refusal_of(fusion, "plain-result", "a result in memory, hidden units adjacent", "another one");
  const Dims first = operand_dims(fusion, anchor.operands[0]);
  const RecurrentGrid grid(op, first[1], device);
  if (grid.tiles == 0)
    return refusal_of(fusion, "resident", "a state of up to 1024 units whose blocks an sm_90 holds at once",
                      fmt::format("{} units, a batch of {}, {}", op.hidden_size, first[1], device.name));
  RecurrentProblem problem{fusion, device, op, grid, std::move(operands), after.stores[0], first};
  const DataType weights = problem.weights().type;
  if ((weights != DataType::f16 && weights != DataType::bf16) || problem.store.type != weights)
    return refusal_of(fusion, "half-weights", "weights and results of fp16 or bf16",
                      fmt::format("{} and {}", to_string(weights), to_string(problem.store.type)));
  for (const auto& [role, load] : problem.operands) {
    const bool is_lengths = role == "lengths";
    const bool is_states = role == "states";
    if ((is_lengths && load->type != DataType::i32) || (is_states && load->type != weights) ||
        (!is_lengths && load->type != DataType::f32 && load->type != DataType::f16 &&
         load->type != DataType::bf16))
      return refusal_of(fusion, "operand-types", "fp32, fp16 or bf16, lengths in int32",
                        fmt::format("{} of {}", role, to_string(load->type)));
  }
  return problem;
}

enum Scratch { kFlags, kExchange };

KernelSource recurrent_source(const RecurrentProblem& problem) {
  const Recurrence& op = problem.op;
  KernelSource source;
  source.root = op.backward ? "recurrent/backward.cuh" : "recurrent/forward.cuh";
  source.target = problem.device.target();
  source.config = {
      {"index_bits", 64},        {"Element", problem.store.type}, {"cell", static_cast<int64_t>(op.cell)},
      {"gates", op.gates()},     {"tiles", problem.grid.tiles},   {"producers", problem.grid.producers},
      {"backward", op.backward}, {"reverse", op.reverse},         {"keeps_sums", op.keeps_sums},
      {"has_bias", op.has_bias}, {"has_h0", op.has_h0},           {"has_c0", op.has_c0},
      {"has_dhn", op.has_dhn},   {"has_dcn", op.has_dcn},         {"has_lengths", op.has_lengths}};
  return source;
}

// A pointer and the strides of its axes. Where there is no such operand, the kernel never follows it: the
// weights stand for it.
void add_operand(Parameters& p, const RecurrentProblem& problem, const char* role,
                 std::initializer_list<const char*> axes, std::optional<DataType> otherwise = {}) {
  const Node* const found = problem.find(role);
  const Node& load = found != nullptr ? *found : problem.weights();
  const DataType type = found != nullptr ? load.type : otherwise.value_or(load.type);
  p.pointer(role, "const " + device_type(type), load.access.operand,
            found != nullptr ? load.access.offset * byte_size(load.type) : 0);
  int axis = 0;
  for (const char* name : axes) p.wide(name, found != nullptr ? load.access.strides[axis++] : 0);
}

Launch recurrent_launch(const RecurrentProblem& problem) {
  const Recurrence& op = problem.op;
  const std::string element = device_type(problem.store.type);
  const Access& result = problem.store.access;
  const int64_t offset = result.offset * byte_size(problem.store.type);
  Parameters p(64);
  p.wide("time", problem.time());
  p.wide("batch", problem.batch());
  p.wide("hidden", op.hidden_size);
  p.scratch("flags", "u32", kFlags);
  p.scratch("exchange", element, kExchange);
  add_operand(p, problem, "weights", {"weight_row", "weight_column"});
  add_operand(p, problem, "lengths", {"lengths_step"}, DataType::i32);
  if (op.backward) {
    p.pointer("gradients", element, result.operand, offset);
    p.wide("gradient_time", result.strides[0]);
    p.wide("gradient_row", result.strides[1]);
    add_operand(p, problem, "dy", {"dy_time", "dy_row", "dy_column"});
    add_operand(p, problem, "states", {"state_plane", "state_time", "state_row", "state_column"});
    add_operand(p, problem, "dhn", {"dhn_row", "dhn_column"});
    add_operand(p, problem, "dcn", {"dcn_row", "dcn_column"});
  } else {
    p.pointer("states", element, result.operand, offset);
    p.wide("state_plane", result.strides[0]);
    p.wide("state_time", result.strides[1]);
    p.wide("state_row", result.strides[2]);
    add_operand(p, problem, "given", {"given_time", "given_row", "given_column"});
    add_operand(p, problem, "bias", {"bias_step"});
    add_operand(p, problem, "h0", {"h0_row", "h0_column"});
    add_operand(p, problem, "c0", {"c0_row", "c0_column"});
  }
  Launch launch;
  launch.entry = op.backward ? "recurrent_backward" : "recurrent_forward";
  launch.grid = {static_cast<uint32_t>(problem.grid.slices), static_cast<uint32_t>(problem.grid.groups), 1};
  launch.block = {static_cast<uint32_t>(kThreads), 1, 1};
  launch.shared_bytes = problem.grid.shared_bytes;
  launch.cooperative = true;
  p.move_to(recurrent_source(problem), launch);
  return launch;
}

class PreparedRecurrence final : public Prepared {
 public:
  explicit PreparedRecurrence(RecurrentProblem problem) : problem_(std::move(problem)) {}

  std::vector<Knob> knobs() const override { return {}; }
  std::vector<EngineCandidate> candidates() const override;
  Notes notes() const override;

  Lowered lower(const EngineConfig&) const override {
    const RecurrentGrid& grid = problem_.grid;
    Lowered lowered;
    const int64_t flags = grid.groups * RecurrentGrid::kWarps * kFlagLine;
    lowered.scratch = {flags, 2 * grid.groups * grid.tiles * 16 * grid.slices * grid.given() *
                                  byte_size(problem_.store.type)};
    lowered.steps.emplace_back(Fill{kFlags, flags, 0});
    lowered.steps.emplace_back(recurrent_launch(problem_));
    for (const auto& [role, load] : problem_.operands)
      lowered.guards.push_back({load->access.operand, byte_size(load->type)});
    lowered.guards.push_back({problem_.store.access.operand, byte_size(problem_.store.type)});
    return lowered;
  }

 private:
  const RecurrentProblem problem_;
};

class RecurrentEngine final : public Engine {
 public:
  std::string_view name() const override { return "recurrent"; }
  int number() const override { return 42; }
  Notes notes() const override { return {.tensor_cores = true}; }
  bool takes_composite(const Attributes& attributes) const override {
    return std::holds_alternative<Recurrence>(attributes);
  }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_cpu(device)) return std::move(*refusal);
    if (fusion.anchors.size() != 1 || !std::holds_alternative<Recurrence>(fusion.anchors[0].attributes))
      return Refusal{"recurrence", "", "", "the steps of a recurrent layer", "other ops", "", -1};
    auto answer = recurrent_problem(fusion, device);
    if (auto* const refusal = std::get_if<Refusal>(&answer)) return std::move(*refusal);
    return std::make_unique<const PreparedRecurrence>(std::move(std::get<RecurrentProblem>(answer)));
  }
};

Notes PreparedRecurrence::notes() const { return recurrent_engine().notes(); }

std::vector<EngineCandidate> PreparedRecurrence::candidates() const {
  constexpr RecurrentFit fit;
  const Recurrence& op = problem_.op;
  const auto steps = static_cast<double>(problem_.time()), rows = static_cast<double>(problem_.batch());
  const auto hidden = static_cast<double>(op.hidden_size), gates = static_cast<double>(op.gates());
  const double step = (op.backward ? fit.backward_step_s : fit.forward_step_s) +
                      fit.tile_s * static_cast<double>(problem_.grid.tiles - 1);
  Work work;
  work.tensor_flops = 2 * steps * rows * hidden * hidden * gates;
  work.dram_bytes = gates * hidden * hidden * 2 +
                    steps * rows * hidden * (gates * 4 + static_cast<double>(op.planes()) * 2);
  work.start_s = fit.start_s + step * steps;
  work.tiles = problem_.grid.slices * problem_.grid.groups;
  work.fills = 1;
  return {{EngineConfig{std::string(recurrent_engine().name()), recurrent_engine().revision(), {}}, work}};
}

}  // namespace

const Engine& recurrent_engine() {
  static const RecurrentEngine engine;
  return engine;
}

}  // namespace fusor
