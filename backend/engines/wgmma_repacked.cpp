// Owns the wgmma_repacked engine: contractions whose operands or results do not lie as the wgmma engine wants
// them (NCHW, filters KCRS, channels or rows that are no multiples of 16 bytes, groups of few channels),
// carried out by it between copies through scratch.
#include <algorithm>

#include "backend/engines.h"
#include "backend/engines/epilogue.h"
#include "backend/engines/pointwise_convolution.h"
#include "backend/engines/repack.h"
#include "backend/engines/tensor_maps.h"

namespace fusor {

namespace {

// A pointwise convolution as a matmul where only its filter is packed then; any other fusion as it is.
Fusion carried(const Fusion& fusion) {
  const auto convolution = contraction_of(fusion);
  if (!convolution || !convolution->is_pointwise() || convolution->op == ContractionOp::wgrad) return fusion;
  auto matmul = as_matmul(fusion);
  const auto view = matmul ? contraction_of(*matmul) : std::nullopt;
  if (!view) return fusion;
  const Access* const filter = primary_access(fusion.before[1]);
  const Access* const left = primary_access(matmul->before[0]);
  const bool filter_is_right = left == nullptr || filter == nullptr || left->operand != filter->operand;
  const bool packs_pixels = refuse_copies(*matmul, *view, !filter_is_right).has_value();
  return packs_pixels || !refuse_copies(*matmul, *view, filter_is_right) ? fusion : *std::move(matmul);
}

class WgmmaRepackedEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma_repacked"; }
  int number() const override { return 31; }
  int revision() const override { return wgmma_engine().revision(); }
  Notes notes() const override { return wgmma_engine().notes(); }
  Notes notes_on(const Fusion& given) const override {
    const Fusion fusion = carried(given);
    const Contraction view = contraction_of(fusion).value();
    const Packing packing = packing_of(fusion, view);
    return wgmma_engine().notes_on(repack(fusion, view, packing, first_way(fusion, view, packing)).core);
  }

  Support supports(const Fusion& given, const DeviceInfo& device) const override {
    if (auto refusal = refuse_pair(given)) return Support::no(std::move(*refusal));
    const Fusion fusion = carried(given);
    const auto view = contraction_of(fusion);
    if (!view) return wgmma_engine().supports(fusion, device);
    if (!ways_joined(fusion, *view, device).empty()) return Support::yes();
    if (!ways_unrolled(fusion, *view, device).empty()) return Support::yes();
    if (!ways_phased(fusion, *view, device).empty()) return Support::yes();
    const Packing packing = packing_of(fusion, *view);
    const Repacked repacked = repack(fusion, *view, packing, first_way(fusion, *view, packing));
    if (Support support = wgmma_engine().supports(repacked.core, device); !support) return support;
    // The copy that finishes a product could reduce, but no engine is asked to.
    if (auto refusal = refuse_epilogue_reductions(fusion)) return Support::no(std::move(*refusal));
    if (ways_apart(fusion, *view).empty())
      return Support::no({"something-to-repack", fusion.op_name(fusion.anchors[0].op), "",
                          "an operand or a result that the copy engine cannot walk", "none", "use wgmma",
                          -1});
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& given, const DeviceInfo& device) const override {
    const Fusion fusion = carried(given);
    const Contraction view = contraction_of(fusion).value();
    std::vector<Knob> all;
    for (const Way& way : ways(fusion, view, device)) {
      for (const Knob& knob : wgmma_engine().knobs(repack(fusion, view, way.packing, way.out).core, device))
        add_knob(all, knob);
      add_knob(all, {"repack_y", {static_cast<int64_t>(way.out)}});
      add_knob(all, {"join", {way.packing.pixels}});
      add_knob(all, {"unroll", {way.packing.columns ? 1 : 0}});
      add_knob(all, {"phases", {way.packing.phases ? 1 : 0}});
    }
    return all;
  }

