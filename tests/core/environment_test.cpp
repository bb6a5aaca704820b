// Tests of core/environment: what the variables mean, and what an unset or empty one means.
#include "core/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "core/error.h"

namespace fusor {
namespace {

/// Sets variables for one test and puts the old values back.
class Environment : public testing::Test {
 protected:
  void set(const char* name, const char* value) {
    remember(name);
    ::setenv(name, value, 1);
  }
  void unset(const char* name) {
    remember(name);
    ::unsetenv(name);
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
    }
  }

 private:
  void remember(const char* name) {
    const char* value = std::getenv(name);
    before_.try_emplace(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
  }
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(Environment, AnEmptyEngineIsNoEngine) {
  set("FUSOR_ENGINE", "direct");
  EXPECT_EQ(environment::engine(), "direct");
  set("FUSOR_ENGINE", "");
  EXPECT_EQ(environment::engine(), std::nullopt);
  unset("FUSOR_ENGINE");
  EXPECT_EQ(environment::engine(), std::nullopt);
}

TEST_F(Environment, NoFolderOfShippedKernelsIsNamedByAnEmptyName) {
  set("FUSOR_KERNELS", "/some/kernels");
  EXPECT_EQ(environment::shipped_kernels(), "/some/kernels");
  set("FUSOR_KERNELS", "");
  EXPECT_EQ(environment::shipped_kernels(), std::nullopt);
}

TEST_F(Environment, RunsAreCheckedWhereThatIsAskedFor) {
  unset("FUSOR_CHECK");
  EXPECT_FALSE(environment::checks_runs());
  set("FUSOR_CHECK", "0");
  EXPECT_FALSE(environment::checks_runs());
  set("FUSOR_CHECK", "1");
  EXPECT_TRUE(environment::checks_runs());
  set("FUSOR_CHECK", "yes");
  EXPECT_THROW(environment::checks_runs(), Error);
}

TEST_F(Environment, KernelsAreNamedAsThatIsAskedFor) {
  unset("FUSOR_KERNEL_NAMES");
  EXPECT_EQ(environment::kernel_names(), 1);
  set("FUSOR_KERNEL_NAMES", "0");
  EXPECT_EQ(environment::kernel_names(), 0);
  set("FUSOR_KERNEL_NAMES", "2");
  EXPECT_EQ(environment::kernel_names(), 2);
  set("FUSOR_KERNEL_NAMES", "fusion");
  EXPECT_THROW(environment::kernel_names(), Error);
}

TEST_F(Environment, TheCacheFolderHasADefault) {
  unset("FUSOR_CACHE_DIR");
  set("XDG_CACHE_HOME", "/some/cache");
  EXPECT_EQ(environment::cache_dir(), "/some/cache/fusor");
  unset("XDG_CACHE_HOME");
  set("HOME", "/some/home");
  EXPECT_EQ(environment::cache_dir(), "/some/home/.cache/fusor");
  unset("HOME");
  EXPECT_EQ(environment::cache_dir(), std::nullopt);
}

TEST_F(Environment, AnEmptyCacheFolderTurnsTheDiskCacheOff) {
  set("XDG_CACHE_HOME", "/some/cache");
  set("FUSOR_CACHE_DIR", "");
  EXPECT_EQ(environment::cache_dir(), std::nullopt);
  set("FUSOR_CACHE_DIR", "/elsewhere");
  EXPECT_EQ(environment::cache_dir(), "/elsewhere");
}

TEST_F(Environment, TheCacheLimitIsInMebibytes) {
  unset("FUSOR_CACHE_MB");
  EXPECT_EQ(environment::cache_limit_bytes(), 512LL << 20);
  set("FUSOR_CACHE_MB", "3");
  EXPECT_EQ(environment::cache_limit_bytes(), 3LL << 20);
}

TEST_F(Environment, ThreadsDefaultToTheCores) {
  unset("FUSOR_THREADS");
  EXPECT_GE(environment::threads(), 1);
  set("FUSOR_THREADS", "5");
  EXPECT_EQ(environment::threads(), 5);
}

TEST_F(Environment, NumbersThatAreNoneAreErrors) {
  for (const char* text : {"many", "0", "-2", "3x", "1.5"}) {
    set("FUSOR_THREADS", text);
    try {
      environment::threads();
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "FUSOR_THREADS='" + std::string(text) + "' is not a whole number of 1 or more");
    }
  }
}

TEST_F(Environment, LibrariesAndTheToolkitCanBeNamed) {
  set("FUSOR_LIBCUDA", "libcuda.so.7");
  set("FUSOR_LIBNVRTC", "libnvrtc.so.7");
  unset("FUSOR_CUDA_ROOT");
  EXPECT_EQ(environment::libcuda(), "libcuda.so.7");
  EXPECT_EQ(environment::libnvrtc(), "libnvrtc.so.7");
  EXPECT_EQ(environment::cuda_root(), std::nullopt);
}

TEST_F(Environment, DebugIsSilentWhereItIsNotSet) {
  unset("FUSOR_DEBUG");
  EXPECT_EQ(environment::debug_level(), 0);
  set("FUSOR_DEBUG", "2");
  EXPECT_EQ(environment::debug_level(), 2);
  set("FUSOR_DEBUG", "yes");
  EXPECT_THROW(environment::debug_level(), Error);
}

}  // namespace
}  // namespace fusor
