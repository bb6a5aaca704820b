// Owns the look-ups in the table of pointwise ops and the names of ops.
#include "core/attributes.h"

#include <array>

namespace fusor {

namespace {

constexpr std::array kPointwise = {
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula) \
  PointwiseInfo{#mode, inputs, PointwiseDomain::domain, alu, sfu},
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
};

constexpr std::array<std::string_view, 9> kReductions = {"add", "mul",   "min",   "max",         "amax",
                                                         "avg", "norm1", "norm2", "mul_no_zeros"};

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
// For clang before 17, which finds it only when it is told.
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

const PointwiseInfo& info(PointwiseMode mode) { return kPointwise[static_cast<size_t>(mode)]; }
std::string_view to_string(PointwiseMode mode) { return info(mode).name; }
std::string_view to_string(ReductionMode mode) { return kReductions[static_cast<size_t>(mode)]; }
int pointwise_mode_count() { return static_cast<int>(kPointwise.size()); }
int reduction_mode_count() { return static_cast<int>(kReductions.size()); }

std::string_view to_string(ConvPass pass) {
  return pass == ConvPass::fprop ? "fprop" : pass == ConvPass::dgrad ? "dgrad" : "wgrad";
}

std::string_view to_string(ConvMode mode) {
  return mode == ConvMode::convolution ? "convolution" : "cross_correlation";
}

std::string_view kind_name(const Attributes& attributes) {
  return std::visit(Overloaded{
                        [](const Pointwise&) { return std::string_view("pointwise"); },
                        [](const Reduction&) { return std::string_view("reduction"); },
                        [](const Matmul&) { return std::string_view("matmul"); },
                        [](const Conv& conv) {
                          return conv.pass == ConvPass::fprop   ? std::string_view("conv_fprop")
                                 : conv.pass == ConvPass::dgrad ? std::string_view("conv_dgrad")
                                                                : std::string_view("conv_wgrad");
                        },
                        [](const Reshape&) { return std::string_view("reshape"); },
                        [](const Transpose&) { return std::string_view("transpose"); },
                        [](const Slice&) { return std::string_view("slice"); },
                        [](const Concatenate&) { return std::string_view("concatenate"); },
                    },
                    attributes);
}

std::string_view short_name(const Attributes& attributes) {
  if (const auto* pointwise = std::get_if<Pointwise>(&attributes)) return to_string(pointwise->mode);
  if (const auto* reduction = std::get_if<Reduction>(&attributes)) return to_string(reduction->mode);
  return kind_name(attributes);
}

const DataType* compute_type(const Attributes& attributes) {
  return std::visit(
      [](const auto& op) -> const DataType* {
        if constexpr (requires { op.compute; })
          return &op.compute;
        else
          return nullptr;
      },
      attributes);
}

bool is_view(const Attributes& attributes) {
  return std::holds_alternative<Reshape>(attributes) || std::holds_alternative<Transpose>(attributes) ||
         std::holds_alternative<Slice>(attributes);
}

bool is_contraction(const Attributes& attributes) {
  return std::holds_alternative<Matmul>(attributes) || std::holds_alternative<Conv>(attributes);
}

}  // namespace fusor
