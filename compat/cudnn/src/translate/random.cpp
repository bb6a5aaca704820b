// Owns the translation of random numbers.
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

RngOptions options_of(const Descriptor& rng) {
  RngOptions options;
  switch (rng.get<cudnnRngDistribution_t>(CUDNN_ATTR_RNG_DISTRIBUTION)) {
    case CUDNN_RNG_DISTRIBUTION_BERNOULLI:
      options.distribution = Distribution::bernoulli;
      options.probability = rng.get<double>(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY);
      break;
    case CUDNN_RNG_DISTRIBUTION_UNIFORM:
      options.distribution = Distribution::uniform;
      options.low = rng.get<double>(CUDNN_ATTR_RNG_UNIFORM_DIST_MINIMUM, 0.0);
      options.high = rng.get<double>(CUDNN_ATTR_RNG_UNIFORM_DIST_MAXIMUM, 1.0);
      break;
    default:
      options.distribution = Distribution::normal;
      options.mean = rng.get<double>(CUDNN_ATTR_RNG_NORMAL_DIST_MEAN, 0.0);
      options.deviation = rng.get<double>(CUDNN_ATTR_RNG_NORMAL_DIST_STANDARD_DEVIATION, 1.0);
  }
  return options;
}

Tensor seed_of(Translator& t, const Descriptor& op) {
  if (Translator::has(op, CUDNN_ATTR_OPERATION_RNG_SEED))
    return t.as_scalar(t.in(op, CUDNN_ATTR_OPERATION_RNG_SEED));
  const auto seed = op.get<int64_t>(CUDNN_ATTR_OPERATION_RNG_SEED);
  return t.builder().constant(static_cast<double>(seed), DataType::i64);
}

}  // namespace

void translate_rng(Translator& t, const Descriptor& op) {
  const TensorFacts made = Translator::facts(op, CUDNN_ATTR_OPERATION_RNG_YDESC);
  RngOptions options = options_of(*op.child(CUDNN_ATTR_OPERATION_RNG_DESC));
  options.type = made.type;
  const Tensor offset = Translator::has(op, CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC)
                            ? t.as_scalar(t.in(op, CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC))
                            : t.builder().constant(0, DataType::i64);
  t.out(op, CUDNN_ATTR_OPERATION_RNG_YDESC, t.builder().rng(made.dims, seed_of(t, op), offset, options));
}

}  // namespace fusor::cudnn
