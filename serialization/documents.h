// Owns the parts of documents that other documents contain.
#pragma once

#include "core/device_info.h"
#include "core/engine_config.h"
#include "core/graph.h"
#include "serialization/json_reader.h"

namespace fusor {

/// "name", "tensors", "ops": a graph without format and kind.
void write_graph(Json& object, const Graph& graph);
/// Reads what write_graph wrote; `more_keys` may stand beside it. Validates the graph.
Graph parse_graph(const JsonReader& object, std::initializer_list<std::string_view> more_keys = {});

/// Every field of DeviceInfo.
void write_device(Json& object, const DeviceInfo& device);
DeviceInfo parse_device(const JsonReader& object, std::initializer_list<std::string_view> more_keys = {});

/// "engine", "revision", "knobs".
void write_config(Json& object, const EngineConfig& config);
EngineConfig parse_config(const JsonReader& object);

/// Refuses a document of another format number, or (where `kind` is not empty) of another kind.
void expect_header(const JsonReader& document, std::string_view kind);

}  // namespace fusor
