// Owns a call of batch norm: what its descriptors say, and the graphs of its two passes.
#pragma once

#include "compat/cudnn/src/legacy/cached_plan.h"

namespace fusor::cudnn::batch_norm {

/// The tensors of a call.
enum Number {
  kX,
  kY,
  kScale,
  kBias,
  kRunningMean,
  kRunningVariance,
  kNextMean,
  kNextVariance,
  kBatchMean,
  kBatchVariance,
  kMean,
  kInverse,
  kDy,
  kDx,
  kDscale,
  kDbias,
  kFactor,
  kEpsilon,
  kZ,
  kDz
};

/// The ops behind the norm of a training step: nothing, a ReLU, or the addition of z and a ReLU.
struct After {
  cudnnBatchNormOps_t ops = CUDNN_BATCHNORM_OPS_BN;
  TensorObject z;  ///< where it is added; in a backward pass its gradient

  bool activates() const { return ops != CUDNN_BATCHNORM_OPS_BN; }
  bool adds() const { return ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION; }
};

/// x and dx: [n, c, ...]; scale, bias, their gradients and statistics: `channels`, [1, c, 1, ...].
struct Backward {
  TensorObject x, dy, dx, channels;
  bool has_saved = true;
  TensorObject y;  ///< where an activation follows the norm
  After after;

  PlanKey key() const;
  void sketch(Sketch& s) const;
};

/// x and y: [n, c, ...]; scale, bias and statistics: `channels`, [1, c, 1, ...].
struct Forward {
  TensorObject x, y, channels;
  bool has_running = false, saves = false;
  After after;

  PlanKey key() const;
  /// The batch's statistics are written apart: those that run along lie where they are read.
  void sketch(Sketch& s) const;
  /// The step of the running statistics towards those of the batch, a run of its own.
  void sketch_update(Sketch& s) const;
  /// The backward pass that a training step will call.
  Backward gradients() const { return {x, y, x, channels, true, y, after}; }
};

}  // namespace fusor::cudnn::batch_norm
