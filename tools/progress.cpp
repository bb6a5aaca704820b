// Owns the thread that tells of long work, and the bar.
#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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

ProgressBar::ProgressBar(size_t total)
    : total_(std::max<size_t>(total, 1)), shown_(::isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::show(size_t done, double part, const std::string& what) const {
  if (!shown_) return;
  constexpr int kWidth = 30;
  const double reached = (static_cast<double>(done) + std::min(part, 1.0)) / static_cast<double>(total_);
  const auto filled = static_cast<size_t>(reached * kWidth);
  const std::string line = fmt::format("\r[{}{}] {} of {}: {:.60}\x1b[K", std::string(filled, '#'),
                                       std::string(kWidth - filled, '.'), done + 1, total_, what);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

void ProgressBar::clear() const {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

}  // namespace fusor::command
