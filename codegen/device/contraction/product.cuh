// Owns the matrix-product view of matmul and convolution: which rows, columns and steps of the product meet
// which elements of the operands and of the result. Templates over the integer and the divisor, so that a
// host test runs them.
//
//            m (rows)              n (columns)            k (steps)
//   matmul   m                     n                      k                      batch: the leading axes
//   fprop    output pixel          output channel         (input channel, tap)   batch: the group
//   dgrad    input pixel           input channel          (output channel, tap)
//   wgrad    output channel        (input channel, tap)   output pixel
//
// A pixel is (image, position), a tap a position in the window; along every spatial axis
//   input = output * stride + tap * step + start
// where step is the dilation (negative for a mirrored filter) and start is minus the padding (or the mirrored
// tap 0).
#pragma once

enum : int { kMatmul = 0, kFprop = 1, kDgrad = 2, kWgrad = 3 };

/// One index of the product taken apart: an image, a channel or a plain index, and a position. Negative
/// `lead`: beyond the end.
template <class Index>
struct alignas(4 * sizeof(Index)) Point {
  Index lead;
  Index at[3];
};

template <class Wide, class Divisor>
struct WindowAxis {
  Divisor input, output, window;  // extents
  Divisor stride;
  Wide step, start;
};

/// The product of one op. The fields are arguments: 8 bytes each (a Divisor: 3 of them).
///   kOp                one of the four above
///   kSpatial, kBatch   spatial axes, 0 for a matmul; leading axes of a matmul's result
///   kChannelsFastest   in (channel, tap) the channel varies fastest
///   kUnitStride        every stride is 1
///   kChannelBlocks     above 0: columns of a wgrad are (block of channels, taps, channel in the block), taps
///                      along the first axis varying fastest; n counts whole blocks. Below 0: columns are
///                      (tap, channel) with channels filled up to whole lines, `channels` of them
template <int kOp, int kSpatial, int kBatch, bool kChannelsFastest, bool kUnitStride, class Index, class Wide,
          class Divisor, int kChannelBlocks = 0>
struct Contraction {
  using Key = Point<Index>;
  enum : int { kAxes = kOp == kMatmul ? kBatch + 2 : kSpatial + 2 };
  /// Axes of the result, a bit each, along which rows lie; and columns.
  enum : unsigned {
    kRowAxes = kOp == kMatmul  ? 1u << kBatch
               : kOp == kWgrad ? 1u
                               : ~2u,
    kColumnAxes = kOp == kMatmul  ? 2u << kBatch
                  : kOp == kWgrad ? ~1u
                                  : 2u,
  };

  Wide m, n, k;                          // extents of one batch entry
  Divisor channels;                      // in (channel, tap); or in a block
  Wide input_channels, output_channels;  // of one group
  WindowAxis<Wide, Divisor> axis[kSpatial > 0 ? kSpatial : 1];
  Divisor batch[kBatch > 0 ? kBatch : 1];

  __device__ Key row(Index index) const {
    if (index >= Index(m)) return outside();
    if constexpr (kOp == kFprop) return pixel<true>(index);
    if constexpr (kOp == kDgrad) return pixel<false>(index);
    return plain(index);
  }
  __device__ Key column(Index index) const {
    if (index >= Index(n)) return outside();
    if constexpr (kChannelBlocks > 0) return channel_in_block(index);
    if constexpr (kOp == kWgrad) {
      const Key key = channel_and_tap(index);
      return kChannelBlocks == 0 || key.lead < Index(input_channels) ? key : outside();
    }
    return plain(index);
  }
  __device__ Key step(Index index, Index end) const {
    if (index >= end) return outside();
    if constexpr (kOp == kFprop || kOp == kDgrad) return channel_and_tap(index);
    if constexpr (kOp == kWgrad) return pixel<true>(index);
    return plain(index);
  }

  /// Where row and step meet in the first operand; false where that is padding or beyond the end.
  __device__ bool first_operand(Index entry, const Key& row, const Key& step, Index (&at)[kAxes]) const {
    if constexpr (kOp == kMatmul) {
      batch_coordinates(entry, at);
      at[kBatch] = row.lead;
      at[kBatch + 1] = step.lead;
      return (row.lead | step.lead) >= 0;
    } else if constexpr (kOp == kWgrad) {
      at[0] = step.lead;
      at[1] = row.lead + entry * Index(output_channels);
      for (int i = 0; i < kSpatial; ++i) at[2 + i] = step.at[i];
      return (row.lead | step.lead) >= 0;
    } else {
      at[0] = row.lead;
      at[1] = step.lead + entry * Index(kOp == kFprop ? input_channels : output_channels);
      bool inside = (row.lead | step.lead) >= 0;
      for (int i = 0; i < kSpatial; ++i)
        inside &= kOp == kFprop ? input_position(i, row.at[i], step.at[i], at[2 + i])
                                : output_position(i, row.at[i], step.at[i], at[2 + i]);
      return inside;
    }
  }

