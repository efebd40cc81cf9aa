#include "text/harmony.h"

#include <algorithm>

namespace fourfold::text {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kConstrain = "<|constrain|>",
                           kMessage = "<|message|>";
constexpr std::string_view kEnds[] = {"<|end|>", "<|return|>", "<|call|>"};
constexpr std::string_view kReceiver = "to=";
constexpr std::size_t kHeaderBytesMax = 1024;  // what is longer is no header

TokenId id_of(const Tokenizer& tokenizer, std::string_view token) {
  return tokenizer.added_token(token).value_or(-1);
}

const ToolSchemas& no_schemas() {
  static const ToolSchemas none;
  return none;
}

// The word behind `mark`; empty where it is not there.
std::string_view word_behind(std::string_view header, std::string_view mark) {
  const std::size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  const std::size_t begin = at + mark.size();
  return header.substr(begin, header.find_first_of(" \t\r\n<", begin) - begin);
}

}  // namespace

HarmonyReader::HarmonyReader(const Tokenizer& tokenizer, std::span<const TokenId> prompt, bool reads_calls)
    : start_(id_of(tokenizer, kStart)),
      channel_(id_of(tokenizer, kChannel)),
      constrain_(id_of(tokenizer, kConstrain)),
      message_(id_of(tokenizer, kMessage)),
      reads_calls_(reads_calls),
      calls_(no_schemas()) {
  for (const std::string_view end : kEnds) ends_.push_back(id_of(tokenizer, end));
  for (const TokenId id : last_header(prompt, tokenizer)) push(id, tokenizer.token_bytes(id));
  loose_.clear();
  apart_ = false;
  last_ = Part::header;
}

HarmonyPiece HarmonyReader::push(TokenId id, std::string_view text) {
  HarmonyPiece out;
  if (id == start_) {
    end_message();
  } else if (id == channel_) {
    // Some answers forget to end the message before.
    if (part_ != Part::header) end_message();
    header_ += kChannel;
  } else if (id == constrain_) {
    if (part_ == Part::header) header_ += kConstrain;
  } else if (id == message_) {
    if (part_ == Part::header) begin_message();
  } else if (std::ranges::find(ends_, id) != ends_.end()) {
    end_message();
  } else {
    add(text, out);
  }
  for (ToolEvent& event : calls_.take()) out.calls.push_back(std::move(event));
  return out;
}

void HarmonyReader::add(std::string_view text, HarmonyPiece& out) {
  if (text.empty()) return;
  switch (part_) {
    case Part::header:
      header_ += text;
      loose_ += text;
      if (header_.size() <= kHeaderBytesMax) return;
      part_ = Part::content;
      out.content += loose_;
      return;
    case Part::call:
      json_ += text;
      calls_.add_arguments(text);
      return;
    case Part::thinking:
    case Part::content: {
      std::string& said = part_ == Part::thinking ? out.thinking : out.content;
      if (apart_) said += "\n\n";
      apart_ = false;
      last_ = part_;
      said += text;
    }
  }
}

void HarmonyReader::begin_message() {
  std::string_view receiver = word_behind(header_, kReceiver);
  constexpr std::string_view space = marks_of(CallFormat::harmony).before_name;
  if (receiver.starts_with(space)) receiver.remove_prefix(space.size());
  json_.clear();
  if (reads_calls_ && is_call_name(receiver)) {
    part_ = last_ = Part::call;
    calls_.begin_call(std::string(receiver));
    return;
  }
  part_ = word_behind(header_, kChannel) == "analysis" ? Part::thinking : Part::content;
  apart_ = part_ == last_;
}

void HarmonyReader::end_message() {
  if (part_ == Part::call) {
    if (json_.find_first_not_of(" \t\r\n") == std::string::npos) {
      calls_.end_call();  // of no arguments
    } else if (is_json_object(json_)) {
      calls_.end_json_call();
    } else {
      calls_.leave_call();  // half a call is not run
    }
  }
  begin_header();
}

HarmonyPiece HarmonyReader::finish(bool cut_off) {
  HarmonyPiece out;
  // An answer without channels is said.
  if (part_ == Part::header && header_.find(kChannel) == std::string::npos) out.content = loose_;
  if (part_ == Part::call && !cut_off) end_message();
  for (ToolEvent& event : calls_.take()) out.calls.push_back(std::move(event));
  begin_header();
  return out;
}

std::vector<TokenId> last_header(std::span<const TokenId> prompt, const Tokenizer& tokenizer) {
  const TokenId start = id_of(tokenizer, kStart), message = id_of(tokenizer, kMessage);
  const auto last = std::find(prompt.rbegin(), prompt.rend(), start);
  if (start < 0 || message < 0 || id_of(tokenizer, kChannel) < 0 || last == prompt.rend()) return {};
  std::vector<TokenId> out;
  bool in_header = true;
  for (const TokenId id : prompt.subspan(static_cast<std::size_t>(prompt.rend() - last) - 1)) {
    if (in_header || tokenizer.is_special(id)) out.push_back(id);
    in_header = in_header && id != message;
  }
  return out;
}

}  // namespace fourfold::text
