// Owns the thread that tells of long work.
#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace fusor::command {

Busy::Busy(std::string what) : what_(std::move(what)) {
  if (::isatty(STDERR_FILENO) != 0) watcher_ = std::thread([this] { watch(); });
}

Busy::~Busy() {
  if (!watcher_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

void Busy::now(std::string what) {
  const std::scoped_lock lock(mutex_);
  what_ = std::move(what);
}

void Busy::watch() {
  using namespace std::chrono_literals;
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, 2s, [this] { return done_; })) return;
  do {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const std::string line = fmt::format("\r{:.90}: {:.0f} s\x1b[K", what_, elapsed.count());
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
  } while (!changed_.wait_for(lock, 500ms, [this] { return done_; }));
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

}  // namespace fusor::command
