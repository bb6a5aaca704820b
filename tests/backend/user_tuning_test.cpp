// Owns the tests of adding to the user's tuning table from several processes at once.
#include "backend/user_tuning.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "core/error.h"
#include "serialization/serialization.h"
#include "tests/codegen/temporary_folder.h"

namespace fusor {
namespace {

TunedFusion measurement(int process, int number) {
  return {
      "H200", fmt::format("{:031d}{}", number, process), "ops", {{{"direct", 1, {}}, 1e-3, 9e-4, 1.1e-3}}};
}

TEST(UserTuning, ProcessesThatTuneAtOnceLoseNothing) {
  const test::TemporaryFolder folder;
  setenv("FUSOR_CACHE_DIR", folder.path().c_str(), 1);
  constexpr int kProcesses = 3, kEach = 20;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        for (int i = 0; i < kEach; ++i) record_tuning(measurement(process, i));
      } catch (const Error&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const TuningTable table = read_tuning(user_tuning_path());
  for (int process = 0; process < kProcesses; ++process)
    for (int i = 0; i < kEach; ++i)
      EXPECT_NE(table.find("H200", measurement(process, i).key), nullptr) << process << " " << i;
  unsetenv("FUSOR_CACHE_DIR");
}

TEST(UserTuning, ATableThatCannotBeReadIsSetAside) {
  const test::TemporaryFolder folder;
  setenv("FUSOR_CACHE_DIR", folder.path().c_str(), 1);
  test::write_file(user_tuning_path(), "hours of measurements, of a newer library");
  record_tuning(measurement(0, 0));
  EXPECT_EQ(test::read_file(user_tuning_path() + ".damaged"), "hours of measurements, of a newer library");
  EXPECT_NE(read_tuning(user_tuning_path()).find("H200", measurement(0, 0).key), nullptr);
  EXPECT_EQ(tuning_problem(), "");
  unsetenv("FUSOR_CACHE_DIR");
}

TEST(UserTuning, AFolderThatCannotBeLockedIsNamed) {
  const test::TemporaryFolder folder;
  test::write_file(folder.path() / "file", "in the way");
  setenv("FUSOR_CACHE_DIR", (folder.path() / "file").c_str(), 1);
  EXPECT_THROW(record_tuning(measurement(0, 0)), Error);
  unsetenv("FUSOR_CACHE_DIR");
}

}  // namespace
}  // namespace fusor
