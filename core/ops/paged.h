// Owns the loads of caches in pages and of ragged tensors, and the store of the latter.
#pragma once

#include "core/ops/family.h"

namespace fusor {

class Expansion;

/// y[b, h, s, d] = container[page_table[b, s / page], h, s % page, d] for s below max_seq_len: container
/// [pages, h, page, d], page_table [b, 1, n, 1] or [b, 1, n]. Rows at and beyond `lengths` [b, 1, 1, 1], and
/// pages that the container does not have, are 0.
struct PagedCacheLoad {
  int64_t max_seq_len = 0;  ///< 0: all rows that the table has pages for

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("max_seq_len", self.max_seq_len);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "paged_cache_load"; }
  Roles roles() const {
    return {{{"container"}, {"page_table"}, {.name = "lengths", .optional = true}}, {{"y"}}};
  }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const PagedCacheLoad&, const PagedCacheLoad&) = default;
};

/// y[b, ...] = the element of x, one axis long, at offset[b] + the sum of coordinate * stride over the other
/// axes, where that lies below offset[b + 1]; 0 elsewhere. `strides` has one entry for each axis behind the
/// batch; y's dims are asked for.
struct RaggedLoad {
  Dims strides;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("strides", self.strides);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "ragged_load"; }
  Roles roles() const { return {{{"x"}, {"offset"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const RaggedLoad&, const RaggedLoad&) = default;
};

/// The way back: y, one axis long, holds the rows of x [b, ...] one batch entry behind the other, by the same
/// offsets and strides. Elements that belong to no coordinate of x are 0; with `keeps_rest` they are not
/// written, and neither are those at and beyond offset[b + 1] of each batch entry: y is an output that no op
/// reads.
struct RaggedStore {
  Dims strides;
  bool keeps_rest = false;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("strides", self.strides);
    field("keeps_rest", self.keeps_rest);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "ragged_store"; }
  Roles roles() const { return {{{"x"}, {"offset"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  bool leaves_gaps() const { return keeps_rest; }
  friend bool operator==(const RaggedStore&, const RaggedStore&) = default;
};

/// Dims of what a page table loads from a container; refuses what does not fit.
Dims paged_dims(const Call& call, const Tensor& container, const Tensor& table, int64_t max_seq_len);
/// That load.
int paged_load(Expansion& e, int container, int table, int64_t max_seq_len);

}  // namespace fusor
