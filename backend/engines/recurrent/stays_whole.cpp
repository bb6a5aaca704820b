// Owns where recurrences fit.
#include "backend/engines/recurrent/stays_whole.h"

#include "backend/choose.h"
#include "backend/engines/list.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

constexpr int64_t kUnits = 16;
constexpr int64_t kMostTiles = 4;      // of a thread's registers
constexpr int64_t kMostProducers = 8;  // the same, for the weights
constexpr int64_t kFewestSteps = 4;    // for which loading the weights once pays

bool is_half(DataType type) { return type == DataType::f16 || type == DataType::bf16; }

bool fits(const Graph& graph, const Op& op, const DeviceInfo& device) {
  const auto* const steps = std::get_if<Recurrence>(&op.attributes);
  if (steps == nullptr || op.inputs.size() != steps->roles().inputs.size()) return false;
  const std::vector<Role> roles = steps->roles().inputs;
  const Tensor& first = graph.tensors[static_cast<size_t>(op.inputs[0])];
  for (size_t i = 0; i < roles.size(); ++i) {
    const Tensor& tensor = graph.tensors[static_cast<size_t>(op.inputs[i])];
    if (tensor.is_scalar()) return false;
    if (roles[i].name == "weights" && !is_half(tensor.type)) return false;
    if (roles[i].name == "lengths" && tensor.type != DataType::i32) return false;
    if (roles[i].name != "lengths" && !is_half(tensor.type) && tensor.type != DataType::f32) return false;
  }
  return first.dims[0] >= kFewestSteps && RecurrentGrid(*steps, first.dims[1], device).tiles > 0;
}

}  // namespace

RecurrentGrid::RecurrentGrid(const Recurrence& op, int64_t batch, const DeviceInfo& device) {
  slices = ceil_div(op.hidden_size, kUnits);
  producers = 2;
  while (producers * kWarps < slices) producers *= 2;
  if (producers > kMostProducers || device.is_cpu() || device.compute_capability != 90) return;
  const int64_t columns = op.backward ? kUnits : kUnits * op.gates();
  given_ = op.backward ? kUnits * op.gates() : kUnits;
  for (int64_t each = 1; each <= kMostTiles; each *= 2) {
    groups = ceil_div(batch, each * 16);
    shared_bytes = kWarps * each * 16 * (columns + 8) * 4;
    if (slices * groups > device.sm_count || shared_bytes > device.shared_per_block) continue;
    tiles = each;
    return;
  }
}

StaysWhole recurrences_of(const DeviceInfo& device, const PlannerOptions& options) {
  if (device.is_cpu() || !is_allowed(recurrent_engine(), options)) return {};
  return [&device](const Graph& graph, const Op& op) { return fits(graph, op, device); };
}

}  // namespace fusor
