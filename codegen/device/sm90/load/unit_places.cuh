// Owns which 16 bytes of an operand tile each loading thread brings: where they lie in the operand and in
// shared memory, and how they are cut out of aligned words. Integers only, so that a host test runs it.
#pragma once

/// A tile of 128-byte lines as TMA writes them, with the 128-byte swizzle. In a pass each thread writes a
/// unit of 16 bytes; eight neighbours share a line: they read 128 bytes in a row and write to all banks.
///   lines along k    one for each row or column
///   kAcross          across k: kSteps lines for every 128 bytes of rows or columns
template <bool kAcross, int kSteps, int kThreads>
struct UnitPlaces {
  enum : int {
    kLineBytes = 128,
    kUnitBytes = 16,
    kUnits = kLineBytes / kUnitBytes,
    kLinesOfPass = kThreads / kUnits,
  };
  /// After so many passes, lines begin again, 128 bytes further on.
  enum : int { kPassesOfBlock = kAcross ? kSteps / kLinesOfPass : 1 };
  static_assert(kLinesOfPass % 8 == 0 && kSteps % kLinesOfPass == 0);

  /// A thread's first unit in memory: its line, counted from the tile's first one, and its byte in the line.
  static __device__ int line(int thread) { return thread / kUnits; }
  static __device__ int byte(int thread) { return thread % kUnits * kUnitBytes; }
  /// The distance from a thread's first unit to its unit of another pass.
  static constexpr __device__ int lines_on(int pass) {
    return (kAcross ? pass % kPassesOfBlock : pass) * kLinesOfPass;
  }
  static constexpr __device__ int bytes_on(int pass) {
    return kAcross ? pass / kPassesOfBlock * kLineBytes : 0;
  }
  /// A thread's unit in the tile in shared memory.
  static __device__ int place(int thread, int pass) {
    const int at = thread / kUnits, unit = thread % kUnits;
    return (pass * kLinesOfPass + at) * kLineBytes + (unit ^ at % 8) * kUnitBytes;
  }
};

/// Eight words become those that begin `shift` bytes further on, a multiple of kGrain and less than 16; four
/// of them count.
template <int kGrain>
static __device__ void move_down(unsigned (&words)[8], int shift) {
  for (int i = 0; i < 6; ++i) words[i] = (shift & 8) != 0 ? words[i + 2] : words[i];
  if constexpr (kGrain < 8)
    for (int i = 0; i < 5; ++i) words[i] = (shift & 4) != 0 ? words[i + 1] : words[i];
  if constexpr (kGrain < 4)
    for (int i = 0; i < 4; ++i) {
      const unsigned long long pair = static_cast<unsigned long long>(words[i + 1]) << 32 | words[i];
      words[i] = static_cast<unsigned>(pair >> shift % 4 * 8);
    }
}

/// The first `bytes` bytes of a word (none where that is not above 0), then zeros.
static __device__ unsigned first_bytes(unsigned word, int bytes) {
  if (bytes >= 4) return word;
  return bytes <= 0 ? 0 : word & ((1u << bytes * 8) - 1);
}
