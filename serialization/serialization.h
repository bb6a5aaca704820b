// Owns graph, plan, device and tuning table <-> JSON. nlohmann/json is included in this module alone. Format:
// docs/formats.md.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "core/api.h"
#include "core/device_info.h"
#include "core/graph.h"
#include "core/plan.h"
#include "core/tuning_table.h"

namespace fusor {

inline constexpr int kFormatNumber = 1;
inline constexpr std::string_view kLibraryVersion = "0.1.0";

/// Indented JSON. Reading trusts nothing: what is wrong is an Error{bad_input} that names the place
/// ("tensors[2].dims: ..."); unknown keys are refused; inf and nan are strings; graphs are validated.
FUSOR_API std::string to_json(const Graph& graph);
FUSOR_API std::string to_json(const Plan& plan);
FUSOR_API std::string to_json(const DeviceInfo& device);
FUSOR_API std::string to_json(const TuningTable& table);
FUSOR_API Graph graph_from_json(std::string_view text);
FUSOR_API Plan plan_from_json(std::string_view text);
FUSOR_API DeviceInfo device_from_json(std::string_view text);
FUSOR_API TuningTable tuning_from_json(std::string_view text);
/// By the document's "kind".
FUSOR_API std::variant<Graph, Plan> graph_or_plan_from_json(std::string_view text);

/// The attributes of one op as graph files have them, {"op": "reduction", "mode": "add"}; `rank` is that of
/// its first operand. A reader of Python or of another front-end needs no code for each family.
FUSOR_API Attributes attributes_from_json(std::string_view text, int rank);
/// Every kind of op, {"op", "inputs", "outputs", "attributes"} with the defaults of its attributes; pointwise
/// ops are one entry a mode.
FUSOR_API std::string op_kinds_json();

/// Files. Writing goes through a neighbour file and a rename: a full disk leaves the old file as it was.
/// Errors name the path and the system's reason.
FUSOR_API void save(const Graph& graph, const std::string& path);
FUSOR_API void save(const Plan& plan, const std::string& path);
FUSOR_API void save(const TuningTable& table, const std::string& path);
FUSOR_API Graph read_graph(const std::string& path);
FUSOR_API Plan read_plan(const std::string& path);
FUSOR_API DeviceInfo read_device(const std::string& path);
FUSOR_API TuningTable read_tuning(const std::string& path);
FUSOR_API std::variant<Graph, Plan> read_graph_or_plan(const std::string& path);

}  // namespace fusor
