// Owns the list of the command's parts and what they are asked. Each returns the exit code: 0, or 1 for a
// wrong result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/build.h"

namespace fusor::command {

inline constexpr int kWrongResult = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kMachineLacks = 3;

struct Options {
  std::string device;  ///< empty: a plan's own device, else "current"
  bool json = false;   ///< one JSON document on standard output instead of text
  std::string file;    ///< a graph or a plan
  BuildOptions build;
  // plan
  std::string output;
  std::optional<size_t> candidate;
  // run
  bool verify = false;
  int repeat = 1;
  uint64_t seed = 1;
};

int plan(const Options& options);
int run(const Options& options);
int explain(const Options& options);
int source(const Options& options);
int candidates(const Options& options);
int doctor(const Options& options);
int devices(const Options& options);

}  // namespace fusor::command
