// Owns runs whose variant pack gives tensors other dims than the plan was made for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "compat/cudnn/src/descriptor.h"

namespace fusor::cudnn {

struct PlanState;

/// Dims and strides of a tensor in one run.
struct Override {
  std::vector<int64_t> dims, strides;
  friend auto operator<=>(const Override&, const Override&) = default;
};
using Overrides = std::map<int64_t, Override>;  ///< by uid

/// The dims and strides that a variant pack overrides; throws where its lists do not fit.
Overrides read_overrides(const Descriptor& pack);

/// The ops with the tensors of these uids as the overrides say. Virtual tensors that are not named follow:
/// along each axis, an extent becomes what it becomes in the tensors that are. Refused where an extent of 1
/// may be one that follows or one that an op sums up or broadcasts.
std::vector<DescriptorPointer> with_overrides(const std::vector<DescriptorPointer>& ops,
                                              const Overrides& overrides);

/// A plan's own plans for other dims, made when a run first needs them and kept as long as the plan: runs
/// that are on their way and CUDA graphs hold their kernels. For any number of threads.
class OverriddenPlans {
 public:
  template <class Make>
  std::shared_ptr<const PlanState> find(const Overrides& overrides, Make make) {
    const std::scoped_lock lock(mutex_);
    const auto known = plans_.find(overrides);
    if (known != plans_.end()) return known->second;
    return plans_.emplace(overrides, make()).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<Overrides, std::shared_ptr<const PlanState>> plans_;
};

}  // namespace fusor::cudnn
