// Owns Worker: a child process that answers requests, so that a crash or a hang of one costs the parent
// nothing.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace fusor::fuzz {

class Worker {
 public:
  /// Answers one request, in the child.
  using Serve = std::function<std::string(const std::string& request)>;

  explicit Worker(Serve serve) : serve_(std::move(serve)) {}
  Worker(Worker&& other) noexcept;
  Worker& operator=(Worker&&) = delete;
  ~Worker();

  void send(const std::string& request);
  /// Readable where an answer, or the child's end, has come.
  int descriptor() const { return socket_; }
  /// The answer. False where the child died: then `answer` says how, and the next request gets a new child.
  bool receive(std::string& answer);
  /// Ends a child that takes too long.
  void end();
  /// send() and receive() with a limit in seconds.
  bool ask(const std::string& request, double limit, std::string& answer);

 private:
  void start();
  [[noreturn]] void serve_forever(int socket) const;
  std::string how_it_died();

  Serve serve_;
  pid_t child_ = -1;
  int socket_ = -1;
};

}  // namespace fusor::fuzz
