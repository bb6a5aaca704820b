// Owns the reading of environment variables.
#include "core/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "core/fail.h"

namespace fusor::environment {

namespace {

std::optional<std::string> text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::optional<std::string> non_empty(const char* name) {
  auto value = text(name);
  return value && !value->empty() ? value : std::nullopt;
}

int64_t number(const char* name, int64_t otherwise, int64_t least) {
  const auto value = non_empty(name);
  if (!value) return otherwise;
  int64_t parsed = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, parsed);
  if (error != std::errc{} || stop != end || parsed < least)
    fail("{}='{}' is not a whole number of {} or more", name, *value, least);
  return parsed;
}

}  // namespace

std::optional<std::string> engine() { return non_empty("FUSOR_ENGINE"); }

std::optional<std::string> cache_dir() {
  if (const auto chosen = text("FUSOR_CACHE_DIR")) return chosen->empty() ? std::nullopt : chosen;
  if (const auto base = non_empty("XDG_CACHE_HOME")) return *base + "/fusor";
  if (const auto home = non_empty("HOME")) return *home + "/.cache/fusor";
  return std::nullopt;
}

int64_t cache_limit_bytes() { return number("FUSOR_CACHE_MB", 512, 1) << 20; }
std::optional<std::string> shipped_kernels() { return non_empty("FUSOR_KERNELS"); }
std::optional<std::string> libcuda() { return non_empty("FUSOR_LIBCUDA"); }
std::optional<std::string> libnvrtc() { return non_empty("FUSOR_LIBNVRTC"); }
std::optional<std::string> cuda_root() { return non_empty("FUSOR_CUDA_ROOT"); }

int debug_level() { return static_cast<int>(number("FUSOR_DEBUG", 0, 0)); }

bool checks_runs() { return number("FUSOR_CHECK", 0, 0) != 0; }

int kernel_names() { return static_cast<int>(number("FUSOR_KERNEL_NAMES", 1, 0)); }

int threads() {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return static_cast<int>(number("FUSOR_THREADS", cores, 1));
}

int cudnn_log_level() { return static_cast<int>(number("CUDNN_LOGLEVEL_DBG", 0, 0)); }
std::optional<std::string> cudnn_log_destination() { return non_empty("CUDNN_LOGDEST_DBG"); }
int64_t cudnn_version(int64_t otherwise) { return number("FUSOR_CUDNN_VERSION", otherwise, 1); }

}  // namespace fusor::environment
