// Owns the wgmma_repacked engine: contractions whose operands or results do not lie as the wgmma engine wants
// them (NCHW, filters KCRS, channels or rows that are no multiples of 16 bytes, groups of few channels),
// carried out by it between copies through scratch, as one of the rewrites of repack/repack.h.
#include <algorithm>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/pointwise_convolution.h"
#include "backend/engines/engine.h"
#include "backend/engines/list.h"
#include "backend/engines/repack/repack.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/copy/tensor_maps.h"

namespace fusor {

namespace {

// A pointwise convolution as a matmul where only its filter is packed then; any other fusion as it is.
Fusion carried(const Fusion& fusion) {
  const auto convolution = contraction_of(fusion);
  if (!convolution || !convolution->is_pointwise() || convolution->op == ContractionOp::wgrad) return fusion;
  auto matmul = as_matmul(fusion);
  const auto view = matmul ? contraction_of(*matmul) : std::nullopt;
  if (!view) return fusion;
  const Access* const filter = primary_access(operand_site(fusion, 0, 1));
  const Access* const left = primary_access(operand_site(*matmul, 0, 0));
  const bool filter_is_right = left == nullptr || filter == nullptr || left->operand != filter->operand;
  const bool packs_pixels = refuse_copies(*matmul, *view, !filter_is_right).has_value();
  return packs_pixels || !refuse_copies(*matmul, *view, filter_is_right) ? fusion : *std::move(matmul);
}

// A rewrite as it was chosen.
struct Way {
  const Rewrite* rewrite;
  int64_t value;  // of its knob
  WayOut out;

  Repacked of(const Fusion& fusion, const Contraction& view) const {
    return rewrite->rewritten(fusion, view, value, out);
  }
};

// Those whose contraction the wgmma engine takes; ways out differ in nothing that is refused.
std::vector<Way> ways_of(const Rewrite& rewrite, const Fusion& fusion, const Contraction& view,
                         const DeviceInfo& device) {
  std::vector<Way> all;
  for (const int64_t value : rewrite.values()) {
    const std::vector<WayOut> outs = rewrite.ways_out(fusion, view, value);
    if (outs.empty()) continue;
    if (!wgmma_engine().supports(rewrite.rewritten(fusion, view, value, outs.front()).core, device)) continue;
    for (const WayOut out : outs) all.push_back({&rewrite, value, out});
  }
  return all;
}

std::vector<Way> ways(const Fusion& fusion, const Contraction& view, const DeviceInfo& device) {
  std::vector<Way> all;
  for (const Rewrite* const rewrite : rewrites())
    for (const Way& way : ways_of(*rewrite, fusion, view, device)) all.push_back(way);
  return all;
}

// By the way out that was asked for, where the rewrite has it.
Way leaving(const Rewrite& rewrite, int64_t value, const std::vector<WayOut>& outs, WayOut asked) {
  WayOut out = outs.empty() ? WayOut::direct : outs.front();
  if (std::ranges::find(outs, asked) != outs.end()) out = asked;
  return {&rewrite, value, out};
}

// The one without a knob.
Way plain_way(const Fusion& fusion, const Contraction& view, WayOut asked = WayOut::direct) {
  const Rewrite& plain = *rewrites().front();
  return leaving(plain, 0, plain.ways_out(fusion, view, 0), asked);
}

// Where no knob asks for a rewrite that can be, the plain one, or else the first that there is: plans need
// not set every knob, and values that go with one rewrite do not go with another.
Way way_of(const Fusion& fusion, const Contraction& view, const EngineConfig& config,
           const DeviceInfo& device) {
  const auto asked = static_cast<WayOut>(config.knob("repack_y", 0));
  for (const Rewrite* const rewrite : rewrites().subspan(1)) {
    const int64_t value = config.knob(rewrite->knob(), 0);
    if (value == 0) continue;
    if (const auto outs = rewrite->ways_out(fusion, view, value); !outs.empty())
      return leaving(*rewrite, value, outs, asked);
  }
  const Way plain = plain_way(fusion, view, asked);
  if (wgmma_engine().supports(plain.of(fusion, view).core, device)) return plain;
  return ways(fusion, view, device).front();
}

void add_copies(Work& work, const Fusion& copies, const DeviceInfo& device) {
  if (copies.sites.empty()) return;
  const Work all = elementwise_engine().candidates(copies, device).front().work;
  work.serial_dram_bytes += all.dram_bytes;
  work.launches += all.launches;
}

Work price_of_copies(const Repacked& repacked, const DeviceInfo& device) {
  Work copies;
  copies.launches = 0;
  copies.fills = static_cast<int>(repacked.zeroed.size());
  for (const Fusion* part : {&repacked.loads, &repacked.stores}) add_copies(copies, *part, device);
  for (const int64_t bytes : repacked.scratch) copies.scratch_bytes += bytes;
  for (const int scratch : repacked.zeroed)
    copies.serial_dram_bytes += static_cast<double>(repacked.scratch[static_cast<size_t>(scratch)]);
  return copies;
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
    return wgmma_engine().notes_on(plain_way(fusion, view).of(fusion, view).core);
  }

  Support supports(const Fusion& given, const DeviceInfo& device) const override {
    if (auto refusal = refuse_phases(given)) return Support::no(std::move(*refusal));
    if (auto refusal = refuse_pair(given)) return Support::no(std::move(*refusal));
    const Fusion fusion = carried(given);
    const auto view = contraction_of(fusion);
    if (!view) return wgmma_engine().supports(fusion, device);
    for (const Rewrite* const rewrite : rewrites().subspan(1))
      if (!ways_of(*rewrite, fusion, *view, device).empty()) return Support::yes();
    const Way plain = plain_way(fusion, *view);
    if (Support support = wgmma_engine().supports(plain.of(fusion, *view).core, device); !support)
      return support;
    // The copy that finishes a product could reduce, but no engine is asked to.
    if (auto refusal = refuse_epilogue_reductions(fusion)) return Support::no(std::move(*refusal));
    if (plain.rewrite->ways_out(fusion, *view, plain.value).empty())
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
      for (const Knob& knob : wgmma_engine().knobs(way.of(fusion, view).core, device)) add_knob(all, knob);
      add_knob(all, {"repack_y", {static_cast<int64_t>(way.out)}});
      for (const Rewrite* const rewrite : rewrites().subspan(1))
        add_knob(all, {std::string(rewrite->knob()), {rewrite == way.rewrite ? way.value : 0}});
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
    const Repacked repacked = way_of(fusion, view, config, device).of(fusion, view);
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
    const Repacked repacked = way.of(fusion, view);
    const Work copies = price_of_copies(repacked, device);
    for (EngineCandidate& candidate : wgmma_engine().candidates(repacked.core, device)) {
      Work& work = candidate.work;
      work.serial_dram_bytes += copies.serial_dram_bytes;
      work.launches += copies.launches;
      work.fills += copies.fills;
      work.scratch_bytes += copies.scratch_bytes;
      candidate.config.engine = name();
      candidate.config.set("repack_y", static_cast<int64_t>(way.out));
      if (!way.rewrite->knob().empty()) candidate.config.set(way.rewrite->knob(), way.value);
      all.push_back(std::move(candidate));
    }
  }
};

}  // namespace

const Engine& wgmma_repacked_engine() {
  static const WgmmaRepackedEngine engine;
  return engine;
}

}  // namespace fusor
