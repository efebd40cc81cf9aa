// Where and how a model runs: what the program asks on its command line, and libfourfold_engine of its
// caller.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fourfold::library {

// Ranks on other machines: where they are, and how they come. library/node_ranks.h.
struct NodeOptions {
  // Hosts that ranks 1 and up are started on, by ssh or (localhost) here; empty: they come by themselves.
  std::vector<std::string> hosts;
  std::string listen;               // HOST:PORT; empty: chosen by the hosts
  std::string token_file;           // empty: one is drawn, for ranks that are started from here
  std::string program;              // fourfold on the hosts
  std::string collective = "auto";  // how GPUs meet: tcp or nccl
  std::string model;                // as other machines know it
  std::string version;              // of this program
  // One line: who came, who was refused, who is lost.
  std::function<void(const std::string& line)> log = {};
  // Whether ranks that are waited for at the start are still wanted; asked from any thread, a few times a
  // second.
  std::function<bool()> is_stopped = {};
};

struct BackendOptions {
  std::string backend = "cpu";  // cpu, cuda, sim or reference
  std::string activations = "auto";
  bool allow_emulated = false;  // FP4 activations also where the chip has no instruction for them: proofs
  std::string kv = "auto";      // keys and values: bf16, fp8 or as the activations are
  int threads = 0;              // 0: one per core
  std::optional<double> memory_fraction = std::nullopt;  // GPU: of its memory, what may be used
  bool explain = false;  // GPU: say which kernels a step of each new shape runs with
  // GPU: told the same, for whoever shows it elsewhere; by several ranks' threads at once where their kernels
  // are not the same.
  std::function<void(const std::string& text)> on_kernels = {};
  bool strict = false;       // notices are errors
  std::string tuned = {};    // a tuning file, or none; empty: those of the program and of the user
  bool keep_values = false;  // Prepared::value answers; the reference backend always does
  // cuda and sim.
  std::string dense = "keep";  // fp8, nvfp4: quantise the 16-bit matrices that are no routed experts
  std::string cache = {};      // a folder for packed copies; empty: none
  bool rebuild_cache = false;
  int tp = 1;                    // ranks that hold a part of the model each
  std::string experts = "auto";  // of several ranks: tp (a part of each expert), ep (some of the experts)
  std::optional<NodeOptions> nodes = std::nullopt;  // ranks but the first are elsewhere
};

}  // namespace fourfold::library
