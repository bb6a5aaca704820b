// Owns the CPU device's engine: every fusion, by the evaluator in the graph's compute types.
#include <algorithm>

#include "backend/engines/engine.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/reference/contraction.h"

namespace fusor {

namespace {

double node_flops(const Expr& expr) {
  double per_element = 0;
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::pointwise) {
      // A special function is a call into the C library here.
      constexpr double kSpecialFlops = 20;
      const PointwiseInfo& row = info(node.pointwise.mode);
      per_element += row.alu + kSpecialFlops * row.sfu;
    }
  for (const Store& result : expr.stores) per_element += reduction_of(expr, result) ? 2 : 1;
  return per_element * static_cast<double>(element_count(expr.domain));
}

Work cost(const Fusion& fusion) {
  Work work;
  double flops = 0;
  for (const Site& site : fusion.sites) flops += node_flops(site.expr);
  bool wide = false;
  for (size_t i = 0; i < fusion.anchors.size(); ++i) {
    const Anchor& anchor = fusion.anchors[i];
    flops += 2 * reference::multiply_adds({anchor.attributes, operand_dims(fusion, anchor.operands[0]),
                                           operand_dims(fusion, anchor.operands[1]), anchor_dims(fusion, i)});
    wide = wide || *compute_type(anchor.attributes) == DataType::f64;
  }
  (wide ? work.fp64_flops : work.fp32_flops) = flops;
  for (const Operand& operand : fusion.operands)
    work.dram_bytes += static_cast<double>(bytes_of(operand.type, operand.elements));
  work.tiles = 1 << 10;  // pieces are small and handed out as threads come free: no last wave to wait for
  return work;
}

constexpr Notes kNotes{.compiles_at_run_time = false};

// The fusion itself is all that there is to know, and nothing is to be chosen.
class PreparedEvaluation final : public Prepared {
 public:
  explicit PreparedEvaluation(const Fusion& fusion) : fusion_(fusion) {}

  std::vector<Knob> knobs() const override { return {}; }
  std::vector<EngineCandidate> candidates() const override {
    return {{{.engine = "cpu", .revision = cpu_engine().revision(), .knobs = {}}, cost(fusion_)}};
  }
  Notes notes() const override {
    Notes notes = kNotes;
    notes.deterministic = !scatters_may_meet(fusion_);
    return notes;
  }
  Lowered lower(const EngineConfig&) const override {
    return {.steps = {Evaluate{}}, .scratch = {}, .guards = {}};
  }

 private:
  const Fusion& fusion_;
};

class CpuEngine final : public Engine {
 public:
  std::string_view name() const override { return "cpu"; }
  int number() const override { return 1; }
  Notes notes() const override { return kNotes; }
  PackedAccess packed_access() const override { return {.loads = true, .stores = true}; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (device.is_cpu()) return std::make_unique<const PreparedEvaluation>(fusion);
    return Refusal{.rule = "cpu-device",
                   .node = fusion.op_names.empty() ? "" : fusion.op_names.front(),
                   .tensor = "",
                   .expected = "the CPU device",
                   .actual = device.name,
                   .remedy = "build for DeviceInfo::cpu()"};
  }
};

}  // namespace

const Engine& cpu_engine() {
  static const CpuEngine engine;
  return engine;
}

}  // namespace fusor
