#include "events/kv_batch.h"

#include <string_view>

#include "events/msgpack.h"

namespace fourfold::events {
namespace {

using schedule::BlockEvent;

// Where the blocks are, for consumers that know several tiers. There is one here, and "GPU" is their name for
// the first, whatever it is made of.
constexpr std::string_view kMedium = "GPU";

// An event's fields in the order of an array; a map has their names as well.
class FieldWriter {
 public:
  FieldWriter(std::string& out, EventForm form, std::string_view tag, std::size_t field_count)
      : pack(out), has_names_(form == EventForm::map) {
    if (has_names_)
      pack.map(1 + field_count);
    else
      pack.array(1 + field_count);
    field("type").text(tag);
  }
  MsgpackWriter& field(std::string_view name) {
    if (has_names_) pack.text(name);
    return pack;
  }
  void none(std::string_view name) { field(name).nil(); }
  template <class Numbers>
  void naturals(std::string_view name, const Numbers& numbers) {
    field(name).array(numbers.size());
    for (const auto number : numbers) pack.natural(static_cast<std::uint64_t>(number));
  }

  MsgpackWriter pack;

 private:
  bool has_names_;
};

// A block whose contents depend on tokens behind it: one list of them for each block.
void write_lookahead(FieldWriter& fields, const BlockEvent& event) {
  const std::size_t each = event.lookahead.size() / event.blocks.size();
  fields.field("lookahead_token_ids").array(event.blocks.size());
  for (std::size_t block = 0; block < event.blocks.size(); ++block) {
    fields.pack.array(each);
    for (std::size_t i = 0; i < each; ++i)
      fields.pack.natural(static_cast<std::uint64_t>(event.lookahead[block * each + i]));
  }
}

void write_stored(std::string& out, const BlockEvent& event, const BatchFacts& facts) {
  // A newcomer among the fields: whoever reads arrays does not know it.
  const bool looks_ahead = !event.lookahead.empty() && facts.form == EventForm::map;
  FieldWriter fields(out, facts.form, "BlockStored", looks_ahead ? 9 : 8);
  fields.naturals("block_hashes", event.blocks);
  if (event.parent)
    fields.field("parent_block_hash").natural(*event.parent);
  else
    fields.none("parent_block_hash");
  fields.naturals("token_ids", event.tokens);
  fields.field("block_size").natural(static_cast<std::uint64_t>(facts.block_tokens));
  fields.none("lora_id");
  fields.field("medium").text(kMedium);
  fields.none("lora_name");
  if (event.salt.empty()) {
    fields.none("extra_keys");
  } else {  // of the first block; those behind it stand on it
    fields.field("extra_keys").array(event.blocks.size());
    fields.pack.array(1);
    fields.pack.text(event.salt);
    for (std::size_t block = 1; block < event.blocks.size(); ++block) fields.pack.nil();
  }
  if (looks_ahead) write_lookahead(fields, event);
}

void write_event(std::string& out, const BlockEvent& event, const BatchFacts& facts) {
  switch (event.kind) {
    case BlockEvent::Kind::stored: return write_stored(out, event, facts);
    case BlockEvent::Kind::removed: {
      FieldWriter fields(out, facts.form, "BlockRemoved", 2);
      fields.naturals("block_hashes", event.blocks);
      fields.field("medium").text(kMedium);
      return;
    }
    case BlockEvent::Kind::cleared: FieldWriter(out, facts.form, "AllBlocksCleared", 0); return;
  }
}

}  // namespace

std::string kv_batch(std::span<const BlockEvent> events, const BatchFacts& facts) {
  std::string out;
  MsgpackWriter pack(out);
  pack.array(3);
  pack.real(facts.seconds);
  pack.array(events.size());
  for (const BlockEvent& event : events) write_event(out, event, facts);
  pack.natural(0);  // the data-parallel rank
  return out;
}

}  // namespace fourfold::events
