// Owns the wgmma_repacked engine: contractions whose operands or results do not lie as the wgmma engine wants
// them (NCHW, filters KCRS, channels or rows that are no multiples of 16 bytes, groups of few channels),
// carried out by it between copies through scratch.
#include <algorithm>

#include "backend/engines.h"
#include "backend/engines/epilogue.h"
#include "backend/engines/repack.h"
#include "backend/engines/tensor_maps.h"

namespace fusor {

namespace {

// Bytes beyond an element's own that L2 moves where the epilogue's threads reach across lines: a warp meets 8
// neighbouring pixels at once (every second one of 8 where the tile is swapped), in sectors of 32 bytes.
double scattered_bytes(const Contraction& view, const Expr& y, bool swapped) {
  const auto scattered = [&](const Access& access, DataType type) {
    if (!view.is_convolution() || access.strides[1] == 0 || !is_apart(view, y.domain, access)) return 0.0;
    const double neighbours = access.strides[y.domain.rank() - 1] != 1 ? 1 : swapped ? 4 : 8;
    return std::max(32 / neighbours - static_cast<double>(byte_size(type)), 0.0);
  };
  double bytes = 0;
  for (const Node& node : y.nodes)
    if (node.kind == Node::Kind::load) bytes += scattered(node.access, node.type);
  for (const Result& result : y.results) bytes += scattered(result.access, result.type);
  return bytes * static_cast<double>(element_count(y.domain));
}

class WgmmaRepackedEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma_repacked"; }
  int number() const override { return 31; }
  int revision() const override { return wgmma_engine().revision(); }
  Notes notes() const override { return wgmma_engine().notes(); }
  Notes notes_on(const Fusion& fusion) const override {
    const Contraction view = contraction_of(fusion).value();
    const Packing packing = packing_of(fusion, view);
    return wgmma_engine().notes_on(repack(fusion, view, packing, ways(fusion, view, packing).front()).core);
  }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_pair(fusion)) return Support::no(std::move(*refusal));
    const auto view = contraction_of(fusion);
    if (!view) return wgmma_engine().supports(fusion, device);
    const Packing packing = packing_of(fusion, *view);
    const auto all = ways(fusion, *view, packing);
    const WayOut way = all.empty() ? WayOut::direct : all.front();
    if (Support support = wgmma_engine().supports(repack(fusion, *view, packing, way).core, device); !support)
      return support;
    // The copy that finishes a product could reduce, but no engine is asked to.
    if (auto refusal = refuse_epilogue_reductions(fusion)) return Support::no(std::move(*refusal));
    if (all.empty())
      return Support::no({"something-to-repack", fusion.op_name(fusion.anchors[0].op), "",
                          "an operand or a result that the copy engine cannot walk", "none", "use wgmma",
                          -1});
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& device) const override {
    const Contraction view = contraction_of(fusion).value();
    const Packing packing = packing_of(fusion, view);
    const auto ways_of_this = ways(fusion, view, packing);
    const Repacked repacked = repack(fusion, view, packing, ways_of_this.front());
    std::vector<Knob> all = wgmma_engine().knobs(repacked.core, device);
    all.push_back({"repack_y", {}});
    for (const WayOut way : ways_of_this) all.back().values.push_back(static_cast<int64_t>(way));
    return all;
  }

  std::vector<EngineCandidate> candidates(const Fusion& fusion, const DeviceInfo& device) const override {
    const Contraction view = contraction_of(fusion).value();
    const Packing packing = packing_of(fusion, view);
    std::vector<EngineCandidate> all;
    for (const WayOut way : ways(fusion, view, packing)) {
      const Repacked repacked = repack(fusion, view, packing, way);
      Work copies;
      copies.launches = 0;
      copies.fills = static_cast<int>(repacked.zeroed.size());
      for (const Fusion* part : {&repacked.loads, &repacked.stores}) add_copies(copies, *part, device);
      for (const int64_t bytes : repacked.scratch) copies.scratch_bytes += bytes;
      for (EngineCandidate& candidate : wgmma_engine().candidates(repacked.core, device)) {
        Work& work = candidate.work;
        work.serial_dram_bytes += copies.serial_dram_bytes;
        work.launches += copies.launches;
        work.fills += copies.fills;
        work.scratch_bytes += copies.scratch_bytes;
        work.l2_bytes += scattered_bytes(view, repacked.core.after[0], candidate.config.knob("swap", 0) != 0);
        candidate.config.engine = name();
        candidate.config.set("repack_y", static_cast<int64_t>(way));
        all.push_back(std::move(candidate));
      }
    }
    return all;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    const Contraction view = contraction_of(fusion).value();
    const Repacked repacked =
        repack(fusion, view, packing_of(fusion, view), static_cast<WayOut>(config.knob("repack_y", 0)));
    Lowered lowered;
    lowered.scratch = repacked.scratch;
    for (const int scratch : repacked.zeroed)
      lowered.steps.emplace_back(Fill{scratch, repacked.scratch[static_cast<size_t>(scratch)], 0});
    const EngineConfig as_it_sees_fit{"elementwise", 1, {}};
    append_part(lowered, repacked, elementwise_engine().lower(repacked.loads, as_it_sees_fit, device));
    append_part(lowered, repacked, wgmma_engine().lower(repacked.core, config, device));
    append_part(lowered, repacked, elementwise_engine().lower(repacked.stores, as_it_sees_fit, device));
    return lowered;
  }

 private:
  // Operands that the copy engine cannot read as they are, and groups that fill no line.
  static Packing packing_of(const Fusion& fusion, const Contraction& view) {
    return {{refuse_copies(fusion, view, false).has_value(), refuse_copies(fusion, view, true).has_value()},
            joined_groups(fusion, view, kBoxLine)};
  }

  // Those that are not the wgmma engine's own.
  static std::vector<WayOut> ways(const Fusion& fusion, const Contraction& view, const Packing& packing) {
    std::vector<WayOut> all = ways_out(fusion, view, packing.joined);
    if (packing.is_empty()) all.erase(all.begin());
    return all;
  }

  static void add_copies(Work& work, const Fusion& copies, const DeviceInfo& device) {
    if (copies.after.empty()) return;
    const Work all = elementwise_engine().candidates(copies, device).front().work;
    work.serial_dram_bytes += all.dram_bytes;
    work.launches += all.launches;
  }
};

}  // namespace

const Engine& wgmma_repacked_engine() {
  static const WgmmaRepackedEngine engine;
  return engine;
}

}  // namespace fusor
