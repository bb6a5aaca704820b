// Tests files: whole or not at all, and errors that name the path and the system's reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/serialization/sample_documents.h"

namespace fusor {
namespace {

namespace fs = std::filesystem;
using samples::error_of;
using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "fusor-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  int entries() const { return static_cast<int>(std::distance(fs::directory_iterator(folder_), {})); }

  fs::path folder_;
  Graph graph_ = graph_from_json(samples::kConvGraph);
};

/// Limits the size of files that this process writes: what a full disk does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(Files, GraphsAndPlansAreReadBack) {
  save(graph_, path("g.json"));
  EXPECT_EQ(read_graph(path("g.json")), graph_);
  const Plan plan = samples::conv_plan();
  save(plan, path("p.json"));
  EXPECT_EQ(read_plan(path("p.json")).fusions, plan.fusions);
  EXPECT_TRUE(std::holds_alternative<Plan>(read_graph_or_plan(path("p.json"))));
  EXPECT_EQ(entries(), 2);
}

TEST_F(Files, ThreadsMaySaveOnePathAtOnce) {
  std::vector<std::jthread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) EXPECT_NO_THROW(save(graph_, path("g.json")));
    });
  threads.clear();
  EXPECT_EQ(text_of(path("g.json")), to_json(graph_));
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, SavingReplacesTheOldFile) {
  std::ofstream(path("g.json")) << "old";
  save(graph_, path("g.json"));
  EXPECT_EQ(text_of(path("g.json")), to_json(graph_));
}

TEST_F(Files, SavingThroughALinkKeepsTheLink) {
  save(graph_, path("real.json"));
  fs::create_symlink(path("real.json"), path("link.json"));
  graph_.name = "changed";
  save(graph_, path("link.json"));
  EXPECT_TRUE(fs::is_symlink(path("link.json")));
  EXPECT_EQ(read_graph(path("real.json")).name, "changed");
}

TEST_F(Files, AFullDiskLeavesTheOldFileAndNothingElse) {
  std::ofstream(path("g.json")) << "old";
  std::string message;
  ErrorKind kind{};
  {
    const FileSizeLimit limit(100);
    try {
      save(graph_, path("g.json"));
    } catch (const Error& error) {
      message = error.what();
      kind = error.kind();
    }
  }
  EXPECT_EQ(kind, ErrorKind::missing);
  EXPECT_THAT(message, HasSubstr(path("g.json") + ": cannot be written: File too large"));
  EXPECT_EQ(text_of(path("g.json")), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, DevicesAreWrittenInPlace) {
  try {
    save(graph_, "/dev/full");
    FAIL() << "/dev/full took the graph";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/dev/full: cannot be written: No space left on device");
  }
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(Files, AReadOnlyFolderIsNamed) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0555), 0);
  // The superuser may write anywhere: let the test be nobody for a moment.
  const uid_t before = ::geteuid();
  const uid_t nobody = before == 0 ? 65534 : before;
  ASSERT_EQ(::seteuid(nobody), 0);
  const std::string message = error_of([&] { save(graph_, path("g.json")); });
  ASSERT_EQ(::seteuid(before), 0);
  EXPECT_THAT(message, HasSubstr("g.json"));
  EXPECT_THAT(message, HasSubstr("cannot be written: Permission denied"));
}

TEST_F(Files, ReadingErrorsNameThePath) {
  EXPECT_EQ(error_of([&] { read_graph(path("none.json")); }),
            path("none.json") + ": cannot be read: No such file or directory");
  EXPECT_EQ(error_of([&] { read_graph(folder_.string()); }),
            folder_.string() + ": cannot be read: Is a directory");
  std::ofstream(path("bad.json"))
      << R"({"format": 1, "kind": "graph", "name": "g", "tensors": [], "ops": {}})";
  EXPECT_EQ(error_of([&] { read_graph(path("bad.json")); }),
            path("bad.json") + ": ops: expected a list, got object");
}

TEST_F(Files, AnEndlessFileIsRefused) {
  EXPECT_EQ(error_of([] { read_graph("/dev/zero"); }), "/dev/zero: larger than 256 MiB");
}

}  // namespace
}  // namespace fusor
