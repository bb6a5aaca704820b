// Owns the plans behind single calls: a small graph for each set of descriptors, built when it is first
// needed and kept.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "compat/cudnn/src/handle.h"
#include "compat/cudnn/src/in_place.h"
#include "compat/cudnn/src/legacy/objects.h"
#include "frontend/graph_builder.h"

namespace fusor::cudnn {

/// The name of a plan: the call and every number that its graph depends on.
class PlanKey {
 public:
  explicit PlanKey(const char* call) : text_(call) {}
  PlanKey& add(int64_t number);
  PlanKey& add(double number);
  PlanKey& add(const Dims& dims);
  PlanKey& add(const TensorObject& tensor);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Tensors of a graph by numbers of the caller's choice.
class Sketch {
 public:
  explicit Sketch(Precision precision) : g("call", precision) {}
  GraphBuilder g;

  Tensor input(int number, const TensorObject& tensor);
  Tensor scalar(int number, DataType type = DataType::f32);
  void output(int number, const Tensor& result, const TensorObject& tensor);
  /// Writes an integer, by value or in memory, to memory; gives what is there then.
  Tensor keep(int number, const Tensor& value);
  /// alpha * result + beta * what the output held.
  void output(int number, const Tensor& result, const TensorObject& tensor, double alpha, double beta);
  /// The number by which what an output held is bound.
  static constexpr int held(int number) { return number + 1000; }
  /// The uid by which a tensor of that number is bound.
  static constexpr int64_t uid(int number) { return number + (int64_t{1} << 32); }
};

/// A pointer for each number; null ones are left out.
class Bindings {
 public:
  Bindings& bind(int number, const void* pointer) {
    if (pointer != nullptr) list_.emplace_back(Sketch::uid(number), pointer);
    return *this;
  }
  const std::vector<Binding>& list() const { return list_; }

 private:
  std::vector<Binding> list_;
};

using SketchMaker = std::function<void(Sketch& sketch)>;

/// The graph that a sketch makes.
Graph graph_of(Precision precision, const SketchMaker& make);

/// A plan, and the operands that it does not let its results replace, of any size.
struct CallPlan {
  Executable executable;
  std::vector<StagedOperand> staged;
};

/// The plan of that key on the handle's device.
std::shared_ptr<const CallPlan> plan_for(const Handle& handle, const PlanKey& key, Precision precision,
                                         const SketchMaker& make);
/// Compiles the kernels of a plan that a later call will ask for.
void plan_ahead(const Handle& handle, Precision precision, SketchMaker make);
/// The same while the call goes on; whoever drops the result waits. Nothing where FUSOR_THREADS is 1.
std::future<void> plan_beside(const Handle& handle, Precision precision, SketchMaker make);
/// Bytes of workspace to ask a client for.
size_t workspace_of(const CallPlan& plan);
/// Runs on the handle's stream. A client whose call has no workspace lends none: the handle's own takes its
/// place. Operands that results replace are read from copies in the handle's memory where the plan asks it.
void run_call(Handle& handle, const CallPlan& plan, const Bindings& bindings, void* workspace = nullptr,
              size_t bytes = 0);

/// A factor that the client points to: fp64 for tensors of that type, else fp32.
double factor_at(const void* pointer, cudnnDataType_t type);
/// fp32 may be multiplied as TF32, unless the client forbids it.
Precision precision_of(cudnnMathType_t math);

}  // namespace fusor::cudnn
