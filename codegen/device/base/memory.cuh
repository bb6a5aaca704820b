// Owns loads and stores: one element, elements a stride apart, and whole vectors; the addresses of shared
// memory. Loads of global memory take the read-only path (ld.global.nc), for memory that nobody writes while
// the kernel runs. Blocks that hand each other data through memory load it otherwise (rows/meetings.cuh,
// recurrent/exchange.cuh).
#pragma once

#include "codegen/device/base/types.cuh"

template <int kBytes>
struct Words {
  u32 word[kBytes / 4];
};
template <>
struct Words<1> {
  u16 word;
};
template <>
struct Words<2> {
  u16 word;
};

FUSOR_DEVICE void load_words(const void* from, Words<1>& to) {
  asm("ld.global.nc.u8 %0, [%1];" : "=h"(to.word) : "l"(from));
}
FUSOR_DEVICE void load_words(const void* from, Words<2>& to) {
  asm("ld.global.nc.u16 %0, [%1];" : "=h"(to.word) : "l"(from));
}
FUSOR_DEVICE void load_words(const void* from, Words<4>& to) {
  asm("ld.global.nc.u32 %0, [%1];" : "=r"(to.word[0]) : "l"(from));
}
FUSOR_DEVICE void load_words(const void* from, Words<8>& to) {
  asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(to.word[0]), "=r"(to.word[1]) : "l"(from));
}
FUSOR_DEVICE void load_words(const void* from, Words<16>& to) {
  asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
      : "l"(from));
}

// The same where `holds`; elsewhere `to` stays as it is. A predicate, so that nothing waits for the load but
// what uses it.
FUSOR_DEVICE void load_words_where(const void* from, Words<1>& to, bool holds) {
  asm("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.nc.u8 %0, [%1]; }"
      : "+h"(to.word)
      : "l"(from), "r"(u32(holds)));
}
FUSOR_DEVICE void load_words_where(const void* from, Words<2>& to, bool holds) {
  asm("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.nc.u16 %0, [%1]; }"
      : "+h"(to.word)
      : "l"(from), "r"(u32(holds)));
}
FUSOR_DEVICE void load_words_where(const void* from, Words<4>& to, bool holds) {
  asm("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.nc.u32 %0, [%1]; }"
      : "+r"(to.word[0])
      : "l"(from), "r"(u32(holds)));
}
FUSOR_DEVICE void load_words_where(const void* from, Words<8>& to, bool holds) {
  asm("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.nc.v2.u32 {%0, %1}, [%2]; }"
      : "+r"(to.word[0]), "+r"(to.word[1])
      : "l"(from), "r"(u32(holds)));
}
FUSOR_DEVICE void load_words_where(const void* from, Words<16>& to, bool holds) {
  asm("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "+r"(to.word[0]), "+r"(to.word[1]), "+r"(to.word[2]), "+r"(to.word[3])
      : "l"(from), "r"(u32(holds)));
}
FUSOR_DEVICE void store_words(void* to, const Words<1>& from) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "h"(from.word) : "memory");
}
FUSOR_DEVICE void store_words(void* to, const Words<2>& from) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(from.word) : "memory");
}
FUSOR_DEVICE void store_words(void* to, const Words<4>& from) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(from.word[0]) : "memory");
}
FUSOR_DEVICE void store_words(void* to, const Words<8>& from) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(from.word[0]), "r"(from.word[1]) : "memory");
}
FUSOR_DEVICE void store_words(void* to, const Words<16>& from) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(from.word[0]), "r"(from.word[1]),
               "r"(from.word[2]), "r"(from.word[3])
               : "memory");
}

template <class To, class From>
FUSOR_DEVICE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// One element.
template <class T>
FUSOR_DEVICE T load(const T* from) {
  Words<sizeof(T)> words;
  load_words(from, words);
  if constexpr (sizeof(T) == 1) {
    return bit_cast<T>(static_cast<u8>(words.word));
  } else {
    return bit_cast<T>(words);
  }
}
template <class T>
FUSOR_DEVICE void store(T* to, T value) {
  if constexpr (sizeof(T) == 1) {
    store_words(to, Words<1>{bit_cast<u8>(value)});
  } else {
    store_words(to, bit_cast<Words<sizeof(T)>>(value));
  }
}

