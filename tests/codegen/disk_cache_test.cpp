// Tests of the folder of compiled kernels: damage, folders that cannot be written, and its bound.
#include "codegen/disk_cache.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>

#include "core/parallel.h"
#include "tests/codegen/temporary_folder.h"

namespace fusor {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;
using ::testing::HasSubstr;
using Outcome = DiskCache::Outcome;

constexpr int64_t kPlenty = 1 << 30;
const std::string kKey = "0123456789abcdef0123456789abcdef";
const std::string kOtherKey = "fedcba9876543210fedcba9876543210";
const DiskEntry kEntry = {std::string("\x7f"
                                      "ELF and \0 bytes\n",
                                      17),
                          41.5};

int files_in(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// A cache that holds kEntry under kKey, and what reading the key says after `damage` was done to its file.
Outcome outcome_after(const std::function<void(const fs::path&)>& damage) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), kPlenty);
  cache.write(kKey, kEntry, "source");
  damage(folder.path() / (kKey + ".cubin"));
  DiskEntry entry;
  return cache.read(kKey, entry);
}

TEST(DiskCache, ReturnsWhatWasWritten) {
  TemporaryFolder folder;
  DiskCache cache(folder.path() / "made" / "on demand", kPlenty);
  DiskEntry entry;
  EXPECT_EQ(cache.read(kKey, entry), Outcome::absent);
  cache.write(kKey, kEntry, "__global__ void k();\n");
  ASSERT_EQ(cache.read(kKey, entry), Outcome::found);
  EXPECT_EQ(entry.cubin, kEntry.cubin);
  EXPECT_EQ(entry.compile_ms, 41.5);
  EXPECT_EQ(read_file(cache.folder() / (kKey + ".cu")), "__global__ void k();\n");
  EXPECT_EQ(files_in(cache.folder()), 2) << "temporary files are left";
}

TEST(DiskCache, KeepsAnEmptyCubinApartFromNone) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), kPlenty);
  cache.write(kKey, {"", 0}, "");
  DiskEntry entry = kEntry;
  EXPECT_EQ(cache.read(kKey, entry), Outcome::found);
  EXPECT_EQ(entry.cubin, "");
}

TEST(DiskCache, TruncationAnywhereIsDamage) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), kPlenty);
  cache.write(kKey, kEntry, "source");
  const fs::path file = folder.path() / (kKey + ".cubin");
  const std::string whole = read_file(file);
  for (size_t size = 0; size < whole.size(); ++size) {
    write_file(file, whole.substr(0, size));
    DiskEntry entry;
    ASSERT_EQ(cache.read(kKey, entry), Outcome::damaged) << "cut to " << size << " bytes";
  }
}

TEST(DiskCache, AFlippedByteAnywhereIsDamage) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), kPlenty);
  cache.write(kKey, kEntry, "source");
  const fs::path file = folder.path() / (kKey + ".cubin");
  const std::string whole = read_file(file);
  for (size_t at = 0; at < whole.size(); ++at)
    for (const int bit : {0x01, 0x10, 0x80}) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ bit);
      write_file(file, flipped);
      DiskEntry entry;
      ASSERT_EQ(cache.read(kKey, entry), Outcome::damaged) << "byte " << at << ", bit " << bit;
    }
}

TEST(DiskCache, BytesBehindTheEndAreDamage) {
  EXPECT_EQ(outcome_after([](const fs::path& file) { write_file(file, read_file(file) + "x"); }),
            Outcome::damaged);
}

TEST(DiskCache, ADirectoryInPlaceOfTheFileIsDamage) {
  EXPECT_EQ(outcome_after([](const fs::path& file) {
              fs::remove(file);
              fs::create_directory(file);
            }),
            Outcome::damaged);
}

TEST(DiskCache, ALinkToNothingIsAbsent) {
  EXPECT_EQ(outcome_after([](const fs::path& file) {
              fs::remove(file);
              fs::create_symlink("/nowhere/at/all", file);
            }),
            Outcome::absent);
}

TEST(DiskCache, AnEntryOfAnotherKeyIsDamage) {
  EXPECT_EQ(outcome_after([](const fs::path& file) {
              DiskCache cache(file.parent_path(), kPlenty);
              cache.write(kOtherKey, kEntry, "source");
              fs::rename(file.parent_path() / (kOtherKey + ".cubin"), file);
            }),
            Outcome::damaged);
}

TEST(DiskCache, WritingMendsADamagedEntry) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), kPlenty);
  write_file(folder.path() / (kKey + ".cubin"), "nonsense");
  cache.write(kKey, kEntry, "source");
  DiskEntry entry;
  EXPECT_EQ(cache.read(kKey, entry), Outcome::found);
}

TEST(DiskCache, AFolderThatCannotBeMadeIsAProblemInWords) {
  TemporaryFolder folder;
  write_file(folder.path() / "file", "in the way");
  DiskCache cache(folder.path() / "file" / "cache", kPlenty);
  cache.write(kKey, kEntry, "source");
  DiskEntry entry;
  EXPECT_EQ(cache.read(kKey, entry), Outcome::absent);
  EXPECT_THAT(cache.problem(), HasSubstr("cannot make the folder " + cache.folder().string()));
}

TEST(DiskCache, AFolderThatCannotBeWrittenIsAProblemInWords) {
  const fs::path read_only = "/proc/self/fdinfo";  // for every user, root too
  DiskCache cache(read_only, kPlenty);
  cache.write(kKey, kEntry, "source");
  EXPECT_THAT(cache.problem(), HasSubstr("cannot write " + read_only.string()));
}

