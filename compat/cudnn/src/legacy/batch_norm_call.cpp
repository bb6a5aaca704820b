// Owns the graphs of batch norm as single calls.
#include "compat/cudnn/src/legacy/batch_norm_call.h"

#include <array>

namespace fusor::cudnn::batch_norm {

PlanKey Forward::key() const {
  PlanKey key("bn forward");
  key.add(x).add(y).add(channels).add(int64_t{has_running}).add(int64_t{saves}).add(int64_t{after.ops});
  return after.adds() ? key.add(after.z) : key;
}

void Forward::sketch(Sketch& s) const {
  NormOptions norm{.norm = NormMode::batch_norm};
  norm.scale = s.input(kScale, channels);
  norm.bias = s.input(kBias, channels);
  norm.epsilon_scalar = s.scalar(kEpsilon);
  if (has_running) {
    const Tensor zeros =
        s.g.op(Pointwise{.mode = PointwiseMode::identity}, std::array<Tensor, 1>{s.g.constant(0)}, {},
               std::array<Dims, 1>{channels.dims})
            .front();
    norm.momentum = 1;
    norm.prev_running_mean = norm.prev_running_var = zeros;
  }
  const NormResults made = s.g.norm_fwd(s.input(kX, x), norm);
  Tensor result = made.y;
  if (after.adds()) result = s.g.add(result, s.input(kZ, after.z));
  if (after.activates()) result = s.g.relu(result);
  s.output(kY, result, y);
  if (saves) {
    s.output(kMean, made.mean, channels);
    s.output(kInverse, made.inv_std, channels);
  }
  if (!has_running) return;
  s.output(kBatchMean, made.next_running_mean, channels);
  s.output(kBatchVariance, made.next_running_var, channels);
}

void Forward::sketch_update(Sketch& s) const {
  const Tensor factor = s.scalar(kFactor);
  const auto step = [&](int running, int batch, int next) {
    const Tensor before = s.input(running, channels);
    s.output(next, s.g.add(before, s.g.mul(s.g.sub(s.input(batch, channels), before), factor)), channels);
  };
  step(kRunningMean, kBatchMean, kNextMean);
  step(kRunningVariance, kBatchVariance, kNextVariance);
}

PlanKey Backward::key() const {
  PlanKey key("bn backward");
  key.add(x).add(dy).add(dx).add(channels).add(int64_t{has_saved}).add(int64_t{after.ops});
  if (after.activates()) key.add(y);
  return after.adds() ? key.add(after.z) : key;
}

void Backward::sketch(Sketch& s) const {
  NormBackwardOptions norm{.norm = NormMode::batch_norm};
  norm.scale = s.input(kScale, channels);
  if (has_saved) {
    norm.mean = s.input(kMean, channels);
    norm.inv_std = s.input(kInverse, channels);
  } else {
    norm.epsilon_scalar = s.scalar(kEpsilon);
  }
  Tensor gradient = s.input(kDy, dy);
  // The result of a ReLU is positive where its operand is.
  if (after.activates()) gradient = s.g.relu_bwd(gradient, s.input(kY, y));
  if (after.adds()) s.output(kDz, gradient, after.z);
  const NormGradients made = s.g.norm_bwd(gradient, s.input(kX, x), norm);
  s.output(kDx, made.dx, dx);
  s.output(kDscale, made.dscale, channels);
  s.output(kDbias, made.dbias, channels);
}

}  // namespace fusor::cudnn::batch_norm
