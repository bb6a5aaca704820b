// Owns the three passes of a convolution as blocked matrix products. fprop and dgrad differ only in where a
// window's taps lie and in how filters are packed; wgrad multiplies by the same gathered rows from the other
// side.
#include "backend/reference/convolution.h"

#include <algorithm>
#include <array>
#include <vector>

#include "backend/reference/host_math.h"
#include "backend/reference/matrix_product.h"
#include "backend/reference/sweep.h"
#include "core/environment.h"
#include "core/parallel.h"

namespace fusor::reference {

namespace {

constexpr int64_t kRowTile = 128;     // pixels of one product
constexpr int64_t kColumnTile = 128;  // result channels of one product
constexpr int64_t kPixelBlock = 512;  // wgrad: pixels summed before they join the result
// Groups this narrow are summed directly: matrices of a few columns cost more to set up than to multiply.
constexpr int64_t kNarrowGroup = 64;

// Where taps fall on the source, tabulated for each spatial dim.
class TapTable {
 public:
  explicit TapTable(const ConvGeometry& g) : g_(g), taps_(static_cast<size_t>(g.taps)) {
    for (int64_t t = 0; t < g.taps; ++t) unravel(t, g.window, taps_[static_cast<size_t>(t)].data());
    for (int i = 0; i < g.spatial; ++i)
      for (int64_t row = 0; row < g.rows[i]; ++row)
        for (int64_t tap = 0; tap < g.window[i]; ++tap) found_[i].push_back(g.source_at(i, row, tap));
  }
  /// The source pixel that tap number `tap` reads for the row pixel at `row`, or -1.
  int64_t source(const int64_t* row, int64_t tap) const {
    int64_t pixel = 0;
    for (int i = 0; i < g_.spatial; ++i) {
      const int64_t digit = taps_[static_cast<size_t>(tap)][static_cast<size_t>(i)];
      const int64_t at = found_[i][static_cast<size_t>(row[i] * g_.window[i] + digit)];
      if (at < 0) return -1;
      pixel = pixel * g_.source[i] + at;
    }
    return pixel;
  }
  /// Whether row pixel i reads source pixel i and nothing else: the source is the matrix of gathered rows.
  bool is_identity() const {
    if (g_.taps != 1 || g_.rows != g_.source) return false;
    for (int i = 0; i < g_.spatial; ++i)
      if (g_.conv.stride[i] != 1 || g_.conv.pre_padding[i] != 0) return false;
    return true;
  }

 private:
  const ConvGeometry& g_;
  std::vector<std::array<int64_t, 3>> taps_;
  std::array<std::vector<int64_t>, 3> found_;
};

// One convolution: channels are "in" (gathered from the source) and "out" (of the rows), per group.
template <class S>
class Convolution {
 public:
  explicit Convolution(const Contraction& shape)
      : g_(shape),
        table_(g_),
        in_(g_.conv.pass == ConvPass::dgrad ? g_.filters / g_.groups : g_.channels),
        out_(g_.conv.pass == ConvPass::dgrad ? g_.channels : g_.filters / g_.groups),
        narrow_(g_.groups > 1 && in_ * out_ < kNarrowGroup),
        rows_(g_.batch * g_.row_pixels) {}

  void forward(const S* source, const S* filter, S* result) const {
    const std::vector<S> packed = pack(filter);
    const int64_t columns = narrow_ ? g_.groups * out_ : std::min(out_, kColumnTile);
    const int64_t column_tiles = narrow_ ? 1 : ceil_div(out_, columns);
    const int64_t groups = narrow_ ? 1 : g_.groups;
    const int64_t row_tiles = ceil_div(rows_, kRowTile);
    const bool identity = table_.is_identity();
    parallel_for(groups * column_tiles * row_tiles, environment::threads(), [&](int64_t task) {
      const int64_t row = task % row_tiles * kRowTile;
      const int64_t count = std::min(kRowTile, rows_ - row);
      const int64_t column = task / row_tiles % column_tiles * columns;
      const int64_t group = task / row_tiles / column_tiles;
      if (narrow_) return sum_rows(source, packed.data(), row, count, result);
      const MatrixBlock<const S> weights{packed.data() + group * g_.taps * in_ * out_ + column, g_.taps * in_,
                                         std::min(columns, out_ - column), out_};
      const MatrixBlock<S> into{result + row * g_.groups * out_ + group * out_ + column, count,
                                weights.columns, g_.groups * out_};
      if (identity)
        return multiply<S>({source + row * g_.groups * in_ + group * in_, count, in_, g_.groups * in_},
                           weights, into);
      const std::vector<S> gathered = gather(source, row, count, group, 0, g_.taps);
      multiply<S>({gathered.data(), count, g_.taps * in_, g_.taps * in_}, weights, into);
    });
  }

