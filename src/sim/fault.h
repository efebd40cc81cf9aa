// What the simulated GPU found wrong with a kernel. A Fault ends the launch; its message names the kernel,
// the block, the warp and lane, the line of the kernel that did it, and the other party where there is one.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace fourfold::sim {

enum class FaultKind {
  out_of_bounds,    // an address outside its allocation, or outside the block's shared memory
  unwritten_read,   // bytes that were never written
  race,             // two accesses, at least one of them a write, with nothing that orders them
  proxy_race,       // ordinary writes read by wgmma or overwritten by the copy engine without a proxy fence
  late_read,        // a bulk copy overwrites what a load, which may still be on its way, has to read
  deadlock,         // no thread can run and no copy is in flight; also the step limit
  barrier_overrun,  // more arrivals than expected, or a phase completed under a waiter of the phase before
  barrier_misuse,   // not initialised, not fenced, read as data, completed with a copy in flight
  misaligned,       // an address or a size that is not a multiple of what the instruction needs
  divergent_collective,  // lanes of a warp (warps of a warpgroup) at different collectives
  predecessor_race,      // data of a grid that need not be complete yet (programmatic dependent launch)
  stale_read,            // complete by now, but an L1 may still have what was there before
  early_accumulator,     // an accumulator of wgmma touched, overlapped or left before a wait covered it
  changed_operand,       // a register operand of wgmma changed before a wait covered it
  leftover_copy,         // the block ended with copies in flight or bytes still expected
  shared_limit,          // more shared memory than the chip has, or than the launch asked for
  register_rule,         // setmaxnreg and wgmma.fence rules
  bad_descriptor,        // a wgmma descriptor the simulator cannot decode
  user_check,            // a claim of the kernel itself
};

constexpr std::string_view fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::out_of_bounds: return "out_of_bounds";
    case FaultKind::unwritten_read: return "unwritten_read";
    case FaultKind::race: return "race";
    case FaultKind::proxy_race: return "proxy_race";
    case FaultKind::late_read: return "late_read";
    case FaultKind::deadlock: return "deadlock";
    case FaultKind::barrier_overrun: return "barrier_overrun";
    case FaultKind::barrier_misuse: return "barrier_misuse";
    case FaultKind::misaligned: return "misaligned";
    case FaultKind::divergent_collective: return "divergent_collective";
    case FaultKind::predecessor_race: return "predecessor_race";
    case FaultKind::stale_read: return "stale_read";
    case FaultKind::early_accumulator: return "early_accumulator";
    case FaultKind::changed_operand: return "changed_operand";
    case FaultKind::leftover_copy: return "leftover_copy";
    case FaultKind::shared_limit: return "shared_limit";
    case FaultKind::register_rule: return "register_rule";
    case FaultKind::bad_descriptor: return "bad_descriptor";
    case FaultKind::user_check: return "user_check";
  }
  return "unknown";
}

// Where it happened; -1 and empty where the question has no answer (a host call, a copy that landed).
struct FaultPlace {
  std::string kernel;
  int block = -1;
  int warp = -1;
  int lane = -1;
  std::string file;  // last part of the path
  int line = 0;
};

class Fault : public std::exception {
 public:
  Fault(FaultKind kind, FaultPlace place, std::string detail)
      : kind_(kind), place_(std::move(place)), detail_(std::move(detail)) {
    compose();
  }
  FaultKind kind() const { return kind_; }
  const FaultPlace& place() const { return place_; }
  const std::string& detail() const { return detail_; }
  const char* what() const noexcept override { return text_.c_str(); }

  // For faults raised where the thread is not known (numeric members): fills in what is missing.
  void locate(std::string_view kernel, int block, int warp, int lane) {
    if (place_.block >= 0) return;
    place_.kernel = kernel;
    place_.block = block;
    place_.warp = warp;
    place_.lane = lane;
    compose();
  }

 private:
  void compose() {
    text_ = fault_name(kind_);
    if (!place_.kernel.empty()) text_ += " in " + place_.kernel;
    if (place_.block >= 0) text_ += ", block " + std::to_string(place_.block);
    if (place_.warp >= 0) text_ += ", warp " + std::to_string(place_.warp);
    if (place_.lane >= 0) text_ += " lane " + std::to_string(place_.lane);
    if (!place_.file.empty()) text_ += ", at " + place_.file + ":" + std::to_string(place_.line);
    text_ += ": " + detail_;
  }

  FaultKind kind_;
  FaultPlace place_;
  std::string detail_;
  std::string text_;
};

}  // namespace fourfold::sim
