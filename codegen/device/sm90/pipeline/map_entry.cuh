// Owns where an entry of a batch lies in a map of five axes: TMA has three of them for the batch, beside a
// line and its elements. Templates over the integer and the divisor, so that a host test runs them.
#pragma once

/// The coordinates of an entry on the three, the outermost first; of kBatch axes, which are the last ones.
template <int kBatch>
struct MapEntry {
  int at[3] = {};

  template <class Index>
  __device__ void set(int axis, Index coordinate) {
    at[3 - kBatch + axis] = static_cast<int>(coordinate);
  }
};

/// The coordinates of the entry of a number, in a batch that no one stride walks. Innermost axes count first:
/// so many entries follow one another and share a coordinate, of which there are so many.
template <class Index, class Divisor>
struct EntryWalk {
  Divisor shared[3];
  Divisor extent[3];

  __device__ MapEntry<3> place(Index entry) const {
    MapEntry<3> place;
    for (int axis = 2; axis >= 0; --axis) {
      entry = shared[axis].divide(entry);
      place.set(axis, extent[axis].split(entry));
    }
    return place;
  }
};

/// The same of a batch whose entries share nothing, by the extents of its kAxes axes.
template <int kAxes, class Index, class Divisor>
struct OwnEntryWalk {
  Divisor extent[kAxes];

  __device__ MapEntry<kAxes> place(Index entry) const {
    MapEntry<kAxes> place;
    for (int axis = kAxes - 1; axis > 0; --axis) place.set(axis, extent[axis].split(entry));
    place.set(0, entry);
    return place;
  }
};