  std::vector<EngineCandidate> candidates(const Fusion& given, const DeviceInfo& device) const override {
    const Fusion fusion = carried(given);
    const Contraction view = contraction_of(fusion).value();
    std::vector<EngineCandidate> all;
    for (const Way& way : ways(fusion, view, device)) add_candidates(all, fusion, view, way, device);
    return all;
  }

  Lowered lower(const Fusion& given, const EngineConfig& config, const DeviceInfo& device) const override {
    const Fusion fusion = carried(given);
    const Contraction view = contraction_of(fusion).value();
    const Way way = way_of(fusion, view, config);
    const Repacked repacked = repack(fusion, view, way.packing, way.out);
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
  struct Way {
    Packing packing;
    WayOut out = WayOut::direct;
  };

  // Operands that the copy engine cannot read as they are, and groups that fill no line. wgrad's are planes
  // both or neither; 16 bits may be better off with channels side by side.
  static Packing packing_of(const Fusion& fusion, const Contraction& view) {
    Packing packing{
        {refuse_copies(fusion, view, false).has_value(), refuse_copies(fusion, view, true).has_value()},
        joined_groups(fusion, view, kBoxLine)};
    if (view.op != ContractionOp::wgrad) return packing;
    const Expr& first = fusion.before[0];
    const bool may_be_last = may_lie_across(first.nodes[static_cast<size_t>(first.value)].type);
    const bool one = packing.sites[0] || packing.sites[1];
    if (may_be_last ? plane_walk(fusion, view).has_value() : one) packing.sites = {true, true};
    return packing;
  }
  // The filter of joined pixels is always packed.
  static Packing packing_of_pixels(const Fusion& fusion, const Contraction& view, int64_t pixels,
                                   WayOut out) {
    Packing packing{{false, true}, 1, pixels};
    const Fusion core = repack(fusion, view, packing, out).core;
    packing.sites[0] = refuse_copies(core, contraction_of(core).value(), false).has_value();
    return packing;
  }

  static WayOut first_way(const Fusion& fusion, const Contraction& view, const Packing& packing) {
    const auto all = ways_out(fusion, view, packing.joined);
    if (!packing.is_empty()) return all.front();
    return all.size() > 1 ? all[1] : WayOut::direct;
  }

  // Those of pixels by themselves that are not the wgmma engine's own.
  static std::vector<Way> ways_apart(const Fusion& fusion, const Contraction& view) {
    const Packing packing = packing_of(fusion, view);
    std::vector<Way> all;
    for (const WayOut out : ways_out(fusion, view, packing.joined)) all.push_back({packing, out});
    if (packing.is_empty()) all.erase(all.begin());
    return all;
  }

  static std::vector<Way> ways_joined(const Fusion& fusion, const Contraction& view,
                                      const DeviceInfo& device) {
    std::vector<Way> all;
    for (const int64_t pixels : {1, 2, 4, 8, 16, 32}) {
      const auto out = way_out_of_pixels(fusion, view, pixels);
      if (!out) continue;
      const Packing packing = packing_of_pixels(fusion, view, pixels, *out);
      if (wgmma_engine().supports(repack(fusion, view, packing, *out).core, device))
        all.push_back({packing, *out});
    }
    return all;
  }

  static std::vector<Way> ways_unrolled(const Fusion& fusion, const Contraction& view,
                                        const DeviceInfo& device) {
    if (!unrolls_columns(fusion, view) || refuse_epilogue_reductions(fusion)) return {};
    std::vector<Way> all;
    const Packing packing{.sites = {true, true}, .columns = true};
    for (const WayOut out : ways_out(fusion, view, packing.joined)) all.push_back({packing, out});
    // Ways out differ in nothing that is refused.
    if (!wgmma_engine().supports(repack(fusion, view, packing, all[0].out).core, device)) return {};
    return all;
  }

  // The input of phases is always packed, the output gradient where it lies otherwise.
  static Packing packing_of_phases(const Fusion& fusion, const Contraction& view) {
    Packing packing{.sites = {false, true}, .phases = true};
    const Fusion core = repack(fusion, view, packing, WayOut::finished).core;
    packing.sites[0] = refuse_copies(core, contraction_of(core).value(), false).has_value();
    return packing;
  }

  static std::vector<Way> ways_phased(const Fusion& fusion, const Contraction& view,
                                      const DeviceInfo& device) {
    if (!splits_phases(fusion, view)) return {};
    const Expr& x = fusion.before[1];
    // im2col takes whole blocks of 16 bits, of any stride.
    if (may_lie_across(x.nodes[static_cast<size_t>(x.value)].type) && view.input_channels % kBoxLine == 0)
      return {};
    const Packing packing = packing_of_phases(fusion, view);
    const Fusion core = repack(fusion, view, packing, WayOut::finished).core;
    if (!wgmma_engine().supports(core, device)) return {};
    return {{packing, WayOut::finished}};
  }

  static std::vector<Way> ways(const Fusion& fusion, const Contraction& view, const DeviceInfo& device) {
    std::vector<Way> all = ways_apart(fusion, view);
    if (!all.empty() &&
        !wgmma_engine().supports(repack(fusion, view, all[0].packing, all[0].out).core, device))
      all.clear();
    for (const Way& way : ways_joined(fusion, view, device)) all.push_back(way);
    for (const Way& way : ways_unrolled(fusion, view, device)) all.push_back(way);
    for (const Way& way : ways_phased(fusion, view, device)) all.push_back(way);
    return all;
  }

  static Way way_of(const Fusion& fusion, const Contraction& view, const EngineConfig& config) {
    const int64_t pixels = config.knob("join", 0);
    if (const auto out = way_out_of_pixels(fusion, view, pixels))
      return {packing_of_pixels(fusion, view, pixels, *out), *out};
    const auto out = static_cast<WayOut>(config.knob("repack_y", 0));
    if (config.knob("unroll", 0) != 0 && unrolls_columns(fusion, view))
      return {{.sites = {true, true}, .columns = true}, out};
    if (config.knob("phases", 0) != 0 && splits_phases(fusion, view))
      return {packing_of_phases(fusion, view), WayOut::finished};
    return {packing_of(fusion, view), out};
  }

  // Its values beside those of the same knob.
  static void add_knob(std::vector<Knob>& all, const Knob& knob) {
    const auto known = std::ranges::find(all, knob.name, &Knob::name);
    if (known == all.end()) {
      all.push_back(knob);
      return;
    }
    for (const int64_t value : knob.values)
      if (std::ranges::find(known->values, value) == known->values.end()) known->values.push_back(value);
    std::ranges::sort(known->values);
  }

  void add_candidates(std::vector<EngineCandidate>& all, const Fusion& fusion, const Contraction& view,
                      const Way& way, const DeviceInfo& device) const {
    const Repacked repacked = repack(fusion, view, way.packing, way.out);
    Work copies;
    copies.launches = 0;
    copies.fills = static_cast<int>(repacked.zeroed.size());
    for (const Fusion* part : {&repacked.loads, &repacked.stores}) add_copies(copies, *part, device);
    for (const int64_t bytes : repacked.scratch) copies.scratch_bytes += bytes;
    for (const int scratch : repacked.zeroed)
      copies.serial_dram_bytes += static_cast<double>(repacked.scratch[static_cast<size_t>(scratch)]);
    for (EngineCandidate& candidate : wgmma_engine().candidates(repacked.core, device)) {
      Work& work = candidate.work;
      work.serial_dram_bytes += copies.serial_dram_bytes;
      work.launches += copies.launches;
      work.fills += copies.fills;
      work.scratch_bytes += copies.scratch_bytes;
      candidate.config.engine = name();
      candidate.config.set("repack_y", static_cast<int64_t>(way.out));
      if (way.packing.pixels > 0) candidate.config.set("join", way.packing.pixels);
      if (way.packing.columns) candidate.config.set("unroll", 1);
      if (way.packing.phases) candidate.config.set("phases", 1);
      all.push_back(std::move(candidate));
    }
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
