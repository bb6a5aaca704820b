// Owns NVRTC: opened lazily with a version ladder; text in, cubin out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fusor::nvrtc {

/// Whether NVRTC (12.8 or newer) can be opened; why not, in words, where it cannot.
bool available(std::string* problem = nullptr);
/// "13.0" and the path it was opened from. Throws Error{missing}.
std::string version();
std::string library_path();
/// Compute capabilities that it compiles for: 75, 80, ... Throws Error{missing}.
std::vector<int> targets();

struct Compilation {
  std::string cubin;
  std::string log;  ///< warnings, then ptxas' count of registers, spills and shared memory
  double milliseconds = 0;
};
/// Compiles `root` (an embedded device file: "elementwise/elementwise.cuh") with the generated header for
/// `target`
/// ("sm_90a"). Any number of threads may compile at once. Throws Error{internal} with the log where the text
/// does not compile, Error{missing} where this NVRTC does not know the target.
Compilation compile(std::string_view root, const std::string& generated_header, const std::string& target);
/// Compiles a text that includes nothing with exactly these options. For texts that source() printed.
Compilation compile_alone(const std::string& text, const std::vector<std::string>& options);
/// The options that compile() passes.
std::vector<std::string> options(const std::string& target);
/// Those of them that decide what the kernel does, which nvcc takes, too: for the command line that source()
/// shows.
std::vector<std::string> language_options(const std::string& target);

/// What compile() compiles as one text for people: the root file with the generated header written out in the
/// place of its include, under a comment that says how it is compiled. Needs no NVRTC.
std::string readable_source(std::string_view root, const std::string& generated_header,
                            const std::string& target);

}  // namespace fusor::nvrtc
