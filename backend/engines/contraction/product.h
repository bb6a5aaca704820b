// Owns the matrix-product view of a fusion around a matmul or a convolution: the host's side of
// codegen/device/contraction/product.cuh, shared by the engines that carry such fusions out.
#pragma once

#include <optional>
#include <vector>

#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor {

class Parameters;

/// The values are those of codegen/device/contraction/product.cuh.
enum class ContractionOp : uint8_t { matmul = 0, fprop = 1, dgrad = 2, wgrad = 3 };

/// input = output * stride + tap * step + start, along one spatial axis.
struct WindowAxis {
  int64_t input = 1, output = 1, window = 1;  ///< extents
  int64_t stride = 1, step = 1, start = 0;
};

/// One axis of a site's domain under an axis of the product: neighbours in the product are `step` apart along
/// it.
struct ProductAxis {
  int axis = 0;
  int64_t extent = 1;
  int64_t step = 1;
};

/// How a wgrad walks k where channels are planes: image by image, in runs of adjacent outputs, which meet
/// adjacent inputs at every tap. A run is a row of the output; or a whole plane (`flat`), where the rows of
/// both operands lie equally far apart, with zeros between them that no tap reaches across.
struct PlaneWalk {
  bool flat = false;
  int64_t images = 1;
  int64_t rows = 1;        ///< outputs along the first axis, unless flat
  int64_t inner_rows = 1;  ///< along the axes between the first and the last
  int64_t length = 1;      ///< of a run
  Dims pitch;              ///< flat: positions between neighbours along every axis; otherwise ones
  /// Columns are (block of so many channels, taps, channel in it), and the last block is filled up.
  int64_t channel_block = 16;
};

/// A batch of products c[m, n] = sum over k of a[m, k] * b[k, n].
struct Contraction {
  ContractionOp op = ContractionOp::matmul;
  DataType compute = DataType::f32;  ///< the type of the sums
  int64_t entries = 1;               ///< of the batch: matmul: product of `batch`; convolution: groups
  int64_t m = 1, n = 1, k = 1;       ///< extents of one entry
  Dims batch;                        ///< matmul: the leading axes of the result
  std::vector<WindowAxis> axes;      ///< convolution: per spatial axis
  int64_t input_channels = 1, output_channels = 1;  ///< convolution: of one group
  /// Runs of k that share no step of a tile, all of one length; set by engines that walk k so.
  int64_t runs_of_k = 1;
  std::optional<PlaneWalk> planes;  ///< set by engines that walk k so; n is then that of whole blocks
  /// wgrad: columns of one tap, of which those beyond the channels do not exist; 0: as many as there are
  /// channels. Set by engines whose loads fill lines up; n then counts them.
  int64_t padded_channels = 0;
  bool reduces = false;  ///< the epilogue has reductions of the result
  int64_t results = 1;   ///< of the epilogue
  int64_t siblings = 1;  ///< products of one `a` with so many `b`, which meet in one epilogue
  /// In an index over (channel, tap), whether the channel varies fastest.
  bool channels_fastest = true;

  bool is_convolution() const { return op != ContractionOp::matmul; }
  /// Extent of the channel in (channel, tap).
  int64_t channels() const { return op == ContractionOp::dgrad ? output_channels : input_channels; }
  int64_t taps() const;
  bool has_unit_stride() const;
  /// A convolution of one tap, without strides, padding and groups.
  bool is_pointwise() const;
  /// The largest number that an index or a coordinate of a tile reaches; elements of operands apart.
  int64_t largest_index(int64_t tile) const;
  /// The config's constants of `Contraction` in codegen/device/contraction/product.cuh.
  void append_config(std::vector<ConfigValue>& config) const;
  /// The members of a Problem: struct Contraction of codegen/device/contraction/product.cuh.
  void append_to(Parameters& p) const;

  // Domain axes under the axes of the product, fastest first.
  std::vector<ProductAxis> rows_of_first() const;
  std::vector<ProductAxis> steps_of_first() const;
  std::vector<ProductAxis> steps_of_second() const;
  std::vector<ProductAxis> columns_of_second() const;
  std::vector<ProductAxis> rows_of_result() const;
  std::vector<ProductAxis> columns_of_result() const;
};

/// The view of a fusion with one contraction as its anchor, or two siblings, or nothing where the sites'
/// domains are not the shapes of its operands and its result (an epilogue over a larger, broadcast domain).
std::optional<Contraction> contraction_of(const Fusion& fusion);

/// A matmul's operand site over the leading axes of the result: broadcast axes are inserted or get stride 0.
Expr over_batch(const Expr& site, const Dims& batch);

/// The access of the site that reads or writes most elements (loads of a site before an operand, results of
/// one after), or null where none touches memory.
const Access* primary_access(const Expr& site);
/// Distance in memory of neighbours along an axis of the product; 0 where they are the same element.
int64_t neighbour_stride(const Access& access, const std::vector<ProductAxis>& axes);
/// The fastest of `axes` that has neighbours, or the first.
const ProductAxis& fastest(const std::vector<ProductAxis>& axes);

}  // namespace fusor
