// Owns the search for the word that was meant.
#include "tools/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace fusor::command {

namespace {

/// Letters to insert, leave out or change to make `b` of `a` (Levenshtein's distance).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// "; did you mean X?", or nothing where no name is near.
std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kNear = 2;
  std::string best;
  size_t least = kNear + 1;
  for (const std::string& name : names)
    if (const size_t apart = distance(word, name); apart < least) {
      least = apart;
      best = name;
    }
  return best.empty() ? "" : fmt::format("; did you mean {}?", best);
}

std::vector<std::string> options_of(const CLI::App& part) {
  std::vector<std::string> names;
  for (const CLI::Option* option : part.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

bool is_option(const std::string& word) { return word.starts_with("-") && word != "-"; }

}  // namespace

bool has_unknown_option(const CLI::App& app) { return std::ranges::any_of(app.remaining(true), is_option); }

std::string unknown_argument(const CLI::App& app) {
  std::vector<std::string> left = app.remaining(true);
  const auto parts = app.get_subcommands();
  if (parts.empty()) {
    std::vector<std::string> names;
    for (const CLI::App* part : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(part->get_name());
    const std::string word = left.empty() ? "" : left.front();
    return fmt::format("there is no part '{}'{} (fusor --help)", word, suggestion(word, names));
  }
  const CLI::App& part = *parts.front();
  const auto option = std::ranges::find_if(left, is_option);
  if (option == left.end())
    return fmt::format("{} takes no further argument '{}' (fusor {} --help)", part.get_name(),
                       left.empty() ? "" : left.front(), part.get_name());
  const std::string word = option->substr(0, option->find('='));
  return fmt::format("{} has no option '{}'{} (fusor {} --help)", part.get_name(), word,
                     suggestion(word, options_of(part)), part.get_name());
}

}  // namespace fusor::command
