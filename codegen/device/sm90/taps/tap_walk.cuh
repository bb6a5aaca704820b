// Owns the walk of a wgrad whose taps are shifted reads of one input in shared memory. Templates over the
// numbers of the argument block, so that a host test runs them.
//
//   plane of dy    | step 0: 32 | step 1     | step 2     | ...            a step of k
//   plane of x     | piece 0: 64 + overlap   | piece 1 ...                 pieces that a step reads
//
// Rows of both are equally long, so a tap is one distance for a whole plane. TMA writes zeros beyond a
// plane's ends; a reader has to beyond a row's.
#pragma once

// Outputs of a step, and those of one wgmma.
enum : int { kStepPositions = 32, kEight = 8 };
// The distance from a piece of inputs to the next. A piece is longer, so that all inputs that eight outputs
// meet at the taps of one consumer lie in one piece.
enum : int { kPiecePositions = 64 };

/// Steps of one image: [first, last).
struct StepRun {
  int image, first, last;
};

template <class Index, class Count, class Divisor>
struct TapWalk {
  Divisor steps;    // of an image
  Count all_steps;  // of all images
  Count parts;      // that they are cut into
  Count positions;  // outputs of a plane
  Count row;        // outputs of a row
  Count width;      // inputs of a row
  Count origin;     // where piece 0 begins, in a plane of inputs
  Count farthest;   // behind that: what the first output meets at the last consumer's first tap

  __device__ int first_step(int part) const { return static_cast<int>(all_steps * part / parts); }
  // The steps from `step` on that belong to one image.
  __device__ StepRun run(int step, int end) const {
    Index rest = step;
    const int first = static_cast<int>(steps.split(rest));
    const int left = static_cast<int>(steps.divisor) - first;
    return {static_cast<int>(rest), first, first + (left < end - step ? left : end - step)};
  }

  // The first and last piece that a step of an image needs.
  __device__ int first_piece(int step) const { return step * kStepPositions / kPiecePositions; }
  __device__ int last_piece(int step) const {
    return (step * kStepPositions + kStepPositions - kEight + static_cast<int>(farthest)) / kPiecePositions;
  }
  __device__ int piece_begins(int piece) const { return static_cast<int>(origin) + piece * kPiecePositions; }

  // How many halves of a step begin inside the plane.
  __device__ int halves(int step) const {
    constexpr int kHalf = kStepPositions / 2;
    const int left = static_cast<int>(positions) - step * kStepPositions;
    return left > kHalf ? 2 : 1;
  }
};

/// The first of the inputs that eight outputs meet at a consumer's first tap: a place of the ring of pieces,
/// and how far behind the piece's beginning it lies.
template <int kPlaces>
struct InputPlace {
  int place, offset;

  // `position`: behind the beginning of piece 0; `first_piece` lies in `first_place`.
  __device__ void begin(int position, int first_piece, int first_place) {
    place = (first_place + position / kPiecePositions - first_piece) % kPlaces;
    offset = position % kPiecePositions;
  }
  __device__ void advance() {
    offset += kEight;
    if (offset < kPiecePositions) return;
    offset -= kPiecePositions;
    place = place + 1 == kPlaces ? 0 : place + 1;
  }
};

/// The columns of the two outputs of every eight that a thread sees, four apart.
struct OutputColumns {
  unsigned row, stride;
  unsigned column[2];

  template <class Walk>
  __device__ void begin(const Walk& walk, int position) {
    row = static_cast<unsigned>(walk.row);
    stride = kEight % row;
    for (int i = 0; i < 2; ++i) column[i] = (static_cast<unsigned>(position) + 4 * i) % row;
  }
  __device__ void advance() {
    for (int i = 0; i < 2; ++i) {
      // A minimum instead of a branch: where next < row, the unsigned difference wraps round to more.
      const unsigned next = column[i] + stride, wrapped = next - row;
      column[i] = next < wrapped ? next : wrapped;
    }
  }
  // Whether the input so many columns further on is in the row.
  __device__ bool meets(int i, int further, unsigned width) const {
    return column[i] + static_cast<unsigned>(further) < width;
  }
};

/// The taps of a consumer.
template <class Count>
struct ConsumerTaps {
  Count first;   // what the first output meets at the first of them, behind the beginning of piece 0
  Count column;  // how many columns further on than the output that is
};
