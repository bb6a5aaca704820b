// Owns what every part of a rows site's text is written with: lines, the heads of functions, and addresses.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/text/rows/nodes.h"

namespace fusor {

/// The base of all classes that write a part of a rows site's struct. They share the text, and append to it
/// one after another.
class RowPart {
 protected:
  RowPart(const RowNodes& nodes, std::string& text)
      : nodes_(nodes), site_(nodes.site()), expr_(nodes.site().expr), text_(text) {}

  template <class... Values>
  void line(int indent, fmt::format_string<Values...> format, Values&&... values) {
    text_.append(2 * static_cast<size_t>(indent), ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_.push_back('\n');
  }

  /// Begins a static function with these template parameters; its arguments stand one a line.
  void begin_function(std::string_view types, std::string_view result, std::string_view name,
                      const std::vector<std::string>& arguments);

  /// Windows' sites are given coordinates of which more is known than their values: axis<0>(), axis<1>() ...
  std::string at_parameter() const;
  std::string at(int axis) const;

  std::string address(const std::string& base, const Node& load) const;
  std::string address(const std::string& base, const Access& access) const;
  std::string address(const std::string& base, const Access& access, const std::string& pointer) const;

  /// The last argument of what moves a vector's elements, or nothing where all of them exist.
  std::string up_to(std::string_view count) const { return site_.tails ? fmt::format(", {}", count) : ""; }

  // The questions that are asked most.
  int node_count() const { return nodes_.count(); }
  const std::string& name(int node) const { return nodes_.name(node); }
  RowPlace place(int node) const { return nodes_.place(node); }
  LaneStep step(const Access& access) const { return nodes_.step(access); }
  bool is_shared_lane(int at) const { return nodes_.is_shared_lane(at); }
  bool is_spread() const { return nodes_.facts().spread; }

  const RowNodes& nodes_;
  const KernelSite& site_;
  const Expr& expr_;

 private:
  std::string& text_;
};

}  // namespace fusor
