// Owns the mutations of documents: bytes, and numbers and words in their places.
#pragma once

#include <random>
#include <string>

namespace fusor::hostile {

/// One to four changes. Most are of a number that a document has, to one that is absurd or nearly right; some
/// exchange words or lines, some flip bytes.
std::string mutated(std::string text, std::mt19937& random);

}  // namespace fusor::hostile
