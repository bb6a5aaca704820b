// Owns the forms of quantities.
#include "core/words.h"

#include <fmt/format.h>

#include <array>

namespace fusor::words {

std::string duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.3f} s", seconds);
}

std::string bytes(double number) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (number < 1024) return fmt::format("{:.0f} bytes", number);
  double amount = number / 1024;
  size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string bytes(int64_t number) { return bytes(static_cast<double>(number)); }

std::string flops(double number) {
  return number < 1e9 ? fmt::format("{:.1f} MFLOP", number / 1e6) : fmt::format("{:.1f} GFLOP", number / 1e9);
}

std::string count(size_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace fusor::words
