// Owns the way of a hostile file through the library.
#include "tests/hostile/exercise.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "backend/executable.h"
#include "backend/planning.h"
#include "backend/replan.h"
#include "backend/verify.h"
#include "codegen/text/expr_emitter.h"
#include "core/error.h"
#include "serialization/serialization.h"

namespace fusor::hostile {

namespace {

// What is planned and what is run: beyond, time would be measured and not safety.
constexpr size_t kMostOps = 40;
constexpr int64_t kMostElements = 1 << 14;
constexpr double kMostWork = 1 << 22;

bool is_small(const Graph& graph) {
  int64_t bytes = 0;
  for (const Tensor& tensor : graph.tensors) {
    bytes += std::min(tensor.bytes(), int64_t{1} << 40);
    if (element_count(tensor.dims) > kMostElements || bytes > 64 * kMostElements) return false;
  }
  // No contraction multiplies more than its result's elements times an operand's.
  double work = 0;
  for (const Op& op : graph.ops) {
    double largest = 1;
    for (const int input : op.inputs)
      if (input >= 0)
        largest = std::max(largest, static_cast<double>(element_count(graph.tensors[input].dims)));
    if (is_contraction(op.attributes))
      work += largest * static_cast<double>(element_count(graph.tensors[op.outputs[0]].dims));
  }
  return work < kMostWork;
}

void run(const Plan& plan) {
  const Executable exe = load(plan);
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<void, Free>> memory;
  const auto allocate = [&](int64_t bytes, int64_t alignment) {
    const auto step = static_cast<size_t>(std::max<int64_t>(alignment, 256));
    const size_t whole = (static_cast<size_t>(bytes) + step - 1) / step * step;
    memory.emplace_back(std::aligned_alloc(step, whole));
    return memory.back().get();
  };
  std::vector<Binding> bindings;
  for (const Tensor& tensor : exe.plan().graph.tensors) {
    if (tensor.memory != Memory::device && tensor.memory != Memory::host) continue;
    if (tensor.alignment > 4096) return;
    void* const buffer = allocate(tensor.bytes(), tensor.alignment);
    fill_random(tensor, buffer, 7);
    bindings.emplace_back(tensor, buffer);
  }
  if (exe.workspace_bytes() > (int64_t{1} << 26)) return;
  exe.run(bindings, {allocate(exe.workspace_bytes() + 1, 256), exe.workspace_bytes()});
}

void lower(const Plan& plan) {
  for (const PlannedKernel& kernel : kernels(plan)) emit_header(*kernel.launch.source);
}

void plan_anew(const Graph& graph, const DeviceInfo& device) {
  const TuningTable nothing;
  const Plan plan = build(graph, device, {.compile = false, .tuning = &nothing});
  lower(plan);
  plan_from_json(to_json(plan));
  if (device.is_cpu() && is_small(graph)) run(plan);
}

void use(const Graph& graph) {
  if (graph.ops.size() > kMostOps) return;
  static const DeviceInfo h200 = DeviceInfo::named("H200");
  graph_from_json(to_json(graph));
  for (const DeviceInfo& device : {h200, DeviceInfo::cpu()}) try {
      plan_anew(graph, device);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::bad_input) throw;
    }
}

void use(const Plan& plan) {
  if (plan.graph.ops.size() > kMostOps) return;
  const Plan checked = checked_plan(plan);
  lower(checked);
  to_json(checked);
  if (checked.device.is_cpu() && is_small(checked.graph)) run(checked);
}

}  // namespace

bool exercise(std::string_view text) {
  try {
    std::visit([](const auto& document) { use(document); }, graph_or_plan_from_json(text));
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    return false;
  }
}

}  // namespace fusor::hostile
