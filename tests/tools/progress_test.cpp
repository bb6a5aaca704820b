// Tests what is told of long work on a terminal, by the real binary behind a pseudo-terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace fusor {
namespace {

/// What the command writes to its terminal until `wanted` comes or the time is up; the command is ended then.
std::string on_a_terminal(const std::string& file, const std::string& wanted, std::chrono::seconds most) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    execl(FUSOR_COMMAND, "fusor", "run", file.c_str(), "--device", "cpu", "--repeat", "100000000", nullptr);
    _exit(127);
  }
  fcntl(terminal, F_SETFL, O_NONBLOCK);
  std::string text;
  const auto end = std::chrono::steady_clock::now() + most;
  while (text.find(wanted) == std::string::npos && std::chrono::steady_clock::now() < end) {
    char piece[512];
    const ssize_t got = read(terminal, piece, sizeof piece);
    if (got > 0)
      text.append(piece, static_cast<size_t>(got));
    else
      usleep(20'000);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(terminal);
  return text;
}

TEST(Progress, WorkOfMoreThanTwoSecondsIsToldOf) {
  const std::string text =
      on_a_terminal(std::string(FUSOR_TEST_DIR) + "/graphs/scale_relu.json", " s", std::chrono::seconds(20));
  EXPECT_NE(text.find("run "), std::string::npos) << text;
  EXPECT_NE(text.find(" of 100000000: 2 s"), std::string::npos) << text;
}

}  // namespace
}  // namespace fusor
