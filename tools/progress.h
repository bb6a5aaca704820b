// Owns what is told on standard error while something takes longer than two seconds, or many steps.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

namespace fusor::command {

/// While it lives: what the command is busy with and for how long, once that is more than two seconds, on a
/// line that is written over and cleared at the end. Nothing where standard error is no terminal.
class Busy {
 public:
  explicit Busy(std::string what);
  ~Busy();
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  /// Another word for what is being done; the seconds count on.
  void now(std::string what);

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  bool done_ = false;
  std::thread watcher_;
};

/// A bar on standard error that is written over; nothing where that is no terminal.
class ProgressBar {
 public:
  /// `total` pieces of work.
  explicit ProgressBar(size_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `part` of the work after `done` whole pieces, 0 to 1.
  void show(size_t done, double part, const std::string& what) const;
  void clear() const;

 private:
  size_t total_;
  bool shown_;
};

}  // namespace fusor::command
