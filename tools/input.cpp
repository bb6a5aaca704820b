// Owns the reading of the command's FILE.
#include "tools/input.h"

#include "backend/replan.h"
#include "serialization/serialization.h"

namespace fusor::command {

std::string input_path(const std::string& file) { return file == "-" ? "/dev/stdin" : file; }

Input read_input(const Options& options) {
  std::variant<Graph, Plan> read = read_graph_or_plan(input_path(options.file));
  if (auto* graph = std::get_if<Graph>(&read))
    return {std::move(*graph), std::nullopt,
            DeviceInfo::named(options.device.empty() ? "current" : options.device)};
  auto& plan = std::get<Plan>(read);
  if (!options.device.empty())
    return {std::move(plan.graph), std::nullopt, DeviceInfo::named(options.device)};
  plan = checked_plan(plan);
  return {plan.graph, plan, plan.device};
}

}  // namespace fusor::command
