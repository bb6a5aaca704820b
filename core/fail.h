// Owns the short way to throw an Error with a formatted message (kept apart so that public headers need no
// fmt).
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/error.h"

namespace fusor {

/// Throws Error{bad_input}: something the user handed over is wrong.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorKind::bad_input, fmt::format(text, std::forward<Args>(args)...));
}

/// Throws an Error of the given kind.
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(kind, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace fusor
