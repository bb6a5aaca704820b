// Owns dlopen.
#include "codegen/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>

namespace fusor {

namespace {

// The loader knows which file stands behind a name such as "libcuda.so.1".
std::string file_of(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return {};
  std::error_code error;
  const auto file = std::filesystem::canonical(map->l_name, error);
  return error ? std::string(map->l_name) : file.string();
}

}  // namespace

SharedLibrary SharedLibrary::open_first(const std::string& what, std::span<const std::string> candidates,
                                        const std::function<std::string(const SharedLibrary&)>& objection) {
  std::string problem = what + " cannot be used. Tried ";
  const char* separator = "";
  for (const std::string& candidate : candidates) {
    SharedLibrary library;
    std::string why;
    library.handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_ == nullptr) {
      const char* error = dlerror();
      why = error == nullptr ? "does not load" : error;
    } else {
      library.path_ = file_of(library.handle_);
      why = objection(library);
      if (why.empty()) return library;
      dlclose(library.handle_);
    }
    // The loader's own words mostly begin with the name already.
    const bool named = why.starts_with(candidate);
    problem += separator + (named ? why : fmt::format("{}: {}", candidate, why));
    separator = "; ";
  }
  SharedLibrary none;
  none.problem_ = problem;
  return none;
}

void* SharedLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace fusor
