// Owns what TMA asks of any operand of a contraction, and the axes that one stride must walk.
#pragma once

#include <optional>
#include <string>

#include "backend/engines/contraction/product.h"
#include "core/fusion.h"
#include "core/support.h"

namespace fusor::copy_rules {

Refusal refusal(const char* rule, const std::string& tensor, std::string expected, std::string actual,
                const char* remedy = "");

/// Axes that one stride must walk: a matmul's batch, a filter's taps, the pixels of wgrad's output gradient.
struct WalkedAxes {
  Dims extents;
  Strides strides;
};
WalkedAxes batch_of(const Expr& site);
WalkedAxes taps_of(const Expr& site);
WalkedAxes pixels_of(const Expr& site);
/// Axes from `first` on, before `last`.
Dims slice(const Dims& dims, int first, int last);

/// Why a site is more than a load of what the tensor cores multiply; or nothing.
std::optional<Refusal> refuse_value(const Fusion& fusion, const Contraction& view, const Expr& site);
/// Why a site's one load does not begin where TMA could.
std::optional<Refusal> refuse_start(const Fusion& fusion, const Expr& site);
/// The former, and from aligned memory.
std::optional<Refusal> refuse_operand(const Fusion& fusion, const Contraction& view, const Expr& site);
/// Channels lie side by side, everything else a multiple of 16 bytes apart.
std::optional<Refusal> refuse_channel_strides(const Fusion& fusion, const Expr& site, int adjacent);
std::optional<Refusal> refuse_walk(const Fusion& fusion, const Expr& site, const WalkedAxes& axes,
                                   const char* what);

}  // namespace fusor::copy_rules
