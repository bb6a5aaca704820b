// Owns Overloaded: the cases of a std::visit, one function for each alternative. Without a generic case, an
// alternative that a place forgets does not compile.
#pragma once

namespace fusor {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
// For clang before 17, which finds it only when it is told.
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace fusor
