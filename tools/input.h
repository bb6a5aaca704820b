// Owns what every part of the command does with its FILE and --device.
#pragma once

#include <optional>
#include <string>

#include "core/plan.h"
#include "tools/commands.h"

namespace fusor::command {

/// The file: its graph, its plan where it is one, and the device that is meant.
struct Input {
  Graph graph;
  std::optional<Plan>
      plan;  ///< only where it is to be used as it stands: not where --device asks for a new one
  DeviceInfo device;
};

/// The path of a FILE: "-" is standard input.
std::string input_path(const std::string& file);
Input read_input(const Options& options);

}  // namespace fusor::command
