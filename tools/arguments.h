// Owns what the command says of arguments that it does not know.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace fusor::command {

/// Whether parsing left over what looks like an option.
bool has_unknown_option(const CLI::App& app);

/// "run has no option '--devic'; did you mean --device? (fusor run --help)", of the first argument that
/// parsing left over.
std::string unknown_argument(const CLI::App& app);

}  // namespace fusor::command
