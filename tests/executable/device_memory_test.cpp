// Tests of DeviceMemory on the CPU device.
#include "backend/device_memory.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace fusor::device_memory_test {
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

TEST(DeviceMemory, OfATensorTakesElementsOfItsType) {
  const auto tensor = [](DataType type) {
    return Tensor{.name = "y", .type = type, .dims = {4, 4}, .strides = {4, 1}};
  };
  const DeviceMemory memory(DeviceInfo::cpu(), tensor(DataType::f32));
  memory.write(std::vector<float>(16, 1));
  EXPECT_EQ(memory.read<float>().size(), 16U);
  EXPECT_EQ(memory.read<uint32_t>()[0], 0x3f800000U);
  EXPECT_EQ(memory.read<std::byte>().size(), 64U);
  const auto message = [](const DeviceMemory& of, auto read) {
    try {
      read(of);
      return std::string("nothing was wrong");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const auto doubles = [](const DeviceMemory& of) { of.read<double>(); };
  const auto floats = [](const DeviceMemory& of) { of.write(std::vector<float>(16)); };
  const auto shorts = [](const DeviceMemory& of) { of.read<uint16_t>(); };
  EXPECT_EQ(message(memory, doubles),
            "device memory: tensor 'y' is fp32, 4 bytes an element; got double of 8 bytes");
  EXPECT_EQ(message(memory, shorts),
            "device memory: tensor 'y' is fp32, 4 bytes an element; got elements of 2 bytes");
  EXPECT_EQ(message({DeviceInfo::cpu(), tensor(DataType::i32)}, floats),
            "device memory: tensor 'y' is int32, 4 bytes an element; got float of 4 bytes");
  EXPECT_EQ(message({DeviceInfo::cpu(), tensor(DataType::i8)}, shorts),
            "device memory: tensor 'y' is int8, 1 byte an element; got elements of 2 bytes");
}

TEST(DeviceMemory, OfNothingIsAWorkspaceOfNothing) {
  const Workspace workspace = DeviceMemory();
  EXPECT_EQ(workspace.pointer, nullptr);
  EXPECT_EQ(workspace.bytes, 0);
}

}  // namespace
}  // namespace fusor::device_memory_test
