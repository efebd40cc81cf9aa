// Block events in the words of vLLM's KVEventBatch, MessagePack: what routers and indexers of KV caches read.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "schedule/block_event.h"

namespace fourfold::events {

// How an event is laid out: vLLM has had both.
enum class EventForm {
  map,    // {"type": "BlockStored", "block_hashes": ...}, as vLLM writes it now
  array,  // ["BlockStored", block_hashes, ...], as vLLM wrote it before, and SGLang does
};

struct BatchFacts {
  double seconds = 0;  // since 1970
  std::int64_t block_tokens = 0;
  EventForm form = EventForm::map;
};

std::string kv_batch(std::span<const schedule::BlockEvent> events, const BatchFacts& facts);

}  // namespace fourfold::events
