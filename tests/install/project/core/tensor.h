// Owns a header of the consumer's whose path is also that of one of fusor's.
#pragma once

inline int mine() { return 7; }
