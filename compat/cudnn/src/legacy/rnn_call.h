// Owns a call of recurrent layers: what its descriptors say, where the memory that it keeps begins, and the
// graphs of its two passes.
#pragma once

#include <vector>

#include "compat/cudnn/src/legacy/cached_plan.h"
#include "compat/cudnn/src/legacy/rnn_objects.h"

namespace fusor::cudnn {

/// The tensors of a call.
enum RnnNumber {
  kX,
  kY,
  kH,
  kC,
  kNextH,
  kNextC,
  kDy,
  kDx,
  kDnextH,
  kDnextC,
  kDh,
  kDc,
  kSum,
  kLengths,
  kRows,
  kSeed,
  kKeptSeed,
  kKeptOffset,
  kNext,
  kStepped,
  kKept = 100,  ///< the input that is kept for each stage, by its first layer
  kWeight = 10000,
  kDweight = 20000
};

/// Layers that one op carries out: all of them, or where dropout lies between them, one.
struct RnnStage {
  int64_t first = 0, layers = 1;
};

struct RnnCall {
  RnnObject rnn;
  RnnDataObject x, y;
  bool has_h = false, has_c = false;

  DataType type() const;
  /// As the ops read and write them: packed sequences once they are padded.
  TensorObject input() const { return x.tensor(); }
  TensorObject output() const { return y.tensor(); }
  TensorObject hidden() const { return state(rnn.layer.output_size()); }
  TensorObject cell() const { return state(rnn.layer.hidden_size); }
  bool has_cell() const { return rnn.layer.cell == RnnCell::lstm; }
  TensorObject packed(const Dims& dims) const { return {rnn.type, dims, packed_strides(dims)}; }

  std::vector<RnnStage> stages(bool drops) const;
  bool drops() const;
  /// The tensor that the stage which begins with that layer reads.
  TensorObject stage_input(int64_t layer) const;

  /// The reserve space: inputs of every stage, gradients of the weights, the seed and offset of dropout.
  int64_t kept_offset(int64_t layer) const;
  int64_t dweight_offset() const { return kept_offset(drops() ? rnn.layer.layers : 1); }
  int64_t seed_offset() const;
  size_t reserve_bytes() const { return static_cast<size_t>(seed_offset() + 256 + 256); }

  /// The workspace: packed sequences, padded.
  bool is_packed() const { return x.is_packed(); }
  int64_t padded_input_bytes() const { return is_packed() ? tensor_bytes(stage_input(0)) : 0; }
  int64_t padded_output_bytes() const;
  size_t workspace_bytes() const {
    return static_cast<size_t>(padded_input_bytes() + padded_output_bytes() + 256);
  }

  PlanKey key(const char* call) const;

 private:
  int64_t output_width() const { return rnn.layer.directions() * rnn.layer.output_size(); }
  int64_t tensor_bytes(const TensorObject& tensor) const;
  TensorObject state(int64_t size) const {
    return packed({rnn.layer.layers * rnn.layer.directions(), x.batch, size});
  }
};

/// Integers without gaps.
TensorObject integers(DataType type, const Dims& dims);

/// The results that a forward pass is asked for: what its backward pass needs, and the last states.
struct RnnWanted {
  bool kept = false, h = false, c = false;
};

/// The tensors that a backward pass is handed (gradients of the last states) and asked for (of the first).
struct RnnGradientsWanted {
  bool has_dh = false, has_dc = false, tells_h = false, tells_c = false;
};

void sketch_forward(Sketch& s, const RnnCall& call, const RnnWanted& wanted);
void sketch_backward(Sketch& s, const RnnCall& call, const RnnGradientsWanted& wanted);
/// The gradients of all weights, from the reserve space to the client's, or added to what is there.
void sketch_weight_gradients(Sketch& s, const TensorObject& all, bool adds);

}  // namespace fusor::cudnn
