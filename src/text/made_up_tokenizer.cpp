#include "text/made_up_tokenizer.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json_writer.h"

namespace fourfold::text {
namespace {

struct Special {
  std::string_view content;
  bool special;
};

// In the order of their ids, which begin at kPublishedFirst in the published vocabulary.
constexpr Special kSpecials[] = {
    {"<|endoftext|>", true},      {"<|im_start|>", true},
    {"<|im_end|>", true},         {"<|object_ref_start|>", true},
    {"<|object_ref_end|>", true}, {"<|box_start|>", true},
    {"<|box_end|>", true},        {"<|quad_start|>", true},
    {"<|quad_end|>", true},       {"<|vision_start|>", true},
    {"<|vision_end|>", true},     {"<|vision_pad|>", true},
    {"<|image_pad|>", true},      {"<|video_pad|>", true},
    {"<tool_call>", false},       {"</tool_call>", false},
    {"<|fim_prefix|>", false},    {"<|fim_middle|>", false},
    {"<|fim_suffix|>", false},    {"<|fim_pad|>", false},
    {"<|repo_name|>", false},     {"<|file_sep|>", false},
    {"<tool_response>", false},   {"</tool_response>", false},
    {"<think>", false},           {"</think>", false},
    {"<|audio_start|>", true},    {"<|audio_end|>", true},
    {"<tts_pad>", true},          {"<tts_text_bos>", true},
    {"<tts_text_eod>", true},     {"<tts_text_bos_single>", true},
    {"<|audio_pad|>", true},
};
constexpr std::int64_t kSpecialCount = static_cast<std::int64_t>(std::size(kSpecials));
constexpr std::int64_t kPublishedFirst = 248044;
constexpr std::string_view kConsonants = "bdfgklmnprstvz";
constexpr std::string_view kVowels = "aeiou";

constexpr std::string_view kSplit = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                                    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::int64_t first_special(std::int64_t vocab_size) {
  const std::int64_t least = 256 + kSpecialCount;
  if (vocab_size < least)
    fail(Code::invalid_request, "a vocabulary of {} has no room for 256 bytes and {} special tokens",
         vocab_size, kSpecialCount);
  return std::min(vocab_size - kSpecialCount, kPublishedFirst);
}

// GPT-2's printable character for a byte, as UTF-8.
std::string written_byte(int byte) {
  const auto is_itself = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!is_itself(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += is_itself(b) ? 0 : 1;
  }
  if (code < 128) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

// Tokens in the order of their ids, and the merges that make all but the bytes.
class Words {
 public:
  explicit Words(std::int64_t count) : count_(static_cast<std::size_t>(count)) {
    for (int byte = 0; byte < 256; ++byte) tokens_.push_back(written_byte(byte));
    std::vector<std::string> syllables;
    for (const char consonant : kConsonants)
      for (const char vowel : kVowels) {
        merge(std::string(1, consonant), std::string(1, vowel));
        syllables.push_back({consonant, vowel});
      }
    const std::string space = written_byte(' ');
    std::vector<std::string> longest = syllables;
    for (const std::string& syllable : syllables) {
      merge(space, syllable);
      longest.push_back(space + syllable);
    }
    // Each round appends every syllable to every word of the round before, until the vocabulary is full.
    while (tokens_.size() < count_) {
      std::vector<std::string> longer;
      for (const std::string& word : longest)
        for (const std::string& syllable : syllables) {
          merge(word, syllable);
          if (tokens_.size() >= count_) return;
          longer.push_back(word + syllable);
        }
      longest = std::move(longer);
    }
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<std::array<std::string, 2>>& merges() const { return merges_; }

 private:
  void merge(const std::string& left, const std::string& right) {
    if (tokens_.size() >= count_) return;
    merges_.push_back({left, right});
    tokens_.push_back(left + right);
  }

  std::size_t count_;
  std::vector<std::string> tokens_;
  std::vector<std::array<std::string, 2>> merges_;
};

void write_added_tokens(JsonWriter& json, std::int64_t first) {
  json.key("added_tokens").begin_array();
  for (const Special& token : kSpecials) {
    json.begin_object().member("id", first++).member("content", token.content);
    json.member("single_word", false).member("lstrip", false).member("rstrip", false);
    json.member("normalized", false).member("special", token.special).end_object();
  }
  json.end_array();
}

void write_byte_level(JsonWriter& json) {
  json.begin_object().member("type", "ByteLevel").member("add_prefix_space", false);
  json.member("trim_offsets", false).member("use_regex", false).end_object();
}

}  // namespace

MadeUpTokens made_up_tokens(std::int64_t vocab_size) {
  const std::int64_t first = first_special(vocab_size);
  return {static_cast<TokenId>(first), static_cast<TokenId>(first + 2), first + kSpecialCount};
}

std::string make_tokenizer_json(std::int64_t vocab_size) {
  const std::int64_t first = first_special(vocab_size);
  const Words words(first);
  JsonWriter json;
  json.begin_object().member("version", "1.0").member("truncation", nullptr).member("padding", nullptr);
  write_added_tokens(json, first);
  json.key("normalizer").begin_object().member("type", "NFC").end_object();
  json.key("pre_tokenizer").begin_object().member("type", "Sequence").key("pretokenizers").begin_array();
  json.begin_object().member("type", "Split").key("pattern").begin_object().member("Regex", kSplit);
  json.end_object().member("behavior", "Isolated").member("invert", false).end_object();
  write_byte_level(json);
  json.end_array().end_object().member("post_processor", nullptr).key("decoder");
  write_byte_level(json);
  json.key("model").begin_object().member("type", "BPE").member("dropout", nullptr);
  json.member("unk_token", nullptr).member("continuing_subword_prefix", nullptr);
  json.member("end_of_word_suffix", nullptr).member("fuse_unk", false).member("byte_fallback", false);
  json.member("ignore_merges", false).key("vocab").begin_object();
  std::int64_t id = 0;
  for (const std::string& token : words.tokens()) json.member(token, id++);
  json.end_object().key("merges").begin_array();
  for (const auto& [left, right] : words.merges())
    json.begin_array().value(std::string_view(left)).value(std::string_view(right)).end_array();
  return json.end_array().end_object().end_object().finish();
}

std::string make_chat_template() {
  return R"({%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.content is string %}
        {{- message.content | trim }}
    {%- elif message.content %}
        {%- for part in message.content %}{{- part.text }}{%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}
)";
}

std::string make_tokenizer_config() {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("tokenizer_class", "PreTrainedTokenizerFast");
  json.member("eos_token", "<|im_end|>").member("pad_token", "<|endoftext|>");
  json.member("bos_token", nullptr).member("clean_up_tokenization_spaces", false);
  return json.end_object().finish() + "\n";
}

std::string make_generation_config(std::int64_t vocab_size) {
  const MadeUpTokens tokens = made_up_tokens(vocab_size);
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("do_sample", true).member("temperature", 0.6).member("top_p", 0.95);
  json.member("top_k", 20).member("pad_token_id", tokens.end_of_text).key("eos_token_id").begin_array();
  json.value(tokens.end_of_turn).value(tokens.end_of_text).end_array();
  return json.end_object().finish() + "\n";
}

}  // namespace fourfold::text
