// Owns the translation of attention as one op.
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

// Keys as [b, h, rows, depth]. Some clients hand them over with the last two axes swapped.
Tensor keys_of(Translator& t, const Tensor& k, const Tensor& q, const Tensor& v) {
  const bool fits = k.dims[3] == q.dims[3] && k.dims[2] == v.dims[2];
  const bool fits_swapped = k.dims[2] == q.dims[3] && k.dims[3] == v.dims[2];
  return !fits && fits_swapped ? t.transposed(k, {0, 1, 3, 2}) : k;
}

int64_t rows_of(const Tensor& container, const Tensor& table) {
  return container.dims[2] * table.dims[table.dims.rank() - (table.dims.rank() == 4 ? 2 : 1)];
}

// The mask's bits, the lowest first, as elements: one for each block of keys.
Tensor block_mask_of(Translator& t, const Tensor& bits, int64_t keys) {
  if (bits.name.empty()) return bits;
  constexpr int64_t kBlock = 128;
  GraphBuilder& g = t.builder();
  const PointwiseOptions whole = Translator::whole();
  const Tensor column = t.numbers_along(3, 4, (keys + kBlock - 1) / kBlock);
  Tensor rest = g.identity(g.gather(bits, g.div(column, t.number(8), whole), {.axis = 3}), whole);
  // Moves the column's bit to the lowest place: by 1, 2 and 4 places where its number has those.
  const Tensor place = g.mod(column, t.number(8), whole);
  for (const int step : {1, 2, 4}) {
    const Tensor has_step =
        g.cmp_eq(g.mod(g.div(place, t.number(step), whole), t.number(2), whole), t.number(1));
    rest = g.binary_select(g.div(rest, t.number(int64_t{1} << step), whole), rest, has_step, whole);
  }
  return g.mod(rest, t.number(2), whole);
}

}  // namespace

void translate_sdpa_forward(Translator& t, const Descriptor& op) {
  Tensor q = t.in(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
  const Tensor v = t.in(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC);
  Tensor k = t.in(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
  SdpaOptions options;
  options.page_table_k = t.in(op, CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC);
  options.page_table_v = t.in(op, CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_VDESC);
  for (const Tensor* x : std::initializer_list<const Tensor*>{&q, &k, &v})
    if (x->dims.rank() != 4)
      refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "attention over {}: 4 axes are needed",
             to_string(x->dims));
  if (options.page_table_k.name.empty())
    k = keys_of(t, k, q, v);
  else
    options.attributes.max_seq_len_kv = rows_of(k, options.page_table_k);
  options.seq_len_q = t.in(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC);
  options.seq_len_kv = t.in(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC);
  options.attributes.padding_mask = !options.seq_len_q.name.empty() && !options.seq_len_kv.name.empty();
  options.block_mask = block_mask_of(t, t.in(op, CUDNN_ATTR_OPERATION_SDPA_FWD_BLOCK_MASK_DESC), v.dims[2]);
  if (Translator::has(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC)) {
    const TensorFacts scale = Translator::facts(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC);
    if (scale.is_by_value && scale.type == DataType::f32)
      options.scale = t.presumed_positive(scale);
    else
      q = t.builder().mul(q, t.in(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC));
  }
  options.type = Translator::asked_type(Translator::facts(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC));
  const SdpaResults made = t.builder().sdpa_fwd(q, k, v, options);
  t.out(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, made.o);
  t.out(op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, made.stats);
}

}  // namespace fusor::cudnn