// N elements `stride` apart, of which the first `count` exist; the others are zero. All of them exist where
// no count is given, as in what follows.
template <int N, class T>
FUSOR_DEVICE Vec<T, N> load_strided(const T* from, Index stride, int count = N) {
  Vec<T, N> to = {};
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) to.lane[i] = load(from + i * stride);
  return to;
}
// One element for all lanes; zero where no lane exists.
template <class T>
FUSOR_DEVICE T load_broadcast(const T* from, int count) {
  return load_strided<1>(from, 0, count).lane[0];
}
// One element where `holds`; zero elsewhere.
template <class T>
FUSOR_DEVICE T load_where(const T* from, bool holds) {
  return load_strided<1>(from, 0, holds ? 1 : 0).lane[0];
}
template <int N, class T>
FUSOR_DEVICE void store_strided(T* to, Index stride, const Vec<T, N>& from, int count = N) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) store(to + i * stride, from.lane[i]);
}

// N adjacent elements from an address that is a multiple of their size (up to 16 bytes): in whole accesses
// where all of them exist.
template <int N, class T>
FUSOR_DEVICE Vec<T, N> load_whole(const T* from) {
  constexpr int kBytes = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
  if constexpr (N == 1) {
    return load_strided<1>(from, 1);
  } else {
    Vec<T, N> to;
    Words<kBytes>* const pieces = reinterpret_cast<Words<kBytes>*>(&to);
#pragma unroll
    for (int i = 0; i < static_cast<int>(N * sizeof(T) / kBytes); ++i)
      load_words(reinterpret_cast<const char*>(from) + i * kBytes, pieces[i]);
    return to;
  }
}
template <int N, class T>
FUSOR_DEVICE Vec<T, N> load_whole(const T* from, int count) {
  if (N == 1 || count < N) return load_strided<N>(from, 1, count);
  return load_whole<N>(from);
}
// The same where `holds`; zeros elsewhere, in every bit.
template <int N, class T>
FUSOR_DEVICE Vec<T, N> load_whole_where(const T* from, bool holds) {
  constexpr int kBytes = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
  Vec<T, N> to;
  Words<kBytes> pieces[N * sizeof(T) / kBytes] = {};
#pragma unroll
  for (int i = 0; i < static_cast<int>(N * sizeof(T) / kBytes); ++i)
    load_words_where(reinterpret_cast<const char*>(from) + i * kBytes, pieces[i], holds);
  memcpy(&to, pieces, sizeof(to));
  return to;
}
template <int N, class T>
FUSOR_DEVICE void store_whole(T* to, const Vec<T, N>& from) {
  constexpr int kBytes = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
  if constexpr (N == 1) {
    store_strided<1>(to, 1, from);
  } else {
    const Words<kBytes>* const pieces = reinterpret_cast<const Words<kBytes>*>(&from);
#pragma unroll
    for (int i = 0; i < static_cast<int>(N * sizeof(T) / kBytes); ++i)
      store_words(reinterpret_cast<char*>(to) + i * kBytes, pieces[i]);
  }
}
template <int N, class T>
FUSOR_DEVICE void store_whole(T* to, const Vec<T, N>& from, int count) {
  if (N == 1 || count < N) return store_strided<N>(to, 1, from, count);
  store_whole(to, from);
}

// The lanes of a vector from kFirst (0, 1) on, every other one, and two vectors whose lanes take turns.
template <int kFirst, int N, class T>
FUSOR_DEVICE Vec<T, N / 2> every_other(const Vec<T, N>& pairs) {
  Vec<T, N / 2> to;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) to.lane[i] = pairs.lane[2 * i + kFirst];
  return to;
}
template <int N, class T>
FUSOR_DEVICE Vec<T, 2 * N> in_turn(const Vec<T, N>& even, const Vec<T, N>& odd) {
  Vec<T, 2 * N> to;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    to.lane[2 * i] = even.lane[i];
    to.lane[2 * i + 1] = odd.lane[i];
  }
  return to;
}

