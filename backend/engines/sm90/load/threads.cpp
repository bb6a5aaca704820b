// Owns the rules for operands that threads load, and their distances.
#include "backend/engines/sm90/load/threads.h"

#include <algorithm>

#include "backend/engines/contraction/matmul_site.h"
#include "backend/engines/sm90/copy/rules.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/sm90/copy/units.h"
#include "backend/engines/sm90/load/prologue.h"
#include "codegen/text/parameters.h"

namespace fusor {

using namespace copy_rules;

namespace {

// The largest power of two up to 8 that divides the number.
int64_t grain_of(int64_t bytes) {
  int64_t grain = 1;
  while (grain < 8 && bytes % (2 * grain) == 0) grain *= 2;
  return grain;
}

int64_t siblings_of(const Contraction& view, bool second) { return second ? view.siblings : 1; }

bool is_copied(const Fusion& fusion, const Contraction& view, bool second) {
  for (int64_t sibling = 0; sibling < siblings_of(view, second); ++sibling)
    if (refuse_copies(fusion, view, second, sibling)) return false;
  return true;
}

}  // namespace

void ThreadLoad::append_to(Parameters& p) const {
  p.pointer("first", "const u8", operand, byte_offset);
  p.wide("line", line);
  p.wide("entry", entry);
  p.wide("line_bytes", line_bytes);
  p.wide("lines", lines);
  p.wide("bytes", bytes);
}

std::optional<ThreadLoad> thread_load(const Fusion& fusion, const Contraction& view, bool second,
                                      int64_t sibling) {
  if (view.is_convolution() || refuse_value(fusion, view, site_of_operand(fusion, second, sibling)))
    return std::nullopt;
  const auto [site, k_axis, across_axis] = matmul_site(fusion, view, second, sibling);
  const Access& access = site.nodes[0].access;
  const Operand& operand = fusion.operands[static_cast<size_t>(access.operand)];
  const int64_t bytes = byte_size(operand.type);
  const bool across = access.strides[k_axis] != 1;
  // One element has any stride.
  const bool adjacent = access.strides[across_axis] == 1 || site.domain[across_axis] == 1;
  if (across && (!adjacent || !may_lie_across(operand.type))) return std::nullopt;
  const int outer = across ? k_axis : across_axis, inner = across ? across_axis : k_axis;
  const WalkedAxes batch = batch_of(site);
  const auto entry = one_stride(batch.extents, batch.strides);
  ThreadLoad load;
  load.operand = access.operand;
  load.byte_offset = access.offset * bytes;
  load.lines = site.domain[outer];
  load.line = load.lines > 1 ? access.strides[outer] * bytes : 0;
  const int64_t entries = element_count(batch.extents);
  load.entry = entries > 1 ? entry.value_or(0) * bytes : 0;
  if (!entry || load.line < 0 || load.entry < 0) return std::nullopt;
  load.line_bytes = site.domain[inner] * bytes;
  load.bytes = (entries - 1) * load.entry + (load.lines - 1) * load.line + load.line_bytes;
  load.grain = std::min(
      {grain_of(operand.alignment), grain_of(load.byte_offset), grain_of(load.line), grain_of(load.entry)});
  return load;
}

bool threads_take(const Fusion& fusion, const Contraction& view, bool second) {
  if (view.is_convolution() || operand_from_registers(fusion, view)) return false;
  for (int64_t sibling = 0; sibling < siblings_of(view, second); ++sibling)
    if (!thread_load(fusion, view, second, sibling)) return false;
  return true;
}

bool threads_take_both(const Fusion& fusion, const Contraction& view) {
  return threads_take(fusion, view, false) && threads_take(fusion, view, true);
}

std::optional<Refusal> refuse_loads(const Fusion& fusion, const Contraction& view, bool second,
                                    int64_t sibling) {
  auto refusal = refuse_copies(fusion, view, second, sibling);
  if (!refusal || prologue_operand(fusion, view, second, kBoxLine)) return std::nullopt;
  if (!threads_take(fusion, view, second)) return refusal;
  if (!prologue_operand(fusion, view, !second, kBoxLine)) return std::nullopt;
  return refuse_value(fusion, view, site_of_operand(fusion, !second, 0));
}

LoadedByThreads needs_threads(const Fusion& fusion, const Contraction& view) {
  const auto needs = [&](bool second) {
    return !is_copied(fusion, view, second) && threads_take(fusion, view, second);
  };
  return {needs(false), needs(true)};
}

}  // namespace fusor
