// Owns the threads that compile ahead, and which graphs they are given.
#include "compat/cudnn/src/ahead.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/build.h"
#include "core/environment.h"
#include "frontend/graph_builder.h"

namespace fusor::cudnn {

namespace {

using Work = std::function<void()>;
using DevicePointer = std::shared_ptr<const DeviceInfo>;

// Threads that live until the process ends; what has not begun by then is left out. They are started behind a
// first build, so that the caches that builds share are there before them and outlive them.
class Workers {
 public:
  explicit Workers(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
      queue_.clear();
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void add(Work work) {
    {
      const std::scoped_lock lock(mutex_);
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
  }

 private:
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return ends_ || !queue_.empty(); });
      if (ends_) return;
      const Work next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      try {
        next();
      } catch (...) {  // NOLINT(bugprone-empty-catch): the call that needs it meets the error itself
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Work> queue_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

constexpr int kMostWorkers = 8;

// A convolution's tensors and attributes, as its gradients need them.
struct Forward {
  Tensor x, w, y;
  Conv conv;
  Precision precision = Precision::exact;
  DevicePointer device;
};

std::string key_of(const Forward& forward) {
  std::string key = forward.device->name + ' ' + std::to_string(static_cast<int>(forward.precision));
  const auto add = [&](const Dims& dims) { key += ' ' + to_string(dims); };
  for (const Tensor* tensor : {&forward.x, &forward.w, &forward.y}) {
    key += ' ' + std::to_string(static_cast<int>(tensor->type));
    add(tensor->dims);
    add(tensor->strides);
  }
  for (const Dims* list :
       {&forward.conv.pre_padding, &forward.conv.post_padding, &forward.conv.stride, &forward.conv.dilation})
    add(*list);
  return key + ' ' + std::to_string(static_cast<int>(forward.conv.mode));
}

Graph gradient(const Forward& forward, ConvPass pass) {
  GraphBuilder g("gradient", forward.precision);
  const auto input = [&](const char* name, const Tensor& like) {
    return g.input(name, like.dims, like.type, {.strides = like.strides, .alignment = like.alignment});
  };
  const Tensor& made = pass == ConvPass::dgrad ? forward.x : forward.w;
  Conv attributes = forward.conv;
  attributes.pass = pass;
  const std::array<Tensor, 2> operands{
      input("dy", forward.y), pass == ConvPass::dgrad ? input("w", forward.w) : input("x", forward.x)};
  const std::array<Dims, 1> given{made.dims};
  const OpOptions options{.type = made.type, .compute = attributes.compute};
  g.output(g.op(attributes, operands, options, given).front(),
           {.name = "result", .type = made.type, .strides = made.strides, .alignment = made.alignment});
  return g.finish();
}

void compile_gradients(const Forward& forward) {
  for (const ConvPass pass : {ConvPass::dgrad, ConvPass::wgrad})
    compile_ahead([forward, pass] { return gradient(forward, pass); }, forward.device);
}

// Training, for convolutions that are planned before anything says that the process trains.
struct Training {
  std::mutex mutex;
  bool is_known = false;
  std::set<std::string> seen;
  std::vector<Forward> waiting;
};

Training& training() {
  static Training& state = *new Training;
  return state;
}

constexpr size_t kMostWaiting = 1024;

}  // namespace

void compile_ahead(std::function<Graph()> graph, std::shared_ptr<const DeviceInfo> device) {
  const int count = std::min(environment::threads() - 1, kMostWorkers);
  if (count < 1 || device->is_cpu()) return;
  static Workers workers(count);
  workers.add([graph = std::move(graph), device = std::move(device)] { build(graph(), *device); });
}

void note_training() {
  std::vector<Forward> waiting;
  {
    const std::scoped_lock lock(training().mutex);
    training().is_known = true;
    waiting.swap(training().waiting);
  }
  // A backward pass begins with the last layer.
  for (auto forward = waiting.rbegin(); forward != waiting.rend(); ++forward) compile_gradients(*forward);
}

void note_planned(const Graph& graph, const std::shared_ptr<const DeviceInfo>& device) {
  if (device->is_cpu() || graph.ops.size() != 1) return;
  const Op& op = graph.ops.front();
  const auto* conv = std::get_if<Conv>(&op.attributes);
  if (conv == nullptr) return;
  if (conv->pass != ConvPass::fprop) return note_training();
  const auto tensor = [&](int index) { return graph.tensors[static_cast<size_t>(index)]; };
  Forward forward{
      tensor(op.inputs[0]), tensor(op.inputs[1]), tensor(op.outputs[0]), *conv, graph.precision, device};
  {
    const std::scoped_lock lock(training().mutex);
    if (!training().seen.insert(key_of(forward)).second) return;
    if (!training().is_known) {
      if (training().waiting.size() < kMostWaiting) training().waiting.push_back(std::move(forward));
      return;
    }
  }
  compile_gradients(forward);
}

}  // namespace fusor::cudnn
