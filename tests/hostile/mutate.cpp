// Owns the choice of what is changed in a document, and to what.
#include "tests/hostile/mutate.h"

#include <array>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

namespace fusor::hostile {

namespace {

constexpr std::array<std::string_view, 30> kNumbers = {"0",
                                                       "-1",
                                                       "1",
                                                       "2",
                                                       "3",
                                                       "4",
                                                       "5",
                                                       "7",
                                                       "8",
                                                       "13",
                                                       "16",
                                                       "17",
                                                       "32",
                                                       "64",
                                                       "100",
                                                       "127",
                                                       "256",
                                                       "1000",
                                                       "4096",
                                                       "65536",
                                                       "2147483647",
                                                       "2147483648",
                                                       "4294967296",
                                                       "281474976710656",
                                                       "4611686018427387904",
                                                       "9223372036854775807",
                                                       "-9223372036854775808",
                                                       "1e300",
                                                       "-0.5",
                                                       "1e-320"};

using Place = std::pair<size_t, size_t>;  // where, how long

size_t below(size_t limit, std::mt19937& random) { return limit == 0 ? 0 : random() % limit; }

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::vector<Place> numbers(const std::string& text) {
  std::vector<Place> found;
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (quoted || !(is_digit(text[at]) || text[at] == '-')) continue;
    size_t end = at + 1;
    while (end < text.size() && (is_digit(text[end]) || text[end] == '.' || text[end] == 'e')) ++end;
    found.emplace_back(at, end - at);
    at = end - 1;
  }
  return found;
}

std::vector<Place> words(const std::string& text) {
  std::vector<Place> found;
  for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at)) {
    const size_t end = text.find('"', at + 1);
    if (end == std::string::npos) break;
    found.emplace_back(at, end + 1 - at);
    at = end + 1;
  }
  return found;
}

std::string piece(const std::string& text, Place place) { return text.substr(place.first, place.second); }

void change_number(std::string& text, std::mt19937& random) {
  const std::vector<Place> places = numbers(text);
  if (places.empty()) return;
  const Place at = places[below(places.size(), random)];
  const bool copy = below(3, random) == 0;
  const std::string other = copy ? piece(text, places[below(places.size(), random)])
                                 : std::string(kNumbers[below(kNumbers.size(), random)]);
  text.replace(at.first, at.second, other);
}

void change_word(std::string& text, std::mt19937& random) {
  const std::vector<Place> places = words(text);
  if (places.empty()) return;
  const Place at = places[below(places.size(), random)];
  text.replace(at.first, at.second, piece(text, places[below(places.size(), random)]));
}

// Repeats or removes a line: documents have an op, a tensor or a fusion a line.
void change_line(std::string& text, std::mt19937& random) {
  const size_t begin = text.rfind('\n', below(text.size(), random));
  if (begin == std::string::npos) return;
  const size_t end = text.find('\n', begin + 1);
  if (end == std::string::npos) return;
  if (below(2, random) == 0)
    text.erase(begin, end - begin);
  else
    text.insert(begin, text.substr(begin, end - begin));
}

void change_bytes(std::string& text, std::mt19937& random) {
  static constexpr std::string_view kAlphabet = "{}[]\",:0123456789.-eEinfatru\\ \n\x01\xff";
  const size_t at = below(text.size(), random);
  const char byte = kAlphabet[below(kAlphabet.size(), random)];
  switch (below(4, random)) {
    case 0:
      text.erase(at, 1 + below(4, random));
      break;
    case 1:
      text.insert(at, 1, byte);
      break;
    default:
      if (at < text.size()) text[at] = byte;
  }
}

}  // namespace

std::string mutated(std::string text, std::mt19937& random) {
  const size_t times = 1 + below(4, random);
  for (size_t i = 0; i < times && !text.empty(); ++i) {
    const size_t kind = below(16, random);
    if (kind < 11)
      change_number(text, random);
    else if (kind < 13)
      change_word(text, random);
    else if (kind < 15)
      change_line(text, random);
    else
      change_bytes(text, random);
  }
  return text;
}

}  // namespace fusor::hostile
