// Owns the search for NaN and infinity behind a run, and its words.
#include "backend/run_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "backend/aliasing.h"
#include "codegen/cuda_driver.h"
#include "core/convert.h"

namespace fusor {

namespace {

struct Count {
  int64_t nans = 0, infs = 0;
  Dims first;  // where the first of either is
};

// The tensor's bytes where the host can read them.
class HostBytes {
 public:
  HostBytes(const Plan& plan, const Tensor& tensor, const void* pointer) : bytes_(pointer) {
    if (plan.device.is_cpu() || tensor.memory == Memory::host) return;
    copy_.resize(static_cast<size_t>(tensor.bytes()));
    cuda::copy_to_host(copy_.data(), pointer, tensor.bytes());
    bytes_ = copy_.data();
  }
  const void* get() const { return bytes_; }

 private:
  const void* bytes_;
  std::vector<std::byte> copy_;
};

Count count_in(const Tensor& tensor, const void* bytes) {
  Count count;
  Dims at = Dims::filled(tensor.dims.rank(), 0);
  for (int64_t element = 0; element < element_count(tensor.dims); ++element) {
    int64_t place = 0;
    for (int axis = 0; axis < at.rank(); ++axis) place += at[axis] * tensor.strides[axis];
    const double value = load_real(tensor.type, bytes, place);
    if (!std::isfinite(value)) {
      if (count.nans + count.infs == 0) count.first = at;
      ++(std::isnan(value) ? count.nans : count.infs);
    }
    for (int axis = at.rank() - 1; axis >= 0 && ++at[axis] == tensor.dims[axis]; --axis) at[axis] = 0;
  }
  return count;
}

std::string line_of(const Plan& plan, int index, const void* pointer, const std::string& role) {
  const Tensor& tensor = plan.graph.tensors[static_cast<size_t>(index)];
  if (pointer == nullptr || info(tensor.type).kind != NumberKind::real) return "";
  const Count count = count_in(tensor, HostBytes(plan, tensor, pointer).get());
  if (count.nans + count.infs == 0) return "";
  return fmt::format(
      "fusor: run '{}' on {}: {} '{}' holds {} NaN and {} Inf among {} elements, first at {}\n",
      plan.graph.name, plan.device.name, role, tensor.name, count.nans, count.infs,
      element_count(tensor.dims), to_string(count.first));
}

}  // namespace

std::string not_finite(const Plan& plan, std::span<void* const> pointers) {
  const Graph& graph = plan.graph;
  const GraphIndex index(graph);
  std::string text;
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (index.producer(static_cast<int>(i)) < 0 && !is_reached_by_index(graph, index, static_cast<int>(i)))
      text += line_of(plan, static_cast<int>(i), pointers[i], "input");
  for (size_t fusion = 0; fusion < plan.fusions.size(); ++fusion)
    for (const int op : plan.fusions[fusion].ops)
      for (const int y : graph.ops[static_cast<size_t>(op)].outputs)
        if (!is_reached_by_index(graph, index, y))
          text += line_of(plan, y, pointers[static_cast<size_t>(y)],
                          fmt::format("fusion {}'s result", fusion + 1));
  return text;
}

void check_run(const Plan& plan, std::span<void* const> pointers, void* stream) {
  if (!plan.device.is_cpu()) {
    if (cuda::is_capturing(stream)) return;
    cuda::synchronize(stream);
  }
  std::fputs(not_finite(plan, pointers).c_str(), stderr);
}

}  // namespace fusor
