// Owns the child's life and the frames in which requests and answers travel.
#include "tools/fuzz/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/fail.h"

namespace fusor::fuzz {

namespace {

bool write_all(int socket, const void* data, size_t count) {
  const char* at = static_cast<const char*>(data);
  while (count > 0) {
    const ssize_t done = ::send(socket, at, count, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    count -= static_cast<size_t>(done);
  }
  return true;
}

bool read_all(int socket, void* data, size_t count) {
  char* at = static_cast<char*>(data);
  while (count > 0) {
    const ssize_t done = ::read(socket, at, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    count -= static_cast<size_t>(done);
  }
  return true;
}

bool write_frame(int socket, const std::string& text) {
  const uint64_t size = text.size();
  return write_all(socket, &size, sizeof size) && write_all(socket, text.data(), text.size());
}

bool read_frame(int socket, std::string& text) {
  uint64_t size = 0;
  if (!read_all(socket, &size, sizeof size)) return false;
  text.resize(size);
  return read_all(socket, text.data(), size);
}

}  // namespace

Worker::Worker(Worker&& other) noexcept
    : serve_(std::move(other.serve_)),
      child_(std::exchange(other.child_, -1)),
      socket_(std::exchange(other.socket_, -1)) {}

Worker::~Worker() { end(); }

void Worker::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail(ErrorKind::missing, "no socket for a worker: {}", std::strerror(errno));
  child_ = ::fork();
  if (child_ < 0) fail(ErrorKind::missing, "no process for a worker: {}", std::strerror(errno));
  if (child_ == 0) {
    ::close(ends[0]);
    serve_forever(ends[1]);
  }
  ::close(ends[1]);
  socket_ = ends[0];
}

void Worker::serve_forever(int socket) const {
  // Small graphs gain nothing from threads, and workers share the machine.
  ::setenv("FUSOR_THREADS", "1", 0);
  std::string request;
  while (read_frame(socket, request))
    if (!write_frame(socket, serve_(request))) break;
  ::_exit(0);
}

void Worker::send(const std::string& request) {
  if (child_ < 0) start();
  if (write_frame(socket_, request)) return;
  end();  // it died between two requests
  start();
  write_frame(socket_, request);
}

bool Worker::receive(std::string& answer) {
  if (read_frame(socket_, answer)) return true;
  answer = how_it_died();
  return false;
}

std::string Worker::how_it_died() {
  int status = 0;
  ::waitpid(child_, &status, 0);
  ::close(socket_);
  child_ = socket_ = -1;
  if (WIFSIGNALED(status)) return fmt::format("{}", ::strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

void Worker::end() {
  if (child_ < 0) return;
  ::kill(child_, SIGKILL);
  how_it_died();
}

bool Worker::ask(const std::string& request, double limit, std::string& answer) {
  send(request);
  pollfd waiting{socket_, POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(limit * 1000)) > 0) return receive(answer);
  end();
  answer = fmt::format("no answer within {} s", limit);
  return false;
}

}  // namespace fusor::fuzz
