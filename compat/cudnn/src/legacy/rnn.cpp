// Owns recurrent layers as single calls. The forward pass keeps the input of each of its ops in the reserve
// space; the gradients of the weights, which belong to a later call, are written there by the first call of
// the backward pass. Packed sequences are padded in front of the ops and packed behind them.
#include <future>

#include "compat/cudnn/src/legacy/rnn_call.h"
#include "compat/cudnn/src/workspace.h"

namespace fusor::cudnn {
namespace {

RnnCall call_of(cudnnRNNDescriptor_t rnn, cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y) {
  RnnCall call{*object_at<RnnObject>(rnn), *object_at<RnnDataObject>(x), *object_at<RnnDataObject>(y)};
  if (call.x.size != call.rnn.input_size)
    refuse(CUDNN_STATUS_BAD_PARAM, "inputs of {} elements for a layer of {}", call.x.size,
           call.rnn.input_size);
  if (call.x.is_packed() != call.y.is_packed())
    refuse(CUDNN_STATUS_BAD_PARAM, "packed and padded sequences in one call");
  return call;
}

void bind_lengths(Bindings& bindings, const RnnCall& call) {
  if (call.x.sequences) bindings.bind(kLengths, call.x.sequences->lengths.get());
}

// Binds what lies in a space of weights, each at its place.
void bind_weights(Bindings& bindings, const RnnCall& call, int first, const void* space) {
  for (const RnnWeight& weight : weights_of(call.rnn))
    bindings.bind(first++, static_cast<const std::byte*>(space) + weight.offset * byte_size(call.type()));
}

// Row i of `to` is row rows[i] of `from`, or 0 where that is -1.
void move_rows(Handle& handle, const RnnCall& call, int64_t size, const DeviceMemory& rows, int64_t from_rows,
               const void* from, void* to) {
  const int64_t count = rows.bytes() / int64_t{sizeof(int32_t)};
  const TensorObject source = call.packed({from_rows, size}), target = call.packed({count, size});
  const PlanKey key = PlanKey("rnn rows").add(source).add(target);
  const auto plan = plan_for(handle, key, Precision::exact, [&](Sketch& s) {
    const Tensor index = s.input(kRows, integers(DataType::i32, {count, 1}));
    s.output(kY, s.g.gather(s.input(kX, source), index), target);
  });
  run_call(handle, *plan, Bindings().bind(kX, from).bind(kRows, rows.get()).bind(kY, to));
}

void pad(Handle& handle, const RnnCall& call, int64_t size, const void* from, void* to) {
  const RnnSequences& sequences = *call.x.sequences;
  move_rows(handle, call, size, sequences.padded_rows, sequences.count, from, to);
}

void pack(Handle& handle, const RnnCall& call, int64_t size, const void* from, void* to) {
  const RnnSequences& sequences = *call.x.sequences;
  move_rows(handle, call, size, sequences.packed_rows, call.x.time * call.x.batch, from, to);
}

// The room that a client lends for padded sequences: input in front, output behind it.
struct Padded {
  std::byte *input = nullptr, *output = nullptr;
};

Padded padded_in(void* workspace, size_t bytes, const RnnCall& call) {
  if (!call.is_packed()) return {};
  if (workspace == nullptr || bytes < call.workspace_bytes())
    refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a workspace of {} bytes; {} are needed", bytes,
           call.workspace_bytes());
  auto* const start = static_cast<std::byte*>(aligned(workspace));
  return {start, start + call.padded_input_bytes()};
}

void expect_reserve(const void* reserve, size_t bytes, const RnnCall& call) {
  if (reserve == nullptr || bytes < call.reserve_bytes())
    refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a reserve space of {} bytes; {} are needed", bytes,
           call.reserve_bytes());
}

// The reserve space begins on a multiple of 256.
std::byte* start_of(void* reserve) { return static_cast<std::byte*>(aligned(reserve)); }

void bind_kept(Bindings& bindings, const RnnCall& call, std::byte* kept) {
  for (const RnnStage& stage : call.stages(call.drops()))
    bindings.bind(kKept + static_cast<int>(stage.first), kept + call.kept_offset(stage.first));
  if (!call.drops()) return;
  std::byte* const seed = kept + call.seed_offset();
  bindings.bind(kKeptSeed, seed).bind(kKeptOffset, seed + sizeof(int64_t));
}

