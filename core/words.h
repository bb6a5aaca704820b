// Owns the words in which texts for people give quantities: times, bytes, operations, counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fusor::words {

/// "12.30 us", "4.560 ms", "1.200 s"
std::string duration(double seconds);
/// "0 bytes", "12.0 KiB", "25.1 MiB", up to TiB
std::string bytes(double number);
std::string bytes(int64_t number);
/// "3.3 MFLOP", "3.3 GFLOP"
std::string flops(double number);
/// "1 fusion", "2 fusions": nouns that take an s
std::string count(size_t number, std::string_view noun);

}  // namespace fusor::words
