// Owns what is done with a file that nobody vouches for: everything that the library would do with it.
#pragma once

#include <string_view>

namespace fusor::hostile {

/// Reads a graph or a plan, checks and plans it for an H200 and for the CPU, lowers it, writes the text of
/// its kernels, and runs it on the CPU where it is small. Errors of kind bad_input are what a bad file should
/// give; other exceptions leave. True: the text was a graph or a plan.
bool exercise(std::string_view text);

}  // namespace fusor::hostile
