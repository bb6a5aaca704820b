// Owns the sampling of images at computed coordinates.
#pragma once

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

class Expansion;

enum class GridMode : uint8_t { bilinear, nearest };
FUSOR_API std::string_view to_string(GridMode mode);
constexpr int enum_count(GridMode) { return 2; }

/// The values beside the image: zeros, or its nearest pixel.
enum class GridPadding : uint8_t { zeros, border };
FUSOR_API std::string_view to_string(GridPadding padding);
constexpr int enum_count(GridPadding) { return 2; }

struct GridSampleAttributes {
  GridMode mode = GridMode::bilinear;
  GridPadding padding = GridPadding::zeros;
  bool align_corners = false;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("mode", self.mode);
    field("padding", self.padding);
    field("align_corners", self.align_corners);
  }
  friend bool operator==(const GridSampleAttributes&, const GridSampleAttributes&) = default;
};

/// y [N, C, rows, columns] of x [N, C, height, width] at grid [N, rows, columns, 2]: (column, row) from -1 to
/// 1, the centres of the outermost pixels with align_corners, else their edges (PyTorch's grid_sample).
struct GridSample : GridSampleAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "grid_sample"; }
  Roles roles() const { return {{{"x"}, {"grid"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const GridSample&, const GridSample&) = default;
};

/// dx and dgrid. Every pixel adds up its shares of all samples of its image.
struct GridSampleBackward : GridSampleAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "grid_sample_bwd"; }
  Roles roles() const {
    return {{{"dy"}, {"x"}, {"grid"}},
            {{.name = "dx", .optional = true}, {.name = "dgrid", .optional = true, .own_type = true}}};
  }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const GridSampleBackward&, const GridSampleBackward&) = default;
};

}  // namespace fusor
