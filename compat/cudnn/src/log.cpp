// Owns the writing of the log.
#include "compat/cudnn/src/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>

#include "core/environment.h"

namespace fusor::cudnn {

namespace {

struct Log {
  int level = environment::cudnn_log_level();
  std::string destination = environment::cudnn_log_destination().value_or("stdout");
  std::FILE* file = nullptr;
  std::mutex mutex;
  LogCallback callback;
  std::atomic<unsigned> mask{0};

  Log() {
    if (level == 0) return;
    if (destination == "stdout")
      file = stdout;
    else if (destination == "stderr")
      file = stderr;
    else
      file = std::fopen(destination.c_str(), "w");
  }
};

Log& the_log() {
  static Log& log = *new Log;  // outlives every static object that may still log
  return log;
}

// Severities count down from info; levels count up from errors.
int level_of(cudnnSeverity_t severity) {
  return severity == CUDNN_SEV_INFO ? 3 : severity == CUDNN_SEV_WARNING ? 2 : 1;
}

const char* letter_of(cudnnSeverity_t severity) {
  return severity == CUDNN_SEV_INFO ? "I" : severity == CUDNN_SEV_WARNING ? "W" : "E";
}

bool callback_listens(const Log& log, cudnnSeverity_t severity) {
  return (log.mask.load(std::memory_order_relaxed) >> static_cast<unsigned>(severity) & 1U) != 0;
}

void call_back(const LogCallback& callback, cudnnSeverity_t severity, cudnnStatus_t status,
               const std::string& text) {
  using namespace std::chrono;
  const auto now = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  cudnnDebug_t debug{};
  debug.cudnn_version = CUDNN_VERSION;
  debug.cudnnStatus = status;
  debug.time_sec = static_cast<unsigned>(now / 1000000);
  debug.time_usec = static_cast<unsigned>(now % 1000000);
  debug.pid = static_cast<unsigned long long>(::getpid());
  callback.function(severity, callback.data, &debug, text.c_str());
}

}  // namespace

bool log_listens(cudnnSeverity_t severity) noexcept {
  try {
    const Log& log = the_log();
    return (log.file != nullptr && level_of(severity) <= log.level) || callback_listens(log, severity);
  } catch (...) {
    return false;
  }
}

void write_log(cudnnSeverity_t severity, cudnnStatus_t status, std::string_view text) {
  if (!log_listens(severity)) return;
  Log& log = the_log();
  LogCallback callback;
  {
    const std::scoped_lock lock(log.mutex);
    if (log.file != nullptr && level_of(severity) <= log.level) {
      fmt::print(log.file, "{}! fusor cudnn {}: {}\n", letter_of(severity), CUDNN_VERSION, text);
      std::fflush(log.file);
    }
    callback = log.callback;
  }
  // The callback may call the library.
  if (callback.function != nullptr && callback_listens(log, severity))
    call_back(callback, severity, status, std::string(text));
}

void set_log_callback(const LogCallback& callback) {
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  log.callback = callback;
  log.mask = callback.function != nullptr ? callback.mask : 0;
}

LogCallback log_callback() {
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  return log.callback;
}

}  // namespace fusor::cudnn
