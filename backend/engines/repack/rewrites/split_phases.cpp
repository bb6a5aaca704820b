// Owns the copies that take an input's phases apart, and those that put the filter's taps together.
#include "backend/engines/repack/rewrites/split_phases.h"

#include <algorithm>

#include "backend/engines/repack/rewrites/repacker.h"
#include "backend/engines/repack/stride_phases.h"
#include "backend/engines/sm90/copy/tensor_maps.h"

namespace fusor {

namespace {

void copy_columns(Repacker& repacker, const StridePhases& phases, const Expr& image, DataType type,
                  Access planes, int64_t tap) {
  const ColumnsOfTap& columns = phases.taps[static_cast<size_t>(tap)];
  if (columns.outputs == 0) return;
  const Expr met = of_tap(image, phases, columns);
  planes.offset += tap * planes.strides[1] + columns.first_output * planes.strides[planes.strides.rank() - 1];
  JoinedPixels input = phases.input;
  input.axes.back().results = input.axes.back().positions = columns.outputs;
  for (const auto& box : input.boxes())
    repacker.load(in_box(met, input, box), type, of_box(planes, input, box));
}

// Whether copies leave elements of x out: outputs whose taps lie beside the image, and positions of a last
// block that the input lacks.
bool leaves_gaps(const StridePhases& phases, const Dims& image, const Dims& x) {
  const int64_t outputs = x[x.rank() - 1];
  const bool is_ragged = element_count(image) / image[image.rank() - 1] * phases.channels() / phases.count !=
                         element_count(x) / outputs;
  const auto is_cut = [&](const ColumnsOfTap& columns) { return columns.outputs != outputs; };
  return is_ragged || std::ranges::any_of(phases.taps, is_cut);
}

// Planes whose rows are multiples of 16 bytes, or, beside a packed output gradient, those of add_planes().
void split_input(Repacker& repacker, const StridePhases& phases, const Expr& image, DataType type,
                 bool beside_packed) {
  Expr& x = repacker.operand(1);
  const Access planes = beside_packed
                            ? repacker.add_planes(image, x.domain, type)
                            : repacker.add_scratch(image, x.domain, positions_last(x.domain.rank()), type);
  if (!beside_packed && leaves_gaps(phases, image.domain, x.domain)) repacker.zero_last();
  for (size_t tap = 0; tap < phases.taps.size(); ++tap)
    copy_columns(repacker, phases, image, type, planes, static_cast<int64_t>(tap));
  x = loaded(x.domain, type, planes);
}

void finish_phases(Repacker& repacker, const StridePhases& phases, const Expr& whole) {
  const Repacker::Product product = repacker.leave_product(whole);
  for (int64_t phase = 0; phase < phases.count; ++phase)
    repacker.finish(of_phase(whole, phases, phase), product, of_phase(product.scratch, phases, phase));
}

class StridePhasesRewrite final : public Rewrite {
 public:
  std::string_view knob() const override { return "phases"; }
  std::vector<int64_t> values() const override { return {1}; }

  std::vector<ResultPath> result_paths(const Fusion& fusion, const Contraction& view,
                                       int64_t /*value*/) const override {
    if (!splits_phases(fusion, view)) return {};
    const Expr& x = operand_site(fusion, 0, 1);
    // im2col takes whole blocks of 16 bits, of any stride.
    const bool is_16_bits = may_lie_across(yielded_node(x).type);
    if (is_16_bits && view.input_channels % kBoxLine == 0) return {};
    return {ResultPath::finished};
  }

  Repacked rewritten(const Fusion& fusion, const Contraction& view, int64_t /*value*/,
                     ResultPath /*out*/) const override {
    const Repacked plain = split_phases(fusion, view, false);
    const bool packs_gradient =
        refuse_copies(plain.core, contraction_of(plain.core).value(), false).has_value();
    return packs_gradient ? split_phases(fusion, view, true) : plain;
  }
};

}  // namespace

bool splits_phases(const Fusion& fusion, const Contraction& view) {
  const Expr& y = result_site(fusion);
  if (y.has_reduction() || !can_finish_later(y) || !stride_phases(view)) return false;
  return std::ranges::none_of(y.nodes, names_position) &&
         std::ranges::none_of(operand_site(fusion, 0, 1).nodes, names_position);
}

Repacked split_phases(const Fusion& fusion, const Contraction& view, bool packs_gradient) {
  const StridePhases phases = stride_phases(view).value();
  Repacker repacker(fusion, view);
  Expr &x = repacker.operand(1), &y = repacker.result();
  const Expr image = x, whole = y;
  const DataType type = repacker.packed_type(1);
  repacker.convolution() = phases.convolution(repacker.convolution());
  x.domain[1] *= phases.channels();
  y.domain[1] *= phases.channels();
  for (size_t i = 0; i < phases.axes.size(); ++i) {
    x.domain[2 + static_cast<int>(i)] = phases.input.axes[i].positions;
    y.domain[2 + static_cast<int>(i)] = phases.axes[i].window;
  }
  repacker.view_anew();
  split_input(repacker, phases, image, type, packs_gradient);
  finish_phases(repacker, phases, whole);
  if (packs_gradient) repacker.pack_operand(0);
  return repacker.take();
}

const Rewrite& stride_phases_rewrite() {
  static const StridePhasesRewrite rewrite;
  return rewrite;
}

}  // namespace fusor