// The backward pass as frameworks ask for it: with gradients of every state that the forward pass was given,
// or made.
RnnGradientsWanted gradients_behind(const RnnCall& call, const RnnWanted& made) {
  return {.has_dh = made.h, .has_dc = made.c, .tells_h = call.has_h, .tells_c = call.has_c};
}

// Seed and offset of this call's random numbers, for its backward pass as well. The offset of the next call
// is behind those of all layers.
void draw_numbers(Handle& handle, const RnnCall& call, std::byte* kept) {
  const int64_t layers = call.rnn.layer.layers;
  const auto plan =
      plan_for(handle, PlanKey("dropout step").add(layers), fusor::Precision::exact, [&](Sketch& s) {
        const TensorObject number = integers(DataType::i64, {1});
        s.keep(kKeptSeed, s.input(kSeed, number));
        const Tensor offset = s.keep(kKeptOffset, s.input(kNext, number));
        s.keep(kStepped, s.g.add(offset, s.g.constant(static_cast<double>(layers), DataType::i64)));
      });
  std::byte *const seed = call.rnn.dropout->states, *const next = seed + DropoutObject::kNextOffset;
  std::byte* const place = kept + call.seed_offset();
  Bindings bindings;
  bindings.bind(kSeed, seed).bind(kNext, next).bind(kStepped, next);
  run_call(handle, *plan, bindings.bind(kKeptSeed, place).bind(kKeptOffset, place + sizeof(int64_t)));
}

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

