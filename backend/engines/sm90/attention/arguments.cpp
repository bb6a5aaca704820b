// Owns the arguments that attention's kernels share, and the alignment of what they reach.
#include "backend/engines/sm90/attention/arguments.h"

#include <algorithm>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/guards.h"

namespace fusor::attention {

void append_map(Parameters& p, const char* name, const Rows& rows, int64_t box) {
  TensorMap map = rows.map;
  map.box = {2 * kLine / byte_size(map.type), box, 1, 1, 1};
  p.tensor_map(name, map, rows.operand, rows.byte_offset);
}

void append_scale(Parameters& p, const char* name, const std::optional<double>& known,
                  const std::optional<Factor>& given, double factor) {
  if (given)
    p.given_real(name, given->operand, given->least, factor);
  else
    p.real(name, known.value_or(1.0) * factor);
}

void append_queue(Parameters& p, int64_t tiles, int64_t entries, int64_t section, bool turns) {
  p.group("queue", "TileQueue", [&] {
    p.wide("tiles", tiles);
    p.wide("entries", entries);
    p.wide("section", section);
    p.wide("turns", turns ? 1 : 0);
  });
}

std::vector<Guard> guards_of_sites(const Fusion& fusion, std::span<const KernelSite> sites) {
  std::vector<Guard> guards = guards_of(fusion, {});
  for (const KernelSite& site : sites)
    for (const Guard& needed : guards_of(fusion, {{site.expr, site.expr.stores.empty() ? 2 : 8}}))
      guard(guards, needed);
  return guards;
}

void require_maps(std::vector<Guard>& guards, std::initializer_list<const Rows*> all) {
  constexpr int64_t kMapUnit = 16;
  for (Guard& guard : guards)
    for (const Rows* rows : all)
      if (guard.operand == rows->operand) guard.alignment = std::max(guard.alignment, kMapUnit);
}

}  // namespace fusor::attention
