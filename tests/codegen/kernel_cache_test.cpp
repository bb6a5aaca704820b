// Tests of the way a kernel is found: memory, disk, compilation; alone, from many threads and from many
// processes.
#include "codegen/kernel_cache.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "codegen/device_files.h"
#include "codegen/nvrtc.h"
#include "core/error.h"
#include "core/parallel.h"
#include "tests/codegen/sample_source.h"
#include "tests/codegen/temporary_folder.h"

namespace fusor {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::sample_source;
using test::TemporaryFolder;
using test::write_file;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::shared_ptr<const KernelSource>> sample_sources(int count) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  sources.reserve(static_cast<size_t>(count) + 1);
  for (int i = 0; i < count; ++i) sources.push_back(std::make_shared<KernelSource>(sample_source(i)));
  return sources;
}

// Each test has an empty memory and an empty folder, and counts from zero.
class KernelCache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
    setenv("FUSOR_CACHE_DIR", folder_.path().c_str(), 1);
    clear_memory_cache();
    before_ = cache_stats();
  }

  CacheStats counted() const {
    const CacheStats now = cache_stats();
    return {now.memory_hits - before_.memory_hits, now.disk_hits - before_.disk_hits,
            now.compilations - before_.compilations, now.damaged_entries - before_.damaged_entries};
  }

  fs::path cubin_file(const std::string& key) const { return folder_.path() / (key + ".cubin"); }

  // Runs one of the tests named Child* below in another process, with this folder.
  static int run_child(const std::string& name) {
    const std::string command =
        fs::read_symlink("/proc/self/exe").string() +
        " --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter=KernelCacheChild.DISABLED_" + name;
    return std::system(command.c_str());
  }

  TemporaryFolder folder_;
  CacheStats before_;
};

// A folder of shipped kernels for one test.
class ShippedKernels : public KernelCache {
 protected:
  void TearDown() override { unsetenv("FUSOR_KERNELS"); }
  void forget() const {
    clear_memory_cache();
    fs::remove_all(folder_.path());
  }
  fs::path shipped_file() const { return shipped_.path() / (portable_key(sample_source()) + ".cubin"); }
  TemporaryFolder shipped_;
};

TEST_F(ShippedKernels, AreTakenWhereTheDiskHasNone) {
  ship_kernel(sample_source(), shipped_.path());
  const auto compiled = compiled_kernel(sample_source());
  forget();
  EXPECT_FALSE(is_compiled(sample_source()));
  setenv("FUSOR_KERNELS", shipped_.path().c_str(), 1);
  EXPECT_TRUE(is_compiled(sample_source()));
  const auto taken = compiled_kernel(sample_source());
  EXPECT_EQ(taken->origin, KernelOrigin::disk);
  EXPECT_EQ(taken->cubin, compiled->cubin);
  EXPECT_EQ(taken->key, kernel_key(sample_source()));
  EXPECT_EQ(counted().compilations, 1);
  EXPECT_FALSE(fs::exists(cubin_file(taken->key)));
}

TEST_F(ShippedKernels, LieInAFolderThatALibrarySets) {
  ship_kernel(sample_source(), shipped_.path());
  forget();
  set_shipped_kernels(shipped_.path());
  EXPECT_TRUE(is_compiled(sample_source()));
  set_shipped_kernels({});
  EXPECT_FALSE(is_compiled(sample_source()));
}

TEST_F(ShippedKernels, OfOtherTextAreCompiled) {
  ship_kernel(sample_source(1), shipped_.path());
  forget();
  setenv("FUSOR_KERNELS", shipped_.path().c_str(), 1);
  EXPECT_EQ(compiled_kernel(sample_source(2))->origin, KernelOrigin::compiled);
}

TEST_F(ShippedKernels, ThatAreDamagedAreCompiled) {
  ship_kernel(sample_source(), shipped_.path());
  write_file(shipped_file(), "fusor-cubin-1 and then nothing");
  forget();
  setenv("FUSOR_KERNELS", shipped_.path().c_str(), 1);
  EXPECT_EQ(compiled_kernel(sample_source())->origin, KernelOrigin::compiled);
  EXPECT_EQ(counted().damaged_entries, 1);
}

TEST_F(ShippedKernels, AreShippedOnce) {
  ship_kernel(sample_source(), shipped_.path());
  const auto written = fs::last_write_time(shipped_file());
  ship_kernel(sample_source(), shipped_.path());
  EXPECT_EQ(fs::last_write_time(shipped_file()), written);
  EXPECT_EQ(counted().compilations, 1);
}

TEST_F(KernelCache, CompilesOnceThenRemembers) {
  const auto first = compiled_kernel(sample_source());
  EXPECT_EQ(first->origin, KernelOrigin::compiled);
  EXPECT_THAT(first->log, HasSubstr("registers"));
  EXPECT_GT(first->compile_ms, 0);
  const auto second = compiled_kernel(sample_source());
  EXPECT_EQ(second->origin, KernelOrigin::memory);
  EXPECT_EQ(second->cubin, first->cubin);
  EXPECT_EQ(second->compile_ms, first->compile_ms);
  EXPECT_EQ(counted().compilations, 1);
  EXPECT_EQ(counted().memory_hits, 1);
}

