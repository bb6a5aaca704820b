// Owns the CPU device's convolutions: products of gathered rows, and direct sums for narrow groups.
#pragma once

#include "backend/reference/contraction.h"

namespace fusor::reference {

/// Operands and result in the layouts of device_strides / device_result_strides; S is the compute type.
template <class S>
void convolve(const Contraction& shape, const S* a, const S* b, S* c);

extern template void convolve(const Contraction&, const double*, const double*, double*);
extern template void convolve(const Contraction&, const float*, const float*, float*);
extern template void convolve(const Contraction&, const int64_t*, const int64_t*, int64_t*);
extern template void convolve(const Contraction&, const int32_t*, const int32_t*, int32_t*);

}  // namespace fusor::reference