// The same into lines that L2 evicts last (sm_80): what is stored then waits longer there, and goes to memory
// in longer bursts between those of loads. Behind 512 MiB of other loads nothing of it is left.
template <int N, class T>
FUSOR_DEVICE void store_whole_last(T* to, const Vec<T, N>& from) {
  if constexpr (N * sizeof(T) % 16 != 0) {
    store_whole(to, from);  // elements behind the last vector
  } else {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    const Words<16>* const pieces = reinterpret_cast<const Words<16>*>(&from);
#pragma unroll
    for (int i = 0; i < static_cast<int>(N * sizeof(T) / 16); ++i)
      asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(
                       reinterpret_cast<char*>(to) + i * 16),
                   "r"(pieces[i].word[0]), "r"(pieces[i].word[1]), "r"(pieces[i].word[2]),
                   "r"(pieces[i].word[3]), "l"(policy)
                   : "memory");
  }
}
template <int N, class T>
FUSOR_DEVICE void store_whole_last(T* to, const Vec<T, N>& from, int count) {
  if (count < N) return store_strided<N>(to, 1, from, count);
  store_whole_last(to, from);
}

// ---- Elements at places of their own, which a function of the lane tells; -1 is none ----

// The first of N neighbours that one access takes, or -1. Places count from lane to lane, but for the last
// ones, which may be some other place: three lanes tell whether they do.
template <int N, class T, class Place>
FUSOR_DEVICE Index first_of_neighbours(const T* pointer, const Place& place) {
  constexpr int kBytes = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
  const Index first = place(0);
  const bool holds = first >= 0 && place(N - 2) == first + (N - 2) && place(N - 1) == first + (N - 1);
  return holds && reinterpret_cast<u64>(pointer + first) % kBytes == 0 ? first : Index(-1);
}
// Places that count from lane to lane: `holding` lanes from `first` on; `other` is that of all lanes behind.
struct CountedPlaces {
  i64 first, holding, other;
};

// Zeros in lanes whose place is not in front of `extent`, or negative. Most vectors are whole, or have no
// place at all: no branch is in their way, so that several of them are loaded at once.
template <int N, class T>
FUSOR_DEVICE Vec<T, N> load_counted(const T* from, const CountedPlaces& places, Index extent, Index stride,
                                    int count) {
  constexpr int kBytes = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
  const bool is_whole = N > 1 && stride == 1 && count >= N && places.holding >= N && places.first >= 0 &&
                        places.first <= i64(extent) - N &&
                        reinterpret_cast<u64>(from + places.first) % kBytes == 0;
  Words<kBytes> pieces[N * sizeof(T) / kBytes] = {};
#pragma unroll
  for (int i = 0; i < static_cast<int>(N * sizeof(T) / kBytes); ++i)
    load_words_where(reinterpret_cast<const char*>(from + places.first) + i * kBytes, pieces[i], is_whole);
  Vec<T, N> to;
  const bool is_empty = places.other < 0 && (places.holding <= 0 || places.first >= extent);
  if (!is_whole && !is_empty) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const i64 at = i < places.holding ? places.first + i : places.other;
      to.lane[i] = load_where(from + Index(at) * stride, i < count && at >= 0 && at < extent);
    }
    memcpy(pieces, &to, sizeof(to));
  }
  memcpy(&to, pieces, sizeof(to));
  return to;
}

// Zeros where there is none.
template <int N, bool kCounts, class T, class Place>
FUSOR_DEVICE Vec<T, N> load_places(const T* from, const Place& place) {
  if constexpr (kCounts && N > 1) {
    const Index first = first_of_neighbours<N>(from, place);
    if (first >= 0) return load_whole<N>(from + first, N);
  }
  Vec<T, N> to;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const Index at = place(i);
    to.lane[i] = load_where(from + at, at >= 0);
  }
  return to;
}
template <bool kCounts, int N, class T, class Place>
FUSOR_DEVICE void store_places(T* to, const Vec<T, N>& from, const Place& place) {
  if constexpr (kCounts && N > 1) {
    const Index first = first_of_neighbours<N>(to, place);
    if (first >= 0) return store_whole(to + first, from, N);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const Index at = place(i);
    if (at >= 0) store(to + at, from.lane[i]);
  }
}

