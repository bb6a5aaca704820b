// Owns the step between text and JSON values: parsing with limits, and the layout of what is written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fusor {

/// Objects keep the order in which their keys were added.
using Json = nlohmann::ordered_json;

/// Parses untrusted text. Throws Error{bad_input} for what is not JSON, a key that appears twice in one
/// object, more than 64 keys in one object, and nesting deeper than any of our documents.
Json parse_json(std::string_view text);

/// The document as text: two spaces a level, a value on one line where it fits one. Throws Error{bad_input}
/// where a string is not UTF-8.
std::string print_json(const Json& document);
/// The document on one line.
std::string print_json_line(const Json& document);

/// Inserted text on one line: shortened, control characters replaced.
std::string in_quotes(std::string_view text);

}  // namespace fusor
