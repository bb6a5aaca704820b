// Owns what a kernel says to the launches before and after it. From sm_90 on, launches of a plan overlap: the
// blocks of one take the SMs that those of the launch in front leave, get ready, and wait.
//
//   launch A   ▒▒▒▒▒▒▒▒▒▒▒▒
//   launch B            ░░░░▒▒▒▒▒▒▒▒▒▒          ░ its blocks are there, and wait    ▒ they work
//   launch C              ▒▒▒▒▒▒▒▒▒▒▒░          C is told that it runs beside B: it waits where it ends
//   launch D                          ░░▒▒▒▒▒
//
// A launch begins when all blocks of the one in front have called let_next_launch_begin(), or have ended.
// Where B does so behind its own wait, C finds A ended. Where C has ended, so have all launches in front of
// it.
#pragma once

#include "codegen/device/base/types.cuh"

/// Returns when the launch in front has ended and what it wrote can be seen; at once where launches do not
/// overlap. The compiler moves no loads of read-only memory across it, as it moves none out of a branch, and
/// does not know that this one is never taken. The assembler does, and may move them: this is for kernels
/// that read nothing behind it, and for those of roles, whose loads come behind a barrier (an end of the
/// thread in front of their products would cost these registers).
FUSOR_DEVICE void wait_for_end_before() {
  if constexpr (Config::arch >= 900) {
    u32 has_ended;
    asm volatile("griddepcontrol.wait;\nmov.u32 %0, 1;" : "=r"(has_ended)::"memory");
    if (has_ended == 0) __trap();
  }
}

/// The same in front of loads: nothing may be read before that the launch in front writes, and nothing
/// written at all.
FUSOR_DEVICE void wait_for_launch_before() {
  if constexpr (Config::arch >= 900) {
    // No load moves across an end of the thread: how many blocks there are is known when a kernel runs, and
    // never 0.
    u32 blocks;
    asm volatile("griddepcontrol.wait;\nmov.u32 %0, %%nctaid.x;" : "=r"(blocks)::"memory");
    if (blocks == 0) {
      asm volatile("exit;");
      __builtin_unreachable();
    }
  }
}

/// Where all blocks have said so, the launch behind this one may begin where there is room.
FUSOR_DEVICE void let_next_launch_begin() {
  if constexpr (Config::arch >= 900) asm volatile("griddepcontrol.launch_dependents;");
}

/// Opens a kernel that always waits: it is called before memory is read.
FUSOR_DEVICE void enter_launch() {
  wait_for_launch_before();
  let_next_launch_begin();
}

// The parameter `turn` (LaunchTurn of core/lowered.h).
enum : u32 { kWaits = 0, kRunsBeside = 1, kInOrder = 2, kAlone = 3, kReadsAhead = 4 };

/// Whether a launch that is told its turn waits where it begins. Kernels that may run beside the launches in
/// front of them call leave_launch(), too.
template <class Params>
FUSOR_DEVICE bool waits_for_turn(const Params& p) {
  return Config::arch < 900 || p.turn == kWaits || p.turn == kReadsAhead;
}

/// Opens a kernel that is told its turn: it is called before memory is read. Where `lets_next` is false, the
/// kernel says itself when the next launch may begin.
template <class Params>
FUSOR_DEVICE void enter_launch(const Params& p, bool lets_next = true) {
  if (waits_for_turn(p)) wait_for_launch_before();
  if (lets_next && p.turn != kAlone) let_next_launch_begin();
}

/// By any thread of the first block, where it ends.
template <class Params>
FUSOR_DEVICE void leave_launch(const Params& p) {
  if (Config::arch < 900 || p.turn != kRunsBeside) return;
  if ((blockIdx.x | blockIdx.y | blockIdx.z) == 0) wait_for_end_before();
}
