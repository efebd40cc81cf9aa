// What becomes of cached blocks, for whoever routes requests to where their beginnings are. A block is a page
// of the prefix index; its hash is a function of all tokens up to its end, and of the salt, so the same text
// has the same hashes in every process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fourfold::schedule {

using BlockHash = std::uint64_t;

struct BlockEvent {
  enum class Kind {
    stored,
    removed,
    cleared,  // nothing that was said before holds any more
  };
  Kind kind = Kind::cleared;
  std::vector<BlockHash> blocks = {};  // stored: each stands on the one before it
  // Of stored blocks:
  std::optional<BlockHash> parent = {};      // what the first one stands on
  std::vector<std::int32_t> tokens = {};     // of all of them
  std::vector<std::int32_t> lookahead = {};  // the tokens behind each block that its contents depend on too
  std::string salt = {};                     // of whoever may share it; said where there is no parent
};

// Hands over the events of a step, of blocks of so many tokens; called on the engine's thread, it must not
// wait. False: they were dropped, and the next call begins with `cleared` and says everything again.
using BlockSink = std::function<bool(std::vector<BlockEvent>&& events, std::int64_t block_tokens)>;

}  // namespace fourfold::schedule
