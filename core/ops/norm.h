// Owns the normalizations, forward and backward, and the pieces that split batch norm across two
// convolutions.
#pragma once

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

class Expansion;

/// The axes over which an element's statistics are taken: layer, adaptive_layer and rms: `axes`; batch: all
/// axes but the channels (axis 1); instance: the spatial axes; group: the spatial axes and the channels of a
/// group.
enum class NormMode : uint8_t {
  layer_norm,
  rms_norm,
  batch_norm,
  instance_norm,
  group_norm,
  adaptive_layer_norm
};
FUSOR_API std::string_view to_string(NormMode mode);
constexpr int enum_count(NormMode) { return 6; }

/// training: statistics of x. inference: those that are given (running ones, or mean and inv_std), else of x.
enum class NormPhase : uint8_t { training, inference };
FUSOR_API std::string_view to_string(NormPhase phase);
constexpr int enum_count(NormPhase) { return 2; }

/// y = (x - mean) * inv_std * scale + bias with inv_std = 1 / sqrt(variance + epsilon); of rms_norm
/// y = x * inv_std * scale + bias with the mean square in the variance's place. The variance is the biased
/// one; running statistics take the unbiased one: next = (1 - momentum) * running + momentum * statistic of
/// the batch. The operands epsilon and momentum, by-value scalars, replace the attributes.
struct NormForward {
  NormMode norm = NormMode::layer_norm;
  NormPhase phase = NormPhase::training;
  double epsilon = 1e-5;
  double momentum = 0.1;
  Dims axes = {};      ///< of layer, adaptive_layer and rms
  int64_t groups = 1;  ///< of group

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("norm", self.norm);
    field("phase", self.phase);
    field("epsilon", self.epsilon);
    field("momentum", self.momentum);
    field("normalized_axes", self.axes);
    field("groups", self.groups);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "norm_fwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  /// Files may leave out the axes of layer norms: the last one.
  void fill_omitted(int rank);
  friend bool operator==(const NormForward&, const NormForward&) = default;
};

/// The gradients of NormForward. In training dx = inv_std * (g - avg(g) - xhat * avg(g * xhat)) with g = dy *
/// scale and xhat = (x - mean) * inv_std (rms_norm: without the first average); in inference, where the
/// statistics are constants, dx = inv_std * g. dscale and dbias are the totals of dy * xhat and dy over what
/// scale repeats along. Statistics that are left out are computed again.
struct NormBackward {
  NormMode norm = NormMode::layer_norm;
  NormPhase phase = NormPhase::training;
  double epsilon = 1e-5;
  Dims axes = {};
  int64_t groups = 1;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("norm", self.norm);
    field("phase", self.phase);
    field("epsilon", self.epsilon);
    field("normalized_axes", self.axes);
    field("groups", self.groups);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "norm_bwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  void fill_omitted(int rank);
  friend bool operator==(const NormBackward&, const NormBackward&) = default;
};

/// sum and sq_sum of x [N, C, spatial...] over all axes but the channels.
struct GenStats {
  template <class Self, class Visitor>
  static void visit(Self&, Visitor&&) {}

  static constexpr Nature nature = Nature::composite;
  std::string_view kind() const { return "gen_stats"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const GenStats&, const GenStats&) = default;
};

/// From the totals of a batch of `accumulation_count` elements a channel: its statistics, the factor and
/// addend that normalize it (y = x * eq_scale + eq_bias), and the next running statistics.
struct BnFinalize {
  double epsilon = 1e-5;
  double momentum = 0.1;
  int64_t accumulation_count = 0;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("epsilon", self.epsilon);
    field("momentum", self.momentum);
    field("accumulation_count", self.accumulation_count);
  }

  static constexpr Nature nature = Nature::composite;
  std::string_view kind() const { return "bn_finalize"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const BnFinalize&, const BnFinalize&) = default;
};

/// dscale and dbias of a batch norm, and the factors that make its dx = dy * eq_dy_scale + x * eq_x_scale +
/// eq_bias.
struct BnBackwardWeights {
  template <class Self, class Visitor>
  static void visit(Self&, Visitor&&) {}

  static constexpr Nature nature = Nature::composite;
  std::string_view kind() const { return "bn_bwd_weights"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const BnBackwardWeights&, const BnBackwardWeights&) = default;
};

}  // namespace fusor