// ---- Packed elements: several share a byte, the first one in its lowest bits ----

// Stands for a pointer to elements: the one `first` elements behind the first of a byte.
template <class T>
struct PackedPointer {
  enum : int { kShared = 8 / kPackedBits<T> };  // elements that share a byte
  enum : u32 { kMask = (1u << kPackedBits<T>)-1 };
  const u8* bytes;
  Index first;

  __device__ __forceinline__ const u8* byte() const { return bytes + (first >> kShift); }
  __device__ __forceinline__ int lane() const { return static_cast<int>(first) & (kShared - 1); }
  // Element `lane` of a byte.
  static __device__ __forceinline__ T element(u32 byte, int lane) {
    return T{static_cast<u8>(byte >> lane * kPackedBits<T> & kMask)};
  }

 private:
  enum : int { kShift = kShared == 2 ? 1 : 3 };
};
template <class T>
FUSOR_DEVICE PackedPointer<T> operator+(PackedPointer<T> from, Index elements) {
  return {from.bytes, from.first + elements};
}

template <class T>
FUSOR_DEVICE T load(PackedPointer<T> from) {
  return from.element(load(from.byte()), from.lane());
}
template <int N, class T>
FUSOR_DEVICE Vec<T, N> load_strided(PackedPointer<T> from, Index stride, int count = N) {
  Vec<T, N> to = {};
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) to.lane[i] = load(from + i * stride);
  return to;
}
template <class T>
FUSOR_DEVICE T load_broadcast(PackedPointer<T> from, int count) {
  return load_strided<1>(from, 0, count).lane[0];
}
template <class T>
FUSOR_DEVICE T load_where(PackedPointer<T> from, bool holds) {
  return load_strided<1>(from, 0, holds ? 1 : 0).lane[0];
}
template <int N, bool kCounts, class T, class Place>
FUSOR_DEVICE Vec<T, N> load_places(PackedPointer<T> from, const Place& place) {
  Vec<T, N> to;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const Index at = place(i);
    to.lane[i] = load_where(from + at, at >= 0);
  }
  return to;
}
// N adjacent elements, the first of which is a multiple of N.
template <int N, class T>
FUSOR_DEVICE Vec<T, N> load_whole(PackedPointer<T> from, int count = N) {
  constexpr int kShared = PackedPointer<T>::kShared;
  if (count < N) return load_strided<N>(from, 1, count);
  constexpr int kBytes = N < kShared ? 1 : N / kShared;
  Vec<u8, kBytes> bytes = load_whole<kBytes>(from.byte(), kBytes);
  const int first = N < kShared ? from.lane() : 0;
  Vec<T, N> to;
#pragma unroll
  for (int i = 0; i < N; ++i) to.lane[i] = from.element(bytes.lane[i / kShared], first + i % kShared);
  return to;
}

// Shared bytes of N elements, whole bytes of them: what does not exist is zero.
template <int N, class T>
FUSOR_DEVICE Vec<u8, N * kPackedBits<T> / 8> packed(const Vec<T, N>& from) {
  constexpr int kShared = PackedPointer<T>::kShared;
  Vec<u8, N / kShared> to = {};
#pragma unroll
  for (int i = 0; i < N; ++i)
    to.lane[i / kShared] |= static_cast<u8>(from.lane[i].bits << i % kShared * kPackedBits<T>);
  return to;
}

// Where packed elements are stored, whole bytes of them.
template <class T>
struct PackedPlace {
  u8* bytes;
  Index first;
};
template <class T>
FUSOR_DEVICE PackedPlace<T> operator+(PackedPlace<T> to, Index elements) {
  return {to.bytes, to.first + elements};
}
// The first of the N elements is a multiple of N, and no thread stores others of their bytes.
template <int N, class T>
FUSOR_DEVICE void store_whole(PackedPlace<T> to, const Vec<T, N>& from, int count = N) {
  constexpr int kShared = PackedPointer<T>::kShared;
  store_whole(to.bytes + to.first / kShared, packed(from), (count + kShared - 1) / kShared);
}