  // One task for every tap, group and tile of filters: the pixels are summed in order inside it.
  void filter_gradient(const S* dy, const S* x, S* dw) const {
    const int64_t tile = narrow_ ? g_.filters : std::min(out_, kColumnTile);
    const int64_t tiles = narrow_ ? 1 : ceil_div(out_, tile);
    const int64_t groups = narrow_ ? 1 : g_.groups;
    parallel_for(g_.taps * groups * tiles, environment::threads(), [&](int64_t task) {
      const int64_t tap = task % g_.taps;
      const int64_t group = task / g_.taps % groups;
      const int64_t first = group * out_ + task / g_.taps / groups * tile;
      const int64_t count = narrow_ ? g_.filters : std::min(tile, (group + 1) * out_ - first);
      std::vector<S> sum(static_cast<size_t>(count * in_), S(0));
      for (int64_t row = 0; row < rows_; row += kPixelBlock) {
        const int64_t pixels = std::min(kPixelBlock, rows_ - row);
        if (narrow_) {
          add_outer_products(dy, x, tap, row, pixels, sum);
          continue;
        }
        const std::vector<S> gathered = gather(x, row, pixels, group, tap, tap + 1);
        add_transposed_product<S>({dy + row * g_.filters + first, pixels, count, g_.filters},
                                  {gathered.data(), pixels, in_, in_}, {sum.data(), count, in_, in_});
      }
      const int64_t place = stored_tap(tap);
      for (int64_t i = 0; i < count * in_; ++i)
        dw[((first + i / in_) * in_ + i % in_) * g_.taps + place] = sum[static_cast<size_t>(i)];
    });
  }

 private:
  // A row's image and its pixel's coordinates.
  struct RowPixel {
    RowPixel(const ConvGeometry& g, int64_t row) : image(row / g.row_pixels) {
      unravel(row % g.row_pixels, g.rows, at);
    }
    int64_t image;
    int64_t at[3];
  };

  // Row-major index of the place where the filter tensor keeps a tap.
  int64_t stored_tap(int64_t tap) const {
    int64_t at[3];
    unravel(tap, g_.window, at);
    int64_t index = 0;
    for (int i = 0; i < g_.spatial; ++i) index = index * g_.window[i] + g_.stored_tap(i, at[i]);
    return index;
  }

  // The filter [K, C / groups, window] as [group][tap][in][out]; for narrow groups as [tap][in][group][out].
  std::vector<S> pack(const S* filter) const {
    std::vector<S> packed(static_cast<size_t>(g_.filters * g_.channels * g_.taps));
    const bool dgrad = g_.conv.pass == ConvPass::dgrad;
    for (int64_t tap = 0; tap < g_.taps; ++tap) {
      const int64_t place = stored_tap(tap);
      for (int64_t group = 0; group < g_.groups; ++group)
        for (int64_t i = 0; i < in_; ++i)
          for (int64_t o = 0; o < out_; ++o) {
            const int64_t k = group * (dgrad ? in_ : out_) + (dgrad ? i : o);
            const int64_t to = narrow_ ? ((tap * in_ + i) * g_.groups + group) * out_ + o
                                       : ((group * g_.taps + tap) * in_ + i) * out_ + o;
            packed[static_cast<size_t>(to)] = filter[(k * g_.channels + (dgrad ? o : i)) * g_.taps + place];
          }
    }
    return packed;
  }

