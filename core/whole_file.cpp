// Owns the system calls behind write_whole().
#include "core/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>

namespace fusor {

namespace {

std::string six_letters() {
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device source;
  std::string letters;
  for (int i = 0; i < 6; ++i) letters += kLetters[source() % kLetters.size()];
  return letters;
}

// A file that nobody else has, and its path; -1 (and errno) where none can be made. Unlike mkstemp's it has
// the mode that the umask gives to new files.
int open_new(const std::string& path, std::string& made) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    made = path + std::string(kUnfinished) + six_letters();
    const int descriptor = ::open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

}  // namespace

ErrorKind kind_of(int error) {
  const bool is_machine = error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG ||
                          error == EROFS || error == EMFILE || error == ENFILE;
  return is_machine ? ErrorKind::missing : ErrorKind::bad_input;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

int write_whole(const std::string& path, std::initializer_list<std::string_view> parts, bool durable) {
  std::string aside;
  const int descriptor = open_new(path, aside);
  if (descriptor < 0) return errno;
  int error = 0;
  for (const std::string_view part : parts)
    if (error == 0 && !write_all(descriptor, part)) error = errno;
  if (error == 0 && durable && ::fsync(descriptor) != 0) error = errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;  // the system may tell of a failed write late
  if (error == 0 && ::rename(aside.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(aside.c_str());
  return error;
}

}  // namespace fusor