// ---- Packed elements that are scattered: any thread may store the others of their byte ----

// The bits of `mask` of a word; whoever stores others of them meanwhile is heard.
FUSOR_DEVICE void merge_word(u64 word, u32 bits, u32 mask) {
  if (mask == 0) return;
  u32 before, now;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(before) : "l"(word) : "memory");
  for (;;) {
    asm volatile("atom.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(now)
                 : "l"(word), "r"(before), "r"((before & ~mask) | (bits & mask))
                 : "memory");
    if (now == before) return;
    before = now;
  }
}

// Stands for a pointer to elements of which some are stored.
template <class T>
struct ScatteredPlace {
  u8* bytes;
  Index first;
};
template <class T>
FUSOR_DEVICE ScatteredPlace<T> operator+(ScatteredPlace<T> to, Index elements) {
  return {to.bytes, to.first + elements};
}
// `count` neighbours, word by word: 64 bits of elements meet three words at most.
template <int N, class T>
FUSOR_DEVICE void store_run(ScatteredPlace<T> to, const Vec<T, N>& from, int count) {
  constexpr int kBits = kPackedBits<T>, kShared = PackedPointer<T>::kShared;
  static_assert(N * kBits <= 64, "a run of scattered elements is at most 64 bits");
  if (count <= 0) return;
  u64 bits = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) bits |= static_cast<u64>(from.lane[i].bits) << i * kBits;
  const u64 mask = count * kBits < 64 ? (u64(1) << count * kBits) - 1 : ~u64(0);
  const u64 byte = reinterpret_cast<u64>(to.bytes + to.first / kShared);
  const int shift = static_cast<int>(byte % 4) * 8 + static_cast<int>(to.first % kShared) * kBits;
  const u64 word = byte - byte % 4;
  merge_word(word, static_cast<u32>(bits << shift), static_cast<u32>(mask << shift));
  merge_word(word + 4, static_cast<u32>(bits << shift >> 32), static_cast<u32>(mask << shift >> 32));
  if (N * kBits > 32 && shift > 0)
    merge_word(word + 8, static_cast<u32>(bits >> (64 - shift)), static_cast<u32>(mask >> (64 - shift)));
}
template <int N, class T>
FUSOR_DEVICE void store_strided(ScatteredPlace<T> to, Index stride, const Vec<T, N>& from, int count) {
  if (stride == 1) return store_run(to, from, count);
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) store_run(to + i * stride, Vec<T, 1>{{from.lane[i]}}, 1);
}
template <bool kCounts, int N, class T, class Place>
FUSOR_DEVICE void store_places(ScatteredPlace<T> to, const Vec<T, N>& from, const Place& place) {
  if constexpr (kCounts && N > 1) {
    const Index first = place(0);
    if (first >= 0 && place(N - 2) == first + (N - 2) && place(N - 1) == first + (N - 1))
      return store_run(to + first, from, N);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const Index at = place(i);
    if (at >= 0) store_run(to + at, Vec<T, 1>{{from.lane[i]}}, 1);
  }
}

// ---- Shared memory ----

// The address that instructions on shared memory take.
FUSOR_DEVICE u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// N adjacent elements from a multiple of 16 bytes: in pieces of 16 that come while the thread goes on,
// `apart` bytes from one to the next in shared memory (sm_80).
template <int N, class T>
FUSOR_DEVICE void copy_ahead(char* to, int apart, const T* from) {
  static_assert(N * sizeof(T) % 16 == 0, "vectors are copied in pieces of 16 bytes");
#pragma unroll
  for (int i = 0; i < static_cast<int>(N * sizeof(T) / 16); ++i)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to + i * apart)),
                 "l"(reinterpret_cast<const char*>(from) + i * 16)
                 : "memory");
}
template <int N, class T>
FUSOR_DEVICE void copied_ahead(const char* from, int apart, Vec<T, N>& to) {
  Words<16>* const pieces = reinterpret_cast<Words<16>*>(&to);
#pragma unroll
  for (int i = 0; i < static_cast<int>(N * sizeof(T) / 16); ++i)
    pieces[i] = *reinterpret_cast<const Words<16>*>(from + i * apart);
}