  /// Where step and column meet in the second operand; false where that is padding or beyond the end.
  __device__ bool second_operand(Index entry, const Key& column, const Key& step, Index (&at)[kAxes]) const {
    bool inside = (column.lead | step.lead) >= 0;
    if constexpr (kOp == kMatmul) {
      batch_coordinates(entry, at);
      at[kBatch] = step.lead;
      at[kBatch + 1] = column.lead;
    } else if constexpr (kOp == kWgrad) {
      at[0] = step.lead;
      at[1] = column.lead + entry * Index(input_channels);
      for (int i = 0; i < kSpatial; ++i) inside &= input_position(i, step.at[i], column.at[i], at[2 + i]);
    } else {
      const Index first_output = entry * Index(output_channels);
      at[0] = first_output + (kOp == kFprop ? column.lead : step.lead);
      at[1] = kOp == kFprop ? step.lead : column.lead;
      for (int i = 0; i < kSpatial; ++i) at[2 + i] = step.at[i];
    }
    return inside;
  }

  /// Where row and column meet in the result; both are inside.
  __device__ void result(Index entry, Index row_index, Index column_index, Index (&at)[kAxes]) const {
    result(entry, row(row_index), column(column_index), at);
  }
  __device__ void result(Index entry, const Key& row_key, const Key& column_key, Index (&at)[kAxes]) const {
    if constexpr (kOp == kMatmul) {
      batch_coordinates(entry, at);
      at[kBatch] = row_key.lead;
      at[kBatch + 1] = column_key.lead;
    } else if constexpr (kOp == kWgrad) {
      at[0] = row_key.lead + entry * Index(output_channels);
      at[1] = column_key.lead;
      for (int i = 0; i < kSpatial; ++i) at[2 + i] = column_key.at[i];
    } else {
      at[0] = row_key.lead;
      at[1] = column_key.lead + entry * Index(kOp == kFprop ? output_channels : input_channels);
      for (int i = 0; i < kSpatial; ++i) at[2 + i] = row_key.at[i];
    }
  }

 private:
  static __device__ Key outside() { return {Index(-1), {Index(0), Index(0), Index(0)}}; }
  static __device__ Key plain(Index index) { return {index, {Index(0), Index(0), Index(0)}}; }

  template <bool kOutput>
  __device__ Key pixel(Index linear) const {
    Key key = plain(0);
    for (int i = kSpatial - 1; i >= 0; --i)
      key.at[i] = (kOutput ? axis[i].output : axis[i].input).split(linear);
    key.lead = linear;
    return key;
  }

  __device__ Key channel_and_tap(Index linear) const {
    Key key = plain(0);
    if constexpr (kChannelsFastest) key.lead = channels.split(linear);
    for (int i = kSpatial - 1; i > 0; --i) key.at[i] = axis[i].window.split(linear);
    if constexpr (kChannelsFastest) {
      key.at[0] = linear;
    } else {
      key.at[0] = axis[0].window.split(linear);
      key.lead = linear;
    }
    return key;
  }

  __device__ Key channel_in_block(Index linear) const {
    Key key = plain(channels.split(linear));
    key.at[0] = axis[0].window.split(linear);
    for (int i = kSpatial - 1; i > 0; --i) key.at[i] = axis[i].window.split(linear);
    key.lead += linear * channels.divisor;
    return key.lead < Index(input_channels) ? key : outside();
  }

  __device__ bool input_position(int i, Index output, Index tap, Index& position) const {
    position = output * axis[i].stride.divisor + tap * Index(axis[i].step) + Index(axis[i].start);
    return position >= 0 && position < axis[i].input.divisor;
  }

  // A tap meets an input position only from one output position, if from any.
  __device__ bool output_position(int i, Index input, Index tap, Index& position) const {
    position = input - tap * Index(axis[i].step) - Index(axis[i].start);
    if constexpr (kUnitStride) return position >= 0 && position < axis[i].output.divisor;
    const bool reached = position >= 0;
    const Index quotient = axis[i].stride.divide(reached ? position : Index(0));
    const bool whole = quotient * axis[i].stride.divisor == position;
    position = quotient;
    return reached && whole && position < axis[i].output.divisor;
  }

  __device__ void batch_coordinates(Index entry, Index (&at)[kAxes]) const {
    for (int i = kBatch - 1; i > 0; --i) at[i] = batch[i].split(entry);
    if constexpr (kBatch > 0) at[0] = entry;
  }
};
