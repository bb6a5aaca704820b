// Owns the descriptors of recurrent layers, and where their weights lie in one space.
#pragma once

#include <memory>
#include <vector>

#include "backend/device_memory.h"
#include "compat/cudnn/src/legacy/objects.h"
#include "core/ops/rnn.h"

namespace fusor::cudnn {

struct RnnObject {
  static constexpr const char* kWhat = "RNN descriptor";
  using Pointer = cudnnRNNDescriptor_t;
  RnnAttributes layer;
  int64_t input_size = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  std::shared_ptr<const DropoutObject> dropout;  ///< between the layers; null: none
};

/// Sequences of different lengths, as the device reads them.
struct RnnSequences {
  DeviceMemory lengths;      ///< [batch]
  DeviceMemory padded_rows;  ///< [time * batch]: the packed row of each step, -1 behind a sequence's end
  DeviceMemory packed_rows;  ///< [count]: the padded row of each packed one
  int64_t count = 0;         ///< steps of all sequences together
};

struct RnnDataObject {
  static constexpr const char* kWhat = "RNN data descriptor";
  using Pointer = cudnnRNNDataDescriptor_t;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int64_t time = 0, batch = 0, size = 0;
  std::shared_ptr<const RnnSequences> sequences;  ///< null where all have the same length
  /// The steps of all sequences lie without gaps, those of one time together.
  bool is_packed() const { return sequences != nullptr && layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED; }
  /// As a tensor [time, batch, size]; packed ones as they are once padded.
  TensorObject tensor() const;
};

/// A matrix or bias of all gates, at so many elements from the start of the weight space.
struct RnnWeight {
  Dims dims;
  int64_t offset = 0;
};

/// In the order of RnnForward's roles; one behind the other without gaps, the matrices of a layer before its
/// biases.
std::vector<RnnWeight> weights_of(const RnnObject& rnn);
int64_t weight_count(const RnnObject& rnn);

}  // namespace fusor::cudnn