  // Rows [row, row + count) of the matrix [pixels, taps * in] for taps [first, last); what a tap misses is 0.
  std::vector<S> gather(const S* source, int64_t row, int64_t count, int64_t group, int64_t first,
                        int64_t last) const {
    std::vector<S> rows(static_cast<size_t>(count * (last - first) * in_));
    S* to = rows.data();
    for (int64_t r = row; r < row + count; ++r) {
      const RowPixel at(g_, r);
      for (int64_t tap = first; tap < last; ++tap, to += in_) {
        const S* pixel = source_pixel(source, at, tap);
        if (pixel != nullptr) std::copy_n(pixel + group * in_, in_, to);
      }
    }
    return rows;
  }

  // The channels of the source pixel that a tap reads, or null.
  const S* source_pixel(const S* source, const RowPixel& row, int64_t tap) const {
    const int64_t pixel = table_.source(row.at, tap);
    if (pixel < 0) return nullptr;
    return source + (row.image * g_.source_pixels + pixel) * g_.groups * in_;
  }

  void sum_rows(const S* source, const S* packed, int64_t row, int64_t count, S* result) const {
    using T = Arithmetic<S>;
    const int64_t width = g_.groups * out_;
    for (int64_t r = row; r < row + count; ++r) {
      const RowPixel at(g_, r);
      S* sums = result + r * width;
      std::fill_n(sums, width, S(0));
      for (int64_t tap = 0; tap < g_.taps; ++tap) {
        const S* pixel = source_pixel(source, at, tap);
        if (pixel == nullptr) continue;
        for (int64_t i = 0; i < in_; ++i) {
          const S* weights = packed + (tap * in_ + i) * width;
          if (in_ * out_ == 1) {  // depthwise: one vector operation over the channels
            for (int64_t o = 0; o < width; ++o) sums[o] = stored(T(sums[o]) + T(pixel[o]) * T(weights[o]));
            continue;
          }
          for (int64_t group = 0; group < g_.groups; ++group)
            for (int64_t o = group * out_; o < (group + 1) * out_; ++o)
              sums[o] = stored(T(sums[o]) + T(pixel[group * in_ + i]) * T(weights[o]));
        }
      }
    }
  }

  void add_outer_products(const S* dy, const S* x, int64_t tap, int64_t row, int64_t pixels,
                          std::vector<S>& sum) const {
    using T = Arithmetic<S>;
    std::vector<S> part(sum.size(), S(0));
    for (int64_t r = row; r < row + pixels; ++r) {
      const S* pixel = source_pixel(x, RowPixel(g_, r), tap);
      if (pixel == nullptr) continue;
      const S* gradient = dy + r * g_.filters;
      if (in_ * out_ == 1) {
        for (size_t k = 0; k < part.size(); ++k) part[k] = stored(T(part[k]) + T(gradient[k]) * T(pixel[k]));
        continue;
      }
      S* to = part.data();
      for (int64_t k = 0; k < g_.filters; ++k)
        for (int64_t i = 0; i < in_; ++i, ++to)
          *to = stored(T(*to) + T(gradient[k]) * T(pixel[k / out_ * in_ + i]));
    }
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = stored(T(sum[i]) + T(part[i]));
  }

  ConvGeometry g_;
  TapTable table_;
  int64_t in_, out_;
  bool narrow_;
  int64_t rows_;
};

}  // namespace

template <class S>
void convolve(const Contraction& shape, const S* a, const S* b, S* c) {
  const Convolution<S> convolution(shape);
  if (std::get<Conv>(shape.attributes).pass == ConvPass::wgrad)
    convolution.filter_gradient(a, b, c);
  else
    convolution.forward(a, b, c);
}

template void convolve(const Contraction&, const double*, const double*, double*);
template void convolve(const Contraction&, const float*, const float*, float*);
template void convolve(const Contraction&, const int64_t*, const int64_t*, int64_t*);
template void convolve(const Contraction&, const int32_t*, const int32_t*, int32_t*);

}  // namespace fusor::reference
