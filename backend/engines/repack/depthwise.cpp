// Owns the depthwise_repacked engine: depthwise convolutions whose channels are planes (NCHW), carried out by
// the depthwise engine between copies that lay channels side by side.
#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/depthwise/rules.h"
#include "backend/engines/engine.h"
#include "backend/engines/list.h"
#include "backend/engines/repack/copies.h"
#include "backend/engines/repack/rewrites/repacker.h"
#include "backend/engines/rules.h"

namespace fusor {

namespace {

bool has_channels_apart(const Expr& pixels) {
  const Access* const access = primary_access(pixels);
  return access != nullptr && pixels.domain[1] > 1 && access->strides[1] != 1;
}

// Operands over images; the filter, and the result of a wgrad, may lie as they like.
void lay_channels_side_by_side(Repacker& repacker, size_t index) {
  Expr& site = repacker.operand(index);
  if (!has_channels_apart(site)) return;
  const DataType type = yielded_node(site).type;
  const Access scratch = repacker.add_scratch(site, site.domain, channels_last(site.domain.rank()), type);
  repacker.load(site, type, scratch);
  site = loaded(site.domain, type, scratch);
}

Repacked rewritten(const Fusion& fusion, const Contraction& view, ResultPath out) {
  Repacker repacker(fusion, view);
  lay_channels_side_by_side(repacker, 0);
  if (view.op == ContractionOp::wgrad) lay_channels_side_by_side(repacker, 1);
  repacker.leave(out);
  return repacker.take();
}

// A way out, with its fusions and what the depthwise engine prepared of the core.
struct DepthwiseWay {
  ResultPath out;
  std::unique_ptr<const Repacked> repacked;
  std::unique_ptr<const Prepared> core;
};

class PreparedDepthwiseRepacked final : public Prepared {
 public:
  PreparedDepthwiseRepacked(std::vector<DepthwiseWay> ways, const DeviceInfo& device)
      : ways_(std::move(ways)), device_(device) {}

  std::vector<Knob> knobs() const override {
    std::vector<Knob> all = ways_.front().core->knobs();
    Knob out{"repack_y", {}};
    for (const DepthwiseWay& way : ways_) out.values.push_back(static_cast<int64_t>(way.out));
    all.push_back(std::move(out));
    return all;
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> all;
    for (const DepthwiseWay& way : ways_) {
      const Work copies = cost_of_copies(*way.repacked, device_);
      for (EngineCandidate& candidate : way.core->candidates()) {
        add_copies(candidate.work, copies);
        candidate.config.engine = depthwise_repacked_engine().name();
        candidate.config.set("repack_y", static_cast<int64_t>(way.out));
        all.push_back(std::move(candidate));
      }
    }
    return all;
  }

  Notes notes() const override { return ways_.front().core->notes(); }

  Lowered lower(const EngineConfig& config) const override {
    const auto out =
        static_cast<ResultPath>(config.knob("repack_y", static_cast<int64_t>(ways_.front().out)));
    const auto found = std::ranges::find(ways_, out, &DepthwiseWay::out);
    const DepthwiseWay& way = found != ways_.end() ? *found : ways_.front();
    return between_copies(*way.repacked, way.core->lower(config), device_);
  }

 private:
  const std::vector<DepthwiseWay> ways_;
  const DeviceInfo& device_;
};

class DepthwiseRepackedEngine final : public Engine {
 public:
  std::string_view name() const override { return "depthwise_repacked"; }
  int number() const override { return 41; }
  int revision() const override { return depthwise_engine().revision(); }

  // A refusal is the depthwise engine's, of what the copies leave it.
  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_phases(fusion)) return std::move(*refusal);
    if (auto refusal = refuse_epilogue_reductions(fusion)) return std::move(*refusal);
    const auto view = contraction_of(fusion);
    if (!view || view->input_channels != 1 || view->output_channels != 1 || view->op == ContractionOp::matmul)
      return depthwise_engine().prepare(fusion, device);
    if (!fusor::has_channels_apart(fusion, *view) &&
        !std::holds_alternative<Refusal>(depthwise_engine().prepare(fusion, device)))
      return refusal_at_anchor(fusion, "something-to-repack", "channels that lie apart", "adjacent channels",
                               "use depthwise");
    std::vector<DepthwiseWay> ways;
    PreparedOr refused = Refusal{};
    for (const ResultPath out : result_paths(fusion, *view)) {
      auto repacked = std::make_unique<const Repacked>(rewritten(fusion, *view, out));
      PreparedOr core = depthwise_engine().prepare(repacked->core, device);
      if (auto* const prepared = std::get_if<std::unique_ptr<const Prepared>>(&core))
        ways.push_back({out, std::move(repacked), std::move(*prepared)});
      else
        refused = std::move(core);
    }
    if (ways.empty()) return refused;
    return std::make_unique<const PreparedDepthwiseRepacked>(std::move(ways), device);
  }
};

}  // namespace

const Engine& depthwise_repacked_engine() {
  static const DepthwiseRepackedEngine engine;
  return engine;
}

}  // namespace fusor
