// Tests of DeviceMemory on the CPU device.
#include "backend/device_memory.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace fusor {
namespace {

TEST(DeviceMemory, LiesOnAMultipleOf256Bytes) {
  for (const int64_t bytes : {1, 300, 4096}) {
    const DeviceMemory memory(DeviceInfo::cpu(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 256, 0U);
    EXPECT_EQ(memory.bytes(), bytes);
  }
}

TEST(DeviceMemory, HoldsWhatWasWritten) {
  const DeviceMemory memory(DeviceInfo::cpu(), 12);
  memory.write(std::vector<float>{1, 2, 3});
  EXPECT_EQ(memory.read<float>(), (std::vector<float>{1, 2, 3}));
}

TEST(DeviceMemory, RefusesElementsOfAnotherSize) {
  const DeviceMemory memory(DeviceInfo::cpu(), 12);
  EXPECT_THROW(memory.write(std::vector<float>{1, 2}), Error);
  EXPECT_THROW(static_cast<void>(memory.read<double>()), Error);
}

TEST(DeviceMemory, OfNothingIsAWorkspaceOfNothing) {
  const Workspace workspace = DeviceMemory();
  EXPECT_EQ(workspace.pointer, nullptr);
  EXPECT_EQ(workspace.bytes, 0);
}

}  // namespace
}  // namespace fusor
