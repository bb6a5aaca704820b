// Owns the engine that copies are carried out by, their costs and their order.
#include "backend/engines/repack/copies.h"

#include <memory>
#include <utility>
#include <variant>

#include "backend/engines/engine.h"
#include "backend/engines/list.h"

namespace fusor {

namespace {

// Copies are always carried out by the elementwise engine.
std::unique_ptr<const Prepared> prepared_copies(const Fusion& copies, const DeviceInfo& device) {
  return std::get<std::unique_ptr<const Prepared>>(elementwise_engine().prepare(copies, device));
}

void add_part(Work& work, const Fusion& copies, const DeviceInfo& device) {
  if (copies.sites.empty()) return;
  const Work all = prepared_copies(copies, device)->candidates().front().work;
  work.serial_dram_bytes += all.dram_bytes;
  work.launches += all.launches;
}

void lower_copies(Lowered& lowered, const Repacked& repacked, const Fusion& copies,
                  const DeviceInfo& device) {
  if (copies.sites.empty()) return;
  const EngineConfig as_it_sees_fit{"elementwise", 1, {}};
  append_part(lowered, repacked, prepared_copies(copies, device)->lower(as_it_sees_fit));
}

}  // namespace

Work cost_of_copies(const Repacked& repacked, const DeviceInfo& device) {
  Work copies;
  copies.launches = 0;
  copies.fills = static_cast<int>(repacked.zeroed.size());
  for (const Fusion* part : {&repacked.loads, &repacked.stores}) add_part(copies, *part, device);
  for (const int64_t bytes : repacked.scratch) copies.scratch_bytes += bytes;
  for (const int scratch : repacked.zeroed)
    copies.serial_dram_bytes += static_cast<double>(repacked.scratch[static_cast<size_t>(scratch)]);
  return copies;
}

void add_copies(Work& work, const Work& copies) {
  work.serial_dram_bytes += copies.serial_dram_bytes;
  work.launches += copies.launches;
  work.fills += copies.fills;
  work.scratch_bytes += copies.scratch_bytes;
}

Lowered between_copies(const Repacked& repacked, Lowered core, const DeviceInfo& device) {
  Lowered lowered;
  lowered.scratch = repacked.scratch;
  for (const int scratch : repacked.zeroed)
    lowered.steps.emplace_back(Fill{scratch, repacked.scratch[static_cast<size_t>(scratch)], 0});
  lower_copies(lowered, repacked, repacked.loads, device);
  append_part(lowered, repacked, std::move(core));
  lower_copies(lowered, repacked, repacked.stores, device);
  return lowered;
}

}  // namespace fusor
