// Owns parsing and printing of JSON text.
#include "serialization/json_text.h"

#include <set>
#include <vector>

#include "core/fail.h"

namespace fusor {

namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxKeys = 64;
constexpr size_t kLineWidth = 150;

/// Follows the parser through a document and refuses what a later reader could not see or survive.
class ParseGuard {
 public:
  void see(Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        enter(event == Event::array_start);
        break;
      case Event::key:
        add_key(value.get_ref<const std::string&>());
        break;
      case Event::object_end:
      case Event::array_end:
        levels_.pop_back();
        count_element();
        break;
      case Event::value:
        count_element();
        break;
    }
  }

 private:
  struct Level {
    bool is_array = false;
    size_t elements = 0;
    std::set<std::string, std::less<>> keys;
    std::string key;
  };

  void enter(bool is_array) {
    if (levels_.size() == kMaxDepth) fail("{}: nested deeper than {} levels", path(), kMaxDepth);
    levels_.push_back({is_array, 0, {}, {}});
  }

  void add_key(const std::string& key) {
    Level& level = levels_.back();
    if (!level.keys.insert(key).second)
      fail("{}: key {} appears twice", path_to(levels_.size() - 1), in_quotes(key));
    if (level.keys.size() > kMaxKeys) fail("{}: more than {} keys", path_to(levels_.size() - 1), kMaxKeys);
    level.key = key;
  }

  void count_element() {
    if (!levels_.empty()) ++levels_.back().elements;
  }

  std::string path() const { return path_to(levels_.size()); }

  std::string path_to(size_t depth) const {
    std::string path;
    for (size_t i = 0; i < depth; ++i) {
      if (levels_[i].is_array)
        path += fmt::format("[{}]", levels_[i].elements);
      else
        path += fmt::format("{}{}", path.empty() ? "" : ".", levels_[i].key);
    }
    return path.empty() ? "the document" : path;
  }

  std::vector<Level> levels_;
};

void print(const Json& value, size_t indent, size_t used, std::string& out);

void print_flat(const Json& value, std::string& out) {
  if (!value.is_structured()) {
    out += value.dump();
    return;
  }
  out += value.is_object() ? '{' : '[';
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!first) out += ", ";
    first = false;
    if (value.is_object()) out += Json(key).dump() + ": ";
    print_flat(item, out);
  }
  out += value.is_object() ? '}' : ']';
}

void print_broken(const Json& value, size_t indent, std::string& out) {
  out += value.is_object() ? "{\n" : "[\n";
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!first) out += ",\n";
    first = false;
    out.append(indent + 2, ' ');
    const std::string label = value.is_object() ? Json(key).dump() + ": " : "";
    out += label;
    print(item, indent + 2, indent + 2 + label.size(), out);
  }
  out += '\n';
  out.append(indent, ' ');
  out += value.is_object() ? '}' : ']';
}

void print(const Json& value, size_t indent, size_t used, std::string& out) {
  std::string flat;
  print_flat(value, flat);
  const bool whole_document = indent == 0 && used == 0;
  if (!value.is_structured() || value.empty() || (!whole_document && used + flat.size() < kLineWidth))
    out += flat;
  else
    print_broken(value, indent, out);
}

/// Without the parser's own prefix "[json.exception.parse_error.101] ".
std::string_view plain_message(const Json::exception& error) {
  const std::string_view message = error.what();
  const size_t end = message.find("] ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

/// What `write` appends, and the end of the line.
template <class Write>
std::string printed(Write write) {
  try {
    std::string out;
    write(out);
    return out + '\n';
  } catch (const Json::exception& error) {
    fail("cannot be written as JSON: {}", plain_message(error));
  }
}

}  // namespace

Json parse_json(std::string_view text) {
  ParseGuard guard;
  // The library takes one for the end of the text.
  if (const size_t at = text.find('\0'); at != std::string_view::npos) fail("not JSON: byte {} is 0", at);
  try {
    return Json::parse(text.begin(), text.end(), [&guard](int, Json::parse_event_t event, const Json& value) {
      guard.see(event, value);
      return true;
    });
  } catch (const Json::exception& error) {
    fail("not JSON: {}", plain_message(error));
  }
}

std::string print_json(const Json& document) {
  return printed([&](std::string& out) { print(document, 0, 0, out); });
}

std::string print_json_line(const Json& document) {
  return printed([&](std::string& out) { print_flat(document, out); });
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string shown = "'";
  for (char c : text.substr(0, kShown)) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return shown + (text.size() > kShown ? "...'" : "'");
}

}  // namespace fusor
