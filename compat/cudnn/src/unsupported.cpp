// Owns the names that programs may ask for, and that no graph of fusor stands behind: each answers that it is
// not supported.
#include "compat/cudnn/src/status.h"

// Declared without arguments: none is looked at, and the callers clean up after themselves.
#define FUSOR_UNSUPPORTED(name)                                                                  \
  extern "C" cudnnStatus_t name(void);                                                           \
  extern "C" cudnnStatus_t name(void) {                                                          \
    return fusor::cudnn::guarded(#name, [] {                                                     \
      fusor::cudnn::refuse(CUDNN_STATUS_NOT_SUPPORTED, "this call is not carried out by fusor"); \
    });                                                                                          \
  }
#include "compat/cudnn/src/unsupported.def"
#undef FUSOR_UNSUPPORTED
