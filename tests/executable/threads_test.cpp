// Owns the tests of one plan run by many threads on the CPU device, each with tensors and a workspace of its
// own.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "backend/build.h"
#include "backend/executable.h"
#include "backend/verify.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

// A matmul with an epilogue, rows behind it, and an intermediate tensor in the workspace.
Graph small_network() {
  GraphBuilder g("network");
  const Tensor x = g.input("x", {64, 48}, DataType::f32), w = g.input("w", {48, 32}, DataType::f32);
  const Tensor h = g.relu(g.matmul(x, w));
  return g.finish({g.matmul(g.softmax(h, {.axis = 1}).y, g.input("v", {32, 16}, DataType::f32))});
}

// The memory of one run.
class Buffers {
 public:
  Buffers(const Executable& exe, const Graph& graph, uint64_t seed)
      : slots_(static_cast<size_t>(exe.slot_count())),
        workspace_(static_cast<size_t>(exe.workspace_bytes()) + 256) {
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      if (tensor.is_virtual() || tensor.memory == Memory::constant) continue;
      tensors_.emplace_back(static_cast<size_t>(tensor.bytes()));
      const bool is_output = graph.producer(static_cast<int>(i)) >= 0;
      if (is_output) output_ = tensors_.size() - 1;
      if (!is_output) fill_random(tensor, tensors_.back().data(), seed + i);
      slots_[static_cast<size_t>(exe.slot(tensor.name))] = tensors_.back().data();
    }
    size_t room = workspace_.size();
    aligned_ = workspace_.data();
    std::align(256, 1, aligned_, room);
  }
  void run(const Executable& exe) { exe.run(slots_, aligned_); }
  const std::vector<std::byte>& output() const { return tensors_[output_]; }

 private:
  std::vector<std::vector<std::byte>> tensors_;
  std::vector<void*> slots_;
  std::vector<std::byte> workspace_;
  void* aligned_ = nullptr;
  size_t output_ = 0;
};

TEST(Threads, SixteenRunOnePlanAndGetTheBitsOfOne) {
  const Graph graph = small_network();
  const Executable exe = load(build(graph, DeviceInfo::cpu()));
  Buffers alone(exe, graph, 1);
  alone.run(exe);
  std::vector<std::unique_ptr<Buffers>> all;
  for (int i = 0; i < 16; ++i) all.push_back(std::make_unique<Buffers>(exe, graph, 1));
  std::vector<std::thread> threads;
  for (const auto& buffers : all)
    threads.emplace_back([&] {
      for (int run = 0; run < 20; ++run) buffers->run(exe);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& buffers : all) EXPECT_EQ(buffers->output(), alone.output());
}

TEST(Threads, SixteenBuildLoadAndRunPlansOfTheirOwn) {
  std::vector<std::vector<std::byte>> outputs(16);
  std::vector<std::thread> threads;
  for (auto& output : outputs)
    threads.emplace_back([&] {
      const Graph graph = small_network();
      const Executable exe = load(build(graph, DeviceInfo::cpu()));
      Buffers buffers(exe, graph, 1);
      buffers.run(exe);
      output = buffers.output();
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& output : outputs) EXPECT_EQ(output, outputs.front());
}

}  // namespace
}  // namespace fusor
