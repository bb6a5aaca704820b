/* The graph interface under the name that it had before version 9. */
#ifndef CUDNN_BACKEND_H_
#define CUDNN_BACKEND_H_

#include "cudnn_graph.h"

#endif
