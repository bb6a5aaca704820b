// Owns how attention reads dropout: values that are multiplied by numbers and kept where a condition holds.
#pragma once

#include <optional>
#include <vector>

#include "core/lowered.h"

namespace fusor::attention {

/// Node `value` times the numbers `weights` - scalars, the larger of two, or single elements - where node
/// `keep` holds; else node `otherwise`, or 0 where that is -1. Without a condition `keep` is -1.
struct Dropped {
  int value = -1, keep = -1, otherwise = -1;
  std::vector<int> weights = {};
};

/// Node `at` as a dropped value: past roundings, products with scalars, and one select or product with a
/// truth.
Dropped behind_dropout(const Expr& expr, int at);

/// The condition at `keep` as a site of its own, where it is made of coordinates and of what is one number
/// for all scores of an entry: kernels find it anew for each element. It has an input 0, which it does not
/// read: so what all elements share is loaded once. The index of a random word that is a sum of coordinates
/// times constants becomes one of coordinates that count in such steps, the last axis last.
std::optional<Expr> kept_part(const Fusion& fusion, const Expr& expr, int keep);

/// Whether four keys from a multiple of four on share each block of the condition's random words.
bool shares_words(const Expr& keep);

/// The site M of the condition. Where keys share words its vectors run along keys, else along the keys or the
/// queries as the kernel's columns do.
KernelSite kept_site(const Expr& keep, bool columns_are_keys);

}  // namespace fusor::attention
