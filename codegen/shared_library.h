// Owns the opening of shared libraries at run time: a ladder of names, and the words for why none of them
// will do.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace fusor {

/// A library that stays open until the process ends: what it handed out (kernels, contexts) outlives every
/// owner here.
class SharedLibrary {
 public:
  SharedLibrary() = default;
  /// Opens the first of `candidates` (file names or paths) that loads and that `objection` has no words
  /// against; none: an empty library whose problem() says what was tried. `what` names it in messages:
  /// "NVRTC".
  static SharedLibrary open_first(const std::string& what, std::span<const std::string> candidates,
                                  const std::function<std::string(const SharedLibrary&)>& objection);

  explicit operator bool() const { return handle_ != nullptr; }
  /// The file that was opened, links resolved.
  const std::string& path() const { return path_; }
  const std::string& problem() const { return problem_; }

  /// Sets `function` to an exported one; false and null where there is none.
  template <class Function>
  bool find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(symbol(name));
    return function != nullptr;
  }

 private:
  void* symbol(const char* name) const;

  void* handle_ = nullptr;
  std::string path_;
  std::string problem_;
};

}  // namespace fusor
