// Owns complex numbers: a tensor of them is one of real numbers with one axis more, of the real part and the
// imaginary part, which lie beside each other in memory as well.
#include <algorithm>

#include "compat/cudnn/src/translate/heads.h"
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

bool holds_complex(const Descriptor& tensor) {
  const auto type = tensor.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  return type == CUDNN_DATA_COMPLEX_FP32 || type == CUDNN_DATA_COMPLEX_FP64;
}

// Whether the last axis's place `part` is what is left: 0 the real part, 1 the imaginary part.
Tensor part_of_complex(Translator& t, const Tensor& x, int64_t part) {
  Dims start = Dims::filled(x.dims.rank(), 0), limit = x.dims;
  start[x.dims.rank() - 1] = part;
  limit[x.dims.rank() - 1] = part + 1;
  return t.builder().slice(x, start, limit);
}

// The number times i: (-imaginary, real).
Tensor times_i(Translator& t, const Tensor& x) {
  GraphBuilder& g = t.builder();
  const Tensor minus = g.neg(part_of_complex(t, x, 1), {.type = x.type});
  return g.concatenate({minus, part_of_complex(t, x, 0)}, x.dims.rank() - 1);
}

// Multiplies a [.., m, k, 2] as the real matrix [.., m, 2 k] by [.., 2 k, 2 n], whose rows are those of b and
// of b times i in turn: the result [.., m, 2 n] is [.., m, n, 2].
void translate_product(Translator& t, const Descriptor& op) {
  constexpr int kMostRank = 6;
  const Tensor a = t.in(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
               b = t.in(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  const TensorFacts declared = Translator::facts(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  const int rank = a.dims.rank();
  for (const auto name :
       {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
        CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC})
    if (Translator::has(op, name))
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "a matmul of complex numbers with {}", op.row().find(name)->words);
  if (b.dims.rank() != rank || declared.dims.rank() != rank || rank < 3 || rank > kMostRank)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
           "a matmul of complex numbers with {} and {} axes; 2 to {} of both", rank - 1, b.dims.rank() - 1,
           kMostRank - 1);
  Dims rows = b.dims;
  rows.insert(rank - 2, 1);
  const Tensor both =
      t.builder().concatenate({t.reshaped(b, rows), t.reshaped(times_i(t, b), rows)}, rank - 2);
  const auto as_matrix = [&](const Dims& dims, int doubled) {
    Dims matrix = dims;
    matrix.erase(rank - 1);
    for (int axis = rank - 3; axis < rank - 1; ++axis)
      if (axis >= doubled) matrix[axis] *= 2;
    return matrix;
  };
  const Matmul attributes{carrier(part_type_of(
      op.child(CUDNN_ATTR_OPERATION_MATMUL_DESC)->get<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE)))};
  TensorFacts made = declared;
  made.dims = as_matrix(declared.dims, rank - 2);
  const Tensor c =
      t.op(attributes,
           {t.reshaped(a, as_matrix(a.dims, rank - 2)), t.reshaped(both, as_matrix(b.dims, rank - 3))}, made);
  t.out(declared, t.reshaped(c, declared.dims));
}

void translate_complex_factors(Translator& t, const Descriptor& op) {
  const Tensor x = t.in(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
               b = t.in(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  GraphBuilder& g = t.builder();
  const Tensor y = g.add(g.mul(part_of_complex(t, x, 0), b, {.type = x.type}),
                         g.mul(part_of_complex(t, x, 1), times_i(t, b), {.type = x.type}), {.type = x.type});
  t.out(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        t.scaled(y, op.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1) *
                        op.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1)));
}

}  // namespace

bool has_complex_numbers(const Descriptor& op) {
  int complex = 0, others = 0;
  for (const AttributeRow& row : op.row().attributes) {
    const Value* const value = row.flow == Flow::none ? nullptr : op.find(row.name);
    if (value == nullptr) continue;
    for (const DescriptorPointer& tensor : value->children) ++(holds_complex(*tensor) ? complex : others);
  }
  if (complex > 0 && others > 0)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "{} of complex and of real tensors", op.row().name);
  return complex > 0;
}

void translate_complex(Translator& t, const Descriptor& op) {
  if (op.type() == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) return translate_product(t, op);
  if (is_pointwise_op(op, CUDNN_POINTWISE_MUL)) return translate_complex_factors(t, op);
  constexpr cudnnPointwiseMode_t kOfParts[] = {CUDNN_POINTWISE_ADD, CUDNN_POINTWISE_SUB, CUDNN_POINTWISE_NEG,
                                               CUDNN_POINTWISE_IDENTITY};
  if (std::ranges::none_of(kOfParts, [&](cudnnPointwiseMode_t mode) { return is_pointwise_op(op, mode); }))
    refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
           "{} of complex numbers; matmul, ADD, SUB, MUL, NEG and IDENTITY are supported", op.row().name);
  translate_pointwise(t, op);
}

}  // namespace fusor::cudnn