TEST_F(KernelCache, FindsOnDiskWhatAnEarlierProcessCompiled) {
  const auto first = compiled_kernel(sample_source());
  clear_memory_cache();
  const auto second = compiled_kernel(sample_source());
  EXPECT_EQ(second->origin, KernelOrigin::disk);
  EXPECT_EQ(second->key, first->key);
  EXPECT_EQ(second->cubin, first->cubin);
  EXPECT_NEAR(second->compile_ms, first->compile_ms, 0.001);
  EXPECT_EQ(counted().disk_hits, 1);
  EXPECT_EQ(counted().compilations, 1);
}

TEST_F(KernelCache, KeepsTheReadableSourceBesideTheCubin) {
  const auto kernel = compiled_kernel(sample_source());
  const std::string text = read_file(folder_.path() / (kernel->key + ".cu"));
  EXPECT_THAT(text, StartsWith("// codegen/device/elementwise/elementwise.cuh"));
  EXPECT_THAT(text, HasSubstr("struct Y {"));
}

TEST_F(KernelCache, OtherExtentsStridesAndOffsetsCompileNothing) {
  compiled_kernel(sample_source(1, 64, 128));
  compiled_kernel(sample_source(1, 1000, 512));
  EXPECT_EQ(counted().compilations, 1);
}

TEST_F(KernelCache, AnotherStructureTargetOrConfigIsAnotherKernel) {
  const auto base = compiled_kernel(sample_source(1));
  EXPECT_NE(compiled_kernel(sample_source(2))->key, base->key);
  EXPECT_NE(compiled_kernel(sample_source(1, 64, 128, "sm_80"))->key, base->key);
  KernelSource wide = sample_source(1);
  wide.config[0].value = 64;
  EXPECT_NE(compiled_kernel(wide)->key, base->key);
  EXPECT_EQ(counted().compilations, 4);
}

// Text that an emitter wrote wrongly must not outlive the fix on the user's disk.
TEST_F(KernelCache, AnotherEmitterIsAnotherKernel) {
  const KernelSource source = sample_source();
  EXPECT_EQ(compiled_kernel(source)->key, kernel_key(source, emitter_revision()));
  EXPECT_NE(kernel_key(source), kernel_key(source, "another"));
}

TEST(EmitterRevision, IsAHashOfItsOwn) {
  EXPECT_EQ(emitter_revision().size(), 64U);
  EXPECT_NE(emitter_revision(), device_tree_hash());
}

TEST_F(KernelCache, AHitInMemoryTakesMicroseconds) {
  const KernelSource source = sample_source(8);
  compiled_kernel(source);
  constexpr int kRepeats = 2000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i) compiled_kernel(source);
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  RecordProperty("hit_nanoseconds", static_cast<int>(1000 * spent.count() / kRepeats));
  EXPECT_LT(spent.count() / kRepeats,
            50);  // far above what it takes: machines of tests are busy, and sanitized
}

TEST_F(KernelCache, DamagedEntriesAreCountedAndCompiledAgain) {
  const auto kernel = compiled_kernel(sample_source());
  const fs::path file = cubin_file(kernel->key);
  const std::string whole = read_file(file);
  std::string flipped = whole;
  flipped[whole.size() / 2] ^= 1;
  int64_t damaged = 0;
  for (const std::string& bytes :
       {std::string(), whole.substr(0, whole.size() / 2), flipped, std::string("other")}) {
    write_file(file, bytes);
    clear_memory_cache();
    const auto again = compiled_kernel(sample_source());
    EXPECT_EQ(again->origin, KernelOrigin::compiled);
    EXPECT_EQ(again->cubin, kernel->cubin);
    EXPECT_EQ(counted().damaged_entries, ++damaged);
    EXPECT_TRUE(read_file(file).ends_with(kernel->cubin)) << "the entry is mended";
  }
}

TEST_F(KernelCache, ADirectoryInPlaceOfAnEntryCostsOnlyTime) {
  const auto kernel = compiled_kernel(sample_source());
  fs::remove(cubin_file(kernel->key));
  fs::create_directory(cubin_file(kernel->key));
  clear_memory_cache();
  EXPECT_EQ(compiled_kernel(sample_source())->cubin, kernel->cubin);
  EXPECT_EQ(compiled_kernel(sample_source())->origin, KernelOrigin::memory);
  EXPECT_EQ(counted().damaged_entries, 1);
}

TEST_F(KernelCache, AFolderThatCannotBeWrittenCostsOnlyTime) {
  write_file(folder_.path() / "file", "in the way");
  setenv("FUSOR_CACHE_DIR", (folder_.path() / "file" / "cache").c_str(), 1);
  EXPECT_EQ(compiled_kernel(sample_source())->origin, KernelOrigin::compiled);
  EXPECT_EQ(compiled_kernel(sample_source())->origin, KernelOrigin::memory);
  EXPECT_THAT(cache_problem(), HasSubstr("cannot make the folder"));
}

