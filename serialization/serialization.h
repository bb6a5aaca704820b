// Owns graph, plan, device and tuning table <-> JSON. nlohmann/json is included in this room alone. Format:
// docs/formats.md.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "core/device_info.h"
#include "core/graph.h"
#include "core/plan.h"
#include "core/tuning_table.h"

namespace fusor {

inline constexpr int kFormatNumber = 1;
inline constexpr std::string_view kLibraryVersion = "0.1.0";

/// Indented JSON. Reading trusts nothing: what is wrong is an Error{bad_input} that names the place
/// ("tensors[2].dims: ..."); unknown keys are refused; inf and nan are strings; graphs are validated.
std::string to_json(const Graph& graph);
std::string to_json(const Plan& plan);
std::string to_json(const DeviceInfo& device);
std::string to_json(const TuningTable& table);
Graph graph_from_json(std::string_view text);
Plan plan_from_json(std::string_view text);
DeviceInfo device_from_json(std::string_view text);
TuningTable tuning_from_json(std::string_view text);
/// By the document's "kind".
std::variant<Graph, Plan> graph_or_plan_from_json(std::string_view text);

/// Files. Writing goes through a neighbour file and a rename: a full disk leaves the old file as it was.
/// Errors name the path and the system's reason.
void save(const Graph& graph, const std::string& path);
void save(const Plan& plan, const std::string& path);
void save(const TuningTable& table, const std::string& path);
Graph read_graph(const std::string& path);
Plan read_plan(const std::string& path);
DeviceInfo read_device(const std::string& path);
TuningTable read_tuning(const std::string& path);
std::variant<Graph, Plan> read_graph_or_plan(const std::string& path);

}  // namespace fusor
