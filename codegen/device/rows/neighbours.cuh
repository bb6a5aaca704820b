// Owns how a thread loads and stores what each of its rows has once, and what neighbouring rows have once for
// all of them: the statistics of a group of channels.
//
//   rows of a thread     8   9  10  11  12  13  14  15      p.fold[0] = 10 rows share a place
//   shared place         0   0   1   1   1   1   1   1      loaded for each row, stored by row 10
#pragma once

enum : bool { kSharedPlaces = Config::shared_places };

template <class Site>
FUSOR_DEVICE constexpr bool loads_shared_places() {
  if constexpr (kSharedPlaces)
    return Site::kLoadsSharedPlaces;
  else
    return false;
}

// Site is Y: what is said of one row exists only where places are shared.
template <class Site, class Params, class Row>
FUSOR_DEVICE void begin_rows(const Params& p, Index (&at)[Site::kRank], Row& row) {
  if constexpr (loads_shared_places<Site>()) {
    const Index first = at[Site::kKept - 1];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      at[Site::kKept - 1] = first + i;
      at[0] = p.fold[0].divide(first + i);
      typename Site::template Row<1> one;
      Site::begin(p.y, at, one);
      Site::put(one, i, row);
    }
    at[Site::kKept - 1] = first;
  } else {
    Site::begin(p.y, at, row);
  }
}

// By one thread of those that share the rows.
template <class Site, class Params, class Row>
FUSOR_DEVICE void finish_rows(const Params& p, Index (&at)[Site::kRank], const Row& row) {
  if constexpr (kSharedPlaces) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      Index place = at[Site::kKept - 1] + i;
      if (p.fold[0].split(place) != 0) continue;
      typename Site::template Row<1> one;
      Site::take(row, i, one);
      at[0] = place;
      Site::finish_row(p.y, at, one);
    }
  } else {
    Site::finish_row(p.y, at, row);
  }
}
