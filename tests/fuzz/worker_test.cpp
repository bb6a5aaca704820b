// Tests that a worker's crash and hang are told, and that the next request is answered.
#include "tools/fuzz/worker.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace fusor::fuzz {
namespace {

std::string serve(const std::string& request) {
  if (request == "crash") ::raise(SIGKILL);
  if (request == "hang") ::pause();
  return request + "!";
}

TEST(Worker, SurvivesACrash) {
  Worker worker(serve);
  std::string answer;
  EXPECT_TRUE(worker.ask("a", 10, answer));
  EXPECT_EQ(answer, "a!");
  EXPECT_FALSE(worker.ask("crash", 10, answer));
  EXPECT_EQ(answer, "Killed");
  EXPECT_TRUE(worker.ask("b", 10, answer));
  EXPECT_EQ(answer, "b!");
}

TEST(Worker, EndsAHang) {
  Worker worker(serve);
  std::string answer;
  EXPECT_FALSE(worker.ask("hang", 0.05, answer));
  EXPECT_EQ(answer, "no answer within 0.05 s");
  EXPECT_TRUE(worker.ask("", 10, answer));
  EXPECT_EQ(answer, "!");
}

}  // namespace
}  // namespace fusor::fuzz
