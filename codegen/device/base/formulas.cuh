// Owns the functions of the formulas in core/pointwise.def that read parameters; a generated header writes
// the others out.
#pragma once

#include "codegen/device/base/pointwise.cuh"

// The parameters of Pointwise; the defaults are those of core/ops/pointwise.h.
template <class T>
struct Parameters {
  T lower_clip = T(0), upper_clip = kLargest<T>, lower_clip_slope = T(0);
  T elu_alpha = T(1);
  T softplus_beta = T(1);
  T swish_beta = T(1);
};

// op_relu<Fn>(a), op_elu<Fn>(a, p) ...
#define FUSOR_OPERANDS_1 T a
#define FUSOR_OPERANDS_2 T a, T b
#define FUSOR_OPERANDS_3 T a, T b, T c
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula)                     \
  template <class fn, class T>                                                       \
  FUSOR_DEVICE auto op_##mode(FUSOR_OPERANDS_##inputs, const Parameters<T> p = {}) { \
    return formula;                                                                  \
  }
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
#undef FUSOR_OPERANDS_1
#undef FUSOR_OPERANDS_2
#undef FUSOR_OPERANDS_3