extern "C" {

// The handle's own memory is the workspace of the plans: what a call needs depends on which states the client
// hands over. The client's holds padded sequences.
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t* workspace, size_t* reserve) {
  return guarded("cudnnGetRNNTempSpaceSizes", [&] {
    handle_at(handle);
    const RnnCall call = call_of(rnn, x, x);
    if (workspace != nullptr) *workspace = call.workspace_bytes();
    if (reserve != nullptr) *reserve = mode == CUDNN_FWD_MODE_TRAINING ? call.reserve_bytes() : 0;
  });
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                              const int32_t[], cudnnRNNDataDescriptor_t x, const void* x_data,
                              cudnnRNNDataDescriptor_t y, void* y_data, cudnnTensorDescriptor_t,
                              const void* h, void* next_h, cudnnTensorDescriptor_t, const void* c,
                              void* next_c, size_t, const void* weights, size_t bytes, void* workspace,
                              size_t reserve_bytes, void* reserve) {
  return guarded("cudnnRNNForward", [&] {
    const auto object = handle_at(handle);
    RnnCall call = call_of(rnn, x, y);
    call.has_h = h != nullptr;
    call.has_c = c != nullptr && call.has_cell();
    const RnnWanted wanted{.kept = mode == CUDNN_FWD_MODE_TRAINING,
                           .h = next_h != nullptr,
                           .c = next_c != nullptr && call.has_cell()};
    if (wanted.kept) expect_reserve(reserve, reserve_bytes, call);
    const PlanKey key =
        call.key("rnn").add(int64_t{wanted.kept}).add(int64_t{wanted.h}).add(int64_t{wanted.c});
    // A step of training compiles both passes at the same time.
    std::future<void> backward;
    const fusor::Precision precision = precision_of(call.rnn.math);
    const auto plan = plan_for(*object, key, precision, [&](Sketch& s) {
      sketch_forward(s, call, wanted);
      if (!wanted.kept) return;
      backward =
          plan_beside(*object, precision, [call, next = gradients_behind(call, wanted)](Sketch& other) {
            sketch_backward(other, call, next);
          });
    });
    const Padded padded = padded_in(workspace, bytes, call);
    std::byte* const kept = wanted.kept ? start_of(reserve) : nullptr;
    const void* input = x_data;
    if (call.is_packed()) {
      std::byte* const room = wanted.kept ? kept : padded.input;
      pad(*object, call, call.x.size, x_data, room);
      input = room;
    }
    Bindings bindings;
    bindings.bind(kX, input).bind(kY, call.is_packed() ? padded.output : y_data);
    bindings.bind(kH, h).bind(kC, c).bind(kNextH, next_h).bind(kNextC, next_c);
    bind_lengths(bindings, call);
    if (wanted.kept) {
      bind_kept(bindings, call, kept);
      if (call.drops()) draw_numbers(*object, call, kept);
    }
    bind_weights(bindings, call, kWeight, weights);
    run_call(*object, *plan, bindings);
    if (call.is_packed()) pack(*object, call, call.y.size, padded.output, y_data);
  });
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t[],
                                      cudnnRNNDataDescriptor_t y, const void*, const void* dy,
                                      cudnnRNNDataDescriptor_t x, void* dx, cudnnTensorDescriptor_t,
                                      const void* h, const void* dnext_h, void* dh, cudnnTensorDescriptor_t,
                                      const void* c, const void* dnext_c, void* dc, size_t,
                                      const void* weights, size_t bytes, void* workspace,
                                      size_t reserve_bytes, void* reserve) {
  return guarded("cudnnRNNBackwardData_v8", [&] {
    const auto object = handle_at(handle);
    RnnCall call = call_of(rnn, x, y);
    expect_reserve(reserve, reserve_bytes, call);
    call.has_h = h != nullptr;
    call.has_c = c != nullptr && call.has_cell();
    // Gradients of states that were left out have nowhere to go.
    const RnnGradientsWanted wanted{.has_dh = dnext_h != nullptr,
                                    .has_dc = dnext_c != nullptr && call.has_cell(),
                                    .tells_h = dh != nullptr && call.has_h,
                                    .tells_c = dc != nullptr && call.has_c};
    PlanKey key = call.key("rnn backward");
    for (const bool is : {wanted.has_dh, wanted.has_dc, wanted.tells_h, wanted.tells_c}) key.add(int64_t{is});
    const auto plan = plan_for(*object, key, precision_of(call.rnn.math),
                               [&](Sketch& s) { sketch_backward(s, call, wanted); });
    const Padded padded = padded_in(workspace, bytes, call);
    if (call.is_packed()) pad(*object, call, call.y.size, dy, padded.output);
    std::byte* const kept = start_of(reserve);
    Bindings bindings;
    bindings.bind(kDy, call.is_packed() ? padded.output : dy);
    bindings.bind(kDx, call.is_packed() ? padded.input : dx).bind(kH, h).bind(kC, c);
    bindings.bind(kDnextH, dnext_h).bind(kDnextC, dnext_c).bind(kDh, dh).bind(kDc, dc);
    bind_lengths(bindings, call);
    bind_kept(bindings, call, kept);
    bind_weights(bindings, call, kWeight, weights);
    bind_weights(bindings, call, kDweight, kept + call.dweight_offset());
    run_call(*object, *plan, bindings);
    if (call.is_packed()) pack(*object, call, call.x.size, padded.input, dx);
  });
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         cudnnWgradMode_t mode, const int32_t[], cudnnRNNDataDescriptor_t x,
                                         const void*, cudnnTensorDescriptor_t, const void*,
                                         cudnnRNNDataDescriptor_t y, const void*, size_t, void* dweights,
                                         size_t, void*, size_t reserve_bytes, void* reserve) {
  return guarded("cudnnRNNBackwardWeights_v8", [&] {
    const auto object = handle_at(handle);
    const RnnCall call = call_of(rnn, x, y);
    expect_reserve(reserve, reserve_bytes, call);
    const TensorObject all = call.packed({weight_count(call.rnn)});
    const bool adds = mode == CUDNN_WGRAD_MODE_ADD;
    const PlanKey key = PlanKey("rnn weights").add(int64_t{adds}).add(all);
    const auto plan = plan_for(*object, key, fusor::Precision::exact,
                               [&](Sketch& s) { sketch_weight_gradients(s, all, adds); });
    Bindings bindings;
    bindings.bind(kDweight, start_of(reserve) + call.dweight_offset()).bind(kSum, dweights);
    bindings.bind(Sketch::held(kSum), dweights);
    run_call(*object, *plan, bindings);
  });
}

}  // extern "C"
