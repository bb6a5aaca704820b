// Owns the host's instances of the formulas of core/pointwise.def.
#include "backend/reference/pointwise.h"

#include "backend/reference/host_math.h"
#include "core/convert.h"

namespace fusor::reference {

namespace {

template <class T>
T parameter(double value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    decltype(T::value) integer;
    store_real(sizeof integer == 8 ? DataType::i64 : DataType::i32, &integer, 0, value);
    return T(integer);
  }
}

// The op's parameters in the type of its arithmetic: `p` of the formulas.
template <class T>
struct Parameters {
  explicit Parameters(const Pointwise& op)
      : lower_clip(parameter<T>(op.lower_clip)),
        upper_clip(parameter<T>(op.upper_clip)),
        lower_clip_slope(parameter<T>(op.lower_clip_slope)),
        elu_alpha(parameter<T>(op.elu_alpha)),
        softplus_beta(parameter<T>(op.softplus_beta)),
        swish_beta(parameter<T>(op.swish_beta)) {}
  T lower_clip, upper_clip, lower_clip_slope, elu_alpha, softplus_beta, swish_beta;
};

template <class S>
struct Operands {
  const S* a;
  const S* b;
  const S* c;
};

template <int kInputs, class S, class Formula>
void apply(const Operands<S>& in, int64_t count, S* out, const Formula& formula) {
  using T = Arithmetic<S>;
  for (int64_t i = 0; i < count; ++i) {
    const T a(in.a[i]);
    T b(0), c(0);
    if constexpr (kInputs > 1) b = T(in.b[i]);
    if constexpr (kInputs > 2) c = T(in.c[i]);
    out[i] = stored(static_cast<T>(formula(a, b, c)));
  }
}

template <class S>
constexpr bool has_formula(PointwiseDomain domain) {
  return std::is_floating_point_v<S> || domain != PointwiseDomain::real;
}

template <class S>
void evaluate_mode(const Pointwise& op, const Operands<S>& in, int64_t count, S* out) {
  using T = Arithmetic<S>;
  using fn = HostMath;
  const Parameters<T> p(op);
  switch (op.mode) {
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula)                                             \
  case PointwiseMode::mode:                                                                                  \
    if constexpr (has_formula<S>(PointwiseDomain::domain)) {                                                 \
      apply<inputs>(in, count, out, [&p]([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c) { \
        (void)p;                                                                                             \
        return formula;                                                                                      \
      });                                                                                                    \
      return;                                                                                                \
    }                                                                                                        \
    break;
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
  }
  fail(ErrorKind::internal, "{} is not defined for {}", to_string(op.mode), to_string(op.compute));
}

}  // namespace

void pointwise_block(const Pointwise& op, DataType held, const std::array<const void*, 3>& operands,
                     int64_t count, void* out) {
  with_held(held, [&]<class S>(S) {
    const Operands<S> in{static_cast<const S*>(operands[0]), static_cast<const S*>(operands[1]),
                         static_cast<const S*>(operands[2])};
    S* to = static_cast<S*>(out);
    evaluate_mode(op, in, count, to);
    if constexpr (sizeof(S) == 8 && std::is_integral_v<S>)
      if (op.compute == DataType::i32)
        for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int32_t>(to[i]);
  });
}

}  // namespace fusor::reference
