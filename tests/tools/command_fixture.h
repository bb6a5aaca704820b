// Owns CommandTest: runs the real binary with a folder and a cache of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fusor {

struct Outcome {
  int code = -1;
  std::string out, err;
};

class CommandTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "fusor-command-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string graph(const std::string& name) {
    return std::string(FUSOR_TEST_DIR) + "/graphs/" + name + ".json";
  }

  /// Runs the command with a kernel cache of its own.
  Outcome fusor(const std::string& arguments, const std::string& environment = "") const {
    const std::string line = "FUSOR_CACHE_DIR='" + path("cache") + "' " + environment +
                             " '" FUSOR_COMMAND "' " + arguments + " >'" + path("out") + "' 2>'" +
                             path("err") + "'";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(path("out")), text_of(path("err"))};
  }

  static std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

}  // namespace fusor
