// Owns the list of the command's parts and what they are asked. Each returns the exit code: 0, or 1 for a
// wrong result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/build.h"

namespace fusor::command {

inline constexpr int kWrongResult = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kMachineLacks = 3;

struct BenchOptions {
  std::vector<std::string> cases;      ///< ids, groups, files; empty: all
  std::string folder = "bench/cases";  ///< whose files are read where none is named
  bool list = false, cubins = false, serve = false, estimates = false;
  bool all_candidates = false;
  bool verify = true;
  double seconds = 30;  ///< for the runs of a case, at most
  std::string lock;     ///< a file that is locked while runs are timed; empty: none
};

struct TuneOptions {
  std::vector<std::string> graphs;  ///< files
  bool again = false;               ///< measure what the table knows, too
  double budget = 60;               ///< seconds for everything
};

struct FuzzOptions {
  std::vector<std::string> files;  ///< graphs that are checked instead of random ones
  int64_t runs = 1000, index = 0;  ///< graphs, and the first one's number
  bool plan_only = false, compile = false, on_cpu = false;
  int ops = 8;              ///< of a graph, at most
  int64_t elements = 8192;  ///< of a tensor, at most
  double seconds = 0;       ///< for everything; 0: no limit
  double timeout = 60;      ///< for one graph
  int threads = 1;          ///< processes that check graphs
  bool shrink = true;
  double shrink_seconds = 60;  ///< for one failure
  std::string keep;            ///< a folder for the graphs that fail
  int64_t candidate = 0;       ///< of the graphs in `files`
  uint64_t inputs = 1;         ///< their inputs' seed
};

struct Options {
  std::string device;  ///< empty: a plan's own device, else "current"
  bool json = false;   ///< one JSON document on standard output instead of text
  std::string file;    ///< a graph or a plan
  BuildOptions build;
  bool all = false;                          ///< explain
  bool generated = false;                    ///< source: without the device files around the generated header
  bool verify = false;                       ///< run
  std::string html, dot, onnx;               ///< explain: files to write
  std::string output;                        ///< plan, calibrate: a file; source: a folder
  std::optional<size_t> candidate;           ///< plan
  std::vector<std::string> inputs, outputs;  ///< run: "NAME=FILE.npy"
  int fusion = 0;                            ///< source: as explain numbers them, from 1; 0: all
  int repeat = 1;                            ///< run
  uint64_t seed = 1;
  int runs = 50;           ///< profile, bench, tune: of each candidate
  int64_t flush_mb = 512;  ///< profile, bench, tune, calibrate: read before each run
  int calibrate_runs = 9;  ///< calibrate: of each setting
  BenchOptions bench;
  TuneOptions tune;
  FuzzOptions fuzz;
};

int plan(const Options& options);
int run(const Options& options);
int profile(const Options& options);
int explain(const Options& options);
int source(const Options& options);
int candidates(const Options& options);
int bench(const Options& options);
int tune(const Options& options);
int calibrate(const Options& options);
int fuzz(const Options& options);
int engines(const Options& options);
int ops(const Options& options);
int doctor(const Options& options);
int devices(const Options& options);

}  // namespace fusor::command
