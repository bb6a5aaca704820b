/* The umbrella header of fusor's library with cuDNN's interface. */
#ifndef CUDNN_H_
#define CUDNN_H_

#include "cudnn_adv.h"
#include "cudnn_cnn.h"
#include "cudnn_graph.h"
#include "cudnn_ops.h"
#include "cudnn_version.h"

#endif
