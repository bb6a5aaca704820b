// Owns the test of what all kernels have in common.
#include "codegen/device_files.h"

#include <gtest/gtest.h>

#include <string>

namespace fusor {
namespace {

// The launches of a plan overlap: a kernel that does not wait reads what is still being written.
TEST(DeviceFiles, EveryKernelWaitsForTheLaunchInFront) {
  int kernels = 0;
  for (const DeviceFile& file : device_files()) {
    const size_t kernel = file.text.find("extern \"C\" __global__");
    if (kernel == std::string_view::npos) continue;
    ++kernels;
    const std::string_view body = file.text.substr(kernel);
    bool waits = false;
    for (const char* way : {"enter_launch(", "wait_for_launch_before()", "enter_chain(", "run_roles<"})
      waits |= body.find(way) != std::string_view::npos;
    EXPECT_TRUE(waits) << file.name;
    // Whoever may begin without waiting waits where it ends.
    if (body.find("enter_launch(p") != std::string_view::npos) {
      EXPECT_NE(body.find("leave_launch(p)"), std::string_view::npos) << file.name;
    }
  }
  EXPECT_GT(kernels, 30);
}

}  // namespace
}  // namespace fusor
