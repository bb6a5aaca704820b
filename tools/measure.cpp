// Owns the rounds of a measurement and the kernel that empties the caches.
#include "tools/measure.h"

#include <algorithm>
#include <chrono>

#include "backend/build.h"
#include "core/fail.h"
#include "frontend/graph_builder.h"

namespace fusor::command {

namespace {

constexpr int kFewestRounds = 3;

class Clock {
 public:
  Seconds elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

DeviceInfo measured_device(const Options& options) {
  DeviceInfo device = DeviceInfo::named(options.device.empty() ? "current" : options.device);
  if (options.device.empty() && device.is_cpu())
    fail(ErrorKind::missing, "there is no GPU to be measured; --device cpu measures the CPU");
  return device;
}

Flusher::Flusher(const DeviceInfo& device, int64_t bytes) : on_gpu_(!device.is_cpu()) {
  const int64_t words = std::max<int64_t>(bytes / 4, 1);
  if (!on_gpu_) {
    host_ = HostBuffer(words * 4, 64);
    host_words_ = words;
    return;
  }
  cuda::make_current();
  GraphBuilder g("flush");
  const Tensor x = g.input("x", {words}, DataType::f32);
  g.output(g.reduce(x, ReductionMode::add), {.name = "y"});
  sum_ = std::make_unique<Executable>(load(fusor::build(g.finish(), device)));
  x_ = cuda::DeviceBuffer(words * 4);
  y_ = cuda::DeviceBuffer(256);
  workspace_ = cuda::DeviceBuffer(std::max<int64_t>(256, sum_->workspace_bytes()));
  cuda::fill(x_.get(), 0, words * 4, nullptr);
  slots_.resize(static_cast<size_t>(sum_->slot_count()));
  slots_[static_cast<size_t>(sum_->slot("x"))] = x_.get();
  slots_[static_cast<size_t>(sum_->slot("y"))] = y_.get();
}

void Flusher::operator()() const {
  if (on_gpu_) return sum_->run(slots_, workspace_.get());
  const auto* words = static_cast<const volatile uint32_t*>(host_.get());
  uint32_t sum = 0;
  constexpr int64_t kWordsOfALine = 16;
  for (int64_t i = 0; i < host_words_; i += kWordsOfALine) sum += words[i];
  static_cast<void>(sum);
}

Seconds timed(const std::function<void()>& run, cuda::Timer* timer) {
  if (timer == nullptr) {
    const Clock clock;
    run();
    return clock.elapsed();
  }
  timer->start();
  run();
  timer->stop();
  return timer->seconds();
}

std::vector<std::vector<Seconds>> measure_in_turn(std::span<const std::function<void()>> subjects,
                                                  const Flusher& flush, const MeasureOptions& options) {
  std::unique_ptr<cuda::Timer> timer;
  if (options.on_gpu) timer = std::make_unique<cuda::Timer>();
  std::vector<std::vector<Seconds>> times(subjects.size());
  const Clock clock;
  for (int i = 0; i < options.warm_ups && (i == 0 || clock.elapsed() < options.budget / 4); ++i)
    for (const auto& subject : subjects) timed(subject, timer.get());
  for (int round = 0; round < options.runs; ++round) {
    const bool enough =
        round >= kFewestRounds && (clock.elapsed() > options.budget || (options.done && options.done(times)));
    if (enough) break;
    for (size_t i = 0; i < subjects.size(); ++i) {
      flush();
      times[i].push_back(timed(subjects[i], timer.get()));
    }
    if (options.after_round) options.after_round();
  }
  return times;
}

}  // namespace fusor::command
