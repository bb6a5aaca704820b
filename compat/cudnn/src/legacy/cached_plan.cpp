// Owns the cache of plans behind single calls.
#include "compat/cudnn/src/legacy/cached_plan.h"

#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "backend/build.h"
#include "compat/cudnn/src/ahead.h"
#include "compat/cudnn/src/engines.h"
#include "compat/cudnn/src/translate/translator.h"
#include "compat/cudnn/src/workspace.h"
#include "core/environment.h"
#include "core/error.h"

namespace fusor::cudnn {

namespace {

// One plan. Its mutex is held while it is built: whoever asks for it meanwhile waits, and nobody else.
struct Entry {
  std::mutex mutex;
  std::shared_ptr<const CallPlan> plan;
};

struct Cache {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Entry>> entries;

  std::shared_ptr<Entry> entry(const std::string& name) {
    const std::scoped_lock lock(mutex);
    std::shared_ptr<Entry>& entry = entries[name];
    if (!entry) entry = std::make_shared<Entry>();
    return entry;
  }
};

Cache& cache() {
  static Cache& all = *new Cache;
  return all;
}

}  // namespace

PlanKey& PlanKey::add(int64_t number) {
  text_ += ' ';
  text_.append(reinterpret_cast<const char*>(&number), sizeof number);
  return *this;
}

PlanKey& PlanKey::add(double number) {
  int64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return add(bits);
}

PlanKey& PlanKey::add(const Dims& dims) {
  add(int64_t{dims.rank()});
  for (const int64_t extent : dims) add(extent);
  return *this;
}

PlanKey& PlanKey::add(const TensorObject& tensor) {
  return add(int64_t{tensor.type}).add(tensor.dims).add(tensor.strides);
}

Tensor Sketch::input(int number, const TensorObject& tensor) {
  const DataType type = data_type_of(tensor.type);
  return g.input("t" + std::to_string(number), tensor.dims, type,
                 {.strides = tensor.strides, .alignment = byte_size(type), .uid = uid(number)});
}

Tensor Sketch::scalar(int number, DataType type) { return g.scalar("t" + std::to_string(number), type); }

void Sketch::output(int number, const Tensor& result, const TensorObject& tensor) {
  const DataType type = data_type_of(tensor.type);
  Tensor shaped = result.dims == tensor.dims ? result : g.reshape(result, tensor.dims);
  g.output(shaped, {.name = "t" + std::to_string(number),
                    .type = type,
                    .strides = tensor.strides,
                    .alignment = byte_size(type),
                    .uid = uid(number)});
}

Tensor Sketch::keep(int number, const Tensor& value) {
  const std::array<Tensor, 1> operand{value};
  const std::array<Dims, 1> one{Dims{1}};
  const Pointwise identity{.mode = PointwiseMode::identity};
  return g.output(g.op(identity, operand, {}, one).front(), {.name = "t" + std::to_string(number),
                                                             .type = DataType::i64,
                                                             .alignment = byte_size(DataType::i64),
                                                             .uid = uid(number)});
}

void Sketch::output(int number, const Tensor& result, const TensorObject& tensor, double alpha, double beta) {
  Tensor sum = alpha == 1 ? result : g.mul(result, g.constant(alpha));
  if (beta != 0) sum = g.add(sum, g.mul(input(held(number), tensor), g.constant(beta)));
  output(number, sum, tensor);
}

Graph graph_of(Precision precision, const SketchMaker& make) {
  Sketch sketch(precision);
  make(sketch);
  Graph graph = sketch.g.finish();
  // Scalars got their uids from the builder: they are bound by number as well.
  for (Tensor& tensor : graph.tensors)
    if (tensor.memory == Memory::host) tensor.uid = Sketch::uid(std::stoi(tensor.name.substr(1)));
  return graph;
}

std::shared_ptr<const CallPlan> plan_for(const Handle& handle, const PlanKey& key, Precision precision,
                                         const SketchMaker& make) {
  const std::shared_ptr<Entry> entry = cache().entry(handle.device->name + ' ' + key.text());
  const std::scoped_lock lock(entry->mutex);
  if (!entry->plan) {
    const Graph graph = graph_of(precision, make);
    auto plan = std::make_shared<CallPlan>(CallPlan{load(build(graph, *handle.device)), {}});
    const std::array loaded{&std::as_const(plan->executable)};
    plan->staged = staged_operands(graph, loaded, std::numeric_limits<int64_t>::max());
    entry->plan = std::move(plan);
    note_planned(graph, handle.device);
  }
  return entry->plan;
}

void plan_ahead(const Handle& handle, Precision precision, SketchMaker make) {
  compile_ahead([precision, make = std::move(make)] { return graph_of(precision, make); }, handle.device);
}

std::future<void> plan_beside(const Handle& handle, Precision precision, SketchMaker make) {
  if (environment::threads() < 2 || handle.device->is_cpu()) return {};
  return std::async(std::launch::async, [precision, make = std::move(make), device = handle.device] {
    try {
      build(graph_of(precision, make), *device);
    } catch (...) {  // NOLINT(bugprone-empty-catch): the call that needs it meets the error itself
    }
  });
}

size_t workspace_of(const CallPlan& plan) {
  return static_cast<size_t>(workspace_for_client(plan.executable.workspace_bytes()));
}

void run_call(Handle& handle, const CallPlan& plan, const Bindings& bindings, void* workspace, size_t bytes) {
  const int64_t needed = plan.executable.workspace_bytes();
  void* memory = aligned(workspace);
  if (needed > 0 && workspace == nullptr)
    memory = handle.scratch(needed);
  else if (needed > 0 && bytes < workspace_of(plan))
    refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a workspace of {} bytes; {} are needed", bytes,
           workspace_of(plan));
  try {
    const std::vector<StagedOperand> replaced = replaced_operands(plan.staged, bindings.list());
    if (replaced.empty()) {
      plan.executable.run(bindings.list(), memory, handle.stream);
      return;
    }
    std::vector<Binding> bound = bindings.list();
    auto* const copies = static_cast<std::byte*>(handle.copies(with_staging(0, replaced)));
    read_copies(replaced, bound, copies, handle.device->is_cpu(), handle.stream);
    plan.executable.run(bound, memory, handle.stream);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    refuse(CUDNN_STATUS_BAD_PARAM, "{}", error.what());
  }
}

double factor_at(const void* pointer, cudnnDataType_t type) {
  if (pointer == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a factor is null");
  if (type == CUDNN_DATA_DOUBLE) {
    double value = 0;
    std::memcpy(&value, pointer, sizeof value);
    return value;
  }
  float value = 0;
  std::memcpy(&value, pointer, sizeof value);
  return static_cast<double>(value);
}

Precision precision_of(cudnnMathType_t math) {
  return math == CUDNN_FMA_MATH ? Precision::exact : Precision::allow_tf32;
}

}  // namespace fusor::cudnn
