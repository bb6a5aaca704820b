// Owns a thread's sums between the tensor cores and the epilogue of sm_90a's contraction: where those of a
// tile are, and how a piece of them reaches the epilogue's text, which may stand once for all pieces.
#pragma once

#include "codegen/device/sm90/epilogue/boxes.cuh"

// A thread's sums of a piece, of every sibling.
using PieceSums = Sum[kSiblings][kPiece / 2];

// In a loop over pieces, sums stay in the registers that PTX knows by name until their piece is next.
// Unrolled, and where the tensor cores' sums are short, they are values, read or added up once a tile.
enum : bool {
  kStayNamed =
      !kUnrolled && !kShortSums && store_path() != StorePath::partials && store_path() != StorePath::gathered
};

struct NamedSums {};
using AllSums = Sum[kParts][kSums];
template <bool kNamed>
struct SumsOfTile {
  using type = NamedSums;
};
template <>
struct SumsOfTile<false> {
  using type = AllSums;
};
using TileSums = SumsOfTile<kStayNamed>::type;

// When no wgmma is under way.
FUSOR_DEVICE void read_tile(NamedSums&) {}
template <int kPart = 0>
FUSOR_DEVICE void read_tile(AllSums& sums) {
  read_sums<kPart, kTileN>(sums[kPart]);
  if constexpr (kPart + 1 < kParts) read_tile<kPart + 1>(sums);
}

// ---- A piece that the compiler knows ----

// Copies the piece that begins at column 2 * first of a part.
FUSOR_DEVICE void take(PieceSums& piece, const Sum (&sums)[kSums], int first) {
#pragma unroll
  for (int sibling = 0; sibling < kSiblings; ++sibling)
#pragma unroll
    for (int i = 0; i < kPiece / 2; ++i) piece[sibling][i] = sums[sibling * (kColumns / 2) + first + i];
}

// ---- A piece that a loop knows ----
// Registers have no index: a branch for every piece moves its sums to registers of one name. Values that meet
// behind the branches would cost the compiler a twelfth of its time.

template <int kPart, int kFirst, int kSibling>
FUSOR_DEVICE void move_to_piece(PieceSums&, const NamedSums&) {
  move_sums<kPart, kFirst, kSibling*(kPiece / 2), kPiece / 2>();
}
template <int kPart, int kFirst, int kSibling>
FUSOR_DEVICE void move_to_piece(PieceSums& piece, const AllSums& sums) {
#pragma unroll
  for (int i = 0; i < kPiece / 2; ++i) piece[kSibling][i] = sums[kPart][kFirst + i];
}

// Pieces are counted over all parts.
template <int kNumber, int kSibling = 0, class Sums>
FUSOR_DEVICE void move_piece(PieceSums& piece, const Sums& sums) {
  constexpr int kFirst = kSibling * (kColumns / 2) + kNumber % kPieces * (kPiece / 2);
  move_to_piece<kNumber / kPieces, kFirst, kSibling>(piece, sums);
  if constexpr (kSibling + 1 < kSiblings) move_piece<kNumber, kSibling + 1>(piece, sums);
}
// Halves the pieces until one is left.
template <int kFirst, int kCount, class Sums>
FUSOR_DEVICE void move_chosen(PieceSums& piece, const Sums& sums, int number) {
  if constexpr (kCount == 1) {
    move_piece<kFirst>(piece, sums);
  } else {
    constexpr int kHalf = kCount / 2;
    if (number < kFirst + kHalf)
      move_chosen<kFirst, kHalf>(piece, sums, number);
    else
      move_chosen<kFirst + kHalf, kCount - kHalf>(piece, sums, number);
  }
}

template <int kSibling = 0>
FUSOR_DEVICE void read_piece(PieceSums& piece) {
  read_piece<kSibling*(kPiece / 2), kPiece / 2>(piece[kSibling]);
  if constexpr (kSibling + 1 < kSiblings) read_piece<kSibling + 1>(piece);
}
template <class Sums>
FUSOR_DEVICE void choose(PieceSums& piece, const Sums& sums, int number) {
  move_chosen<0, kParts * kPieces>(piece, sums, number);
  if constexpr (kStayNamed) read_piece(piece);
}