TEST_F(KernelCache, WithoutAFolderMemoryIsAll) {
  setenv("FUSOR_CACHE_DIR", "", 1);
  compiled_kernel(sample_source());
  clear_memory_cache();
  EXPECT_EQ(compiled_kernel(sample_source())->origin, KernelOrigin::compiled);
  EXPECT_EQ(cache_problem(), "");
}

TEST_F(KernelCache, AGoodFolderIsNoProblem) { EXPECT_EQ(cache_problem(), ""); }

TEST_F(KernelCache, ManyThreadsAskingForOneKernelCompileItOnce) {
  std::vector<std::shared_ptr<const CompiledKernel>> kernels(8);
  parallel_for(8, 8, [&](int64_t i) { kernels[static_cast<size_t>(i)] = compiled_kernel(sample_source()); });
  for (const auto& kernel : kernels) EXPECT_EQ(kernel->cubin, kernels[0]->cubin);
  EXPECT_EQ(counted().compilations, 1);
  EXPECT_EQ(counted().memory_hits, 7);
}

TEST_F(KernelCache, ABatchCompilesEachDistinctKernelOnceInOrder) {
  auto sources = sample_sources(3);
  sources.push_back(std::make_shared<KernelSource>(sample_source(1, 7, 12)));  // the structure of sources[1]
  const auto kernels = compiled_kernels(sources);
  ASSERT_EQ(kernels.size(), 4U);
  EXPECT_EQ(counted().compilations, 3);
  EXPECT_EQ(kernels[3], kernels[1]);
  for (size_t i = 0; i < sources.size(); ++i) EXPECT_EQ(kernels[i]->key, compiled_kernel(*sources[i])->key);
  EXPECT_EQ(counted().compilations, 3);
  for (const auto& kernel : compiled_kernels(sources)) EXPECT_EQ(kernel->origin, KernelOrigin::memory);
}

TEST_F(KernelCache, AFailureIsThrownToEveryoneAndForgotten) {
  KernelSource broken = sample_source();
  broken.sites[0].name = "NotTheNameThatTheRootUses";
  EXPECT_THROW(compiled_kernel(broken), Error);
  EXPECT_THROW(compiled_kernel(broken), Error);
  auto sources = sample_sources(2);
  sources.push_back(std::make_shared<KernelSource>(broken));
  EXPECT_THROW(compiled_kernels(sources), Error);
  EXPECT_FALSE(compiled_kernel(sample_source())->cubin.empty());
}

TEST_F(KernelCache, ASecondProcessCompilesNothing) {
  compiled_kernel(sample_source());
  EXPECT_EQ(run_child("FindsItOnDisk"), 0);
}

TEST_F(KernelCache, TwoProcessesOnAColdFolderAreBothRight) {
  int codes[2] = {-1, -1};
  parallel_for(2, 2, [&](int64_t i) { codes[i] = run_child("CompilesThreeKernels"); });
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[1], 0);
  for (const auto& kernel : compiled_kernels(sample_sources(3)))
    EXPECT_EQ(kernel->origin, KernelOrigin::disk);
  EXPECT_EQ(counted().damaged_entries, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 6);
}

// A replaced NVRTC must not find the old one's kernels: the child reads the same library by another path.
TEST_F(KernelCache, AnotherNvrtcFileIsAnotherKey) {
  compiled_kernel(sample_source());
  TemporaryFolder other;
  const fs::path library = nvrtc::library_path();
  for (const auto& file : fs::directory_iterator(library.parent_path()))
    if (file.path() == library || file.path().filename().string().starts_with("libnvrtc-builtins.so."))
      fs::copy_file(file.path(), other.path() / file.path().filename());
  setenv("FUSOR_LIBNVRTC", (other.path() / library.filename()).c_str(), 1);
  EXPECT_EQ(run_child("FindsNothingOnDisk"), 0);
  unsetenv("FUSOR_LIBNVRTC");
}

// What the tests above run in other processes.
TEST(KernelCacheChild, DISABLED_FindsItOnDisk) {
  EXPECT_EQ(compiled_kernel(sample_source())->origin, KernelOrigin::disk);
  EXPECT_EQ(cache_stats().compilations, 0);
}

TEST(KernelCacheChild, DISABLED_FindsNothingOnDisk) {
  EXPECT_EQ(compiled_kernel(sample_source())->origin, KernelOrigin::compiled);
}

TEST(KernelCacheChild, DISABLED_CompilesThreeKernels) {
  for (const auto& kernel : compiled_kernels(sample_sources(3)))
    EXPECT_THAT(kernel->cubin, StartsWith("\x7f"
                                          "ELF"));
  EXPECT_EQ(cache_stats().damaged_entries, 0);
  EXPECT_EQ(cache_problem(), "");
}

}  // namespace
}  // namespace fusor
