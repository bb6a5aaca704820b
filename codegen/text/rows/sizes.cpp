// Owns the bytes that a rows site holds, streams and exchanges, counted as its structs lie in memory.
#include "codegen/text/rows/sizes.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "codegen/text/rows/facts.h"
#include "codegen/text/site_fields.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// A struct of fields, each of some bytes and on a multiple of some.
class StructSize {
 public:
  void add(int64_t bytes, int64_t alignment) {
    widest_ = std::max(widest_, alignment);
    bytes_ = round_up(bytes_, alignment) + bytes;
  }
  int64_t bytes() const { return round_up(bytes_, widest_); }

 private:
  int64_t bytes_ = 0, widest_ = 1;
};

int64_t packed_bytes(const std::vector<DataType>& fields) {
  StructSize size;
  for (const DataType type : fields) size.add(byte_size(type), byte_size(type));
  return size.bytes();
}

// As Vec of base/types.cuh lies in a struct.
void add_vector(StructSize& size, DataType type, int64_t lanes) {
  const int64_t bytes = byte_size(type) * lanes;
  const int64_t alignment = bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : byte_size(type);
  size.add(bytes, alignment);
}

int64_t loaded_bytes(const KernelSite& site, int64_t vector, bool fixed) {
  const RowFacts facts(site);
  StructSize size;
  for (int i = 0; i < std::ssize(site.expr.nodes); ++i) {
    const Node& node = site.expr.node(i);
    if (node.kind != Node::Kind::load || facts.places[static_cast<size_t>(i)] != RowPlace::element ||
        facts.is_fixed(site.expr, i) != fixed)
      continue;
    add_vector(size, node.type, lane_step(site, node.access) == LaneStep::broadcast ? 1 : vector);
  }
  return size.bytes();
}

}  // namespace

bool stores_elements(const KernelSite& site) {
  const RowFacts facts(site);
  return std::ranges::any_of(site.expr.stores,
                             [&](const Store& store) { return facts.is_element_store(site.expr, store); });
}

int64_t held_bytes(const KernelSite& site, int64_t vector) { return loaded_bytes(site, vector, false); }
int64_t fixed_bytes(const KernelSite& site, int64_t vector) { return loaded_bytes(site, vector, true); }

int64_t streamed_bytes(const KernelSite& site) {
  const RowFacts facts(site);
  if (facts.spread || site.expr.domain.rank() - site.kept != 1) return 0;
  int64_t bytes = 0;
  for (int i = 0; i < std::ssize(site.expr.nodes); ++i) {
    const Node& node = site.expr.node(i);
    if (node.kind != Node::Kind::load || facts.places[static_cast<size_t>(i)] != RowPlace::element ||
        facts.is_fixed(site.expr, i))
      continue;
    if (!node.access.whole_vectors || node.access.is_indexed()) return 0;
    bytes += byte_size(node.type);
  }
  return bytes;
}

int64_t copied_bytes(const KernelSite& site, int64_t vector) {
  const RowFacts facts(site);
  int64_t bytes = 0, narrowest = 16;
  for (int i = 0; i < std::ssize(site.expr.nodes); ++i) {
    const Node& node = site.expr.node(i);
    if (node.kind != Node::Kind::load || facts.places[static_cast<size_t>(i)] != RowPlace::element ||
        facts.is_fixed(site.expr, i))
      continue;
    if (node.access.is_indexed()) return 0;
    const LaneStep step = lane_step(site, node.access);
    if (step == LaneStep::broadcast) continue;
    if (step != LaneStep::adjacent || !node.access.whole_vectors) return 0;
    narrowest = std::min(narrowest, byte_size(node.type));
    bytes += byte_size(node.type) * vector;
  }
  return vector > 1 && narrowest * vector % 16 != 0 ? 0 : bytes;
}

bool has_joins(const KernelSite& site) {
  KernelSite joined = site;
  joined.joins = true;
  return std::ranges::any_of(RowFacts(joined).joins, [](RowJoin join) { return join != RowJoin::none; });
}

int64_t totals_bytes(const KernelSite& site) {
  const RowFacts facts(site);
  int64_t most = 4;
  for (int phase = 1; phase <= facts.phase_count; ++phase) {
    std::vector<DataType> fields;
    for (size_t i = 0; i < site.expr.nodes.size(); ++i) {
      const bool is_own = facts.giver[i] == static_cast<int>(i);
      if (!is_reduce(site.expr.nodes[i]) || facts.is_column[i] || !is_own || facts.levels[i] != phase)
        continue;
      // A total that joins others takes a word for each, up to three.
      for (int word = 0; word <= static_cast<int>(facts.joins[i]); ++word)
        fields.push_back(site.expr.nodes[i].reduction.compute);
    }
    most = std::max(most, packed_bytes(fields));
  }
  return most;
}

int64_t column_bytes(const KernelSite& site) {
  const RowFacts facts(site);
  std::vector<DataType> fields;
  for (size_t i = 0; i < site.expr.nodes.size(); ++i)
    if (facts.is_column[i]) fields.push_back(site.expr.nodes[i].reduction.compute);
  return fields.empty() ? 0 : packed_bytes(fields);
}

}  // namespace fusor
