// Owns the rules of tensors, convolutions and pointwise ops that the table of attributes cannot say.
#pragma once

#include "compat/cudnn/src/descriptor.h"

namespace fusor::cudnn {

void finalize_tensor(Descriptor& d);
void finalize_convolution(Descriptor& d);
void finalize_pointwise_operation(Descriptor& d);

}  // namespace fusor::cudnn
