// Owns what is told on standard error while something takes longer than two seconds.
#pragma once

#include <condition_variable>
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

}  // namespace fusor::command
