#include "nodes/messages.h"

namespace fourfold::nodes {
namespace {

// Every field of these goes over the wire by name. One more changes a size: then it is added here, and
// kProtocol counts up.
static_assert(sizeof(backend::SequenceRows) == 40 && sizeof(backend::Choice) == 72 &&
              sizeof(backend::SeenToken) == 16 && sizeof(backend::Capacity) == 40 &&
              sizeof(backend::Batch) == 5 * sizeof(std::span<const int>));

template <class T>
T get_enum(ByteReader& in, T last) {
  const auto number = in.get<std::uint32_t>();
  if (number > static_cast<std::uint32_t>(last))
    fail(Code::io, "a message has {} where at most {} can be", number, static_cast<std::uint32_t>(last));
  return static_cast<T>(number);
}

bool get_flag(ByteReader& in) { return in.get<std::uint8_t>() != 0; }
void put_flag(ByteWriter& out, bool flag) { out.put(static_cast<std::uint8_t>(flag ? 1 : 0)); }

// At least one byte each: what is announced has been sent.
template <class T, class Read>
std::vector<T> get_each(ByteReader& in, Read read) {
  std::vector<T> values(in.count(1));
  for (T& value : values) value = read();
  return values;
}

void put(ByteWriter& out, const backend::SequenceRows& rows) {
  out.put(rows.row_count).put(rows.position).put(rows.state_slot).put(rows.page_begin).put(rows.page_count);
  out.put(static_cast<std::uint32_t>(rows.role)).put(rows.draft_row_count);
}

backend::SequenceRows get_rows(ByteReader& in) {
  backend::SequenceRows rows;
  rows.row_count = in.get<std::int32_t>();
  rows.position = in.get<std::int64_t>();
  rows.state_slot = in.get<std::int32_t>();
  rows.page_begin = in.get<std::int32_t>();
  rows.page_count = in.get<std::int32_t>();
  rows.role = get_enum(in, backend::Role::decode);
  rows.draft_row_count = in.get<std::int32_t>();
  return rows;
}

void put(ByteWriter& out, const backend::Choice& choice) {
  put_flag(out, choice.wants_logits);
  put_flag(out, choice.has_history);
  out.put(choice.top_k).put(choice.seed);
  for (const double number : {choice.temperature, choice.top_p, choice.min_p, choice.repetition_penalty,
                              choice.presence_penalty, choice.frequency_penalty})
    out.put(number);
}

backend::Choice get_choice(ByteReader& in) {
  backend::Choice choice;
  choice.wants_logits = get_flag(in);
  choice.has_history = get_flag(in);
  choice.top_k = in.get<std::int64_t>();
  choice.seed = in.get<std::uint64_t>();
  for (double* number : {&choice.temperature, &choice.top_p, &choice.min_p, &choice.repetition_penalty,
                         &choice.presence_penalty, &choice.frequency_penalty})
    *number = in.get<double>();
  return choice;
}

}  // namespace

Bytes ModelSums::bytes() const { return ByteWriter().put(headers).put(samples).put(config).take(); }

ModelSums ModelSums::read(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  ModelSums sums;
  for (std::uint64_t* sum : {&sums.headers, &sums.samples, &sums.config}) *sum = in.get<std::uint64_t>();
  in.require_end();
  return sums;
}

std::string_view difference(const ModelSums& a, const ModelSums& b) {
  if (a.config != b.config) return "its config.json or hf_quant_config.json differs";
  if (a.headers != b.headers) return "its tensors differ";
  if (a.samples != b.samples) return "its weights differ";
  return "";
}

Bytes TensorSums::bytes() const { return ByteWriter().put_list<std::uint64_t>(tensors).take(); }

TensorSums TensorSums::read(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TensorSums sums{in.get_list<std::uint64_t>()};
  in.require_end();
  return sums;
}

std::string difference(const TensorSums& a, const TensorSums& b,
                       const std::function<std::string(std::size_t tensor)>& name) {
  if (a.tensors.size() != b.tensors.size())
    return format("there are {} tensors and not {}", b.tensors.size(), a.tensors.size());
  std::size_t first = 0, count = 0;
  for (std::size_t i = a.tensors.size(); i-- > 0;)
    if (a.tensors[i] != b.tensors[i]) first = i, ++count;
  if (count == 0) return {};
  return format("{} differs{}", name(first),
                count == 1 ? "" : format(", and {} more of {} tensors", count - 1, a.tensors.size()));
}

Bytes Settings::bytes() const {
  ByteWriter out;
  out.put(rank).put(rank_count);
  for (const std::string* text :
       {&model, &backend, &activations, &kv, &experts, &dense, &tuned, &collective, &isa, &machine})
    out.put_text(*text);
  out.put(memory_fraction);
  for (const std::int64_t number : {capacity.page_count, capacity.page_tokens, capacity.state_slot_count,
                                    capacity.row_count, capacity.anchor_count})
    out.put(number);
  return out.take();
}

Settings Settings::read(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Settings out;
  out.rank = in.get<std::int32_t>();
  out.rank_count = in.get<std::int32_t>();
  for (std::string* text : {&out.model, &out.backend, &out.activations, &out.kv, &out.experts, &out.dense,
                            &out.tuned, &out.collective, &out.isa, &out.machine})
    *text = in.get_text();
  out.memory_fraction = in.get<double>();
  for (std::int64_t* number :
       {&out.capacity.page_count, &out.capacity.page_tokens, &out.capacity.state_slot_count,
        &out.capacity.row_count, &out.capacity.anchor_count})
    *number = in.get<std::int64_t>();
  in.require_end();
  return out;
}

Bytes Loaded::bytes() const {
  ByteWriter out;
  out.put(anchor_bytes).put(static_cast<std::uint64_t>(memory.size()));
  for (const backend::MemoryUse& use : memory) out.put_text(use.what).put(use.bytes);
  out.put(static_cast<std::uint64_t>(notices.size()));
  for (const std::string& text : notices) out.put_text(text);
  return out.take();
}

Loaded Loaded::read(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Loaded out;
  out.anchor_bytes = in.get<std::int64_t>();
  out.memory = get_each<backend::MemoryUse>(in, [&] {
    std::string what = in.get_text();
    return backend::MemoryUse{std::move(what), in.get<std::int64_t>()};
  });
  out.notices = get_each<std::string>(in, [&] { return in.get_text(); });
  in.require_end();
  return out;
}

void Call::take(const backend::Batch& batch) {
  const auto copy = [](auto& to, const auto& from) { to.assign(from.begin(), from.end()); };
  copy(tokens, batch.tokens), copy(sequences, batch.sequences), copy(pages, batch.pages);
  copy(logits_rows, batch.logits_rows), copy(hidden_rows, batch.hidden_rows);
}

Bytes Call::bytes() const {
  ByteWriter out;
  out.put(static_cast<std::uint32_t>(task)).put(static_cast<std::uint32_t>(pass));
  for (const std::vector<std::int32_t>* list : {&tokens, &pages, &logits_rows, &hidden_rows, &counts})
    out.put_list(std::span(*list));
  out.put(static_cast<std::uint64_t>(sequences.size()));
  for (const backend::SequenceRows& rows : sequences) put(out, rows);
  out.put(static_cast<std::uint64_t>(choices.size()));
  for (const backend::Choice& choice : choices) put(out, choice);
  out.put(static_cast<std::uint64_t>(history.size()));
  for (const backend::SeenToken& seen : history) out.put(seen.token).put(seen.count).put(seen.bias);
  out.put(token_limit).put(slot).put(anchor).put(position).put(token_count).put(logit_count);
  return out.take();
}

Call Call::read(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Call out;
  out.task = get_enum(in, Task::restore_anchor);
  out.pass = get_enum(in, backend::Pass::draft);
  for (std::vector<std::int32_t>* list :
       {&out.tokens, &out.pages, &out.logits_rows, &out.hidden_rows, &out.counts})
    *list = in.get_list<std::int32_t>();
  out.sequences = get_each<backend::SequenceRows>(in, [&] { return get_rows(in); });
  out.choices = get_each<backend::Choice>(in, [&] { return get_choice(in); });
  out.history = get_each<backend::SeenToken>(in, [&] {
    const auto token = in.get<std::int32_t>(), count = in.get<std::int32_t>();
    return backend::SeenToken{token, count, in.get<double>()};
  });
  out.token_limit = in.get<std::int64_t>();
  out.slot = in.get<std::int32_t>();
  out.anchor = in.get<std::int32_t>();
  out.position = in.get<std::int64_t>();
  out.token_count = in.get<std::uint64_t>();
  out.logit_count = in.get<std::uint64_t>();
  in.require_end();
  return out;
}

Bytes Answer::bytes() const {
  ByteWriter out;
  put_flag(out, done);
  out.put_list(std::span<const std::int32_t>(tokens));
  put_flag(out, is_error);
  put_flag(out, is_of_no_rank);
  out.put(static_cast<std::uint32_t>(code)).put_text(message).put_text(hint);
  return out.take();
}

Answer Answer::read(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Answer out;
  out.done = get_flag(in);
  out.tokens = in.get_list<std::int32_t>();
  out.is_error = get_flag(in);
  out.is_of_no_rank = get_flag(in);
  out.code = get_enum(in, Code::internal);
  out.message = in.get_text();
  out.hint = in.get_text();
  in.require_end();
  return out;
}

Bytes PartHead::bytes() const {
  ByteWriter out;
  put_flag(out, gathers);
  put_flag(out, is_last);
  out.put(row_count).put_text(where);
  return out.take();
}

Part Part::read(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Part out;
  out.head.gathers = get_flag(in);
  out.head.is_last = get_flag(in);
  out.head.row_count = in.get<std::int64_t>();
  out.head.where = in.get_text();
  const std::span<const std::byte> values = in.left();
  if (values.size() % sizeof(float) != 0)
    fail(Code::io, "a part of {} bytes is no list of f32", values.size());
  out.values.resize(values.size() / sizeof(float));
  if (!values.empty()) std::memcpy(out.values.data(), values.data(), values.size());
  const auto rows = static_cast<std::uint64_t>(out.head.row_count);
  if (out.head.gathers && !out.values.empty() && (out.head.row_count < 1 || out.values.size() % rows != 0))
    fail(Code::io, "{} values in {} rows", out.values.size(), out.head.row_count);
  return out;
}

}  // namespace fourfold::nodes