TEST(DiskCache, WritingSaysWhyItFailed) {
  DiskCache cache("/proc/self/fdinfo", kPlenty);
  EXPECT_THAT(cache.write(kKey, kEntry, "source"), HasSubstr("cannot write /proc/self/fdinfo/" + kKey));
  TemporaryFolder folder;
  EXPECT_EQ(DiskCache(folder.path(), kPlenty).write(kKey, kEntry, "source"), "");
}

TEST(DiskCache, FilesMayBeReadByWhomTheUmaskLets) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), kPlenty);
  const mode_t before = ::umask(027);
  cache.write(kKey, kEntry, "source");
  ::umask(before);
  const fs::perms expected = fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read;
  EXPECT_EQ(fs::status(folder.path() / (kKey + ".cubin")).permissions(), expected);
}

TEST(DiskCache, AGoodFolderIsNoProblemAndStaysEmpty) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), kPlenty);
  EXPECT_EQ(cache.problem(), "");
  EXPECT_EQ(files_in(folder.path()), 0);
}

// A limit on the size of files fails like a full disk: in the middle of a write.
TEST(DiskCache, AFullDiskLeavesNothingBehind) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), kPlenty);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight = {1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  cache.write(kKey, {std::string(100000, 'x'), 1}, "source");
  setrlimit(RLIMIT_FSIZE, &before);
  DiskEntry entry;
  EXPECT_EQ(cache.read(kKey, entry), Outcome::absent);
  EXPECT_FALSE(fs::exists(folder.path() / (kKey + ".cubin")));
  EXPECT_LE(files_in(folder.path()), 1) << "temporary files are left";
}

std::string key_number(int i) { return fmt::format("{:032x}", i + 1); }

// A folder with `count` entries of 1000 bytes and something, the first one used the longest ago.
void fill(const fs::path& folder, int count) {
  DiskCache cache(folder, kPlenty);
  for (int i = 0; i < count; ++i) {
    cache.write(key_number(i), {std::string(1000, 'x'), 1}, "source");
    const auto used = fs::file_time_type::clock::now() - std::chrono::minutes(count - i);
    for (const char* extension : {".cubin", ".cu"})
      fs::last_write_time(folder / (key_number(i) + extension), used);
  }
}

bool holds(DiskCache& cache, int i) {
  DiskEntry entry;
  return cache.read(key_number(i), entry) == Outcome::found;
}

TEST(DiskCache, RemovesTheLeastRecentlyUsedAboveItsBound) {
  TemporaryFolder folder;
  fill(folder.path(), 20);
  DiskCache cache(folder.path(), 16000);
  ASSERT_TRUE(holds(cache, 0));  // which is a use
  cache.write(kKey, kEntry, "source");
  EXPECT_TRUE(holds(cache, 0)) << "was just used";
  EXPECT_FALSE(holds(cache, 1)) << "was used the longest ago";
  EXPECT_FALSE(fs::exists(folder.path() / (key_number(1) + ".cu"))) << "the source goes with its cubin";
  EXPECT_TRUE(holds(cache, 19));
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    bytes += static_cast<int64_t>(entry.file_size());
  EXPECT_LE(bytes, 16000);
  EXPECT_GE(bytes, 10000) << "more was removed than needed";
}

TEST(DiskCache, StaysBelowItsBoundOverManyWrites) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), 16000);
  for (int i = 0; i < 100; ++i) {
    cache.write(key_number(i), {std::string(1000, 'x'), 1}, "source");
    ASSERT_TRUE(holds(cache, i));
    ASSERT_LE(files_in(folder.path()), 32);
  }
}

TEST(DiskCache, KeepsAnEntryLargerThanItsBound) {
  TemporaryFolder folder;
  DiskCache cache(folder.path(), 4000);
  cache.write(kKey, {std::string(3900, 'x'), 1}, std::string(1000, 'y'));
  DiskEntry entry;
  EXPECT_EQ(cache.read(kKey, entry), Outcome::found);
}

TEST(DiskCache, LeavesForeignFilesAlone) {
  TemporaryFolder folder;
  write_file(folder.path() / "letters.txt", std::string(100000, 'x'));
  DiskCache cache(folder.path(), 4000);
  for (int i = 0; i < 10; ++i) cache.write(key_number(i), {std::string(1000, 'x'), 1}, "source");
  EXPECT_TRUE(holds(cache, 9));
  EXPECT_TRUE(fs::exists(folder.path() / "letters.txt"));
}

TEST(DiskCache, RemovesFilesThatADeadWriterLeft) {
  TemporaryFolder folder;
  const fs::path old_part = folder.path() / (kKey + ".cubin.part-abcdef");
  const fs::path new_part = folder.path() / (kKey + ".cubin.part-ghijkl");
  write_file(old_part, "half");
  write_file(new_part, "half");
  fs::last_write_time(old_part, fs::file_time_type::clock::now() - std::chrono::hours(2));
  DiskCache cache(folder.path(), kPlenty);
  cache.write(kKey, kEntry, "source");
  EXPECT_FALSE(fs::exists(old_part));
  EXPECT_TRUE(fs::exists(new_part)) << "may still be written";
}

TEST(DiskCache, ManyThreadsOnOneKeyNeverSeeHalfAnEntry) {
  TemporaryFolder folder;
  std::atomic<int> damaged{0};
  parallel_for(4, 4, [&](int64_t) {
    DiskCache cache(folder.path(), kPlenty);  // as another process would have
    for (int i = 0; i < 50; ++i) {
      cache.write(kKey, {std::string(20000, 'x'), 1}, "source");
      DiskEntry entry;
      if (cache.read(kKey, entry) != Outcome::found || entry.cubin.size() != 20000) ++damaged;
    }
  });
  EXPECT_EQ(damaged, 0);
}

}  // namespace
}  // namespace fusor
